// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Replaces pattern arguments by index arrays and constant patterns by
// constants.

#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Bufferization/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Interfaces/LoopLikeInterface.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRLOWERPATTERNS
#include "bsr/Transforms/Bufferization/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Checks that no argument of `func` still waits for its pattern: a weight that
/// is only marked would be trained dense.
static LogicalResult verifyBound(func::FuncOp func) {
  for (unsigned i : llvm::seq(func.getNumArguments()))
    if (Attribute mark = attrs::mark.ofArg(func, i))
      return func.emitError("expected bsr-bind before bsr-lower-patterns, but "
                            "got argument ")
             << attrs::name.ofArg(func, i) << " with " << mark;
  return success();
}

/// Checks that `user` of a pattern is in no loop, which `bsr-unroll` left
/// because it would be too many operations.
static LogicalResult verifyNoLoop(Operation *user) {
  auto loop = user->getParentOfType<LoopLikeOpInterface>();
  if (!loop || isa<IndicesOp>(user))
    return success();
  InFlightDiagnostic error =
      user->emitError(
          "expected operations on a pattern outside of loops, but got '")
      << user->getName() << "' in a loop of ";
  std::optional<APInt> steps = loop.getStaticTripCount();
  if (!steps)
    return error << "unknown length: give it a constant number of steps";
  return error << steps->getLimitedValue()
               << " steps, which are more operations than bsr-unroll may "
                  "make: give it fewer, or allow more with 'max-operations' "
                  "(sparse-compile --max-operations)";
}

/// Replaces the only users that a pattern may have by now, `bsr.indices`: those
/// of the row view by the first three of `arrays`, those of the column view by
/// the others.
static LogicalResult replaceIndices(Value pattern, ValueRange arrays) {
  for (Operation *user : llvm::make_early_inc_range(pattern.getUsers())) {
    auto indices = dyn_cast<IndicesOp>(user);
    if (!indices)
      return user->emitError("expected patterns to be used by 'bsr.indices' "
                             "only, but got '")
             << user->getName() << "'";
    indices.replaceAllUsesWith(
        arrays.slice(indices.getView() == View::Rows ? 0 : 3, 3));
    indices.erase();
  }
  return success();
}

/// True if `pattern` is used by bufferized operations.
static bool isBufferized(Value pattern) {
  return llvm::any_of(pattern.getUsers(), [](Operation *user) {
    return user->getNumResults() &&
           isa<MemRefType>(user->getResult(0).getType());
  });
}

namespace {
/// The arguments that a function gets, all at once: one by one, each would
/// rewrite the attributes of all others.
struct NewArguments {
  SmallVector<unsigned> places;
  SmallVector<Type> types;
  SmallVector<DictionaryAttr> attrs;
  SmallVector<Location> locs;
};
} // namespace

/// Adds to `added` the two views of argument `index` of `func`, pattern number
/// `number`: six arguments with its name.
static void addViews(func::FuncOp func, unsigned index, int64_t number,
                     NewArguments &added) {
  Builder b(func.getContext());
  BlockArgument argument = func.getArgument(index);
  auto type = cast<PatternType>(argument.getType());
  bool isBuffer = isBufferized(argument);
  auto add = [&](StringRef kind, RankedTensorType array) {
    NamedAttrList attrs(func.getArgAttrDict(index));
    attrs::density.remove(attrs);
    attrs::masks.remove(attrs);
    attrs::kind.set(attrs, b.getStringAttr(kind));
    attrs::patternNumber.set(attrs, b.getI64IntegerAttr(number));
    added.places.push_back(index + 1);
    added.types.push_back(isBuffer ? Type(getDenseBufferType(array)) : array);
    added.attrs.push_back(attrs.getDictionary(func.getContext()));
    added.locs.push_back(argument.getLoc());
  };
  for (View view : views)
    for (auto [kind, array] :
         llvm::zip_equal(getIndexKinds(view), type.getIndexTypes(view)))
      add(kind, array);
}

/// Makes the values in `func` count patterns, from `next` on, which have no
/// argument of their own any more.
static void numberPatterns(func::FuncOp func, int64_t next) {
  SmallVector<int64_t> number;
  for (Type type : func.getArgumentTypes())
    number.push_back(isa<PatternType>(type) ? next++ : next);
  SmallVector<DictionaryAttr> all;
  func.getAllArgAttrs(all);
  for (DictionaryAttr &known : all) {
    NamedAttrList attrs(known);
    auto pattern = dyn_cast_or_null<IntegerAttr>(attrs.erase(attrs::pattern));
    if (!pattern)
      continue;
    attrs::patternNumber.set(
        attrs, IntegerAttr::get(pattern.getType(), number[pattern.getInt()]));
    known = attrs.getDictionary(func.getContext());
  }
  func.setAllArgAttrs(all);
}

/// Replaces the pattern arguments of `func` and notes in `bsr.patterns` what
/// the index arrays do not tell.
static LogicalResult expandArguments(func::FuncOp func) {
  SmallVector<Attribute> patterns;
  if (auto known = attrs::patterns.get(func))
    patterns.append(known.begin(), known.end()); // static ones
  numberPatterns(func, patterns.size());
  NewArguments added;
  SmallVector<BlockArgument> arguments;
  for (BlockArgument argument : func.getArguments()) {
    auto type = dyn_cast<PatternType>(argument.getType());
    if (!type)
      continue;
    unsigned index = argument.getArgNumber();
    NamedAttrList pattern;
    pattern.set("type", TypeAttr::get(type));
    auto copy = [&](StringRef key, Attribute value) {
      if (value)
        pattern.set(key, value);
    };
    copy("name", attrs::name.ofArg(func, index));
    copy("density", attrs::density.ofArg(func, index));
    copy("masks", attrs::masks.ofArg(func, index));
    addViews(func, index, patterns.size(), added);
    arguments.push_back(argument);
    patterns.push_back(pattern.getDictionary(func.getContext()));
  }
  if (failed(func.insertArguments(added.places, added.types, added.attrs,
                                  added.locs)))
    return failure();
  llvm::BitVector erased(func.getNumArguments());
  for (BlockArgument argument : arguments) {
    unsigned index = argument.getArgNumber();
    if (failed(
            replaceIndices(argument, func.getArguments().slice(index + 1, 6))))
      return failure();
    erased.set(index);
  }
  if (failed(func.eraseArguments(erased)))
    return failure();
  // Only a step has a manifest.
  if (!patterns.empty() && isStep(func))
    attrs::patterns.set(func, ArrayAttr::get(func.getContext(), patterns));
  return success();
}

/// Replaces `constant` by the index arrays that `bsr.indices` of it folds to.
static LogicalResult lowerConstant(ConstantPatternOp constant) {
  OpBuilder b(constant);
  SmallVector<Value> arrays;
  for (View view : views)
    b.createOrFold<IndicesOp>(arrays, constant.getLoc(), constant.getPattern(),
                              view);
  if (failed(replaceIndices(constant, arrays)))
    return failure();
  constant.erase();
  return success();
}

namespace {
struct LowerPatterns : bsr::impl::BSRLowerPatternsBase<LowerPatterns> {
  using Base::Base;

  void runOnOperation() override {
    WalkResult result = getOperation().walk([&](Operation *op) {
      if (!llvm::any_of(op->getOperandTypes(), llvm::IsaPred<PatternType>))
        return WalkResult::advance();
      return WalkResult(verifyNoLoop(op));
    });
    if (result.wasInterrupted())
      return signalPassFailure();
    SmallVector<ConstantPatternOp> constants;
    getOperation().walk(
        [&](ConstantPatternOp constant) { constants.push_back(constant); });
    for (ConstantPatternOp constant : constants)
      if (failed(lowerConstant(constant)))
        return signalPassFailure();
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (!func.isExternal() &&
          (failed(verifyBound(func)) || failed(expandArguments(func))))
        return signalPassFailure();
  }
};
} // namespace
