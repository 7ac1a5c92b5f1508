// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How long an update of a step's patterns takes at least, by the model: the
// runtime's kernels, on a table such as it makes.

#include "RandomView.h"
#include "bsr/Analysis/Plans.h"
#include "bsr/Codegen/GPU/Prediction/PredictKernels.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "support/PatternKernels.h"
#include <cstring>
#include <map>

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

namespace {
/// A pattern that can change.
struct Dynamic {
  PatternType type;
  ::bsr::ElementType element;  ///< of the weight
  SmallVector<int64_t> values; ///< the bytes of a slot of each buffer
};

/// Memory that is handed out part by part, some of it with known words.
class Memory {
public:
  /// The place of `count` elements of `elementBytes`.
  uint64_t take(int64_t count, int64_t elementBytes) {
    uint64_t place = used;
    used += llvm::alignTo(count * elementBytes, 64);
    return place;
  }
  /// The same of `known`.
  uint64_t take(const KnownWords &known) {
    uint64_t place = take(int64_t(known.size()), sizeof(uint32_t));
    words->resize(used / sizeof(uint32_t));
    llvm::copy(known, words->begin() + int64_t(place / sizeof(uint32_t)));
    return place;
  }
  LaunchArgument asArgument() const {
    LaunchArgument argument;
    argument.bytes = int64_t(used);
    argument.words = words;
    return argument;
  }

private:
  uint64_t used = 0;
  std::shared_ptr<KnownWords> words = std::make_shared<KnownWords>();
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
      auto found = ::bsr::findElementType(name);
      if (!found)
        continue;
      pattern.values.push_back(pattern.type.getBlockRows() *
                               pattern.type.getBlockCols() *
                               ::bsr::bytesOf(*found));
      if (attrs::name.ofArg(step, i) == entry.getAs<StringAttr>("name"))
        pattern.element = *found;
    }
    patterns.push_back(std::move(pattern));
  }
  return patterns;
}

/// `rows`, which have places of memory without known contents.
template <typename Row>
static LaunchArgument getTable(ArrayRef<Row> rows) {
  static_assert(sizeof(Row) % sizeof(uint32_t) == 0);
  std::vector<uint32_t> words(rows.size() * sizeof(Row) / sizeof(uint32_t));
  std::memcpy(words.data(), rows.data(), rows.size() * sizeof(Row));
  LaunchArgument table;
  table.buffer = 1;
  table.bytes = int64_t(rows.size() * sizeof(Row));
  table.words = std::make_shared<KnownWords>(words.begin(), words.end());
  return table;
}

namespace {
/// The tables of one update, and how large its launches are.
struct Tables {
  std::map<::bsr::ElementType, std::vector<::bsr::UpdateRow>> rows;
  std::vector<::bsr::FillRow> fills;
  std::map<::bsr::ElementType, int64_t> mostBlocks;
  int64_t mostFills = 0;
};
} // namespace

/// Adds `pattern` to `tables`, of whose blocks `share` are pruned and regrown.
static void addPattern(const Dynamic &pattern, double share, bool hasScores,
                       Memory &memory, Tables &tables) {
  using namespace ::bsr;
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

  ViewArrays view = makeView(row.rows, row.cols, blocks);
  row.rowPtr = memory.take(*view[0]);
  row.colIdx = memory.take(*view[1]);
  row.slot = memory.take(*view[2]);
  row.colPtr = memory.take(row.cols + 1, 4);
  row.rowIdx = memory.take(blocks, 4);
  row.slotT = memory.take(blocks, 4);
  row.values = memory.take(pattern.type.getSlots() * row.elements,
                           bytesOf(pattern.element));
  row.scores = memory.take(all, 4);
  row.norms = memory.take(blocks, 8);
  row.stored = memory.take(blocks, 8);
  row.kept = memory.take(blocks, 8);
  row.keptSlots = memory.take(blocks, 4);
  row.flags = memory.take(UpdateRow::wordsOfFlags(blocks), 4);
  int64_t groups = UpdateRow::groupsOfRows(row.rows, row.cols);
  row.marks = memory.take(std::max(groups, all / 32 + 1), 4);
  row.before = memory.take(groups, 4);
  row.chosen = row.fresh = memory.take(row.count, 8);
  row.pruned = memory.take(row.count, 4);
  // The slots of any blocks, and how many they are.
  row.freed =
      memory.take(KnownWords(view[2]->begin(), view[2]->begin() + row.count));
  row.result = memory.take(KnownWords{row.count, 0, row.count, 0});
  memory.take(sizeof(UpdateResult), 1);

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

FailureOr<SmallVector<KernelPrediction, 0>>
mlir::bsr::gpu::predictUpdate(ModuleOp module, double share,
                              const ModelParameters &parameters) {
  using namespace ::bsr;
  std::string text = patternKernels(); // kernels refer to it
  llvm::Expected<std::vector<ptx::Kernel>> kernels = ptx::parse(text);
  if (!kernels)
    return module.emitError() << llvm::toString(kernels.takeError());
  const Chip &chip = *findChip(cast<GPUAttr>(getTarget(module)).getChip());
  SmallVector<KernelPrediction, 0> predictions;
  Memory memory;
  auto predict = [&](const std::string &name, std::array<int64_t, 3> grid,
                     unsigned threads, LaunchArgument table) -> LogicalResult {
    const ptx::Kernel &kernel =
        *llvm::find_if(*kernels, [&](const ptx::Kernel &kernel) {
          return kernel.name == name;
        });
    Launch launch{grid, {threads, 1, 1}, {memory.asArgument(), table}};
    llvm::Expected<Profile> counted = profile(kernel, launch);
    if (!counted)
      return module.emitError() << llvm::toString(counted.takeError());
    KernelPrediction &made = predictions.emplace_back();
    made.name = name;
    made.launches = 1;
    made.when = KernelPrediction::Update;
    made.profile = *counted;
    made.prediction = bound(counted->work, chip, parameters);
    return success();
  };

  for (auto step : module.getOps<func::FuncOp>()) {
    if (isOfPlans(step))
      continue;
    auto scores = dyn_cast_or_null<ArrayAttr>(attrs::scores.get(step));
    bool hasScores = scores && !scores.empty();
    Tables tables;
    for (const Dynamic &pattern : getPatterns(step))
      addPattern(pattern, share, hasScores, memory, tables);
    std::vector<UpdateRow> all;
    for (auto &[element, rows] : tables.rows) {
      if (failed(predict(normKernel("sum", element),
                         {tables.mostBlocks[element], int64_t(rows.size()), 1},
                         patternThreads, getTable(ArrayRef(rows)))))
        return failure();
      all.insert(all.end(), rows.begin(), rows.end());
    }
    std::array<int64_t, 3> grid = {int64_t(all.size()), 1, 1};
    LaunchArgument table = getTable(ArrayRef(all));
    if (all.empty())
      continue;
    if (failed(predict(pruneKernel, grid, updateThreads, table)) ||
        failed(predict(updateKernel, grid, updateThreads, table)) ||
        failed(predict(fillKernel,
                       {tables.mostFills, int64_t(tables.fills.size()), 1},
                       patternThreads, getTable(ArrayRef(tables.fills)))))
      return failure();
  }
  return predictions;
}
