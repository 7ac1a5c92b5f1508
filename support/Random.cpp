// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Philox, the normal quantile and a cosine, without libm.

#include "Random.h"
#include "Hash.h"
#include <cmath>

using namespace sparse_opt;

std::array<uint32_t, 4> sparse_opt::philox(std::array<uint32_t, 4> counter,
                                           std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    uint64_t a = uint64_t(0xd2511f53) * counter[0];
    uint64_t b = uint64_t(0xcd9e8d57) * counter[2];
    counter = {uint32_t(b >> 32) ^ counter[1] ^ key[0], uint32_t(b),
               uint32_t(a >> 32) ^ counter[3] ^ key[1], uint32_t(a)};
    key = {key[0] + 0x9e3779b9, key[1] + 0xbb67ae85};
  }
  return counter;
}

RandomStream::RandomStream(uint64_t seed, std::string_view what,
                           std::string_view name)
    : seed(seed) {
  Hasher hash;
  hash.add(what.data(), what.size());
  hash.add(":", 1);
  hash.add(name.data(), name.size());
  purpose = hash.value();
}

uint64_t RandomStream::bits(uint64_t counter) const {
  auto words = philox({uint32_t(counter), uint32_t(counter >> 32),
                       uint32_t(purpose), uint32_t(purpose >> 32)},
                      {uint32_t(seed), uint32_t(seed >> 32)});
  return words[0] | uint64_t(words[1]) << 32;
}

uint64_t RandomStream::below(uint64_t bound, uint64_t counter) const {
  return highProduct(bits(counter), bound);
}

double RandomStream::normal(uint64_t counter) const {
  return normalQuantile(double(2 * (bits(counter) >> 12) + 1) * 0x1p-53);
}

/// The polynomial with these coefficients, the highest power first, at `x`.
template <size_t N>
static double polynomial(const double (&coefficients)[N], double x) {
  double y = 0;
  for (double coefficient : coefficients)
    y = y * x + coefficient;
  return y;
}

/// The natural logarithm of `x` in (0, 1): x = m 2^e with m in [1/2, 1) or
/// twice that, log m = 2 artanh((m - 1) / (m + 1)).
static double logarithm(double x) {
  int exponent;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752) {
    m *= 2;
    --exponent;
  }
  double s = (m - 1) / (m + 1);
  static const double artanh[] = {1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                                  1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,
                                  1.0 / 3,  1.0};
  return exponent * 0.69314718055994531 + 2 * s * polynomial(artanh, s * s);
}

double sparse_opt::normalQuantile(double p) {
  static const double a[] = {2509.0809287301226727, 33430.575583588128105,
                             67265.770927008700853, 45921.953931549871457,
                             13731.693765509461125, 1971.5909503065514427,
                             133.14166789178437745, 3.3871328727963666080};
  static const double b[] = {5226.4952788528545610, 28729.085735721942674,
                             39307.895800092710610, 21213.794301586595867,
                             5394.1960214247511077, 687.18700749205790830,
                             42.313330701600911252, 1.0};
  static const double c[] = {
      7.74545014278341407640e-4, 2.27238449892691845833e-2,
      2.41780725177450611770e-1, 1.27045825245236838258,
      3.64784832476320460504,    5.76949722146069140550,
      4.63033784615654529590,    1.42343711074968357734};
  static const double d[] = {
      1.05075007164441684324e-9, 5.47593808499534494600e-4,
      1.51986665636164571966e-2, 1.48103976427480074590e-1,
      6.89767334985100004550e-1, 1.67638483018380384940,
      2.05319162663775882187,    1.0};
  static const double e[] = {
      2.01033439929228813265e-7, 2.71155556874348757815e-5,
      1.24266094738807843860e-3, 2.65321895265761230930e-2,
      2.96560571828504891230e-1, 1.78482653991729133580,
      5.46378491116411436990,    6.65790464350110377720};
  static const double f[] = {
      2.04426310338993978564e-15, 1.42151175831644588870e-7,
      1.84631831751005468180e-5,  7.86869131145613259100e-4,
      1.48753612908506148525e-2,  1.36929880922735805310e-1,
      5.99832206555887937690e-1,  1.0};

  double q = p - 0.5;
  if (std::fabs(q) <= 0.425) {
    double r = 0.180625 - q * q;
    return q * polynomial(a, r) / polynomial(b, r);
  }
  double r = std::sqrt(-logarithm(q < 0 ? p : 1 - p));
  double quantile = r <= 5 ? polynomial(c, r - 1.6) / polynomial(d, r - 1.6)
                           : polynomial(e, r - 5) / polynomial(f, r - 5);
  return q < 0 ? -quantile : quantile;
}

double sparse_opt::cosHalfPi(double t) {
  double x = 1.57079632679489662 * t;
  static const double cosine[] = {1.0 / 2432902008176640000.0,
                                  -1.0 / 6402373705728000.0,
                                  1.0 / 20922789888000.0,
                                  -1.0 / 87178291200.0,
                                  1.0 / 479001600.0,
                                  -1.0 / 3628800.0,
                                  1.0 / 40320.0,
                                  -1.0 / 720.0,
                                  1.0 / 24.0,
                                  -1.0 / 2.0,
                                  1.0};
  return std::fabs(polynomial(cosine, x * x));
}
