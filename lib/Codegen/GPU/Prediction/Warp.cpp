// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Follows a warp through its kernel and counts what it does.

#include "Warp.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace llvm;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;
using namespace mlir::bsr::ptx;

/// Parameters point to memory of their own: its number is above these bits.
static constexpr unsigned addressBits = 40;
/// Iterations that are followed before others are taken to be like them: two
/// more than the bf16 elements of a sector.
static constexpr unsigned settledArrivals = 18;
/// Steps of one warp.
static constexpr uint64_t maxSteps = 4'000'000;

/// The unit that computes `instruction`, or none for those that only move.
static std::optional<Unit> getUnit(const Instruction &instruction) {
  StringRef name = instruction.name(), type = instruction.type();
  if (llvm::is_contained({"mov",      "ld",    "st",   "bra",  "ret",
                          "exit",     "bar",   "cp",   "mma",  "ldmatrix",
                          "stmatrix", "cvta",  "atom", "red",  "barrier",
                          "membar",   "fence", "shfl", "vote", "wgmma",
                          "mbarrier", "mapa"},
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
  if (instruction.has("tensor"))
    return StepKind::BoxCopy;
  if (instruction.has("mma_async"))
    return StepKind::WarpgroupMultiply;
  if (instruction.has("try_wait"))
    return StepKind::Wait;
  // Who arrives goes on.
  if (instruction.name() == "barrier" && instruction.has("arrive"))
    return StepKind::Other;
  return StringSwitch<StepKind>(instruction.name())
      .Cases({"ld", "st", "atom", "red"}, StepKind::Access)
      .Case("cp", StepKind::AsyncCopy)
      .Case("mma", StepKind::Multiply)
      .Cases({"ldmatrix", "stmatrix"}, StepKind::Matrix)
      .Cases({"bar", "barrier"}, StepKind::Barrier)
      .Case("shfl", StepKind::Exchange)
      .Default(StepKind::Other);
}

Flow::Flow(const Kernel &given, const Launch &launch)
    : laidOut(given), kernel(laidOut.kernel), launch(launch),
      loopOf(kernel.instructions.size()) {
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
      if (inner.guard)
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

Warp::Warp(const Flow &flow, int64_t block, int64_t warp, SharedWords *shared)
    : counts(numCounts + 2 * flow.kernel.parameters.size()), flow(flow),
      shared(shared), values(flow.getNumValues()), records(flow.loops.size()) {
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
                       bool isWrite, bool isCached) {
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
  counts[missCount] += isCached ? numUnknown : all;
  if (isCached)
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
  unsigned vector = getVector(instruction), bytes = width * vector;
  WarpValue address = getAddress(place);
  if (instruction.has("param")) {
    write(instruction.operands[0].index, address, lanes);
    return;
  }
  bool isShared = instruction.has("shared") || instruction.has("shared::cta");
  if (isShared)
    countShared(address, bytes, lanes);
  else if (!instruction.has("local") && !instruction.has("const"))
    // Writes go through to L2.
    countGlobal(address, bytes, lanes, !isLoad, /*isCached=*/isLoad);

  // What is known of memory are words of 32 bits, parts of them, and two.
  constexpr unsigned wordBytes = 4;
  Extension part{8 * width, instruction.type().starts_with("s")};
  bool isKnown = width <= 2 * wordBytes &&
                 (instruction.name() == "ld" || instruction.name() == "st");
  unsigned first = isLoad ? 0 : instruction.operands.size() - vector;
  for (unsigned i = 0; i != vector; ++i) {
    const Operand &operand = instruction.operands[first + i];
    if (!isLoad) {
      WarpValue value = read(operand);
      for (unsigned lane = 0; shared && lane != numLanes; ++lane)
        for (unsigned byte = 0;
             (lanes & address.known) >> lane & 1 && byte < width;
             byte += wordBytes)
          writeWord(
              llvm::alignDown(address.lanes[lane] + width * i + byte,
                              wordBytes),
              isShared,
              isKnown && width >= wordBytes && value.known >> lane & 1
                  ? std::optional<uint32_t>(value.lanes[lane] >> (8 * byte))
                  : std::nullopt);
      continue;
    }
    WarpValue value;
    value.isData = true;
    for (unsigned lane = 0; isKnown && lane != numLanes; ++lane)
      if ((lanes & address.known) >> lane & 1) {
        uint64_t at = address.lanes[lane] + width * i;
        uint64_t first = llvm::alignDown(at, wordBytes);
        auto word = readWord(first, isShared);
        std::optional<uint64_t> found;
        if (word)
          found = *word >> (8 * (at - first));
        if (found && width == 2 * wordBytes) {
          auto upper = readWord(first + wordBytes, isShared);
          found = upper ? std::optional(*found | uint64_t(*upper) << 32)
                        : std::nullopt;
        }
        if (found) {
          value.known |= Mask(1) << lane;
          value.lanes[lane] = part(*found);
        }
      }
    if (operand.kind == Operand::Kind::Register)
      write(operand.index, value, lanes);
  }
  // What an atomic operation returns is not known, and what it leaves neither.
  for (unsigned result = 0; !isLoad && result != instruction.numResults;
       ++result)
    write(instruction.operands[result].index, WarpValue(), lanes);
}

std::optional<uint32_t> Warp::readWord(uint64_t address, bool isShared) const {
  if (isShared) {
    if (!shared)
      return std::nullopt;
    auto found = shared->find(address);
    return found == shared->end() ? std::nullopt
                                  : std::optional<uint32_t>(found->second);
  }
  uint64_t parameter = address >> addressBits;
  uint64_t word = (address & ((uint64_t(1) << addressBits) - 1)) / 4;
  if (parameter == 0 || parameter > kernel().parameters.size())
    return std::nullopt;
  const auto &words = flow.launch.arguments[parameter - 1].words;
  return words && word < words->size() ? (*words)[word] : std::nullopt;
}

void Warp::writeWord(uint64_t address, bool isShared,
                     std::optional<uint32_t> word) {
  if (isShared) {
    if (word)
      (*shared)[address] = *word;
    else
      shared->erase(address);
    return;
  }
  uint64_t parameter = address >> addressBits;
  uint64_t index = (address & ((uint64_t(1) << addressBits) - 1)) / 4;
  if (parameter == 0 || parameter > kernel().parameters.size())
    return;
  const auto &words = flow.launch.arguments[parameter - 1].words;
  if (words && index < words->size())
    (*words)[index] = word;
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
  if (!reads)
    return;
  bool isCached = instruction.has("ca");
  double sectors = counts[sectorCount];
  countGlobal(getAddress(instruction.operands[1]), bytes, reads,
              /*isWrite=*/false, isCached);
  if (!isCached)
    counts[passedCount] += counts[sectorCount] - sectors;
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

void Warp::multiply(const Instruction &instruction, bool isWarpgroup) {
  ++counts[matrixCount];
  double volume = 0;
  for (StringRef part : instruction.parts)
    volume = std::max(volume, getVolume(part));
  auto type = instruction.has("tf32") ? TensorType::TF32 : TensorType::Half;
  if (!isWarpgroup) {
    counts[tensorCount + static_cast<unsigned>(type)] += 2 * volume;
    return;
  }
  // A warp has a quarter. Operands are 32 bytes of each row and column, which
  // tensor cores read in shared memory.
  constexpr double warps = 4, rows = 64, bytes = 32;
  double depth = type == TensorType::TF32 ? 8 : 16;
  double columns = volume / (rows * depth);
  counts[warpgroupCount + static_cast<unsigned>(type)] += 2 * volume / warps;
  counts[wavefrontCount] += (rows + columns) * bytes / (sharedBytes * warps);
}

/// How much of `extent` from `first` on is below `end`.
static int64_t getInside(int64_t first, int64_t extent, int64_t end) {
  return std::clamp<int64_t>(end - first, 0, first < 0 ? 0 : extent);
}

void Warp::copyBox(const Instruction &instruction, Mask lanes) {
  // `[to], [map, {column, row}], [barrier], blocks`.
  WarpValue map = read(instruction.operands[1]);
  WarpValue column = read(instruction.operands[2]);
  WarpValue row = read(instruction.operands[3]);
  for (unsigned lane = 0; lane != numLanes; ++lane) {
    uint64_t parameter = map.lanes[lane] >> addressBits;
    if (!((lanes & map.known) >> lane & 1) || parameter == 0 ||
        parameter > kernel().parameters.size() ||
        !flow.launch.arguments[parameter - 1].box)
      continue;
    const TensorBox &box = *flow.launch.arguments[parameter - 1].box;
    bool isKnown = (column.known & row.known) >> lane & 1;
    hasDataAddresses |= !isKnown;
    int64_t rows = box.boxRows, columns = box.boxColumns;
    if (isKnown) {
      rows = getInside(int32_t(row.lanes[lane]), rows, box.rows);
      columns = getInside(int32_t(column.lanes[lane]), columns, box.columns);
    }
    double bytes = double(rows * columns * box.elementBytes);
    double filled = double(box.boxRows * box.boxColumns * box.elementBytes);
    double blocks = 1;
    if (instruction.operands.size() > 5)
      if (WarpValue mask = read(instruction.operands[5]);
          mask.known >> lane & 1)
        blocks = llvm::popcount(uint16_t(mask.lanes[lane]));
    counts[sectorCount] += bytes / sectorBytes;
    counts[passedCount] += bytes / sectorBytes;
    counts[missCount] += bytes / sectorBytes;
    counts[wavefrontCount] += blocks * filled / sharedBytes;
    counts[numCounts + 2 * (parameter - 1)] += bytes;
  }
}

void Warp::exchange(const Instruction &instruction, Mask lanes) {
  // `shfl.sync.bfly.b32 result, value, mask, ...`, alone or with a predicate.
  unsigned first = instruction.numResults;
  WarpValue value = read(instruction.operands[first]), result;
  WarpValue mask = read(instruction.operands[first + 1]);
  result.isData = value.isData;
  for (unsigned lane = 0; lane != numLanes; ++lane) {
    unsigned other = (lane ^ mask.lanes[lane]) % numLanes;
    bool isKnown = instruction.has("bfly") && (mask.known >> lane & 1) &&
                   (value.known >> other & 1);
    result.known |= Mask(isKnown) << lane;
    result.lanes[lane] = value.lanes[other];
  }
  for (unsigned i = 0; i != instruction.numResults; ++i)
    if (const Operand &operand = instruction.operands[i];
        operand.kind == Operand::Kind::Register)
      write(operand.index, i ? WarpValue() : result, lanes);
}

void Warp::execute(unsigned number, Mask lanes) {
  const Instruction &instruction = kernel().instructions[number];
  const Step &step = flow.steps[number];
  switch (step.kind) {
  case StepKind::Access:
    return access(instruction, lanes);
  case StepKind::AsyncCopy:
    return copyAsync(instruction, lanes);
  case StepKind::BoxCopy:
    return copyBox(instruction, lanes);
  case StepKind::Multiply:
  case StepKind::WarpgroupMultiply:
    multiply(instruction, step.kind == StepKind::WarpgroupMultiply);
    break;
  case StepKind::Exchange:
    return exchange(instruction, lanes);
  case StepKind::Wait:
    // It comes back when the phase is over.
    write(instruction.operands[0].index,
          WarpValue::get([](unsigned) { return 1; }), lanes);
    return;
  case StepKind::Matrix:
    ++counts[matrixCount];
    counts[wavefrontCount] += instruction.has("x4")   ? 4
                              : instruction.has("x2") ? 2
                                                      : 1;
    break;
  case StepKind::Barrier:
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
  // What is followed for its results needs all numbers.
  if (shared && !llvm::all_of(progress, [](const Progress &steps) {
        return steps.isLinear;
      }))
    return;
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
  unsigned behind = flow.laidOut.next[number];
  unsigned next = taken ? instruction.target : behind;
  if (taken && taken != lanes) {
    if (isTogether)
      places.fill(behind);
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
      places[lane] = taken >> lane & 1 ? instruction.target : behind;
}

Expected<bool> Warp::resume() {
  while (alive) {
    Mask lanes = alive;
    if (!isTogether) {
      // The lowest place of those that go on, and who is there.
      place = std::numeric_limits<unsigned>::max();
      lanes = 0;
      for (unsigned lane = 0; lane != numLanes; ++lane) {
        if (!((alive & ~waiting) >> lane & 1) || places[lane] > place)
          continue;
        lanes = (places[lane] == place ? lanes : 0) | Mask(1) << lane;
        place = places[lane];
      }
      isTogether = lanes == alive;
    }
    if (place >= kernel().instructions.size())
      return false;
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
    place = flow.laidOut.next[number];
    if (!isTogether)
      for (unsigned lane = 0; lane != numLanes; ++lane)
        if (lanes >> lane & 1)
          places[lane] = place;
    if (flow.steps[number].kind == StepKind::Barrier)
      waiting |= lanes;
    if (waiting && (waiting & alive) == alive) {
      waiting = 0;
      return true;
    }
  }
  return false;
}
