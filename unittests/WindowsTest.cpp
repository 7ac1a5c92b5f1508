// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which concatenations are windows of images in a line.

#include "bsr/Analysis/Windows.h"
#include "Parse.h"
#include "bsr/Dialect/BSR.h"

using namespace mlir;
using namespace mlir::bsr;

using WindowsTest = bsr::test::ModuleTest;

/// A product with slices of a line from `offsets` on, and `more` that reads it.
static std::string getText(ArrayRef<int64_t> offsets, StringRef more = "") {
  std::string text;
  llvm::raw_string_ostream os(text);
  int64_t count = offsets.size(), columns = 2 * count;
  os << "!pattern = !bsr.pattern<" << columns << "x4, block = 2x2, slots = 2>\n"
     << "func.func @f(%p: !pattern, %w: tensor<2x2x2xf32>, %line: "
        "tensor<2x64xf32>) -> tensor<4x32xf32> {\n";
  for (auto [number, offset] : llvm::enumerate(offsets))
    os << "%s" << number << " = tensor.extract_slice %line[0, " << offset
       << "] [2, 32] [1, 1] : tensor<2x64xf32> to tensor<2x32xf32>\n"
       << "%e" << number << " = tensor.expand_shape %s" << number
       << " [[0], [1, 2]] output_shape [2, 1, 32] : tensor<2x32xf32> into "
          "tensor<2x1x32xf32>\n";
  os << "%c = tensor.concat dim(1) ";
  llvm::interleaveComma(llvm::seq(count), os,
                        [&](int64_t number) { os << "%e" << number; });
  os << " : (";
  llvm::interleaveComma(llvm::seq(count), os,
                        [&](int64_t) { os << "tensor<2x1x32xf32>"; });
  os << ") -> tensor<2x" << count << "x32xf32>\n"
     << "%m = tensor.collapse_shape %c [[0, 1], [2]] : tensor<2x" << count
     << "x32xf32> into tensor<" << columns << "x32xf32>\n"
     << "%y = bsr.spmm %p, %w, %m feature_dim = 0 : !pattern, "
        "tensor<2x2x2xf32>, tensor<"
     << columns << "x32xf32> -> tensor<4x32xf32>\n"
     << more << "return %y : tensor<4x32xf32>\n}\n";
  return text;
}

/// The digits of windows, an extent and a step each.
static std::vector<std::pair<int64_t, int64_t>> getDigits(Windows windows) {
  std::vector<std::pair<int64_t, int64_t>> digits;
  for (auto [extent, step] : windows.digits)
    digits.push_back({extent, step});
  return digits;
}

TEST_F(WindowsTest, PlacesCountInDigits) {
  using Digits = std::vector<std::pair<int64_t, int64_t>>;
  auto digitsOf = [&](ArrayRef<int64_t> offsets) {
    parse(getText(offsets));
    auto concat = findAll<tensor::ConcatOp>().front();
    EXPECT_TRUE(areReadInLine(concat));
    std::optional<Windows> windows = Windows::get(concat);
    EXPECT_TRUE(windows);
    EXPECT_EQ(windows->first, offsets.front());
    return getDigits(*windows);
  };
  EXPECT_EQ(digitsOf({3}), Digits());
  EXPECT_EQ(digitsOf({0, 2, 4}), (Digits{{3, 2}}));
  // Two rows of three places, and two of these: the last is fastest.
  EXPECT_EQ(digitsOf({1, 2, 3, 9, 10, 11}), (Digits{{2, 8}, {3, 1}}));
  EXPECT_EQ(digitsOf({0, 1, 8, 9, 20, 21, 28, 29}),
            (Digits{{2, 20}, {2, 8}, {2, 1}}));
}

TEST_F(WindowsTest, OtherConcatenationsAreMade) {
  for (const std::vector<int64_t> &offsets :
       {std::vector<int64_t>{0, 1, 3}, std::vector<int64_t>{0, 1, 8, 10}}) {
    parse(getText(offsets));
    EXPECT_FALSE(areReadInLine(findAll<tensor::ConcatOp>().front()));
  }
  // What else than a product reads them needs them in memory.
  for (StringRef more :
       {"%n = tensor.extract_slice %m[0, 0] [4, 16] [1, 1] : tensor<4x32xf32> "
        "to tensor<4x16xf32>\n",
        "%n = tensor.extract_slice %c[0, 0, 0] [2, 2, 16] [1, 1, 1] : "
        "tensor<2x2x32xf32> to tensor<2x2x16xf32>\n"}) {
    parse(getText({0, 1}, more));
    EXPECT_FALSE(areReadInLine(findAll<tensor::ConcatOp>().front()));
  }
}
