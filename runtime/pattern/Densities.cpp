// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How many blocks each matrix gets.

#include "base/Status.h"
#include <algorithm>
#include <cmath>
#include <vector>

using namespace sparse_opt;

double bsr_gmp_density(double start, double end, double t) {
  double rest = 1 - std::min(std::max(t, 0.0), 1.0);
  return end + (start - end) * (rest * rest * rest);
}

bsr_status bsr_erdos_renyi_densities(int64_t count, const int64_t *rows,
                                     const int64_t *cols,
                                     const int64_t *extents, double density,
                                     double *densities) {
  return guarded([&] {
    requireArgument(rows, "rows");
    requireArgument(cols, "cols");
    requireArgument(densities, "densities");
    if (count < 1)
      fail(BSR_INVALID_ARGUMENT, "expected at least 1 matrix, but got ", count);
    if (!(density >= 0 && density <= 1))
      fail(BSR_INVALID_ARGUMENT, "expected a density in [0, 1], but got ",
           density);
    std::vector<double> elements, sums;
    for (int64_t i = 0; i < count; ++i) {
      if (rows[i] < 1 || cols[i] < 1)
        fail(BSR_INVALID_ARGUMENT, "expected the sizes of matrix ", i,
             " to be positive, but got ", rows[i], "x", cols[i]);
      if (extents && extents[i] < 1)
        fail(BSR_INVALID_ARGUMENT, "expected the extents of matrix ", i,
             " to be positive, but got ", extents[i]);
      elements.push_back(double(rows[i]) * double(cols[i]));
      sums.push_back(extents ? double(extents[i])
                             : double(rows[i]) + double(cols[i]));
    }
    std::vector<bool> full(size_t(count), false);
    while (true) {
      // Sums of whole numbers, exact in any order of the matrices.
      double all = 0, filled = 0, sum = 0, most = 0;
      for (int64_t i = 0; i < count; ++i) {
        all += elements[i];
        if (full[i]) {
          filled += elements[i];
          continue;
        }
        sum += sums[i];
        most = std::max(most, sums[i] / elements[i]);
      }
      // The elements to distribute, less those of full matrices.
      double stored = density * all - filled;
      double scale = sum ? std::max(stored, 0.0) / sum : 0;
      if (scale * most <= 1) {
        for (int64_t i = 0; i < count; ++i)
          densities[i] = full[i] ? 1 : scale * sums[i] / elements[i];
        return;
      }
      for (int64_t i = 0; i < count; ++i)
        if (!full[i] && sums[i] / elements[i] == most)
          full[i] = true;
    }
  });
}

int64_t bsr_density_blocks(double density, int64_t allBlocks) {
  return std::max<int64_t>(1, std::llround(density * double(allBlocks)));
}
