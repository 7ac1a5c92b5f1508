// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Marks weights of a training step as block-sparse, by name, and their
// optimizer moments and masks with them.

#include "ElementWise.h"
#include "PatternFile.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Passes.h"
#include "bsr/Transforms/Step.h"
#include "bsr/Transforms/VerifyStep.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/Regex.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRMARK
#include "bsr/Transforms/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

static StringAttr getArgName(func::FuncOp func, unsigned arg) {
  return func.getArgAttrOfType<StringAttr>(arg, "bsr.name");
}

/// True if the step's author says that argument `arg` has `role`.
static bool hasRole(func::FuncOp func, unsigned arg, StringRef role) {
  auto attr = func.getArgAttrOfType<StringAttr>(arg, "bsr.role");
  return attr && attr == role;
}

/// The optimizer moments of argument `weight`: the carried arguments of its
/// shape that its next value depends on element by element. What `isMask` says
/// is a mask is none.
static SmallVector<unsigned> getMoments(func::FuncOp func, unsigned weight,
                                        function_ref<bool(unsigned)> isMask) {
  SmallVector<unsigned> moments;
  auto result = func.getArgAttrOfType<IntegerAttr>(weight, "bsr.result");
  if (!result)
    return moments;
  auto type = cast<RankedTensorType>(func.getArgumentTypes()[weight]);
  Operation *terminator = func.getBody().front().getTerminator();
  Value next = terminator->getOperand(result.getInt());
  walkElementWise(next, [&](Value value, bool transposed) {
    auto arg = dyn_cast<BlockArgument>(value);
    if (!arg || transposed || arg.getOwner() != &func.getBody().front())
      return;
    unsigned index = arg.getArgNumber();
    auto argType = cast<RankedTensorType>(arg.getType());
    if (index != weight && argType.getShape() == type.getShape() &&
        isa<FloatType>(argType.getElementType()) && getArgName(func, index) &&
        func.getArgAttr(index, "bsr.result") &&
        !hasRole(func, index, "param") && !isMask(index))
      moments.push_back(index);
  });
  return moments;
}

/// Whether `op` only reads a part of a tensor or gives it another shape, as
/// loops do with the matrices of a stack.
static bool isView(Operation *op) {
  return isa_and_nonnull<tensor::ExtractSliceOp, tensor::CollapseShapeOp,
                         tensor::ExpandShapeOp>(op);
}

/// What `value` is a view of.
static Value getViewed(Value value) {
  while (isView(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

/// The arguments that element-wise operations combine with argument `mask`, and
/// whether `mask` lies as their transpose: what it masks, or the gradient or
/// update of which it masks.
static llvm::MapVector<BlockArgument, bool> getMasked(BlockArgument mask) {
  llvm::MapVector<BlockArgument, bool> masked;
  SmallVector<Value> worklist = {mask};
  DenseSet<Value> seen = {mask};
  while (!worklist.empty()) {
    Value value = worklist.pop_back_val();
    SmallVector<std::pair<BlockArgument, bool>> read;
    bool swapped = false;
    walkElementWise(value, [&](Value source, bool transposed) {
      source = getViewed(source);
      if (source == mask)
        swapped = transposed;
      else if (auto argument = dyn_cast<BlockArgument>(source))
        read.push_back({argument, transposed});
    });
    for (auto [argument, transposed] : read)
      masked.insert({argument, transposed != swapped});
    for (Operation *user : value.getUsers()) {
      auto op = dyn_cast<linalg::LinalgOp>(user);
      if ((op && isElementWise(op)) || isView(user))
        for (Value result : user->getResults())
          if (seen.insert(result).second)
            worklist.push_back(result);
    }
  }
  return masked;
}

/// Refuses an escaped letter: in other dialects it is a class like \d, in that
/// of POSIX the letter itself, which is not what is meant.
static LogicalResult checkRegex(Location loc, StringRef option,
                                StringRef text) {
  std::string reason;
  if (!text.empty() && !llvm::Regex(text).isValid(reason))
    return emitError(loc) << "expected option " << option
                          << " to be a regular expression, but got '" << text
                          << "': " << reason;
  for (size_t i = 0; i + 1 < text.size(); i += text[i] == '\\' ? 2 : 1)
    if (text[i] == '\\' && llvm::isAlpha(text[i + 1]))
      return emitError(loc)
             << "expected option " << option
             << " to be an extended regular expression of POSIX, but got '"
             << text.substr(i, 2) << "': write a set like [0-9] or [a-z_]";
  return success();
}

namespace {
struct Mark : bsr::impl::BSRMarkBase<Mark> {
  using Base::Base;

  LogicalResult initialize(MLIRContext *context) override {
    Location loc = UnknownLoc::get(context);
    if (match.empty())
      return emitError(loc) << "expected option match to be a regular "
                               "expression, but got ''";
    if (failed(checkRegex(loc, "match", match)) ||
        failed(checkRegex(loc, "mask", mask)))
      return failure();
    auto [rows, cols] = StringRef(block).split('x');
    if (!block.empty() &&
        (rows.getAsInteger(10, blockRows) || cols.getAsInteger(10, blockCols)))
      return emitError(loc)
             << "expected option block to be <rows>x<columns>, but got '"
             << block << "'";
    if (!density.empty() && StringRef(density).getAsDouble(share))
      return emitError(loc) << "expected option density to be a number, but "
                               "got '"
                            << density << "'";
    if (failed(readDims(loc)))
      return failure();
    if (!pattern.empty())
      return readPattern(context);
    return MarkAttr::verify([&] { return emitError(loc); }, blockRows,
                            blockCols, Builder(context).getF64FloatAttr(share),
                            kinds, {}, {}, {});
  }

  /// Reads the option `dims`.
  LogicalResult readDims(Location loc) {
    kinds.clear();
    if (dims.empty())
      return success();
    for (StringRef name : llvm::split(StringRef(dims), ',')) {
      std::optional<MarkDim> kind = symbolizeMarkDim(name);
      if (!kind)
        return emitError(loc) << "expected option dims to list stack, row or "
                                 "col for each dimension, but got '"
                              << dims << "'";
      kinds.push_back(*kind);
    }
    return success();
  }

  /// Takes block and density from the pattern file.
  LogicalResult readPattern(MLIRContext *context) {
    auto error = [&]() -> InFlightDiagnostic {
      return emitError(UnknownLoc::get(context), "pattern file '")
             << pattern << "': ";
    };
    if (!density.empty())
      return error() << "expected no option density beside it, but got "
                     << density;
    auto read = readPatternFile(context, pattern, error);
    if (failed(read))
      return failure();
    PatternType type = read->type;
    if (!block.empty() &&
        (type.getBlockRows() != blockRows || type.getBlockCols() != blockCols))
      return error() << "expected blocks of " << block << ", but got "
                     << type.getBlockRows() << "x" << type.getBlockCols();
    blockRows = type.getBlockRows();
    blockCols = type.getBlockCols();
    share = static_cast<double>(type.getSlots()) /
            (type.getGridRows() * type.getGridCols());
    file = std::move(*read);
    return MarkAttr::verify(error, blockRows, blockCols,
                            Builder(context).getF64FloatAttr(share), kinds, {},
                            {}, {});
  }

  void runOnOperation() override {
    SmallVector<StringRef> names;
    unsigned matches = 0;
    auto run = [&](func::FuncOp func) { return mark(func, names, matches); };
    if (failed(forEachBody(getOperation(), run)))
      return signalPassFailure();
    if (matches)
      return;
    InFlightDiagnostic error =
        emitError(getOperation().getLoc(), "expected '")
        << match << "' to match the bsr.name of a weight, but got no match in "
        << names.size() << " names";
    addNearest(error, names);
    signalPassFailure();
  }

  /// Adds those of `names` to `error` that are most like the option `match`.
  void addNearest(InFlightDiagnostic &error, ArrayRef<StringRef> names) {
    SmallVector<std::pair<unsigned, StringRef>> nearest;
    for (StringRef name : names)
      nearest.emplace_back(name.edit_distance(match), name);
    llvm::sort(nearest);
    constexpr size_t most = 3;
    for (auto [index, pair] :
         llvm::enumerate(ArrayRef(nearest).take_front(most)))
      error << (index ? ", '" : ": the nearest are '") << pair.second << "'";
  }

  /// Marks the weights of `func`; adds to the names of arguments that may be
  /// weights and to the number of those that match.
  LogicalResult mark(func::FuncOp func, SmallVectorImpl<StringRef> &names,
                     unsigned &matches) {
    llvm::Regex regex(match);
    SmallVector<unsigned> weights;
    for (unsigned arg : llvm::seq(func.getNumArguments())) {
      StringAttr name = getArgName(func, arg);
      if (!name ||
          (func.getArgAttr(arg, "bsr.role") && !hasRole(func, arg, "param")))
        continue;
      names.push_back(name);
      if (!regex.match(name))
        continue;
      ++matches;
      if (!func.getArgAttr(arg, "bsr.mark"))
        weights.push_back(arg);
    }
    if (!weights.empty() && failed(getReturn(func)))
      return failure();

    llvm::Regex maskRegex(mask);
    auto isMask = [&](unsigned arg) {
      StringAttr name = getArgName(func, arg);
      return !mask.empty() && name && maskRegex.match(name) &&
             !llvm::is_contained(weights, arg);
    };
    for (unsigned weight : weights) {
      StringAttr name = getArgName(func, weight);
      Type type = func.getArgumentTypes()[weight];
      auto error = [&] {
        return emitError(func.getArgument(weight).getLoc(), "argument ")
               << name << ": ";
      };
      auto get = [&](ArrayRef<int32_t> rowPtr, ArrayRef<int32_t> colIdx) {
        return MarkAttr::get(&getContext(), blockRows, blockCols,
                             Builder(&getContext()).getF64FloatAttr(share),
                             kinds, rowPtr, colIdx, name);
      };
      MarkAttr attr = get({}, {});
      if (failed(attr.verifyFits(error, type)))
        return failure();
      if (file.type) {
        auto matrix = attr.getMatrixType(cast<RankedTensorType>(type));
        if (matrix != file.type.getDenseType(matrix.getElementType()))
          return error() << "expected a matrix of " << file.type.getRows()
                         << "x" << file.type.getCols() << ", as pattern file '"
                         << pattern << "' says, but got " << type;
        attr = get(file.rowPtr, file.colIdx);
      }
      func.setArgAttr(weight, "bsr.mark", attr);
      ++numWeights;
      for (unsigned moment : getMoments(func, weight, isMask)) {
        if (llvm::is_contained(weights, moment))
          return emitError(func.getLoc(), "expected '")
                 << match << "' to match weights only, but got "
                 << getArgName(func, moment) << ", a moment of " << name
                 << ": moments follow their weight";
        if (auto other = func.getArgAttrOfType<MarkAttr>(moment, "bsr.mark"))
          return emitError(func.getLoc(), "expected moment ")
                 << getArgName(func, moment)
                 << " to follow one weight, but got " << other.getWeight()
                 << " and " << name;
        func.setArgAttr(moment, "bsr.mark", attr);
        ++numMoments;
      }
    }
    if (mask.empty() || weights.empty())
      return success();
    return markMasks(func, weights, isMask);
  }

  /// Marks the masks of `weights`, arguments of `func`; an error if there are
  /// none, or one of several weights.
  LogicalResult markMasks(func::FuncOp func, ArrayRef<unsigned> weights,
                          function_ref<bool(unsigned)> isMask) {
    unsigned found = 0;
    for (BlockArgument arg : func.getArguments()) {
      auto type = dyn_cast<RankedTensorType>(arg.getType());
      if (!isMask(arg.getArgNumber()) || !type || !type.hasStaticShape())
        continue;
      MaskAttr attr;
      for (auto [weight, transpose] : getMasked(arg)) {
        if (weight.getOwner() != arg.getOwner() ||
            !llvm::is_contained(weights, weight.getArgNumber()))
          continue;
        StringAttr name = getArgName(func, weight.getArgNumber());
        if (attr)
          return emitError(func.getLoc(), "expected mask ")
                 << getArgName(func, arg.getArgNumber())
                 << " to go with one weight, but got " << attr.getWeight()
                 << " and " << name;
        unsigned stacks = llvm::count(kinds, MarkDim::Stack);
        auto weightType = cast<RankedTensorType>(weight.getType());
        if (stacks && (type.getRank() != weightType.getRank() ||
                       type.getShape().take_front(stacks) !=
                           weightType.getShape().take_front(stacks)))
          return emitError(func.getLoc(), "expected mask ")
                 << getArgName(func, arg.getArgNumber())
                 << " to have a matrix for each of the stack " << name << " ("
                 << weightType << "), but got " << type;
        attr = MaskAttr::get(&getContext(), name, transpose);
      }
      if (!attr)
        continue;
      func.setArgAttr(arg.getArgNumber(), "bsr.mask", attr);
      ++numMasks;
      ++found;
    }
    if (found)
      return success();
    return emitError(func.getLoc(), "expected '")
           << mask
           << "' to match the bsr.name of an argument that is multiplied with "
              "a weight entry by entry, but got none";
  }

  int64_t blockRows = 16, blockCols = 16;
  double share = 0.1;
  /// What each dimension is; those of a matrix if empty.
  SmallVector<MarkDim> kinds;
  /// What the pattern file holds, if there is one.
  StaticPattern file;
};
} // namespace
