// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Follows warps of a launch through their kernel and counts what they do.

#include "bsr/Codegen/GPU/Profile.h"
#include "WarpValues.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace llvm;
using namespace mlir::bsr;
using namespace mlir::bsr::ptx;

namespace {
/// What is counted. Behind these: what each parameter's memory is read, then
/// written, in bytes.
enum Count {
  instructionCount,
  arithmeticCount,
  tensorCount = arithmeticCount + numUnits,
  wavefrontCount = tensorCount + numTensorTypes,
  sectorCount,
  missCount,
  matrixCount,
  numCounts
};
using Counts = std::vector<double>;

/// A branch back to `header` from `latch`, the last instruction of the loop.
struct Loop {
  unsigned header, latch;
  /// What instructions in it write; see `Flow::getOperandHistory`.
  SmallVector<unsigned> written;
  /// The comparisons that its branches go by.
  SmallVector<unsigned> comparisons;
  /// False if what a branch goes by is more than a comparison.
  bool isSimple = true;
};

enum class StepKind { Access, AsyncCopy, Multiply, Matrix, Other };

/// What an instruction is to a warp.
struct Step {
  StepKind kind;
  std::optional<Unit> unit;
  Computation computation;
};

/// What all warps have alike: the kernel and its loops.
class Flow {
public:
  Flow(const Kernel &kernel, const Launch &launch);

  /// The operands that comparison `number` had last are kept like registers:
  /// the number of the first of the two.
  unsigned getOperandHistory(unsigned number) const {
    return kernel.numRegisters + 2 * number;
  }
  unsigned getNumValues() const {
    return getOperandHistory(kernel.instructions.size());
  }
  const Loop &getLoop(unsigned latch) const { return loops[loopOf[latch]]; }

  const Kernel &kernel;
  const Launch &launch;
  std::vector<Step> steps;
  std::vector<Loop> loops;

private:
  std::vector<unsigned> loopOf;
};

/// How a loop went in its last iterations.
struct LoopRecord {
  unsigned arrivals = 0; ///< at the end of an iteration, since it was entered
  Counts first;          ///< what was counted until the second
  /// What `Loop::written` was, and the instructions counted, at the last
  /// arrivals, the latest first.
  std::array<std::vector<WarpValue>, 3> values;
  std::array<double, 3> instructions{};
};

/// One warp on its way.
class Warp {
public:
  Warp(const Flow &flow, int64_t block, int64_t warp);

  Error run();

  Counts counts;
  uint64_t numSteps = 0;
  bool hasDataBranches = false, hasDataAddresses = false;

private:
  const Kernel &kernel() const { return flow.kernel; }
  WarpValue read(const Operand &operand);
  WarpValue readSpecial(StringRef name) const;
  /// `base` of an address with its offset.
  WarpValue getAddress(const Operand &operand);
  void write(unsigned index, const WarpValue &value, Mask lanes);

  void execute(unsigned number, Mask lanes);
  void access(const Instruction &instruction, Mask lanes);
  void copyAsync(const Instruction &instruction, Mask lanes);
  void multiply(const Instruction &instruction);
  void countShared(const WarpValue &address, unsigned bytes, Mask lanes);
  void countGlobal(const WarpValue &address, unsigned bytes, Mask lanes,
                   bool isWrite);
  void touch(uint64_t sector);

  /// Goes from `pc` by branch `number`.
  void branch(unsigned number, Mask lanes, Mask taken);
  /// Counts iterations of `loop`, which begins another one, that are like the
  /// last, and goes on behind them.
  void skipIterations(const Loop &loop);

  const Flow &flow;
  std::array<int64_t, 3> blockId;
  std::array<std::array<int64_t, 3>, numLanes> threadId{};
  Mask alive = 0;
  bool isTogether = true; ///< `place` is the place of all
  std::array<unsigned, numLanes> places{};
  unsigned place = 0;
  std::vector<WarpValue> values;
  StringMap<unsigned> symbols;
  std::vector<LoopRecord> records;
  /// The sectors in L1, by their last bits.
  std::array<uint64_t, 128> tags;
};
} // namespace

/// Parameters point to memory of their own: its number is above these bits.
static constexpr unsigned addressBits = 40;
static constexpr unsigned sectorBytes = 32;
/// Iterations that are followed before others are taken to be like them: two
/// more than the bf16 elements of a sector.
static constexpr unsigned settledArrivals = 18;
/// Steps of one warp, and of all together after which no other one is followed.
static constexpr uint64_t maxSteps = 4'000'000, enoughSteps = 400'000;

/// The unit that computes `instruction`, or none for those that only move.
static std::optional<Unit> getUnit(const Instruction &instruction) {
  StringRef name = instruction.name(), type = instruction.type();
  if (llvm::is_contained({"mov", "ld", "st", "bra", "ret", "exit", "bar", "cp",
                          "mma", "ldmatrix", "stmatrix", "cvta", "atom", "red",
                          "barrier", "membar", "fence", "shfl", "vote"},
                         name))
    return std::nullopt;
  if (llvm::is_contained(
          {"rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh", "div"},
          name) &&
      (type == "f32" || type == "f64"))
    return type == "f64" ? Unit::Double : Unit::Special;
  if (name == "cvt")
    return instruction.has("f64") ? Unit::Special : Unit::Integer;
  if (type == "f64")
    return Unit::Double;
  return type.contains('f') ? Unit::Float : Unit::Integer;
}

static StepKind getKind(const Instruction &instruction) {
  return StringSwitch<StepKind>(instruction.name())
      .Cases({"ld", "st", "atom", "red"}, StepKind::Access)
      .Case("cp", StepKind::AsyncCopy)
      .Case("mma", StepKind::Multiply)
      .Cases({"ldmatrix", "stmatrix"}, StepKind::Matrix)
      .Default(StepKind::Other);
}

Flow::Flow(const Kernel &kernel, const Launch &launch)
    : kernel(kernel), launch(launch), loopOf(kernel.instructions.size()) {
  for (auto [number, instruction] : llvm::enumerate(kernel.instructions)) {
    steps.push_back({getKind(instruction), getUnit(instruction),
                     Computation::get(instruction)});
    if (!instruction.isBranch() || instruction.target > number)
      continue;
    Loop loop{instruction.target, static_cast<unsigned>(number), {}, {}};
    DenseMap<unsigned, SmallVector<unsigned>> writers;
    SmallVector<unsigned> guards;
    for (unsigned i = loop.header; i <= loop.latch; ++i) {
      const Instruction &inner = kernel.instructions[i];
      for (const Operand &result :
           ArrayRef(inner.operands).take_front(inner.numResults))
        if (result.kind == Operand::Kind::Register) {
          loop.written.push_back(result.index);
          writers[result.index].push_back(i);
        }
      if (inner.name() == "setp")
        for (unsigned operand : {0, 1})
          loop.written.push_back(getOperandHistory(i) + operand);
      if (inner.isBranch() && inner.guard)
        guards.push_back(*inner.guard);
    }
    llvm::sort(loop.written);
    loop.written.erase(llvm::unique(loop.written), loop.written.end());
    for (unsigned guard : guards) {
      ArrayRef<unsigned> found = writers[guard];
      if (found.empty())
        continue;
      const Instruction &writer = kernel.instructions[found.front()];
      loop.isSimple &= found.size() == 1 && writer.name() == "setp" &&
                       writer.operands.size() == 3 && !writer.guard;
      loop.comparisons.push_back(found.front());
    }
    loopOf[number] = loops.size();
    loops.push_back(std::move(loop));
  }
}

Warp::Warp(const Flow &flow, int64_t block, int64_t warp)
    : counts(numCounts + 2 * flow.kernel.parameters.size()), flow(flow),
      values(flow.getNumValues()), records(flow.loops.size()) {
  const Launch &launch = flow.launch;
  blockId = {block % launch.grid[0], block / launch.grid[0] % launch.grid[1],
             block / launch.grid[0] / launch.grid[1]};
  for (unsigned lane = 0; lane != numLanes; ++lane) {
    int64_t thread = warp * numLanes + lane;
    threadId[lane] = {thread % launch.block[0],
                      thread / launch.block[0] % launch.block[1],
                      thread / launch.block[0] / launch.block[1]};
    if (threadId[lane][2] < launch.block[2])
      alive |= 1u << lane;
  }
  tags.fill(~uint64_t(0));
}

WarpValue Warp::readSpecial(StringRef name) const {
  auto [base, dimension] = name.split('.');
  size_t dim = StringRef("xyz").find(dimension);
  if (base == "%laneid")
    return WarpValue::get([](unsigned lane) { return lane; });
  if (dim >= 3)
    return WarpValue();
  if (base == "%tid")
    return WarpValue::get([&](unsigned lane) { return threadId[lane][dim]; });
  int64_t number = base == "%ctaid"    ? blockId[dim]
                   : base == "%nctaid" ? flow.launch.grid[dim]
                                       : flow.launch.block[dim];
  return WarpValue::get([&](unsigned) { return number; });
}

WarpValue Warp::read(const Operand &operand) {
  switch (operand.kind) {
  case Operand::Kind::Register:
    return values[operand.index];
  case Operand::Kind::Immediate:
    return WarpValue::get([&](unsigned) { return operand.value; });
  case Operand::Kind::Special:
    return readSpecial(operand.name);
  case Operand::Kind::Symbol: {
    if (std::optional<unsigned> parameter =
            kernel().getParameter(operand.name)) {
      const LaunchArgument &argument = flow.launch.arguments[*parameter];
      uint64_t base = argument.isNumber
                          ? argument.number
                          : uint64_t(*parameter + 1) << addressBits;
      return WarpValue::get([&](unsigned) { return base; });
    }
    // Variables lie apart.
    unsigned number =
        symbols.try_emplace(operand.name, symbols.size()).first->second;
    return WarpValue::get([&](unsigned) { return uint64_t(number) << 20; });
  }
  }
  llvm_unreachable("a kind of operand");
}

WarpValue Warp::getAddress(const Operand &operand) {
  Operand base = operand;
  if (operand.kind == Operand::Kind::Immediate)
    return read(operand);
  WarpValue address = read(base);
  for (uint64_t &lane : address.lanes)
    lane += operand.value;
  return address;
}

void Warp::write(unsigned index, const WarpValue &value, Mask lanes) {
  WarpValue &to = values[index];
  if (lanes == alive) {
    to = value;
    return;
  }
  to.known = (to.known & ~lanes) | (value.known & lanes);
  to.isData |= value.isData;
  for (unsigned lane = 0; lane != numLanes; ++lane)
    if (lanes >> lane & 1)
      to.lanes[lane] = value.lanes[lane];
}

void Warp::touch(uint64_t sector) {
  uint64_t &tag = tags[sector % tags.size()];
  counts[missCount] += tag != sector;
  tag = sector;
}

void Warp::countGlobal(const WarpValue &address, unsigned bytes, Mask lanes,
                       bool isWrite) {
  SmallVector<uint64_t, 2 * numLanes> sectors;
  for (unsigned lane = 0; lane != numLanes; ++lane)
    if ((lanes & address.known) >> lane & 1)
      for (uint64_t sector = address.lanes[lane] / sectorBytes;
           sector <= (address.lanes[lane] + bytes - 1) / sectorBytes; ++sector)
        sectors.push_back(sector);
  llvm::sort(sectors);
  sectors.erase(llvm::unique(sectors), sectors.end());
  unsigned numUnknown = llvm::popcount(lanes & ~address.known);
  hasDataAddresses |= numUnknown != 0;
  double all = sectors.size() + numUnknown;
  counts[sectorCount] += all;
  // Writes go through to L2.
  counts[missCount] += isWrite ? all : numUnknown;
  if (!isWrite)
    for (uint64_t sector : sectors)
      touch(sector);
  for (uint64_t sector : sectors) {
    uint64_t parameter = sector * sectorBytes >> addressBits;
    if (parameter != 0 && parameter <= kernel().parameters.size())
      counts[numCounts + 2 * (parameter - 1) + isWrite] += sectorBytes;
  }
}

void Warp::countShared(const WarpValue &address, unsigned bytes, Mask lanes) {
  // 128 bytes are one wavefront if no two words of it lie in one bank.
  unsigned together = std::max(1u, std::min(numLanes, 128 / bytes));
  for (unsigned first = 0; first < numLanes; first += together) {
    Mask part =
        lanes &
        (together == numLanes ? ~Mask(0) : ((1u << together) - 1) << first);
    if (!part)
      continue;
    if ((part & address.known) != part) {
      counts[wavefrontCount] += 1;
      continue;
    }
    std::array<SmallVector<uint64_t, 4>, 32> banks;
    for (unsigned lane = first; lane != first + together; ++lane)
      if (part >> lane & 1)
        for (uint64_t word = address.lanes[lane] / 4;
             word <= (address.lanes[lane] + bytes - 1) / 4; ++word)
          if (!llvm::is_contained(banks[word % banks.size()], word))
            banks[word % banks.size()].push_back(word);
    size_t most = 0;
    for (const auto &bank : banks)
      most = std::max<size_t>(most, bank.size());
    counts[wavefrontCount] += most;
  }
}

/// How many numbers a load or store takes: 2 for `v2`.
static unsigned getVector(const Instruction &instruction) {
  return instruction.has("v2")   ? 2
         : instruction.has("v4") ? 4
         : instruction.has("v8") ? 8
                                 : 1;
}

void Warp::access(const Instruction &instruction, Mask lanes) {
  bool isLoad = instruction.name() == "ld";
  const Operand &place =
      *llvm::find_if(instruction.operands,
                     [](const Operand &operand) { return operand.isAddress; });
  unsigned width = getBits(instruction.type()) / 8;
  unsigned bytes = width * getVector(instruction);
  WarpValue address = getAddress(place);
  if (instruction.has("param")) {
    write(instruction.operands[0].index, address, lanes);
    return;
  }
  if (instruction.has("shared") || instruction.has("shared::cta"))
    countShared(address, bytes, lanes);
  else if (!instruction.has("local") && !instruction.has("const"))
    countGlobal(address, bytes, lanes, !isLoad);

  // What is known of memory are the index arrays.
  for (unsigned result = 0; result != instruction.numResults; ++result) {
    const Operand &operand = instruction.operands[result];
    if (operand.kind != Operand::Kind::Register)
      continue;
    WarpValue value;
    for (unsigned lane = 0; isLoad && width == 4 && lane != numLanes; ++lane) {
      if (!((lanes & address.known) >> lane & 1))
        continue;
      uint64_t parameter = address.lanes[lane] >> addressBits;
      uint64_t offset =
          address.lanes[lane] & ((uint64_t(1) << addressBits) - 1);
      if (parameter == 0 || parameter > kernel().parameters.size())
        continue;
      const auto &words = flow.launch.arguments[parameter - 1].words;
      uint64_t word = offset / 4 + result;
      if (!words || word >= words->size())
        continue;
      value.known |= 1u << lane;
      value.lanes[lane] = static_cast<uint32_t>((*words)[word]);
    }
    value.isData = true;
    write(operand.index, value, lanes);
  }
}

void Warp::copyAsync(const Instruction &instruction, Mask lanes) {
  if (!instruction.has("async") || instruction.operands.size() < 3)
    return; // waits and groups
  unsigned bytes = instruction.operands[2].value;
  countShared(getAddress(instruction.operands[0]), bytes, lanes);
  // Fewer bytes are read where others are to be zero.
  Mask reads = lanes;
  if (instruction.operands.size() > 3) {
    WarpValue size = read(instruction.operands[3]);
    for (unsigned lane = 0; lane != numLanes; ++lane)
      if (size.known >> lane & 1 && uint32_t(size.lanes[lane]) == 0)
        reads &= ~(1u << lane);
  }
  if (reads)
    countGlobal(getAddress(instruction.operands[1]), bytes, reads,
                /*isWrite=*/false);
}

/// The product of the extents in `m16n8k16`, or 0.
static double getVolume(StringRef shape) {
  double volume = 1;
  for (StringRef letter : {"m", "n", "k"}) {
    unsigned extent;
    if (!shape.consume_front(letter) || shape.consumeInteger(10, extent))
      return 0;
    volume *= extent;
  }
  return volume;
}

void Warp::multiply(const Instruction &instruction) {
  ++counts[matrixCount];
  double volume = 0;
  for (StringRef part : instruction.parts)
    volume = std::max(volume, getVolume(part));
  auto type = instruction.has("tf32") ? TensorType::TF32 : TensorType::Half;
  counts[tensorCount + static_cast<unsigned>(type)] += 2 * volume;
}

void Warp::execute(unsigned number, Mask lanes) {
  const Instruction &instruction = kernel().instructions[number];
  const Step &step = flow.steps[number];
  switch (step.kind) {
  case StepKind::Access:
    return access(instruction, lanes);
  case StepKind::AsyncCopy:
    return copyAsync(instruction, lanes);
  case StepKind::Multiply:
    multiply(instruction);
    break;
  case StepKind::Matrix:
    ++counts[matrixCount];
    counts[wavefrontCount] += instruction.has("x4")   ? 4
                              : instruction.has("x2") ? 2
                                                      : 1;
    break;
  case StepKind::Other:
    break;
  }
  SmallVector<const WarpValue *, 4> operands;
  std::array<WarpValue, 3> others;
  if (step.computation.function || step.computation.isSelect)
    for (const Operand &operand :
         ArrayRef(instruction.operands).drop_front(instruction.numResults))
      operands.push_back(operand.kind == Operand::Kind::Register
                             ? &values[operand.index]
                             : &(others[operands.size()] = read(operand)));
  if (instruction.name() == "setp" && operands.size() == 2)
    for (unsigned i : {0, 1})
      values[flow.getOperandHistory(number) + i] = *operands[i];
  WarpValue value = step.computation.evaluate(operands);
  for (unsigned result = 0; result != instruction.numResults; ++result)
    if (const Operand &operand = instruction.operands[result];
        operand.kind == Operand::Kind::Register)
      write(operand.index, result ? WarpValue() : value, lanes);
}

void Warp::skipIterations(const Loop &loop) {
  LoopRecord &record = records[&loop - flow.loops.data()];
  // What is inside is entered anew.
  for (auto [inner, other] : llvm::zip_equal(flow.loops, records))
    if (&inner != &loop && inner.header >= loop.header &&
        inner.latch < loop.latch)
      other.arrivals = 0;
  if (++record.arrivals == 2)
    record.first = counts;
  if (record.arrivals + 2 < settledArrivals || !loop.isSimple)
    return;
  std::rotate(record.values.begin(), record.values.end() - 1,
              record.values.end());
  std::rotate(record.instructions.begin(), record.instructions.end() - 1,
              record.instructions.end());
  record.instructions[0] = counts[instructionCount];
  record.values[0].clear();
  for (unsigned index : loop.written)
    record.values[0].push_back(values[index]);
  if (record.arrivals < settledArrivals ||
      record.instructions[0] - record.instructions[1] !=
          record.instructions[1] - record.instructions[2])
    return;

  std::vector<Progress> progress;
  for (auto [now, before, earlier] :
       llvm::zip_equal(record.values[0], record.values[1], record.values[2]))
    progress.push_back(Progress::get(now, before, earlier, alive));
  auto find = [&](unsigned index) -> size_t {
    return llvm::lower_bound(loop.written, index) - loop.written.begin();
  };
  int64_t count = std::numeric_limits<int64_t>::max();
  const Instruction &latch = kernel().instructions[loop.latch];
  for (unsigned comparison : loop.comparisons) {
    const Instruction &setp = kernel().instructions[comparison];
    size_t first = find(flow.getOperandHistory(comparison));
    const WarpValue &x = record.values[0][first];
    const WarpValue &y = record.values[0][first + 1];
    bool isEnd = latch.guard && setp.operands[0].index == *latch.guard;
    // Other control by data may be different each time.
    if ((x.isData || y.isData) && !isEnd && (x.known & y.known & alive))
      return;
    Mask known = x.known & y.known & alive;
    if (known && (!progress[first].isLinear || !progress[first + 1].isLinear))
      return;
    for (unsigned lane = 0; lane != numLanes; ++lane)
      if (known >> lane & 1)
        count = std::min(count, getUnchanged(setp, x.lanes[lane], y.lanes[lane],
                                             progress[first].step[lane],
                                             progress[first + 1].step[lane]));
  }
  if (count == std::numeric_limits<int64_t>::max() || count < 1)
    return;
  double share = double(count) / (record.arrivals - 2);
  for (auto [all, first] : llvm::zip_equal(counts, record.first))
    all += (all - first) * share;
  for (auto [index, steps] : llvm::zip_equal(loop.written, progress))
    steps.advance(values[index], count);
  record.arrivals = 0;
}

void Warp::branch(unsigned number, Mask lanes, Mask taken) {
  const Instruction &instruction = kernel().instructions[number];
  unsigned next = taken ? instruction.target : number + 1;
  if (taken && taken != lanes) {
    if (isTogether)
      places.fill(number + 1);
    isTogether = false;
  }
  if (isTogether) {
    if (taken && instruction.target <= number)
      skipIterations(flow.getLoop(number));
    place = next;
    return;
  }
  for (unsigned lane = 0; lane != numLanes; ++lane)
    if (lanes >> lane & 1)
      places[lane] = taken >> lane & 1 ? instruction.target : number + 1;
}

Error Warp::run() {
  while (alive) {
    Mask lanes = alive;
    if (!isTogether) {
      place = std::numeric_limits<unsigned>::max();
      for (unsigned lane = 0; lane != numLanes; ++lane)
        if (alive >> lane & 1)
          place = std::min(place, places[lane]);
      lanes = 0;
      for (unsigned lane = 0; lane != numLanes; ++lane)
        if (alive >> lane & 1 && places[lane] == place)
          lanes |= 1u << lane;
      isTogether = lanes == alive;
    }
    if (place >= kernel().instructions.size())
      return Error::success();
    if (++numSteps > maxSteps)
      return createStringError("expected warps of '" + kernel().name +
                               "' to end within " + Twine(maxSteps) +
                               " instructions that differ, but got more");
    unsigned number = place;
    const Instruction &instruction = kernel().instructions[number];
    ++counts[instructionCount];
    if (std::optional<Unit> unit = flow.steps[number].unit)
      ++counts[arithmeticCount + static_cast<unsigned>(*unit)];
    Mask guarded = lanes;
    if (instruction.guard) {
      const WarpValue &guard = values[*instruction.guard];
      Mask wanted = 0;
      for (unsigned lane = 0; lane != numLanes; ++lane)
        if ((guard.lanes[lane] & 1) != instruction.isGuardNegated)
          wanted |= 1u << lane;
      bool isUnknown = lanes & ~guard.known;
      hasDataBranches |= isUnknown;
      // What a branch on data may skip is counted.
      Mask otherwise = instruction.isBranch() ? 0 : ~guard.known;
      guarded &= (wanted & guard.known) | otherwise;
    }
    if (instruction.isBranch()) {
      branch(number, lanes, guarded);
      continue;
    }
    if (instruction.name() == "ret" || instruction.name() == "exit")
      alive &= ~guarded;
    else if (guarded)
      execute(number, guarded);
    place = number + 1;
    if (!isTogether)
      for (unsigned lane = 0; lane != numLanes; ++lane)
        if (lanes >> lane & 1)
          places[lane] = number + 1;
  }
  return Error::success();
}

llvm::Expected<Profile> mlir::bsr::profile(const Kernel &kernel,
                                           const Launch &launch) {
  if (kernel.parameters.size() != launch.arguments.size())
    return createStringError("expected a launch of '" + kernel.name +
                             "' with " + Twine(kernel.parameters.size()) +
                             " arguments, but got " +
                             Twine(launch.arguments.size()));
  auto product = [](const std::array<int64_t, 3> &extents) {
    return extents[0] * extents[1] * extents[2];
  };
  int64_t blocks = product(launch.grid);
  int64_t warps = llvm::divideCeil(product(launch.block), int64_t(numLanes));
  int64_t all = blocks * warps;
  constexpr int64_t maxFollowed = 64;

  Flow flow(kernel, launch);
  Profile profile;
  Counts sum;
  uint64_t numSteps = 0;
  int64_t followed = 0;
  for (; followed != std::min(all, maxFollowed); ++followed) {
    if (followed && numSteps > enoughSteps)
      break;
    // Multiples of the golden ratio, without their whole parts, lie evenly
    // however many they are.
    constexpr double ratio = 0.6180339887498949;
    double part = (followed + .5) * ratio;
    int64_t number =
        all <= maxFollowed ? followed : (part - std::floor(part)) * all;
    Warp warp(flow, number / warps, number % warps);
    if (Error error = warp.run())
      return error;
    numSteps += warp.numSteps;
    profile.hasDataBranches |= warp.hasDataBranches;
    profile.hasDataAddresses |= warp.hasDataAddresses;
    profile.work.longestWarp =
        std::max(profile.work.longestWarp, warp.counts[instructionCount]);
    sum.resize(warp.counts.size());
    for (auto [total, count] : llvm::zip_equal(sum, warp.counts))
      total += count;
  }
  double scale = followed ? double(all) / followed : 0;
  for (double &count : sum)
    count *= scale;
  sum.resize(numCounts + 2 * kernel.parameters.size());

  KernelWork &work = profile.work;
  work.blocks = blocks;
  work.warps = warps;
  work.instructions = sum[instructionCount];
  for (unsigned unit = 0; unit != numUnits; ++unit)
    work.arithmetic[unit] = sum[arithmeticCount + unit];
  for (unsigned type = 0; type != numTensorTypes; ++type)
    work.tensorFlops[type] = sum[tensorCount + type];
  profile.globalSectors = sum[sectorCount];
  profile.sharedWavefronts = sum[wavefrontCount];
  profile.matrixInstructions = sum[matrixCount];
  work.sharedBytes = sum[sectorCount] * sectorBytes + sum[wavefrontCount] * 128;
  work.l2Bytes = sum[missCount] * sectorBytes;
  // Of each buffer what is touched, once.
  DenseMap<unsigned, std::array<double, 2>> touched;
  DenseMap<unsigned, double> sizes;
  for (auto [index, argument] : llvm::enumerate(launch.arguments)) {
    if (argument.isNumber)
      continue;
    sizes[argument.buffer] =
        std::max<double>(sizes[argument.buffer], argument.bytes);
    for (unsigned isWrite : {0, 1})
      touched[argument.buffer][isWrite] += sum[numCounts + 2 * index + isWrite];
  }
  for (auto [buffer, bytes] : touched)
    for (double part : bytes)
      work.memoryBytes += std::min(part, sizes[buffer]);
  return profile;
}
