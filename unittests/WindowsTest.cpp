// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which concatenations are windows of images in a line.

#include "bsr/Analysis/Windows.h"
#include "Parse.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"

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
  for (auto [extent, step] : windows.offsets.digits)
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
    EXPECT_EQ(windows->offsets.first, offsets.front());
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

/// A product whose slices from `offsets` on, one of each of `places`, are added
/// up.
static std::string getSum(ArrayRef<int64_t> offsets, ArrayRef<int64_t> places,
                          StringRef more = "") {
  std::string text;
  llvm::raw_string_ostream os(text);
  int64_t count = offsets.size(), columns = 2 * count;
  os << "#id = affine_map<(c, t) -> (c, t)>\n!pattern = !bsr.pattern<"
     << columns << "x4, block = 2x2, slots = 2>\n"
     << "func.func @f(%p: !pattern, %w: tensor<2x2x2xf32>, %dy: "
        "tensor<4x64xf32>) -> tensor<2x32xf32> {\n"
     << "%m = bsr.spmm %p, %w, %dy transpose feature_dim = 0 : !pattern, "
        "tensor<2x2x2xf32>, tensor<4x64xf32> -> tensor<"
     << columns << "x64xf32>\n"
     << "%x = tensor.expand_shape %m [[0, 1], [2]] output_shape [2, " << count
     << ", 64] : tensor<" << columns << "x64xf32> into tensor<2x" << count
     << "x64xf32>\n%e = tensor.empty() : tensor<2x32xf32>\n";
  for (auto [number, offset] : llvm::enumerate(offsets))
    os << "%s" << number << " = tensor.extract_slice %x[0, " << places[number]
       << ", " << offset << "] [2, 1, 32] [1, 1, 1] : tensor<2x" << count
       << "x64xf32> to tensor<2x1x32xf32>\n"
       << "%t" << number << " = tensor.collapse_shape %s" << number
       << " [[0, 1], [2]] : tensor<2x1x32xf32> into tensor<2x32xf32>\n";
  std::string sum = "%t0";
  for (int64_t number = 1; number != count; ++number) {
    std::string next = "%a" + std::to_string(number);
    os << next
       << " = linalg.generic {indexing_maps = [#id, #id, #id], iterator_types "
          "= [\"parallel\", \"parallel\"]} ins("
       << sum << ", %t" << number
       << " : tensor<2x32xf32>, tensor<2x32xf32>) outs(%e : "
          "tensor<2x32xf32>) {\n^bb0(%a: f32, %b: f32, %o: f32):\n"
          "%0 = arith.addf %a, %b : f32\nlinalg.yield %0 : f32\n"
          "} -> tensor<2x32xf32>\n";
    sum = next;
  }
  os << more << "return " << sum << " : tensor<2x32xf32>\n}\n";
  return text;
}

TEST_F(WindowsTest, SumsOfAllPlacesAreOfOneProduct) {
  parse(getSum({11, 10, 9, 2, 1, 0}, {0, 1, 2, 3, 4, 5}));
  auto product = find<SpMMOp>();
  EXPECT_TRUE(areSummedUp(product));
  auto sums = findAll<linalg::GenericOp>();
  std::optional<SummedWindows> windows = SummedWindows::get(sums.back());
  ASSERT_TRUE(windows);
  EXPECT_EQ(windows->product, product);
  EXPECT_EQ(windows->channels, 2);
  EXPECT_EQ(windows->places, 6);
  EXPECT_EQ(windows->offsets.first, 11);
  // Parts of the sum are none.
  for (linalg::GenericOp sum : ArrayRef(sums).drop_back())
    EXPECT_FALSE(SummedWindows::get(sum));
  // In any order.
  parse(getSum({0, 8, 4}, {2, 0, 1}));
  EXPECT_TRUE(areSummedUp(find<SpMMOp>()));
}

TEST_F(WindowsTest, OtherSumsReadWhatTheirProductMakes) {
  for (const std::string &text :
       {getSum({8, 4, 0}, {0, 1, 1}), getSum({8, 4, 1}, {0, 1, 2}),
        getSum({8, 4, 0}, {0, 1, 2},
               "%n = tensor.extract_slice %m[0, 0] [2, 64] [1, 1] : "
               "tensor<6x64xf32> to tensor<2x64xf32>\n"),
        getSum({8, 4, 0}, {0, 1, 2},
               "%n = tensor.extract_slice %x[0, 0, 0] [2, 1, 64] [1, 1, 1] : "
               "tensor<2x3x64xf32> to tensor<2x1x64xf32>\n")}) {
    parse(text);
    EXPECT_FALSE(areSummedUp(find<SpMMOp>()));
    EXPECT_FALSE(SummedWindows::get(findAll<linalg::GenericOp>().back()));
  }
}
