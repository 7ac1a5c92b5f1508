// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses the manifest of a compiled step: the schema is checked first
// (support/ManifestSchema.h), then what one key says of another.

#include "Step.h"
#include "base/Element.h"
#include "pattern/Pattern.h"
#include "support/Hash.h"
#include "support/Json.h"
#include "support/ManifestSchema.h"
#include <algorithm>
#include <set>

using namespace sparse_opt;

static constexpr int64_t mostBytes = mostManifestBytes;
static constexpr int64_t mostBlocks = int64_t(1) << 47;

const char *bsr_kind_name(bsr_kind kind) {
  return unsigned(kind) < std::size(bufferKinds) ? bufferKinds[kind] : "";
}

std::optional<InitRule> sparse_opt::parseInitRule(std::string_view text,
                                                  bsr_type type) {
  auto rule = parseInitRule(text);
  return rule && isInitRuleOf(*rule, elementType(type)) ? rule : std::nullopt;
}

/// The index of one of `count` things, each of which is `noun`.
static int32_t parseIndex(const JsonObject &object, const char *key,
                          int64_t count, const char *noun) {
  if (count == 0)
    object.refuse(key, std::string("the index of ") + noun +
                           ", of which there is none");
  return int32_t(object.integer(key, 0, count - 1));
}

static std::string describe(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (int64_t size : shape)
    text += (text.size() > 1 ? ", " : "") + std::to_string(size);
  return text + "]";
}

/// The number of elements of a buffer of `shape`, which `key` of `object` says.
static int64_t countElements(const JsonObject &object, const char *key,
                             const std::vector<int64_t> &shape, bsr_type type) {
  bool empty = std::count(shape.begin(), shape.end(), 0);
  int64_t elements = !empty;
  for (int64_t size : shape) {
    if (!empty && size > mostBytes / bsr_type_bytes(type) / elements)
      object.refuse(key, "of at most 2^47 bytes");
    elements *= size;
  }
  return elements;
}

/// Checks the shape of a share that one of `sharded` processes has.
static void checkShard(const JsonObject &object, const Buffer &buffer,
                       int64_t sharded) {
  if (!sharded)
    object.refuse("whole", "left out in a step without sharded");
  if (!buffer.carried || buffer.role != "state")
    object.refuse("whole", "left out but for carried state");
  std::vector<int64_t> shape = buffer.whole;
  auto size = std::find_if(shape.begin(), shape.end(),
                           [](int64_t size) { return size > 1; });
  if (size == shape.end())
    object.refuse("whole", "of two elements at least");
  *size = (*size + sharded - 1) / sharded;
  if (shape != buffer.shape)
    object.refuse("shape",
                  describe(shape) + ", a share of " + std::to_string(sharded));
}

static Buffer parseBuffer(const JsonObject &object, int64_t numPatterns,
                          int64_t sharded) {
  Buffer buffer;
  buffer.name = object.text("name");
  buffer.kind = bsr_kind(std::find(std::begin(bufferKinds),
                                   std::end(bufferKinds), object.text("kind")) -
                         std::begin(bufferKinds));
  buffer.role = object.has("role") ? object.text("role") : "";
  buffer.type = bsr_type(*findElementType(object.text("type")));
  buffer.shape = object.integers("shape");
  buffer.carried = object.boolean("carried");
  if (buffer.carried && buffer.kind != BSR_DENSE && buffer.kind != BSR_VALUES)
    object.refuse("carried", std::string("false for the kind ") +
                                 bsr_kind_name(buffer.kind));

  bool hasPattern = buffer.kind == BSR_VALUES || isIndices(buffer.kind) ||
                    buffer.kind == BSR_SCORES;
  if (!hasPattern && object.has("pattern"))
    object.refuse("pattern", std::string("left out for the kind ") +
                                 bsr_kind_name(buffer.kind));
  buffer.pattern =
      hasPattern ? parseIndex(object, "pattern", numPatterns, "a pattern") : -1;

  buffer.elements = countElements(object, "shape", buffer.shape, buffer.type);
  buffer.bytes = buffer.elements * bsr_type_bytes(buffer.type);
  buffer.whole = object.has("whole") ? object.integers("whole") : buffer.shape;
  buffer.wholeBytes =
      countElements(object, "whole", buffer.whole, buffer.type) *
      bsr_type_bytes(buffer.type);
  if (object.has("whole"))
    checkShard(object, buffer, sharded);

  buffer.init = object.has("init") ? object.text("init") : "";
  if (object.has("init") &&
      (isIndices(buffer.kind) || buffer.kind == BSR_SCORES))
    object.refuse("init", std::string("left out for the kind ") +
                              bsr_kind_name(buffer.kind));
  if (object.has("init") && !parseInitRule(buffer.init, buffer.type))
    object.refuse("init", "zeros, ones, constant(c) or normal(s) for " +
                              std::string(bsr_type_name(buffer.type)));
  buffer.arenaOffset = buffer.kind == BSR_SCORES
                           ? object.integer("arena_offset", 0, mostBytes)
                           : -1;
  return buffer;
}

/// The shape that a buffer of `kind` of `pattern` has.
static std::vector<int64_t> shapeOf(const Pattern &pattern, bsr_kind kind) {
  switch (kind) {
  case BSR_VALUES:
    return {pattern.slots, pattern.blockRows, pattern.blockCols};
  case BSR_ROW_PTR:
    return {pattern.gridRows() + 1};
  case BSR_COL_PTR:
    return {pattern.gridCols() + 1};
  case BSR_SCORES:
    return {pattern.gridRows(), pattern.gridCols()};
  default:
    return {pattern.slots};
  }
}

/// Reads the static `pattern`, whose row view the manifest holds, and adds the
/// rest of its arrays.
static void parseArrays(const JsonObject &object, const std::string &where,
                        Pattern &pattern) {
  auto parse = [&](bsr_kind kind) {
    auto numbers = object.integers(bsr_kind_name(kind));
    return std::vector<int32_t>(numbers.begin(), numbers.end());
  };
  std::vector<int32_t> rowPtr = parse(BSR_ROW_PTR), colIdx = parse(BSR_COL_IDX);
  if (int64_t(rowPtr.size()) != pattern.gridRows() + 1)
    object.refuse("row_ptr",
                  "of size " + std::to_string(pattern.gridRows() + 1));
  if (int64_t(colIdx.size()) != pattern.slots)
    object.refuse("col_idx", "of size " + std::to_string(pattern.slots));
  bsr_pattern_view view = {pattern.slots, rowPtr.data(), colIdx.data(), nullptr,
                           nullptr,       nullptr,       nullptr};
  PatternScratch none = {};
  try {
    checkPattern(pattern, view, none);
  } catch (const Error &error) {
    fail(BSR_INVALID_STEP, error.sentence, ", in ", where);
  }
  auto allocate = [&](bsr_kind kind) {
    auto &array = pattern.arrays[kind - BSR_ROW_PTR];
    array.resize(size_t(shapeOf(pattern, kind)[0]));
    return array.data();
  };
  assignPattern(pattern, view,
                {allocate(BSR_ROW_PTR), allocate(BSR_COL_IDX),
                 allocate(BSR_SLOT), allocate(BSR_COL_PTR),
                 allocate(BSR_ROW_IDX), allocate(BSR_SLOT_T)});
}

static Pattern parsePattern(const JsonObject &object, int64_t numBuffers,
                            const std::string &where) {
  Pattern pattern;
  pattern.name = object.text("name");
  auto shape = object.integers("shape");
  auto block = object.integers("block");
  if (shape.size() != 2)
    object.refuse("shape", "two sizes");
  if (block.size() != 2)
    object.refuse("block", "two sizes");
  if (shape[0] % block[0] != 0 || shape[1] % block[1] != 0)
    object.refuse("shape", "a multiple of the block " +
                               std::to_string(block[0]) + "x" +
                               std::to_string(block[1]));
  pattern.rows = shape[0];
  pattern.cols = shape[1];
  pattern.blockRows = block[0];
  pattern.blockCols = block[1];
  if (pattern.allBlocks() > mostBlocks)
    object.refuse("shape", "of at most 2^47 blocks");
  pattern.slots = object.integer("slots");
  pattern.density =
      object.has("density")
          ? object.number("density")
          : std::min(1.0, double(pattern.slots) / double(pattern.allBlocks()));
  if (!(pattern.density > 0 && pattern.density <= 1))
    object.refuse("density", "in (0, 1]");
  pattern.isStatic = object.boolean("static");
  pattern.weight = parseIndex(object, "weight", numBuffers, "a buffer");
  pattern.flops = object.has("flops") ? object.integer("flops") : 0;
  std::fill(std::begin(pattern.indices), std::end(pattern.indices), -1);
  if (pattern.isStatic) {
    parseArrays(object, where, pattern);
    return pattern;
  }
  JsonObject indices = object.object("buffers");
  for (bsr_kind kind : indexKinds)
    pattern.indices[kind - BSR_ROW_PTR] =
        parseIndex(indices, bsr_kind_name(kind), numBuffers, "a buffer");
  return pattern;
}

/// The extents of the array that the weight of `pattern` is in the program,
/// added up: of a convolution's, those of its window, too. `weight` is its
/// buffer. An extent in which the array has several matrices does not count.
static int64_t sumExtents(const JsonObject &weight, const Pattern &pattern) {
  int64_t ofMatrix = pattern.rows + pattern.cols;
  if (!weight.has("origin"))
    return ofMatrix;
  JsonObject origin = weight.object("origin");
  std::vector<int64_t> shape = origin.integers("shape");
  std::vector<int64_t> sizes = origin.integers("sizes");
  if (sizes.size() != shape.size())
    origin.refuse("sizes", "as many extents as the shape has");
  double elements = 1;
  int64_t sum = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    elements *= double(sizes[i]);
    if (sizes[i] > 1 || shape[i] == 1)
      sum += sizes[i];
  }
  if (elements != double(pattern.rows) * double(pattern.cols))
    origin.refuse("sizes", "of as many elements as the matrix has");
  return shape.size() > 2 ? sum : ofMatrix;
}

static Timer parseTimer(const JsonObject &object) {
  return {object.text("kernel"),
          object.text("kind"),
          object.text("operands"),
          object.integer("flops"),
          object.integer("bytes"),
          object.has("items") ? object.integer("items") : 0};
}

/// Three extents under `key`, or those of one thing where there are none.
static std::array<unsigned, 3> parseExtents(const JsonObject &object,
                                            const char *key) {
  if (!object.has(key))
    return {1, 1, 1};
  std::vector<int64_t> extents = object.integers(key);
  if (extents.size() != 3)
    object.refuse(key, "three extents");
  return {unsigned(extents[0]), unsigned(extents[1]), unsigned(extents[2])};
}

static LaunchArgument parseArgument(const JsonObject &object,
                                    const Manifest &manifest) {
  LaunchArgument argument;
  if (object.has("buffer") + object.has("arena") + object.has("number") != 1)
    object.refuse(object.has("arena") ? "arena" : "buffer",
                  "one of buffer, arena and number");
  if (object.has("number")) {
    argument.kind = LaunchArgument::Number;
    argument.value = object.integer("number");
  } else if (object.has("arena")) {
    argument.kind = LaunchArgument::Arena;
    argument.value = object.integer("arena", 0, manifest.arenaBytes);
  } else {
    argument.kind = LaunchArgument::Buffer;
    argument.value = parseIndex(object, "buffer",
                                int64_t(manifest.buffers.size()), "a buffer");
  }
  if (!object.has("map"))
    return argument;
  JsonObject map = object.object("map");
  if (argument.kind == LaunchArgument::Number)
    object.refuse("map", "left out for a number");
  LaunchArgument::Map known{bsr_type(*findElementType(map.text("type"))),
                            map.integers("shape"), map.integers("box"),
                            map.integer("swizzle")};
  if (known.shape.empty() || known.shape.size() > 5)
    map.refuse("shape", "one to five extents");
  if (known.box.size() != known.shape.size())
    map.refuse("box", "as many extents as the shape has");
  if (known.swizzle != 0 && known.swizzle != 32 && known.swizzle != 64 &&
      known.swizzle != 128)
    map.refuse("swizzle", "0, 32, 64 or 128");
  argument.map = std::move(known);
  return argument;
}

static Launch parseLaunch(const JsonObject &object, const Manifest &manifest,
                          const std::string &where) {
  std::string when = object.text("when");
  Launch launch{object.text("kernel"),
                Launch::When(std::find(std::begin(launchTimes),
                                       std::end(launchTimes), when) -
                             std::begin(launchTimes)),
                parseExtents(object, "grid"),
                parseExtents(object, "block"),
                parseExtents(object, "cluster"),
                object.has("shared") ? object.integer("shared") : 0,
                {}};
  const Json &arguments = object.array("arguments");
  for (size_t i = 0; i < arguments.size(); ++i)
    launch.arguments.push_back(parseArgument(
        JsonObject(arguments[i], BSR_INVALID_STEP,
                   "argument " + std::to_string(i) + " of " + where),
        manifest));
  return launch;
}

/// Reads what a GPU does in the step.
static void parseLaunches(const JsonObject &object, const std::string &where,
                          Manifest &manifest) {
  if (object.has("chip") != object.has("launches"))
    object.refuse(object.has("chip") ? "chip" : "launches",
                  "beside the other of chip and launches, or left out");
  if (object.has("plan_bytes") && !object.has("chip"))
    object.refuse("plan_bytes", "left out for processors");
  if (!object.has("chip"))
    return;
  if (object.has("plan_bytes"))
    manifest.planBytes = object.integer("plan_bytes", 0, manifest.arenaBytes);
  manifest.chip = object.text("chip");
  const Json &launches = object.array("launches");
  for (size_t i = 0; i < launches.size(); ++i) {
    std::string name = "launch " + std::to_string(i) + " of " + where;
    manifest.launches.push_back(parseLaunch(
        JsonObject(launches[i], BSR_INVALID_STEP, name), manifest, name));
  }
}

/// Checks the scores that are buffer `index`.
static void checkScores(const JsonObject &object, const Manifest &manifest,
                        int32_t index) {
  const Buffer &buffer = manifest.buffers[index];
  const Pattern &pattern = manifest.patterns[buffer.pattern];
  if (manifest.scoreNorm.empty())
    object.refuse("kind", "another one in a step without score_norm");
  if (buffer.type != BSR_F32)
    object.refuse("type", "f32 for the kind scores");
  if (pattern.isStatic)
    object.refuse("pattern", "one that is not static");
  if (pattern.scores != index)
    object.refuse("pattern", "one whose scores are buffer " +
                                 std::to_string(pattern.scores));
  if (buffer.arenaOffset % 64 ||
      buffer.arenaOffset > manifest.arenaBytes - buffer.bytes)
    object.refuse("arena_offset", "a multiple of 64 with room for " +
                                      std::to_string(buffer.bytes) +
                                      " bytes up to the arena's end");
}

/// The number of the buffer of role `apply`, one element, of a step that
/// accumulates.
static int64_t findApply(const JsonObject &object, const Manifest &manifest) {
  for (size_t i = 0; i < manifest.buffers.size(); ++i)
    if (manifest.buffers[i].role == "apply" &&
        manifest.buffers[i].elements == 1)
      return int64_t(i);
  object.refuse("accumulates", "left out in a step without a buffer of one "
                               "element of role apply");
}

/// Checks a buffer against its pattern, and the pattern against its buffer.
static void checkBuffer(const JsonObject &object, const Manifest &manifest,
                        int32_t index) {
  const Buffer &buffer = manifest.buffers[index];
  if (buffer.pattern < 0)
    return;
  const Pattern &pattern = manifest.patterns[buffer.pattern];
  auto shape = shapeOf(pattern, buffer.kind);
  if (buffer.role == "count") // a block has one
    shape = {pattern.slots, 1, 1};
  if (buffer.whole != shape)
    object.refuse(object.has("whole") ? "whole" : "shape",
                  describe(shape) + " as its pattern says");
  if (isShard(buffer) && pattern.slots == 1)
    object.refuse("whole", "left out for a pattern of one slot");
  if (buffer.kind == BSR_VALUES) {
    if (!isFloat(elementType(buffer.type)))
      object.refuse("type", "a floating-point type for the kind values");
    if (buffer.role == "count" && buffer.type != BSR_F32)
      object.refuse("type", "f32 for the role count");
    return;
  }
  if (buffer.kind == BSR_SCORES) {
    checkScores(object, manifest, index);
    return;
  }
  if (buffer.type != BSR_I32)
    object.refuse("type", std::string("i32 for the kind ") +
                              bsr_kind_name(buffer.kind));
  int32_t expected = pattern.indices[buffer.kind - BSR_ROW_PTR];
  if (expected < 0)
    object.refuse("pattern", "one that is not static");
  if (expected != index)
    object.refuse("pattern", std::string("one whose ") +
                                 bsr_kind_name(buffer.kind) + " is buffer " +
                                 std::to_string(index));
}

/// Checks that `pattern`, number `index`, names buffers of its own.
static void checkOwnBuffers(const JsonObject &object, const Manifest &manifest,
                            int32_t index) {
  const Pattern &pattern = manifest.patterns[index];
  auto isOwn = [&](int32_t buffer, bsr_kind kind) {
    return manifest.buffers[buffer].kind == kind &&
           manifest.buffers[buffer].pattern == index;
  };
  if (!isOwn(pattern.weight, BSR_VALUES))
    object.refuse("weight", "a buffer of this pattern's values");
  if (pattern.isStatic)
    return;
  JsonObject indices = object.object("buffers");
  for (bsr_kind kind : indexKinds)
    if (!isOwn(pattern.indices[kind - BSR_ROW_PTR], kind))
      indices.refuse(bsr_kind_name(kind), "a buffer of this pattern and kind");
}

/// Checks that names tell all tensors of a checkpoint and all patterns apart.
static void checkNames(const Manifest &manifest, const std::string &where) {
  std::set<std::string> tensors = {"__metadata__"}, patterns;
  std::set<std::pair<bsr_kind, std::string>> buffers;
  auto refuse = [&](const char *things, const std::string &name) {
    fail(BSR_INVALID_STEP, "expected ", where, " to name its ", things,
         " differently, but got '", name, "' twice");
  };
  for (const Pattern &pattern : manifest.patterns) {
    if (!patterns.insert(pattern.name).second)
      refuse("patterns", pattern.name);
    for (bsr_kind kind : {BSR_ROW_PTR, BSR_COL_IDX, BSR_SLOT})
      tensors.insert(pattern.tensorName(kind));
    for (const char *what : {everTensor, newestTensor, scoresTensor})
      tensors.insert(pattern.tensorName(what));
  }
  for (const Buffer &buffer : manifest.buffers) {
    if (!buffers.insert({buffer.kind, buffer.name}).second)
      refuse("buffers of one kind", buffer.name);
    if (buffer.carried && !tensors.insert(buffer.name).second)
      refuse("carried buffers", buffer.name);
  }
}

/// Checks that no sum of sizes can overflow.
static void checkMemory(const Manifest &manifest, const std::string &where) {
  int64_t bytes = manifest.arenaBytes;
  for (const Buffer &buffer : manifest.buffers)
    if (buffer.kind != BSR_SCORES && (bytes += buffer.bytes) > mostBytes)
      fail(BSR_INVALID_STEP, "expected the buffers and the arena of ", where,
           " to take at most 2^47 bytes, but got ", bytes, " by buffer '",
           buffer.name, "'");
}

/// Reads what tells a compilation of a step from another: its code, and how it
/// was made.
static void parseCode(const JsonObject &object, const char *text,
                      Manifest &manifest) {
  // The hash and the message are of the order in which the keys stand.
  OrderedJson rest = OrderedJson::parse(text);
  manifest.targetCpu = object.text("target_cpu");
  if (object.has("target_features"))
    manifest.targetFeatures = object.texts("target_features");
  OrderedJson compilation = {{"target_cpu", manifest.targetCpu}};
  if (object.has("compiler"))
    compilation.update(rest["compiler"]);
  manifest.compilation = compilation.dump();
  if (object.has("code")) {
    manifest.code = object.text("code");
    // That of LLVM IR or assembly that was printed: another program made the
    // code of it.
    if (manifest.code == std::string(16, '0'))
      manifest.code.clear();
  }
  for (const char *key :
       {"code", "compiler", "target_cpu", "target_features", "flops"})
    rest.erase(key);
  for (OrderedJson &pattern : rest["patterns"])
    pattern.erase("flops");
  manifest.interfaceHash = xxh64(rest.dump());
}

Manifest sparse_opt::parseManifest(const char *text, const std::string &where) {
  Json json = parseJson(text, BSR_INVALID_STEP, where);
  checkManifest(json, BSR_INVALID_STEP, where);
  JsonObject object(json, BSR_INVALID_STEP, where);
  auto element = [&](const Json &array, const char *name, size_t index) {
    return JsonObject(array[index], BSR_INVALID_STEP,
                      std::string(name) + " " + std::to_string(index) + " of " +
                          where);
  };
  const Json &buffers = object.array("buffers");
  const Json &patterns = object.array("patterns");

  Manifest manifest;
  manifest.name = object.text("name");
  parseCode(object, text, manifest);
  manifest.arenaBytes = object.integer("arena_bytes");
  if (object.has("live_bytes"))
    object.integer("live_bytes", 0, manifest.arenaBytes);
  manifest.leftDense = object.integer("left_dense");
  JsonObject products = object.object("products");
  for (auto &[kind, count] : products.members().items())
    manifest.products[kind] = count;
  if (object.has("flops")) {
    JsonObject flops = object.object("flops");
    manifest.flops = {flops.integer("dense"), flops.integer("scores")};
  }
  if (object.has("sharded"))
    manifest.sharded = object.integer("sharded");
  for (size_t i = 0; i < buffers.size(); ++i)
    manifest.buffers.push_back(parseBuffer(element(buffers, "buffer", i),
                                           int64_t(patterns.size()),
                                           manifest.sharded));
  for (size_t i = 0; i < patterns.size(); ++i)
    manifest.patterns.push_back(parsePattern(element(patterns, "pattern", i),
                                             int64_t(buffers.size()), where));
  for (Pattern &pattern : manifest.patterns)
    pattern.extents =
        sumExtents(element(buffers, "buffer", size_t(pattern.weight)), pattern);
  if (object.has("communicates"))
    manifest.communicates = object.boolean("communicates");
  if (object.has("accumulates") && object.boolean("accumulates"))
    manifest.applyBuffer = findApply(object, manifest);
  if (object.has("stages"))
    manifest.stages = object.integer("stages");
  if (object.has("stage"))
    manifest.stage = object.integer("stage");
  if (object.has("replicas"))
    manifest.replicas = object.boolean("replicas");
  if (object.has("micro_batches"))
    manifest.microBatches = object.integer("micro_batches");
  if (object.has("score_norm"))
    manifest.scoreNorm = object.text("score_norm");
  for (size_t i = 0; i < buffers.size(); ++i)
    if (const Buffer &buffer = manifest.buffers[i]; buffer.kind == BSR_SCORES)
      if (int32_t &own = manifest.patterns[buffer.pattern].scores; own < 0)
        own = int32_t(i);
  if (object.has("timers")) {
    const Json &timers = object.array("timers");
    for (size_t i = 0; i < timers.size(); ++i)
      manifest.timers.push_back(parseTimer(element(timers, "timer", i)));
  }

  for (size_t i = 0; i < patterns.size(); ++i)
    checkOwnBuffers(element(patterns, "pattern", i), manifest, int32_t(i));
  for (size_t i = 0; i < buffers.size(); ++i) {
    checkBuffer(element(buffers, "buffer", i), manifest, int32_t(i));
    const Buffer &buffer = manifest.buffers[i];
    if (buffer.kind == BSR_VALUES)
      manifest.patterns[buffer.pattern].values.push_back(int32_t(i));
  }
  parseLaunches(object, where, manifest);
  checkNames(manifest, where);
  checkMemory(manifest, where);
  return manifest;
}
