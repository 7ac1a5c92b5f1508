// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The attributes of the arguments and results of a step's function.

#include "StepAttributes.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/Shards.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "support/InitRule.h"

using namespace mlir;
using namespace mlir::bsr;

/// Checks that a buffer which is argument `argIndex` can start by the rule that
/// `init` is: the runtime, which reads it of the compiled step, has the same.
static LogicalResult verifyInit(FunctionOpInterface func, unsigned argIndex,
                                Attribute init,
                                function_ref<InFlightDiagnostic()> error) {
  std::optional<sparse_opt::InitRule> rule;
  if (auto text = dyn_cast<StringAttr>(init))
    rule = sparse_opt::parseInitRule(text.getValue());
  if (!rule)
    return error() << "expected bsr.init to be zeros, ones, constant(x) or "
                      "normal(stddev), but got "
                   << init;
  std::string name = func.getArgAttr(argIndex, attrs::isUnsigned) ? "u" : "";
  llvm::raw_string_ostream(name)
      << getElementTypeOrSelf(func.getArgumentTypes()[argIndex]);
  auto type = sparse_opt::findElementType(name);
  if (type && !sparse_opt::isInitRuleOf(*rule, *type))
    return error() << "expected bsr.init to be a rule for " << name
                   << ", but got " << init;
  return success();
}

/// What an argument of a step is once its patterns are index arrays and its
/// results buffers.
static bool isKind(StringRef kind) {
  return llvm::is_contained(ArrayRef<StringRef>{"row_ptr", "col_idx", "slot",
                                                "col_ptr", "row_idx", "slot_t",
                                                "output", "flag", "arena"},
                            kind);
}

/// What an argument or a result of a step is for.
static bool isRole(StringRef role) {
  return llvm::is_contained({"apply", "batch", "buffer", "constant", "count",
                             "loss", "lr", "metric", "param", "pattern",
                             "scores", "seed", "state", "step"},
                            role);
}

static constexpr StringLiteral unknownRole =
    "expected bsr.role to be apply, batch, buffer, constant, count, loss, lr, "
    "metric, param, pattern, scores, seed, state or step, but got ";

/// Where argument `index` of `func` stands, or `func` if it is a declaration.
static Location getArgLoc(FunctionOpInterface func, unsigned index) {
  Region &body = func.getFunctionBody();
  if (body.empty() || index >= body.getNumArguments())
    return func.getLoc();
  return body.getArgument(index).getLoc();
}

static InFlightDiagnostic emitArgError(FunctionOpInterface func,
                                       unsigned index) {
  return emitError(getArgLoc(func, index), "'")
         << func->getName() << "' op argument #" << index << ": ";
}

/// True if argument `index` is the first of `func` with attribute `name`: what
/// concerns all of them is verified there, once.
static bool isFirst(FunctionOpInterface func, unsigned index, StringRef name) {
  return llvm::none_of(llvm::seq(index), [&](unsigned i) {
    return func.getArgAttr(i, name) != nullptr;
  });
}

/// Checks that no two arguments have the same `bsr.name`, role and kind.
static LogicalResult verifyOwnNames(FunctionOpInterface func, unsigned first) {
  if (!isFirst(func, first, attrs::name))
    return success();
  DenseMap<std::tuple<Attribute, Attribute, Attribute>, unsigned> known;
  for (unsigned i : llvm::seq(first, func.getNumArguments())) {
    Attribute name = func.getArgAttr(i, attrs::name);
    if (!name)
      continue;
    auto [other, isNew] =
        known.try_emplace({name, func.getArgAttr(i, attrs::role),
                           func.getArgAttr(i, attrs::kind)},
                          i);
    if (!isNew)
      return emitArgError(func, i) << "expected a name of its own, but got "
                                   << name << ", the name of argument #"
                                   << other->second << " with the same role";
  }
  return success();
}

/// Checks that no two arguments have the same `bsr.result`.
static LogicalResult verifyOwnResults(FunctionOpInterface func,
                                      unsigned first) {
  if (!isFirst(func, first, attrs::result))
    return success();
  DenseMap<Attribute, unsigned> known;
  for (unsigned i : llvm::seq(first, func.getNumArguments())) {
    auto result = func.getArgAttrOfType<IntegerAttr>(i, attrs::result);
    if (!result)
      continue;
    auto [other, isNew] = known.try_emplace(result, i);
    if (!isNew)
      return emitArgError(func, i)
             << "expected a result of its own, but got result #"
             << result.getInt() << ", which carries argument #"
             << other->second;
  }
  return success();
}

LogicalResult BSRDialect::verifyRegionArgAttribute(Operation *op,
                                                   unsigned regionIndex,
                                                   unsigned argIndex,
                                                   NamedAttribute attr) {
  auto func = cast<FunctionOpInterface>(op);
  auto error = [&] { return emitArgError(func, argIndex); };
  StringRef name = attr.getName();
  if (name == attrs::name || name == attrs::role) {
    auto string = dyn_cast<StringAttr>(attr.getValue());
    if (!string || string.empty())
      return error() << "expected " << name << " to be a non-empty string, "
                     << "but got " << attr.getValue();
    if (name == attrs::role && !isRole(string))
      return error() << unknownRole << string;
    if (name == attrs::role)
      return success();
    // Frameworks call a moment as its parameter: a name and a role are unique.
    return verifyOwnNames(func, argIndex);
  }
  if (name == attrs::aliases) {
    auto names = dyn_cast<ArrayAttr>(attr.getValue());
    if (!names || !llvm::all_of(names, [](Attribute alias) {
          return isa<StringAttr>(alias);
        }))
      return error()
             << "expected bsr.aliases to be an array of strings, but got "
             << attr.getValue();
    return success();
  }
  if (name == attrs::origin) {
    if (!isOrigin(attr.getValue()))
      return error() << "expected bsr.origin to have a name, a shape, and the "
                        "offsets and sizes of a slice of it, but got "
                     << attr.getValue();
    return success();
  }
  if (name == attrs::result) {
    auto index = dyn_cast<IntegerAttr>(attr.getValue());
    if (!index)
      return error() << "expected bsr.result to be an integer, but got "
                     << attr.getValue();
    ArrayRef<Type> results = func.getResultTypes();
    int64_t result = index.getInt();
    if (result < 0 || result >= static_cast<int64_t>(results.size()))
      return error() << "expected bsr.result in 0 to "
                     << static_cast<int64_t>(results.size()) - 1 << ", but got "
                     << result;
    if (results[result] != func.getArgumentTypes()[argIndex])
      return error() << "expected result #" << result
                     << " to have the argument's type "
                     << func.getArgumentTypes()[argIndex] << ", but got "
                     << results[result];
    return verifyOwnResults(func, argIndex);
  }
  if (name == attrs::init)
    return verifyInit(func, argIndex, attr.getValue(), error);
  Type type = func.getArgumentTypes()[argIndex];
  auto requireName = [&]() -> LogicalResult {
    if (func.getArgAttr(argIndex, attrs::name))
      return success();
    return error() << "expected a bsr.name beside " << name << ", but got none";
  };
  if (name == attrs::mark) {
    auto mark = dyn_cast<MarkAttr>(attr.getValue());
    if (!mark)
      return error() << "expected bsr.mark to be a #bsr.mark, but got "
                     << attr.getValue();
    return failed(mark.verifyFits(error, type)) ? failure() : requireName();
  }
  if (name == attrs::mask) {
    if (Attribute mark = func.getArgAttr(argIndex, attrs::mark))
      return error() << "expected a weight or a mask, but got " << mark
                     << " and " << attr.getValue();
    if (!isa<MaskAttr>(attr.getValue()))
      return error() << "expected bsr.mask to be a #bsr.mask, but got "
                     << attr.getValue();
    auto mask = dyn_cast<RankedTensorType>(type);
    if (!mask || !mask.hasStaticShape() ||
        !mask.getElementType().isIntOrFloat())
      return error() << "expected a mask to be a tensor of numbers of static "
                        "shape, but got "
                     << type;
    return requireName();
  }
  if (name == attrs::masks) {
    if (!isMaskList(attr.getValue()))
      return error() << "expected bsr.masks to be an array of dictionaries "
                        "with a name, a type and transpose, but got "
                     << attr.getValue();
    return success();
  }
  if (name == attrs::density) {
    auto density = dyn_cast<FloatAttr>(attr.getValue());
    if (!density)
      return error() << "expected bsr.density to be a float, but got "
                     << attr.getValue();
    return verifyDensity(error, density.getValueAsDouble());
  }
  if (name == attrs::pattern) {
    auto index = dyn_cast<IntegerAttr>(attr.getValue());
    if (!index)
      return error() << "expected bsr.pattern to be an integer, but got "
                     << attr.getValue();
    ArrayRef<Type> types = func.getArgumentTypes();
    int64_t pattern = index.getInt();
    if (pattern < 0 || pattern >= static_cast<int64_t>(types.size()) ||
        !isa<PatternType>(types[pattern]))
      return error() << "expected bsr.pattern to be the index of a pattern "
                        "argument, but got "
                     << pattern;
    auto known = cast<PatternType>(types[pattern]);
    RankedTensorType expected = known.getValuesType(getElementTypeOrSelf(type));
    // Of counts, a block has one.
    if (auto role = func.getArgAttrOfType<StringAttr>(argIndex, attrs::role);
        role && role == "count")
      expected = RankedTensorType::get({known.getSlots(), 1, 1},
                                       Float32Type::get(func.getContext()));
    // Of values that processes share, each has some slots.
    auto whole = dyn_cast<RankedTensorType>(type);
    if (DenseI64ArrayAttr shape = getWholeShape(func, argIndex); whole && shape)
      whole = whole.clone(shape.asArrayRef());
    if (whole != expected)
      return error() << "expected values of type " << expected << ", but got "
                     << type;
    return success();
  }
  if (name == attrs::patternNumber) {
    if (!isa<IntegerAttr>(attr.getValue()))
      return error() << "expected bsr.pattern_number to be an integer, but got "
                     << attr.getValue();
    return success();
  }
  if (name == attrs::carried || name == attrs::isUnsigned) {
    if (!isa<UnitAttr>(attr.getValue()))
      return error() << "expected " << name
                     << " to be a unit attribute, but got " << attr.getValue();
    return success();
  }
  if (name == attrs::kind) {
    auto string = dyn_cast<StringAttr>(attr.getValue());
    if (!string || !isKind(string))
      return error()
             << "expected bsr.kind to be row_ptr, col_idx, slot, "
                "col_ptr, row_idx, slot_t, output, flag or arena, but got "
             << attr.getValue();
    return success();
  }
  return error() << "expected bsr.name, bsr.result, bsr.role, bsr.init, "
                    "bsr.aliases, bsr.origin, bsr.mark, bsr.mask, bsr.masks, "
                    "bsr.density, "
                    "bsr.pattern, bsr.kind, "
                    "bsr.pattern_number, bsr.carried or bsr.unsigned, but got "
                 << name;
}

LogicalResult BSRDialect::verifyRegionResultAttribute(Operation *op,
                                                      unsigned regionIndex,
                                                      unsigned resultIndex,
                                                      NamedAttribute attr) {
  StringRef name = attr.getName();
  if (name == attrs::isUnsigned && isa<UnitAttr>(attr.getValue()))
    return success();
  if (name != attrs::name && name != attrs::role)
    return op->emitOpError("result #")
           << resultIndex
           << ": expected bsr.name, bsr.role or the unit attribute "
              "bsr.unsigned, but got "
           << name;
  auto string = dyn_cast<StringAttr>(attr.getValue());
  if (!string || string.empty())
    return op->emitOpError("result #")
           << resultIndex << ": expected " << name
           << " to be a non-empty string, but got " << attr.getValue();
  if (name == attrs::role && !isRole(string))
    return op->emitOpError("result #")
           << resultIndex << ": " << unknownRole << string;
  return success();
}
