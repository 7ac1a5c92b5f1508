// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads lengths of sequences from a configuration, and draws them.

#include "Lengths.h"
#include "Keys.h"
#include "support/Random.h"

#include <cmath>
#include <iterator>

using namespace sparse_opt;
using namespace sparse_opt::train;

/// The stream of the lengths that are drawn; those of data are 0 to 4.
static constexpr uint64_t lengthStream = 5;

/// Longer sequences no step has.
static constexpr int64_t longest = int64_t(1) << 31;

/// Reads a length; false if `node` is none.
static bool convertLength(const YAML::Node &node, int64_t &length) {
  return node.IsScalar() && parseInteger(node.Scalar(), length) &&
         length >= 1 && length <= longest;
}

std::string train::describe(const std::set<int64_t> &lengths) {
  std::string text;
  for (auto length = lengths.begin(); length != lengths.end(); ++length)
    text += (text.empty()                         ? ""
             : std::next(length) == lengths.end() ? " and "
                                                  : ", ") +
            std::to_string(*length);
  return text;
}

std::set<int64_t> LengthFiles::lengths() const {
  std::set<int64_t> lengths;
  for (const auto &[length, file] : files)
    lengths.insert(length);
  return lengths;
}

void LengthFiles::moveTo(const std::string &path) {
  for (auto &[length, file] : files)
    file = pathOf(file, path);
}

std::string LengthFiles::describe() const {
  std::string text;
  for (const auto &[length, file] : files)
    text += (text.empty() ? "" : ", ") + file;
  return text;
}

bool train::convert(const YAML::Node &node, const KeyRule &rule,
                    LengthFiles &files) {
  files = {};
  std::string file;
  if (!node.IsMap()) {
    if (!convert<std::string>(node, rule, file))
      return false;
    if (!file.empty())
      files.files[anyLength] = file;
    return true;
  }
  for (const auto &item : node) {
    int64_t length;
    if (!convertLength(item.first, length) ||
        !convert<std::string>(item.second, rule, file) || file.empty() ||
        !files.files.emplace(length, file).second)
      return false;
  }
  return true;
}

void train::emitValue(YAML::Emitter &out, const LengthFiles &files) {
  if (!files.haveLengths()) {
    out << YAML::DoubleQuoted
        << (files.empty() ? "" : files.files.at(anyLength));
    return;
  }
  out << YAML::Flow << YAML::BeginMap;
  for (const auto &[length, file] : files.files)
    out << YAML::Key << length << YAML::Value << YAML::DoubleQuoted << file;
  out << YAML::EndMap;
}

bool train::convert(const YAML::Node &node, const KeyRule &, Lengths &lengths) {
  lengths = {};
  if (!node.IsMap())
    return false;
  for (const auto &item : node) {
    int64_t first, length;
    std::map<int64_t, double> shares;
    if (!item.first.IsScalar() || !parseInteger(item.first.Scalar(), first) ||
        first < 0)
      return false;
    if (convertLength(item.second, length))
      shares[length] = 1;
    else if (!item.second.IsMap())
      return false;
    else
      for (const auto &share : item.second) {
        double value;
        if (!convertLength(share.first, length) ||
            !convert<double>(share.second, KeyRule(), value) || value <= 0 ||
            !std::isfinite(value) || !shares.emplace(length, value).second)
          return false;
      }
    if (shares.empty() || !lengths.phases.emplace(first, shares).second)
      return false;
  }
  return lengths.empty() || lengths.phases.count(0);
}

void train::emitValue(YAML::Emitter &out, const Lengths &lengths) {
  out << YAML::Flow << YAML::BeginMap;
  for (const auto &[first, shares] : lengths.phases) {
    out << YAML::Key << first << YAML::Value;
    if (shares.size() == 1) {
      out << shares.begin()->first;
      continue;
    }
    out << YAML::BeginMap;
    for (const auto &[length, share] : shares) {
      out << YAML::Key << length << YAML::Value;
      emitValue(out, share);
    }
    out << YAML::EndMap;
  }
  out << YAML::EndMap;
}

std::set<int64_t> Lengths::all() const {
  std::set<int64_t> all;
  for (const auto &[first, shares] : phases)
    for (const auto &[length, share] : shares)
      all.insert(length);
  return all;
}

int64_t Lengths::at(int64_t step, uint64_t seed) const {
  if (phases.empty())
    return anyLength;
  const auto &shares = std::prev(phases.upper_bound(step))->second;
  double sum = 0;
  for (const auto &[length, share] : shares)
    sum += share;
  constexpr double below = 1.0 / (uint64_t(1) << 53);
  SplitMix64 random(seed, lengthStream, uint64_t(step));
  double left = sum * below * double(random.next() >> 11);
  for (const auto &[length, share] : shares)
    if ((left -= share) < 0)
      return length;
  return shares.rbegin()->first; // where sums are rounded
}

int64_t Lengths::lastsUntil(int64_t step) const {
  auto next = phases.upper_bound(step);
  if (next != phases.begin() && std::prev(next)->second.size() > 1)
    return step + 1;
  return next == phases.end() ? INT64_MAX : next->first;
}

double Lengths::expected(int64_t steps, int64_t length) const {
  if (phases.empty())
    return double(steps);
  double all = 0;
  for (auto phase = phases.begin(); phase != phases.end(); ++phase) {
    auto next = std::next(phase);
    int64_t end = next == phases.end() ? steps : std::min(next->first, steps);
    double sum = 0, own = 0;
    for (const auto &[other, share] : phase->second) {
      sum += share;
      own += other == length ? share : 0;
    }
    all += own / sum * double(std::max<int64_t>(end - phase->first, 0));
  }
  return all;
}

int64_t LengthCounts::before(int64_t step, int64_t length) {
  if (step < counted) {
    counted = 0;
    counts.clear();
  }
  while (counted < step) {
    int64_t end = std::min(lengths.lastsUntil(counted), step);
    counts[lengths.at(counted, seed)] += end - counted;
    counted = end;
  }
  return counts[length];
}
