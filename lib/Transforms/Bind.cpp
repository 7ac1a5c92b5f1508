// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns each marked argument of a step into a pattern and its stored values.

#include "ElementWise.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Passes.h"
#include "bsr/Transforms/Step.h"
#include "llvm/ADT/MapVector.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRBIND
#include "bsr/Transforms/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// The arguments that share a pattern: a weight and its moments.
struct Group {
  MarkAttr mark;
  SmallVector<unsigned> arguments;
};
} // namespace

/// The marked arguments of `func` by the name of their weight, or failure if
/// they don't fit together.
static FailureOr<llvm::MapVector<StringAttr, Group>>
getGroups(func::FuncOp func) {
  llvm::MapVector<StringAttr, Group> groups;
  for (auto [arg, type] : llvm::enumerate(func.getArgumentTypes()))
    if (func.getArgAttr(arg, "bsr.mark") &&
        cast<RankedTensorType>(type).getRank() != 2)
      return emitError(func.getLoc(), "expected argument #")
             << arg << " to be a matrix, but got " << type
             << ": run bsr-unstack before";
  auto getMark = [&](unsigned arg) {
    return func.getArgAttrOfType<MarkAttr>(arg, "bsr.mark");
  };
  auto getName = [&](unsigned arg) {
    return func.getArgAttrOfType<StringAttr>(arg, "bsr.name");
  };
  // A moment may have the name of its weight, but not its role.
  auto isWeight = [&](unsigned arg) {
    auto role = func.getArgAttrOfType<StringAttr>(arg, "bsr.role");
    return getName(arg) == getMark(arg).getWeight() &&
           (!role || role == "param");
  };
  for (unsigned arg : llvm::seq(func.getNumArguments()))
    if (MarkAttr mark = getMark(arg); mark && isWeight(arg))
      groups[mark.getWeight()] = {mark, {arg}};
  for (unsigned arg : llvm::seq(func.getNumArguments())) {
    MarkAttr mark = getMark(arg);
    if (!mark || isWeight(arg))
      continue;
    Group &group = groups[mark.getWeight()];
    if (!group.mark)
      return emitError(func.getLoc(), "expected a marked argument named ")
             << mark.getWeight() << ", the weight of argument #" << arg
             << ", but got none";
    auto type = cast<RankedTensorType>(func.getArgumentTypes()[arg]);
    auto weight =
        cast<RankedTensorType>(func.getArgumentTypes()[group.arguments[0]]);
    if (mark != group.mark || type.getShape() != weight.getShape())
      return emitError(func.getLoc(), "expected argument #")
             << arg << " to have the shape and the mark of its weight "
             << mark.getWeight() << " (" << weight << ", " << group.mark
             << "), but got " << type << ", " << mark;
    group.arguments.push_back(arg);
  }
  return groups;
}

/// Adds `pattern` to the `bsr.patterns` of `func`; returns its place there.
static int64_t addPattern(func::FuncOp func, DictionaryAttr pattern) {
  SmallVector<Attribute> patterns;
  if (auto known = func->getAttrOfType<ArrayAttr>("bsr.patterns"))
    patterns.append(known.begin(), known.end());
  patterns.push_back(pattern);
  func->setAttr("bsr.patterns", ArrayAttr::get(func.getContext(), patterns));
  return patterns.size() - 1;
}

/// Replaces the arguments of `group` by their values and a pattern, which is a
/// new argument unless it is static; returns the samples of their next values.
static SmallVector<SampleOp> bind(func::FuncOp func, const Group &group) {
  Block &body = func.getBody().front();
  Operation *terminator = body.getTerminator();
  OpBuilder b = OpBuilder::atBlockBegin(&body);
  unsigned weight = group.arguments.front();
  MarkAttr mark = group.mark;
  PatternType type = mark.getPatternType(
      cast<RankedTensorType>(body.getArgument(weight).getType()));
  Location loc = body.getArgument(weight).getLoc();
  SmallVector<DictionaryAttr> attributes;
  for (unsigned arg : llvm::seq(func.getNumArguments()))
    attributes.push_back(func.getArgAttrDict(arg));

  Value pattern;
  StringRef link; // from the values to their pattern
  int64_t index;
  if (mark.isStatic()) {
    auto constant = ConstantPatternOp::create(b, loc, type, mark.getRowPtr(),
                                              mark.getColIdx());
    constant->setAttr("bsr.name", mark.getWeight());
    pattern = constant;
    link = "bsr.pattern_number";
    index = addPattern(
        func, b.getDictionaryAttr({{"col_idx", constant.getColIdxAttr()},
                                   {"density", mark.getDensity()},
                                   {"name", mark.getWeight()},
                                   {"row_ptr", constant.getRowPtrAttr()},
                                   {"type", TypeAttr::get(type)}}));
  } else {
    link = "bsr.pattern";
    index = func.getNumArguments();
    pattern = body.addArgument(type, loc);
    attributes.push_back(
        b.getDictionaryAttr({{"bsr.density", mark.getDensity()},
                             {"bsr.name", mark.getWeight()},
                             {"bsr.role", b.getStringAttr("pattern")}}));
  }

  SmallVector<SampleOp> samples;
  for (unsigned arg : group.arguments) {
    BlockArgument values = body.getArgument(arg);
    auto dense = cast<RankedTensorType>(values.getType());
    values.setType(type.getValuesType(dense.getElementType()));
    auto toDense = ToDenseOp::create(b, values.getLoc(), dense, pattern, values,
                                     /*background=*/Value(),
                                     /*transpose=*/false);
    values.replaceAllUsesExcept(toDense, toDense);

    NamedAttrList list(attributes[arg]);
    list.erase("bsr.mark");
    list.set(link, b.getI64IntegerAttr(index));
    attributes[arg] = list.getDictionary(b.getContext());
    auto result = dyn_cast_or_null<IntegerAttr>(list.get("bsr.result"));
    if (!result)
      continue;
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(terminator);
    OpOperand &next = terminator->getOpOperand(result.getInt());
    samples.push_back(SampleOp::create(b, next.get().getLoc(), values.getType(),
                                       pattern, next.get(),
                                       /*transpose=*/false));
    next.set(samples.back());
  }
  func.setType(b.getFunctionType(body.getArgumentTypes(),
                                 terminator->getOperandTypes()));
  func.setAllArgAttrs(attributes);
  return samples;
}

/// True if `op` uses a value of `sources` directly or indirectly.
static bool dependsOn(Operation *op, const DenseSet<Operation *> &sources) {
  SmallVector<Operation *> worklist = {op};
  DenseSet<Operation *> seen = {op};
  while (!worklist.empty()) {
    // Bodies may capture values from outside.
    WalkResult result = worklist.pop_back_val()->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands()) {
        Operation *source = operand.getDefiningOp();
        if (!source || !seen.insert(source).second)
          continue;
        if (sources.contains(source))
          return WalkResult::interrupt();
        worklist.push_back(source);
      }
      return WalkResult::advance();
    });
    if (result.wasInterrupted())
      return true;
  }
  return false;
}

/// Masks the gradients that the next values of a weight and its moments
/// (`samples`) are functions of, where something else uses them too. A gradient
/// is a product that the next values depend on element by element; a product of
/// such a product belongs to the optimizer and is left alone. Returns true if
/// there was something to mask.
static bool maskGradients(ArrayRef<SampleOp> samples) {
  llvm::MapVector<Value, bool> matrices;
  for (SampleOp sample : samples)
    walkElementWise(sample.getDense(), [&](Value value, bool transposed) {
      matrices.insert({value, transposed});
    });
  DenseSet<Operation *> elementWise, products;
  for (auto [value, transposed] : matrices) {
    auto op = value.getDefiningOp<linalg::LinalgOp>();
    if (op && linalg::isaContractionOpInterface(op))
      products.insert(op);
    else if (op && isElementWise(op))
      elementWise.insert(op);
  }

  // A matrix is open if something that is no sample sees it.
  DenseSet<Value> open;
  SmallVector<Value> worklist;
  auto reach = [&](Value value) {
    if (matrices.contains(value) && open.insert(value).second)
      worklist.push_back(value);
  };
  for (auto [value, transposed] : matrices)
    if (llvm::any_of(value.getUsers(), [&](Operation *user) {
          return !elementWise.contains(user) &&
                 !llvm::is_contained(samples, dyn_cast<SampleOp>(user));
        }))
      reach(value);
  while (!worklist.empty())
    if (Operation *op = worklist.pop_back_val().getDefiningOp();
        elementWise.contains(op))
      llvm::for_each(op->getOperands(), reach);

  bool masked = false;
  for (auto [value, transposed] : matrices) {
    Operation *product = value.getDefiningOp();
    if (!products.contains(product) || !open.contains(value) ||
        dependsOn(product, products))
      continue;
    OpBuilder b(product->getContext());
    b.setInsertionPointAfter(product);
    SampleOp first = samples.front();
    Type type = first.getPattern().getType().getValuesType(
        cast<RankedTensorType>(value.getType()).getElementType());
    auto sample = SampleOp::create(b, product->getLoc(), type,
                                   first.getPattern(), value, transposed);
    Value dense =
        ToDenseOp::create(b, product->getLoc(), value.getType(),
                          first.getPattern(), sample, Value(), transposed);
    value.replaceAllUsesExcept(dense, sample);
    masked = true;
  }
  return masked;
}

namespace {
struct Bind : bsr::impl::BSRBindBase<Bind> {
  using Base::Base;

  void runOnOperation() override {
    for (auto func : getOperation().getOps<func::FuncOp>())
      if (!func.isDeclaration() && failed(run(func)))
        return signalPassFailure();
  }

  LogicalResult run(func::FuncOp func) {
    auto groups = getGroups(func);
    if (failed(groups))
      return failure();
    if (groups->empty())
      return success();
    if (failed(requireOwnSignature(func, getOperation())))
      return failure();

    unsigned masked = 0;
    for (auto &[name, group] : *groups) {
      SmallVector<SampleOp> samples = bind(func, group);
      ++numPatterns;
      numStatic += group.mark.isStatic();
      numValues += group.arguments.size();
      if (maskGradients && !samples.empty() && ::maskGradients(samples))
        ++masked;
    }
    numMasked += masked;
    if (masked)
      emitRemark(func.getLoc(), "masked the gradients of ")
          << masked
          << " weights, which more than their update uses: the step computes "
             "what automatic differentiation of w * mask does";
    return success();
  }
};
} // namespace
