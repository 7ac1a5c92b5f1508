// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The attributes that front ends and passes leave on functions and operations,
// for passes behind them and for the manifest.

#include "StepAttributes.h"
#include "bsr/Dialect/Attention.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Dialect/Groups.h"
#include "bsr/Dialect/Schedules.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace mlir::bsr;

static bool isUnit(Attribute attr) { return isa<UnitAttr>(attr); }

static bool isText(Attribute attr) {
  auto text = dyn_cast<StringAttr>(attr);
  return text && !text.empty();
}

static bool isTextList(Attribute attr) {
  auto list = dyn_cast<ArrayAttr>(attr);
  return list && llvm::all_of(list, isText);
}

static bool isNumbers(Attribute attr) { return isa<DenseI64ArrayAttr>(attr); }

/// Whether `attr` is the number of a stage and that of all stages.
static bool isStage(Attribute attr) {
  auto numbers = dyn_cast<DenseI64ArrayAttr>(attr);
  return numbers && numbers.size() == 2 && numbers[0] >= 0 &&
         numbers[0] < numbers[1];
}

static bool isShapes(Attribute attr) {
  auto shapes = dyn_cast<DictionaryAttr>(attr);
  return shapes && llvm::all_of(shapes, [](NamedAttribute shape) {
           return isNumbers(shape.getValue());
         });
}

static bool isTarget(Attribute attr) { return isa<TargetAttrInterface>(attr); }

static bool isRoot(Attribute attr) { return isa<RootAttr>(attr); }

static bool isNorm(Attribute attr) {
  auto text = dyn_cast<StringAttr>(attr);
  return text && symbolizeNorm(text);
}

/// Whether `attr` is an integer of 64 bits, 0 or greater.
static bool isCount(Attribute attr) {
  auto count = dyn_cast<IntegerAttr>(attr);
  return count && count.getType().isSignlessInteger(64) && count.getInt() >= 0;
}

/// Whether `attr` is a list of dictionaries of which `isEntry` is true.
static bool isList(Attribute attr, function_ref<bool(DictionaryAttr)> isEntry) {
  auto list = dyn_cast<ArrayAttr>(attr);
  return list && llvm::all_of(list, [&](Attribute entry) {
           auto dictionary = dyn_cast<DictionaryAttr>(entry);
           return dictionary && isEntry(dictionary);
         });
}

bool bsr::isOrigin(Attribute attr) {
  auto origin = dyn_cast<DictionaryAttr>(attr);
  if (!origin || !origin.getAs<StringAttr>("name"))
    return false;
  auto shape = origin.getAs<DenseI64ArrayAttr>("shape");
  auto offsets = origin.getAs<DenseI64ArrayAttr>("offsets");
  auto sizes = origin.getAs<DenseI64ArrayAttr>("sizes");
  return shape && offsets && sizes && offsets.size() == shape.size() &&
         sizes.size() == shape.size() &&
         llvm::all_of(llvm::seq(shape.size()), [&](int64_t dim) {
           return offsets[dim] >= 0 && sizes[dim] > 0 &&
                  offsets[dim] <= shape[dim] - sizes[dim];
         });
}

bool bsr::isMaskList(Attribute attr) {
  return isList(attr, [](DictionaryAttr mask) {
    auto type = mask.getAs<TypeAttr>("type");
    Attribute origin = mask.get("origin");
    return mask.getAs<StringAttr>("name") &&
           mask.getAs<BoolAttr>("transpose") && type &&
           isa<RankedTensorType>(type.getValue()) &&
           (!origin || isOrigin(origin));
  });
}

static bool isPatternList(Attribute attr) {
  return isList(attr, [](DictionaryAttr pattern) {
    auto type = pattern.getAs<TypeAttr>("type");
    if (!pattern.getAs<StringAttr>("name") || !type ||
        !isa<PatternType>(type.getValue()))
      return false;
    Attribute density = pattern.get("density"), masks = pattern.get("masks");
    if ((density && !isa<FloatAttr>(density)) || (masks && !isMaskList(masks)))
      return false;
    Attribute rowPtr = pattern.get("row_ptr"), colIdx = pattern.get("col_idx");
    return (!rowPtr && !colIdx) ||
           (isa_and_present<DenseI32ArrayAttr>(rowPtr) &&
            isa_and_present<DenseI32ArrayAttr>(colIdx));
  });
}

static bool isScoresList(Attribute attr) {
  return isList(attr, [](DictionaryAttr scores) {
    auto type = scores.getAs<TypeAttr>("type");
    Attribute offset = scores.get("offset");
    return scores.getAs<StringAttr>("name") && type &&
           isa<MemRefType>(type.getValue()) && offset && isCount(offset);
  });
}

static bool isTimerList(Attribute attr) {
  return isList(attr, [](DictionaryAttr timer) {
    return llvm::all_of(timer, [](NamedAttribute attr) {
      return isa<StringAttr>(attr.getValue()) || isCount(attr.getValue());
    });
  });
}

static bool isCountDictionary(Attribute attr) {
  auto counts = dyn_cast<DictionaryAttr>(attr);
  return counts && llvm::all_of(counts, [](NamedAttribute count) {
           return isCount(count.getValue());
         });
}

static bool isWork(Attribute attr) {
  auto work = dyn_cast<DictionaryAttr>(attr);
  return work && work.size() == 3 &&
         isa_and_present<IntegerAttr>(work.get("dense")) &&
         isa_and_present<IntegerAttr>(work.get("scores")) &&
         isCount(work.get("dense")) && isCount(work.get("scores")) &&
         isa_and_present<DictionaryAttr>(work.get("blocks")) &&
         isCountDictionary(work.get("blocks"));
}

namespace {
/// An attribute that the dialect knows.
struct KnownAttribute {
  StringRef name;
  /// Whether operations like this one carry it.
  bool (*isCarrier)(Operation *);
  /// What it has to be, and whether an attribute is that.
  StringRef expected;
  bool (*isValid)(Attribute);
};
} // namespace

static bool isFunction(Operation *op) { return isa<FunctionOpInterface>(op); }
static bool isNoFunction(Operation *op) { return !isFunction(op); }
static bool isInCluster(Operation *op) {
  return isa_and_present<ClusterOp>(op->getParentOp());
}
template <typename... OpTys>
static bool isOp(Operation *op) {
  return isa<OpTys...>(op);
}

/// Kernels and what launches them on a GPU have a kind, and so have calls of
/// those that make plans of patterns.
static bool hasKind(Operation *op) {
  return isFunction(op) || isa<LaunchOp, func::CallOp, gpu::LaunchFuncOp>(op);
}
static bool hasFlops(Operation *op) {
  return isFunction(op) || isa<gpu::LaunchFuncOp>(op);
}

/// The attribute `name` as operations like `op` carry it, or null if the
/// dialect knows none.
static const KnownAttribute *find(Operation *op, StringRef name,
                                  SmallVectorImpl<StringRef> &names) {
  constexpr StringLiteral count = "a 64-bit integer, 0 or greater";
  constexpr StringLiteral text = "a non-empty string";
  constexpr StringLiteral texts = "a list of non-empty strings";
  constexpr StringLiteral unit = "a unit attribute";
  static const KnownAttribute known[] = {
      {attrs::accumulates, isFunction, unit, isUnit},
      {attrs::arenaBytes, isFunction, count, isCount},
      {attrs::attention, isFunction,
       "a dictionary of operands, some of q, k, v, dy, bias, mask and kept in "
       "this order, of the first three all, a scale, and of a kept_factor if "
       "there is kept, finite numbers of 64 bits",
       AttentionFunction::isValid},
      {attrs::communicates, isFunction, unit, isUnit},
      {attrs::flops, hasFlops, count, isCount},
      {attrs::grouped, isFunction, "matmul, matmul_transposed or outer",
       GroupedFunction::isValid},
      {attrs::kind, hasKind, text, isText},
      {attrs::lanes, isNoFunction, unit, isUnit},
      {attrs::leftDense, isFunction, count, isCount},
      {attrs::liveBytes, isFunction, count, isCount},
      {attrs::microBatches, isFunction, count, isCount},
      {attrs::name, isOp<ConstantPatternOp>, text, isText},
      {attrs::panels, isOp<LaunchOp>, "an array of 64-bit integers", isNumbers},
      {attrs::patterns, isFunction,
       "a list of patterns, each with a name, a type, and its row_ptr and "
       "col_idx if it is static",
       isPatternList},
      {attrs::peak, isNoFunction, unit, isUnit},
      {attrs::products, isFunction,
       "a dictionary of 64-bit integers, 0 or greater", isCountDictionary},
      {attrs::recomputed, isNoFunction, unit, isUnit},
      {attrs::replicas, isFunction, unit, isUnit},
      {attrs::root, isInCluster, "a #bsr.root", isRoot},
      {attrs::schedule, isOp<SpMMOp, SDDMMOp>,
       "a dictionary of a walk, gather, ordered_gather, scatter, "
       "single_weights, outer or inner, and, of one that gathers, of rows and "
       "panels, 1 or greater, and ahead, 0 to 64, integers of 64 bits",
       ProductSchedule::isValid},
      {attrs::scoreNorm, isFunction, "l1, l2 or linf", isNorm},
      {attrs::scores, isFunction,
       "a list of scores, each with a name, an offset and a type",
       isScoresList},
      {attrs::scores, isOp<memref::AllocOp>, text, isText},
      {attrs::sharded, isFunction, count, isCount},
      {attrs::stages, isFunction,
       "the number of a stage and a greater one, that of all stages", isStage},
      {attrs::stored, isNoFunction, unit, isUnit},
      {attrs::target, isOp<ModuleOp>, "a target, such as #bsr.cpu", isTarget},
      {attrs::timers, isFunction,
       "a list of dictionaries of strings and 64-bit integers", isTimerList},
      {attrs::unmasked, isFunction, texts, isTextList},
      {attrs::unused, isFunction, texts, isTextList},
      {attrs::wholeShapes, isFunction,
       "a dictionary of arrays of 64-bit integers", isShapes},
      {attrs::work, isFunction,
       "a dictionary of dense and scores, 64-bit integers, 0 or greater, and "
       "blocks, a dictionary of these",
       isWork},
  };
  for (const KnownAttribute &attribute : known) {
    if (!attribute.isCarrier(op))
      continue;
    if (attribute.name == name)
      return &attribute;
    names.push_back(attribute.name);
  }
  return nullptr;
}

LogicalResult BSRDialect::verifyOperationAttribute(Operation *op,
                                                   NamedAttribute attr) {
  SmallVector<StringRef> names;
  const KnownAttribute *known = find(op, attr.getName(), names);
  if (!known) {
    InFlightDiagnostic error = op->emitOpError("expected ");
    llvm::interleaveComma(ArrayRef(names).drop_back(), error);
    return error << " or " << names.back() << ", but got "
                 << attr.getName().strref();
  }
  if (!known->isValid(attr.getValue()))
    return op->emitOpError("expected ")
           << known->name << " to be " << known->expected << ", but got "
           << attr.getValue();
  return success();
}
