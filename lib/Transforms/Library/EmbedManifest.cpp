// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the manifest of a step into its module.

#include "LaunchList.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Dialect/Shards.h"
#include "bsr/Transforms/Library/Passes.h"
#include "bsr/step.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "support/ManifestSchema.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSREMBEDMANIFEST
#include "bsr/Transforms/Library/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;
namespace json = llvm::json;

static json::Array getShape(ArrayRef<int64_t> shape) {
  return json::Array(shape);
}

/// What the manifest says of the argument of the program that another is or is
/// a part of; `suffix` is what the manifest adds to names.
static json::Object getOrigin(DictionaryAttr origin, StringRef suffix = "") {
  auto get = [&](StringRef key) {
    return getShape(origin.getAs<DenseI64ArrayAttr>(key).asArrayRef());
  };
  auto name = origin.getAs<StringAttr>("name");
  return json::Object{{"name", (name.getValue() + suffix).str()},
                      {"shape", get("shape")},
                      {"offsets", get("offsets")},
                      {"sizes", get("sizes")}};
}

/// The name of a buffer's element type, or failure if it has none.
static FailureOr<std::string> getTypeName(func::FuncOp step, unsigned index) {
  Type type = cast<MemRefType>(step.getArgumentTypes()[index]).getElementType();
  if (!type.isInteger(1) && !type.isInteger(8) && !type.isInteger(32) &&
      !type.isInteger(64) && !type.isF16() && !type.isBF16() && !type.isF32() &&
      !type.isF64())
    return step.emitError("expected argument #")
           << index
           << " to be of f16, bf16, f32, f64, i1, i8, i32 or i64, but got "
           << type;
  std::string name = attrs::isUnsigned.ofArg(step, index) ? "u" : "";
  llvm::raw_string_ostream(name) << type;
  return name;
}

/// The names of the arguments of `step` in the manifest. Those of one name have
/// roles of their own: the parameter, or the one without a role, keeps the
/// name, the others are `<name>.<role>`.
static FailureOr<SmallVector<std::string>> getNames(func::FuncOp step) {
  auto getString = [&](unsigned arg, auto attribute) {
    StringAttr attr = attribute.ofArg(step, arg);
    return attr ? attr.getValue() : StringRef();
  };
  llvm::StringMap<unsigned> counts;
  for (unsigned arg : llvm::seq(step.getNumArguments()))
    if (getString(arg, attrs::kind).empty())
      ++counts[getString(arg, attrs::name)];
  SmallVector<std::string> names;
  llvm::StringMap<unsigned> known;
  for (unsigned arg : llvm::seq(step.getNumArguments())) {
    std::string &name = names.emplace_back(getString(arg, attrs::name).str());
    if (!getString(arg, attrs::kind).empty())
      continue;
    StringRef role = getString(arg, attrs::role);
    if (counts[name] > 1 && !role.empty() && role != "param")
      name += "." + role.str();
    if (auto [other, isNew] = known.insert({name, arg}); !isNew)
      return step.emitError("expected names and roles that tell arguments "
                            "apart, but got '")
             << name << "' for argument #" << other->second << " and argument #"
             << arg;
  }
  return names;
}

/// What the manifest says about argument `index`, which it calls `name`.
static FailureOr<json::Object> getBuffer(func::FuncOp step, unsigned index,
                                         StringRef name) {
  auto getString = [&](auto attribute) {
    StringAttr attr = attribute.ofArg(step, index);
    return attr ? attr.getValue() : StringRef();
  };
  auto pattern = attrs::patternNumber.ofArg(step, index);
  StringRef kind = getString(attrs::kind);
  if (kind.empty())
    kind = pattern ? "values" : "dense";
  FailureOr<std::string> type = getTypeName(step, index);
  if (failed(type))
    return failure();

  json::Object buffer{
      {"name", name},
      {"kind", kind},
      {"type", *type},
      {"shape",
       getShape(cast<MemRefType>(step.getArgumentTypes()[index]).getShape())},
      {"carried", attrs::carried.ofArg(step, index) != nullptr},
  };
  if (StringRef role = getString(attrs::role); !role.empty())
    buffer["role"] = role;
  if (DenseI64ArrayAttr whole = getWholeShape(step, index))
    buffer["whole"] = getShape(whole);
  if (StringRef init = getString(attrs::init); !init.empty())
    buffer["init"] = init;
  if (pattern)
    buffer["pattern"] = pattern.getInt();
  if (auto origin = attrs::origin.ofArg(step, index))
    buffer["origin"] =
        getOrigin(origin, name.drop_front(getString(attrs::name).size()));
  return buffer;
}

/// What the manifest says about arguments that were masks of a pattern.
static json::Array getMasks(ArrayAttr masks) {
  json::Array array;
  for (auto mask : masks.getAsRange<DictionaryAttr>()) {
    auto type = cast<RankedTensorType>(mask.getAs<TypeAttr>("type").getValue());
    std::string element;
    llvm::raw_string_ostream(element) << type.getElementType();
    json::Object entry{
        {"name", mask.getAs<StringAttr>("name").getValue()},
        {"type", element},
        {"shape", getShape(type.getShape())},
        {"transpose", mask.getAs<BoolAttr>("transpose").getValue()}};
    if (auto origin = mask.getAs<DictionaryAttr>("origin"))
      entry["origin"] = getOrigin(origin);
    array.push_back(std::move(entry));
  }
  return array;
}

/// What the manifest says about the pattern `known`, whose are those of
/// `buffers` that `own` lists; `work` of the step may be null. A static pattern
/// has none for its index arrays: the manifest holds it.
static json::Object getPattern(DictionaryAttr known, ArrayRef<size_t> own,
                               const json::Array &buffers,
                               DictionaryAttr work) {
  auto type = cast<PatternType>(known.getAs<TypeAttr>("type").getValue());
  StringRef name = known.getAs<StringAttr>("name").getValue();
  json::Object pattern{
      {"name", name},
      {"shape", getShape({type.getRows(), type.getCols()})},
      {"block", getShape({type.getBlockRows(), type.getBlockCols()})},
      {"slots", type.getSlots()},
      {"static", known.contains("row_ptr")},
  };
  if (auto density = known.getAs<FloatAttr>("density"))
    pattern["density"] = density.getValueAsDouble();
  if (auto masks = known.getAs<ArrayAttr>("masks"); masks && !masks.empty())
    pattern["masks"] = getMasks(masks);
  if (work) {
    auto flops = work.getAs<DictionaryAttr>("blocks").getAs<IntegerAttr>(name);
    pattern["flops"] = flops ? flops.getInt() : 0;
  }
  json::Object views;
  for (size_t index : own) {
    const json::Object &buffer = *buffers[index].getAsObject();
    StringRef kind = *buffer.getString("kind");
    if (kind != "values")
      views[kind] = index;
    else if (*buffer.getString("name") == name)
      pattern["weight"] = index;
  }
  if (!known.contains("row_ptr")) {
    pattern["buffers"] = std::move(views);
    return pattern;
  }
  for (StringRef view : {"row_ptr", "col_idx"})
    pattern[view] =
        json::Array(known.getAs<DenseI32ArrayAttr>(view).asArrayRef());
  return pattern;
}

/// What the manifest says about `scores` of `step`, which lie in the arena.
static FailureOr<json::Object> getScores(func::FuncOp step,
                                         DictionaryAttr scores) {
  auto name = scores.getAs<StringAttr>("name");
  auto type = cast<MemRefType>(scores.getAs<TypeAttr>("type").getValue());
  auto known = attrs::patterns.get(step);
  ArrayRef<Attribute> patterns;
  if (known)
    patterns = known.getValue();
  const auto *pattern = llvm::find_if(patterns, [&](Attribute known) {
    return cast<DictionaryAttr>(known).get("name") == name;
  });
  if (pattern == patterns.end())
    return step.emitError("expected scores of a weight in bsr.patterns, but "
                          "got scores of ")
           << name;
  return json::Object{
      {"name", name.getValue()},
      {"kind", "scores"},
      {"type", "f32"},
      {"shape", getShape(type.getShape())},
      {"carried", false},
      {"pattern", pattern - patterns.begin()},
      {"arena_offset", scores.getAs<IntegerAttr>("offset").getInt()}};
}

/// What the manifest says about a timer.
static json::Object getTimer(DictionaryAttr known) {
  json::Object timer{{"bytes", 0}, {"flops", 0}, {"operands", ""}};
  for (NamedAttribute attr : known) {
    if (auto text = dyn_cast<StringAttr>(attr.getValue()))
      timer[attr.getName().strref()] = text.getValue();
    else
      timer[attr.getName().strref()] =
          cast<IntegerAttr>(attr.getValue()).getInt();
  }
  return timer;
}

/// What the manifest says about kernels: how many there are, and how many calls
/// of them.
static json::Object getKernels(func::FuncOp step) {
  SymbolTable symbols(step->getParentOfType<ModuleOp>());
  DenseSet<Operation *> functions;
  int64_t launches = 0;
  step.walk([&](func::CallOp call) {
    Operation *callee = symbols.lookup(call.getCallee());
    if (!attrs::kind.isOn(callee))
      return;
    functions.insert(callee);
    ++launches;
  });
  return json::Object{{"functions", static_cast<int64_t>(functions.size())},
                      {"launches", launches}};
}

/// The same of the kernels of a GPU, launched as `launches` say.
static json::Object getKernels(const json::Array &launches) {
  llvm::StringSet<> functions;
  for (const json::Value &launch : launches)
    functions.insert(*launch.getAsObject()->getString("kernel"));
  return json::Object{{"functions", static_cast<int64_t>(functions.size())},
                      {"launches", static_cast<int64_t>(launches.size())}};
}

/// Adds to `manifest` how `step` is run: by calls of its kernels, or, on a GPU,
/// by launches of them.
static LogicalResult addKernels(func::FuncOp step, json::Object &manifest) {
  StringRef chip = getTarget(step).getLaunchChip();
  if (chip.empty()) {
    manifest["kernels"] = getKernels(step);
    return success();
  }
  FailureOr<json::Array> launches = getLaunches(step);
  if (failed(launches))
    return failure();
  manifest["kernels"] = getKernels(*launches);
  manifest["chip"] = chip;
  manifest["launches"] = std::move(*launches);
  if (int64_t bytes = getPlanBytes(step))
    manifest["plan_bytes"] = bytes;
  return success();
}

/// The manifest of `step` as JSON text.
static FailureOr<std::string> getManifest(func::FuncOp step,
                                          StringRef targetCpu) {
  json::Array buffers, patterns;
  DictionaryAttr work = attrs::work.get(step);
  FailureOr<SmallVector<std::string>> names = getNames(step);
  if (failed(names))
    return failure();
  // The last arguments are a flag, if there are scores, and the arena.
  for (unsigned i = 0, e = step.getNumArguments() - 1; i != e; ++i) {
    if (!isa<MemRefType>(step.getArgumentTypes()[i]))
      continue;
    FailureOr<json::Object> buffer = getBuffer(step, i, (*names)[i]);
    if (failed(buffer))
      return failure();
    buffers.push_back(std::move(*buffer));
  }
  if (auto known = attrs::patterns.get(step)) {
    SmallVector<SmallVector<size_t>> own(known.size());
    for (auto [index, buffer] : llvm::enumerate(buffers))
      if (auto number = buffer.getAsObject()->getInteger("pattern");
          number && *number >= 0 && *number < int64_t(own.size()))
        own[*number].push_back(index);
    for (auto [pattern, indices] :
         llvm::zip_equal(known.getAsRange<DictionaryAttr>(), own))
      patterns.push_back(getPattern(pattern, indices, buffers, work));
  }

  if (auto scores = dyn_cast_or_null<ArrayAttr>(attrs::scores.get(step)))
    for (auto entry : scores.getAsRange<DictionaryAttr>()) {
      FailureOr<json::Object> buffer = getScores(step, entry);
      if (failed(buffer))
        return failure();
      buffers.push_back(std::move(*buffer));
    }

  json::Object products{
      {"spmm", 0}, {"spmm_transposed", 0}, {"sddmm", 0}, {"dense", 0}};
  if (auto counted = attrs::products.get(step))
    for (NamedAttribute count : counted)
      products[count.getName().strref()] =
          cast<IntegerAttr>(count.getValue()).getInt();
  auto getCount = [&](auto attribute) -> int64_t {
    IntegerAttr count = attribute.get(step);
    return count ? count.getInt() : 0;
  };
  json::Object manifest{
      {"format", "bsr-step"},
      {"version", 1},
      {"name", step.getName()},
      {"target_cpu", targetCpu},
      {"arena_bytes", getCount(attrs::arenaBytes)},
      {"live_bytes", getCount(attrs::liveBytes)},
      {"buffers", std::move(buffers)},
      {"patterns", std::move(patterns)},
      {"products", std::move(products)},
      {"left_dense", getCount(attrs::leftDense)},
  };
  if (work)
    manifest["flops"] =
        json::Object{{"dense", work.getAs<IntegerAttr>("dense").getInt()},
                     {"scores", work.getAs<IntegerAttr>("scores").getInt()}};
  if (failed(addKernels(step, manifest)))
    return failure();
  if (attrs::communicates.isOn(step))
    manifest["communicates"] = true;
  if (attrs::accumulates.isOn(step))
    manifest["accumulates"] = true;
  if (IntegerAttr sharded = attrs::sharded.get(step))
    manifest["sharded"] = sharded.getInt();
  if (DenseI64ArrayAttr stages = attrs::stages.get(step)) {
    manifest["stage"] = stages[0];
    manifest["stages"] = stages[1];
  }
  if (attrs::replicas.isOn(step))
    manifest["replicas"] = true;
  if (IntegerAttr count = attrs::microBatches.get(step))
    manifest["micro_batches"] = count.getInt();
  if (auto norm = attrs::scoreNorm.get(step))
    manifest["score_norm"] = norm.getValue();
  if (auto known = attrs::timers.get(step)) {
    json::Array timers;
    for (auto timer : known.getAsRange<DictionaryAttr>())
      timers.push_back(getTimer(timer));
    manifest["timers"] = std::move(timers);
  }
  std::string text;
  llvm::raw_string_ostream(text) << json::Value(std::move(manifest));
  std::string error = sparse_opt::findManifestError(
      text, ("the manifest of @" + step.getName()).str());
  if (!error.empty())
    return step.emitError(error);
  return text;
}

namespace {
struct EmbedManifest : bsr::impl::BSREmbedManifestBase<EmbedManifest> {
  using Base::Base;

  void runOnOperation() override {
    FailureOr<func::FuncOp> step = getStep(getOperation());
    if (failed(step))
      return signalPassFailure();
    if (!attrs::arenaBytes.isOn((*step))) {
      step->emitError("expected a step with planned memory, but got no "
                      "bsr.arena_bytes: run bsr-plan-memory first");
      return signalPassFailure();
    }
    if (!getTarget(*step).getLaunchChip().empty() &&
        getOperation().getOps<gpu::BinaryOp>().empty()) {
      step->emitError("expected a step with kernels in PTX for ")
          << Attribute(getTarget(*step))
          << ", but got none: bsr-to-gpu makes them";
      return signalPassFailure();
    }
    FailureOr<std::string> manifest = getManifest(*step, targetCpu);
    if (failed(manifest))
      return signalPassFailure();
    manifest->push_back('\0');

    OpBuilder b = OpBuilder::atBlockBegin(getOperation().getBody());
    Location loc = step->getLoc();
    LLVM::GlobalOp::create(
        b, loc, LLVM::LLVMArrayType::get(b.getI8Type(), manifest->size()),
        /*isConstant=*/true, LLVM::Linkage::External, "bsr_step_manifest",
        b.getStringAttr(*manifest));
    LLVM::GlobalOp::create(b, loc, b.getI32Type(), /*isConstant=*/true,
                           LLVM::Linkage::External, "bsr_step_abi_version",
                           b.getI32IntegerAttr(BSR_STEP_ABI_VERSION));
  }
};
} // namespace
