// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns each marked argument of a step into a pattern and its stored values.

#include "Gradients.h"
#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Sparsity/Passes.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRBIND
#include "bsr/Transforms/Sparsity/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
/// The arguments that share a pattern: a weight and its moments; and those that
/// repeat the pattern, its masks.
struct Group {
  MarkAttr mark;
  SmallVector<unsigned> arguments, masks;
};
} // namespace

/// Where `value` is computed, for people: a line of the program or a scope.
static std::string describe(Value value) {
  std::string text;
  llvm::raw_string_ostream os(text);
  Location loc = value.getLoc();
  if (auto line = loc->findInstanceOf<FileLineColLoc>())
    os << line.getFilename().getValue() << ":" << line.getLine();
  else if (auto scope = loc->findInstanceOf<NameLoc>())
    os << scope.getName().getValue();
  else
    os << loc;
  return text;
}

/// Checks that argument `arg` of `func` can be a mask of `group`: it has the
/// shape of its weight, and the step does not change it.
static LogicalResult verifyMask(func::FuncOp func, unsigned arg, MaskAttr mask,
                                const Group &group) {
  Attribute name = attrs::name.ofArg(func, arg);
  auto weight =
      cast<RankedTensorType>(func.getArgumentTypes()[group.arguments[0]]);
  SmallVector<int64_t> shape(weight.getShape());
  if (mask.getTranspose())
    std::reverse(shape.begin(), shape.end());
  auto type = cast<RankedTensorType>(func.getArgumentTypes()[arg]);
  if (type.getShape() != ArrayRef(shape))
    return emitError(func.getLoc(), "expected mask ")
           << name << " to have the shape of "
           << (mask.getTranspose() ? "the transpose of " : "") << "its weight "
           << mask.getWeight() << " (" << weight << "), but got " << type;
  auto result = attrs::result.ofArg(func, arg);
  if (!result)
    return success();
  Value next =
      func.getBody().front().getTerminator()->getOperand(result.getInt());
  if (next == func.getArgument(arg))
    return success();
  return emitError(func.getLoc(), "expected mask ")
         << name << " to stay as it is, but got one computed at "
         << describe(next)
         << ": patterns are updated between steps, by the runtime";
}

/// The marked arguments of `func` by the name of their weight, or failure if
/// they don't fit together.
static FailureOr<llvm::MapVector<StringAttr, Group>>
getGroups(func::FuncOp func) {
  llvm::MapVector<StringAttr, Group> groups;
  for (auto [arg, type] : llvm::enumerate(func.getArgumentTypes()))
    if (attrs::mark.ofArg(func, arg) &&
        cast<RankedTensorType>(type).getRank() != 2)
      return emitError(func.getLoc(), "expected argument #")
             << arg << " to be a matrix, but got " << type
             << ": run bsr-unstack before";
  auto getMark = [&](unsigned arg) { return attrs::mark.ofArg(func, arg); };
  for (unsigned arg : llvm::seq(func.getNumArguments()))
    if (isMarkedWeight(func, arg))
      groups[getMark(arg).getWeight()] = {getMark(arg), {arg}, {}};
  for (unsigned arg : llvm::seq(func.getNumArguments())) {
    MarkAttr mark = getMark(arg);
    if (!mark || isMarkedWeight(func, arg))
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
  for (unsigned arg : llvm::seq(func.getNumArguments())) {
    auto mask = attrs::mask.ofArg(func, arg);
    if (!mask)
      continue;
    auto *group = groups.find(mask.getWeight());
    if (group == groups.end())
      return emitError(func.getLoc(), "expected a marked argument named ")
             << mask.getWeight() << ", the weight of mask #" << arg
             << ", but got none";
    if (failed(verifyMask(func, arg, mask, group->second)))
      return failure();
    group->second.masks.push_back(arg);
  }
  return groups;
}

/// What a pattern says of its mask, an argument of type `type`: the name, how
/// it lies, and what of the program's arguments it is.
static DictionaryAttr describeMask(DictionaryAttr attributes, Type type) {
  Builder b(type.getContext());
  bool transpose = attrs::mask.get(attributes).getTranspose();
  NamedAttrList mask;
  mask.set("name", attributes.get(attrs::name));
  mask.set("transpose", b.getBoolAttr(transpose));
  mask.set("type", TypeAttr::get(type));
  if (Attribute origin = attributes.get(attrs::origin))
    mask.set("origin", origin);
  return mask.getDictionary(b.getContext());
}

namespace {
/// What the attributes of a function become while its arguments are bound: they
/// are as many as its weights, and set once.
struct Signature {
  explicit Signature(func::FuncOp func) {
    for (unsigned arg : llvm::seq(func.getNumArguments()))
      arguments.push_back(func.getArgAttrDict(arg));
    if (auto known = attrs::patterns.get(func))
      llvm::append_range(patterns, known);
  }

  /// Gives `func` these attributes, and the types of its body.
  void apply(func::FuncOp func) const {
    Block &body = func.getBody().front();
    Builder b(func.getContext());
    func.setType(b.getFunctionType(body.getArgumentTypes(),
                                   body.getTerminator()->getOperandTypes()));
    func.setAllArgAttrs(arguments);
    if (!patterns.empty())
      attrs::patterns.set(func, b.getArrayAttr(patterns));
  }

  SmallVector<DictionaryAttr> arguments;
  /// The static patterns.
  SmallVector<Attribute> patterns;
};
} // namespace

/// Replaces the arguments of `group` by their values and a pattern, which is a
/// new argument unless it is static.
static BoundWeight bind(func::FuncOp func, const Group &group,
                        Signature &signature) {
  SmallVectorImpl<DictionaryAttr> &attributes = signature.arguments;
  Block &body = func.getBody().front();
  Operation *terminator = body.getTerminator();
  OpBuilder b = OpBuilder::atBlockBegin(&body);
  unsigned weight = group.arguments.front();
  MarkAttr mark = group.mark;
  PatternType type = mark.getPatternType(
      cast<RankedTensorType>(body.getArgument(weight).getType()));
  Location loc = body.getArgument(weight).getLoc();
  SmallVector<Attribute> masks;
  for (unsigned arg : group.masks)
    masks.push_back(
        describeMask(attributes[arg], body.getArgument(arg).getType()));

  Value pattern;
  StringRef link; // from the values to their pattern
  int64_t index;
  if (mark.isStatic()) {
    auto constant = ConstantPatternOp::create(b, loc, type, mark.getRowPtr(),
                                              mark.getColIdx());
    attrs::name.set(constant, mark.getWeight());
    pattern = constant;
    link = attrs::patternNumber;
    NamedAttrList list(
        b.getDictionaryAttr({{"col_idx", constant.getColIdxAttr()},
                             {"density", mark.getDensity()},
                             {"name", mark.getWeight()},
                             {"row_ptr", constant.getRowPtrAttr()},
                             {"type", TypeAttr::get(type)}}));
    if (!masks.empty())
      list.set("masks", b.getArrayAttr(masks));
    index = signature.patterns.size();
    signature.patterns.push_back(list.getDictionary(b.getContext()));
  } else {
    link = attrs::pattern;
    index = body.getNumArguments();
    pattern = body.addArgument(type, loc);
    NamedAttrList list(
        b.getDictionaryAttr({attrs::density.with(mark.getDensity()),
                             attrs::name.with(mark.getWeight()),
                             attrs::role.with(b.getStringAttr("pattern"))}));
    if (!masks.empty())
      attrs::masks.set(list, b.getArrayAttr(masks));
    attributes.push_back(list.getDictionary(b.getContext()));
  }

  // All matrices stand in front of all samples: a next value may be any of
  // them.
  BoundWeight bound;
  for (unsigned arg : group.arguments) {
    BlockArgument values = body.getArgument(arg);
    auto dense = cast<RankedTensorType>(values.getType());
    values.setType(type.getValuesType(dense.getElementType()));
    auto toDense = ToDenseOp::create(b, values.getLoc(), dense, pattern, values,
                                     /*background=*/Value(),
                                     /*transpose=*/false);
    values.replaceAllUsesExcept(toDense, toDense);
    if (arg == weight)
      bound = {mark.getWeight(), toDense, {}};

    NamedAttrList list(attributes[arg]);
    attrs::mark.remove(list);
    list.set(link, b.getI64IntegerAttr(index));
    attributes[arg] = list.getDictionary(b.getContext());
  }
  // M1: the pattern is the mask.
  for (unsigned arg : group.masks) {
    BlockArgument mask = body.getArgument(arg);
    auto dense = cast<RankedTensorType>(mask.getType());
    auto ones =
        DenseElementsAttr::get(type.getValuesType(dense.getElementType()),
                               b.getOneAttr(dense.getElementType()));
    mask.replaceAllUsesWith(ToDenseOp::create(
        b, loc, dense, pattern, arith::ConstantOp::create(b, loc, ones),
        /*background=*/Value(),
        cast<MaskAttr>(attributes[arg].get(attrs::mask)).getTranspose()));
  }
  b.setInsertionPoint(terminator);
  for (unsigned arg : group.arguments) {
    auto result =
        dyn_cast_or_null<IntegerAttr>(attributes[arg].get(attrs::result));
    if (!result)
      continue;
    OpOperand &next = terminator->getOpOperand(result.getInt());
    bound.samples.push_back(SampleOp::create(
        b, next.get().getLoc(), body.getArgument(arg).getType(), pattern,
        next.get(), /*transpose=*/false));
    next.set(bound.samples.back());
  }
  return bound;
}

/// Erases the arguments `masks` of `func`, which nothing uses any more, with
/// the results that carry them on, and renumbers what is behind them.
static void eraseArguments(func::FuncOp func, ArrayRef<unsigned> masks) {
  if (masks.empty())
    return;
  Operation *terminator = func.getBody().front().getTerminator();
  BitVector arguments(func.getNumArguments()), results(func.getNumResults());
  for (unsigned arg : masks) {
    arguments.set(arg);
    if (auto result = attrs::result.ofArg(func, arg))
      results.set(result.getInt());
  }
  auto renumber = [&](unsigned arg, StringRef name, const BitVector &erased) {
    auto index = func.getArgAttrOfType<IntegerAttr>(arg, name);
    if (!index)
      return;
    unsigned before = 0;
    for (int64_t i = 0; i != index.getInt(); ++i)
      before += erased[i];
    func.setArgAttr(arg, name,
                    IntegerAttr::get(index.getType(), index.getInt() - before));
  };
  // The verifier runs later: indices are of the new signature from here on.
  for (unsigned arg : llvm::seq(func.getNumArguments()))
    if (!arguments[arg]) {
      renumber(arg, attrs::result, results);
      renumber(arg, attrs::pattern, arguments);
    }
  terminator->eraseOperands(results);
  (void)func.eraseResults(results);
  (void)func.eraseArguments(arguments);
}

namespace {
struct Bind : bsr::impl::BSRBindBase<Bind> {
  using Base::Base;

  void runOnOperation() override {
    if (failed(forEachBody(getOperation(),
                           [&](func::FuncOp func) { return run(func); })))
      signalPassFailure();
  }

  LogicalResult run(func::FuncOp func) {
    auto groups = getGroups(func);
    if (failed(groups))
      return failure();
    if (groups->empty()) {
      dropGradientMarks(takeGradientMarks(func));
      return success();
    }
    if (failed(requireOwnSignature(func, getOperation())))
      return failure();

    SmallVector<BoundWeight> weights;
    SmallVector<unsigned> masks;
    Signature signature(func);
    for (auto &[name, group] : *groups) {
      weights.push_back(bind(func, group, signature));
      llvm::append_range(masks, group.masks);
      ++numPatterns;
      numStatic += group.mark.isStatic();
      numValues += group.arguments.size();
    }
    signature.apply(func);
    llvm::SetVector<Attribute> lost;
    auto report = [&](const BoundWeight &weight, Operation *op,
                      StringRef what) {
      PassRemark::missed("bsr-bind", "GradientNotMasked", {op->getLoc(), op},
                         DiagnosticSeverity::Warning)
              .add("Weight", weight.name)
              .add("Operation", op->getName())
              .add("Reason", what)
          << "expected to find the gradient of " << weight.name
          << ", to mask it, but got '" << op->getName() << "', which " << what;
      lost.insert(weight.name);
    };
    unsigned masked = 0;
    if (maskGradients)
      masked = bsr::maskGradients(func, weights, report);
    else
      dropGradientMarks(takeGradientMarks(func));
    if (!lost.empty())
      attrs::unmasked.set(
          func, ArrayAttr::get(func.getContext(), lost.getArrayRef()));
    eraseArguments(func, masks);
    numMasks += masks.size();
    numMasked += masked;
    if (masked)
      PassRemark::passed("bsr-bind", "GradientsMasked", {func.getLoc(), func},
                         DiagnosticSeverity::Remark)
              .add("Weights", masked)
          << "masked the gradients of " << masked
          << " weights, which more than their update uses: the step computes "
             "what automatic differentiation of w * mask does";
    return success();
  }
};
} // namespace
