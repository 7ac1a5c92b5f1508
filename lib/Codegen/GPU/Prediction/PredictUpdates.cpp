// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long an update of a step's patterns takes at least, by the model: the
// runtime's kernels, on a table such as it makes.

#include "LaunchSampler.h"
#include "RandomPattern.h"
#include "bsr/Analysis/Plans.h"
#include "bsr/Codegen/GPU/Prediction/PredictKernels.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "support/PatternKernels.h"
#include <map>
#include <random>

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

namespace {
/// A pattern that can change.
struct Dynamic {
  PatternType type;
  sparse_opt::ElementType element; ///< of the weight
  SmallVector<int64_t> values;     ///< the bytes of a slot of each buffer
};

/// Memory that is handed out part by part, some of it with known contents.
class Layout {
public:
  /// The offset of `count` elements of `elementBytes`.
  uint64_t take(int64_t count, int64_t elementBytes) {
    uint64_t offset = used;
    used += llvm::alignTo(count * elementBytes, 64);
    return offset;
  }
  /// The same of `known` elements.
  template <typename T>
  uint64_t take(ArrayRef<T> known) {
    uint64_t offset = take(int64_t(known.size()), sizeof(T));
    const auto *bytes = reinterpret_cast<const char *>(known.data());
    contents.emplace_back(
        offset, std::vector<char>(bytes, bytes + known.size() * sizeof(T)));
    return offset;
  }
  /// The same of numbers of 16 or 32 bits that are above 0 and have no order.
  uint64_t takeNumbers(int64_t count, int64_t elementBytes) {
    std::vector<uint32_t> words(llvm::divideCeil(count * elementBytes, 4));
    for (uint32_t &word : words)
      word = 0x3f803f80 | (uint32_t(random()) & 0x007f007f);
    return take(ArrayRef(words));
  }
  /// All of it, in the memory of `sampler`.
  llvm::Expected<BufferRange> allocate(LaunchSampler &sampler) const {
    auto address = sampler.allocate(int64_t(used));
    if (!address)
      return address.takeError();
    for (const auto &[offset, bytes] : contents)
      sampler.write(*address + offset, bytes.data(), bytes.size());
    return BufferRange{*address, int64_t(used)};
  }

private:
  uint64_t used = 0;
  std::vector<std::pair<uint64_t, std::vector<char>>> contents;
  std::minstd_rand random;
};
} // namespace

/// The patterns of `step` that are no constants.
static SmallVector<Dynamic> getPatterns(func::FuncOp step) {
  SmallVector<Dynamic> patterns;
  auto known = attrs::patterns.get(step);
  for (auto [number, attr] :
       llvm::enumerate(known ? known.getValue() : ArrayRef<Attribute>())) {
    auto entry = cast<DictionaryAttr>(attr);
    if (entry.contains("row_ptr"))
      continue;
    Dynamic pattern{
        cast<PatternType>(entry.getAs<TypeAttr>("type").getValue()), {}, {}};
    for (unsigned i : llvm::seq(step.getNumArguments())) {
      auto own = attrs::patternNumber.ofArg(step, i);
      if (!own || own.getInt() != int64_t(number) || attrs::kind.ofArg(step, i))
        continue;
      Type element =
          cast<ShapedType>(step.getArgumentTypes()[i]).getElementType();
      std::string name;
      llvm::raw_string_ostream(name) << element;
      auto found = sparse_opt::findElementType(name);
      if (!found)
        continue;
      pattern.values.push_back(pattern.type.getBlockRows() *
                               pattern.type.getBlockCols() *
                               sparse_opt::bytesOf(*found));
      if (attrs::name.ofArg(step, i) == entry.getAs<StringAttr>("name"))
        pattern.element = *found;
    }
    patterns.push_back(std::move(pattern));
  }
  return patterns;
}

namespace {
/// The tables of one update, and how large its launches are.
struct Tables {
  std::map<sparse_opt::ElementType, std::vector<sparse_opt::UpdateRow>> rows;
  std::vector<sparse_opt::FillRow> fills;
  std::map<sparse_opt::ElementType, int64_t> mostBlocks;
  int64_t mostFills = 0;
};
} // namespace

/// Adds `pattern` to `tables`, of whose blocks `share` are pruned and regrown.
static void addPattern(const Dynamic &pattern, double share, bool hasScores,
                       Layout &memory, Tables &tables) {
  using namespace sparse_opt;
  UpdateRow row = {};
  row.rows = uint32_t(pattern.type.getGridRows());
  row.cols = uint32_t(pattern.type.getGridCols());
  int64_t all = int64_t(row.rows) * row.cols;
  int64_t blocks = std::min(pattern.type.getSlots(), all);
  row.blocks = uint32_t(blocks);
  row.count = uint32_t(std::min(int64_t(share * blocks + .5), all - blocks));
  row.elements =
      uint32_t(pattern.type.getBlockRows() * pattern.type.getBlockCols());
  row.regrowth = hasScores ? Regrowth::Scores : Regrowth::Ranks;
  row.rounds = UpdateRow::roundsOf(row.blocks);

  ViewArrays view = makeRandomView(row.rows, row.cols, blocks);
  row.rowPtr = memory.take(ArrayRef(view[0]));
  row.colIdx = memory.take(ArrayRef(view[1]));
  row.slot = memory.take(ArrayRef(view[2]));
  row.colPtr = memory.take(row.cols + 1, 4);
  row.rowIdx = memory.take(blocks, 4);
  row.slotT = memory.take(blocks, 4);
  row.values = memory.takeNumbers(pattern.type.getSlots() * row.elements,
                                  bytesOf(pattern.element));
  row.scores = memory.takeNumbers(all, 4);
  row.norms = memory.take(blocks, 8);
  row.stored = memory.take(blocks, 8);
  row.kept = memory.take(blocks, 8);
  row.keptSlots = memory.take(blocks, 4);
  row.flags = memory.take(UpdateRow::wordsOfFlags(blocks), 4);
  int64_t groups = UpdateRow::groupsOfRows(row.rows, row.cols);
  row.marks = memory.take(std::max(groups, all / 32 + 1), 4);
  row.before = memory.take(groups, 4);
  // Ranks of blocks that are not stored, evenly.
  std::vector<uint64_t> ranks(row.count);
  for (auto [i, rank] : llvm::enumerate(ranks))
    rank = i * uint64_t(all - blocks) / row.count;
  row.chosen = row.fresh = memory.take(ArrayRef(ranks));
  row.pruned = memory.take(row.count, 4);
  row.freed = memory.take(row.count, 4);
  row.result =
      memory.take(ArrayRef<uint64_t>{0, 0, ~uint64_t(0), ~uint64_t(0)});

  bool isFirst = true;
  for (int64_t bytes : pattern.values) {
    // One of the buffers is the weight.
    uint64_t values =
        isFirst ? row.values : memory.take(pattern.type.getSlots(), bytes);
    isFirst = false;
    tables.fills.push_back({values, row.freed, row.result,
                            row.result + offsetof(UpdateResult, numRegrown),
                            uint64_t(bytes), 0,
                            uint64_t(pattern.type.getSlots()), /*bits=*/0});
    tables.mostFills =
        std::max(tables.mostFills, blocksOfFills(row.count, bytes));
  }
  int64_t &most = tables.mostBlocks[pattern.element];
  most = std::max(most, blocksOfNorms(blocks));
  tables.rows[pattern.element].push_back(row);
}

namespace {
/// Runs the launches of updates one after the other: each reads what those
/// before have left.
class UpdatePredictor {
public:
  UpdatePredictor(LaunchSampler &sampler, const Chip &chip,
                  const ModelParameters &parameters)
      : sampler(sampler), chip(chip), parameters(parameters) {}

  /// Predicts those of `patterns`; see `addPattern`.
  llvm::Error predict(ArrayRef<Dynamic> patterns, double share, bool hasScores);

  SmallVector<KernelPrediction, 0> predictions;

private:
  template <typename Row>
  llvm::Error launch(const std::string &name, ::ptx::Dim grid, unsigned threads,
                     ArrayRef<Row> table);

  LaunchSampler &sampler;
  const Chip &chip;
  const ModelParameters &parameters;
  BufferRange memory;
};
} // namespace

template <typename Row>
llvm::Error UpdatePredictor::launch(const std::string &name, ::ptx::Dim grid,
                                    unsigned threads, ArrayRef<Row> table) {
  auto bytes = int64_t(table.size() * sizeof(Row));
  auto address = sampler.allocate(bytes);
  if (!address)
    return address.takeError();
  sampler.write(*address, table.data(), size_t(bytes));
  const uint64_t arguments[] = {memory.address, *address};
  const auto *begin = reinterpret_cast<const uint8_t *>(arguments);
  ::ptx::LaunchOptions options;
  options.grid = grid;
  options.block.x = threads;
  options.parameters.assign(begin, begin + sizeof(arguments));
  auto sample = sampler.run(name, options, {memory, {*address, bytes}},
                            /*isWhole=*/true);
  if (!sample)
    return sample.takeError();
  KernelPrediction &made = predictions.emplace_back();
  made.name = name;
  made.launches = 1;
  made.when = KernelPrediction::Update;
  made.countedBlocks = sample->blocks;
  made.work = sample->work;
  made.prediction = bound(made.work, chip, parameters);
  return llvm::Error::success();
}

llvm::Error UpdatePredictor::predict(ArrayRef<Dynamic> patterns, double share,
                                     bool hasScores) {
  using namespace sparse_opt;
  if (patterns.empty())
    return llvm::Error::success();
  Layout layout;
  Tables tables;
  for (const Dynamic &pattern : patterns)
    addPattern(pattern, share, hasScores, layout, tables);
  auto allocated = layout.allocate(sampler);
  if (!allocated)
    return allocated.takeError();
  memory = *allocated;
  std::vector<UpdateRow> all;
  for (auto &[element, rows] : tables.rows) {
    ::ptx::Dim grid{unsigned(tables.mostBlocks[element]),
                    unsigned(rows.size())};
    if (llvm::Error error = launch(normKernel("sum", element), grid,
                                   patternThreads, ArrayRef(rows)))
      return error;
    all.insert(all.end(), rows.begin(), rows.end());
  }
  for (const char *name : {pruneKernel, updateKernel})
    if (llvm::Error error =
            launch(name, {unsigned(all.size())}, updateThreads, ArrayRef(all)))
      return error;
  return launch(fillKernel,
                {unsigned(tables.mostFills), unsigned(tables.fills.size())},
                patternThreads, ArrayRef(tables.fills));
}

FailureOr<SmallVector<KernelPrediction, 0>>
mlir::bsr::gpu::predictUpdate(ModuleOp module, double share,
                              const ModelParameters &parameters) {
  auto sampler = LaunchSampler::create(sparse_opt::patternKernels());
  if (!sampler)
    return module.emitError() << llvm::toString(sampler.takeError());
  const Chip &chip = getChip(module);
  UpdatePredictor predictor(**sampler, chip, parameters);
  for (auto step : module.getOps<func::FuncOp>()) {
    if (isOfPlans(step))
      continue;
    auto scores = dyn_cast_or_null<ArrayAttr>(attrs::scores.get(step));
    if (llvm::Error error = predictor.predict(getPatterns(step), share,
                                              scores && !scores.empty()))
      return module.emitError() << llvm::toString(std::move(error));
  }
  return std::move(predictor.predictions);
}
