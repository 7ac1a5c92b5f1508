// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One warp of a launch, followed through its kernel.

#ifndef BSR_LIB_CODEGEN_GPU_PREDICTION_WARP_H
#define BSR_LIB_CODEGEN_GPU_PREDICTION_WARP_H

#include "BlockOrder.h"
#include "WarpValues.h"
#include "bsr/Codegen/GPU/Prediction/Profile.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"

namespace mlir::bsr::gpu {

/// Memory is read and written in sectors.
constexpr unsigned sectorBytes = 32;

/// What a warp counts. Behind these: what each parameter's memory is read, then
/// written, in bytes.
enum Count {
  instructionCount,
  arithmeticCount,
  tensorCount = arithmeticCount + numUnits,
  warpgroupCount = tensorCount + numTensorTypes,
  wavefrontCount = warpgroupCount + numTensorTypes,
  sectorCount,
  missCount,
  /// Sectors that copies to shared memory bring past L1.
  passedCount,
  matrixCount,
  numCounts
};
using Counts = std::vector<double>;

/// A branch back to `header` from `latch`, the last instruction of the loop.
struct Loop {
  unsigned header, latch;
  /// What instructions in it write; see `Flow::getOperandHistory`.
  llvm::SmallVector<unsigned> written;
  /// The comparisons that its guards are made by.
  llvm::SmallVector<unsigned> comparisons;
  /// False if a guard is made by more than a comparison.
  bool isSimple = true;
};

enum class StepKind {
  Access,
  AsyncCopy,
  BoxCopy,
  Multiply,
  WarpgroupMultiply,
  Matrix,
  Exchange,
  Barrier,
  Wait,
  Other
};

/// What an instruction is to a warp.
struct Step {
  StepKind kind;
  std::optional<Unit> unit;
  Computation computation;
};

/// What all warps have alike: the kernel and its loops.
class Flow {
public:
  Flow(const ptx::Kernel &kernel, const Launch &launch);

  /// The operands that comparison `number` had last are kept like registers:
  /// the number of the first of the two.
  unsigned getOperandHistory(unsigned number) const {
    return kernel.numRegisters + 2 * number;
  }
  unsigned getNumValues() const {
    return getOperandHistory(kernel.instructions.size());
  }
  const Loop &getLoop(unsigned latch) const { return loops[loopOf[latch]]; }

  const LaidOutKernel laidOut;
  const ptx::Kernel &kernel;
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

/// Words of 32 bits in the shared memory of a block, by their addresses.
using SharedWords = llvm::DenseMap<uint64_t, uint32_t>;

/// One warp on its way.
class Warp {
public:
  /// `shared` is the memory of the block, where all of its warps are followed
  /// from barrier to barrier and fill the known words of buffers; null where
  /// the warp stands for others.
  Warp(const Flow &flow, int64_t block, int64_t warp,
       SharedWords *shared = nullptr);

  /// Goes on to the next barrier; then it says whether the warp has not ended.
  llvm::Expected<bool> resume();

  Counts counts;
  uint64_t numSteps = 0;
  bool hasDataBranches = false, hasDataAddresses = false;

private:
  const ptx::Kernel &kernel() const { return flow.kernel; }
  WarpValue read(const ptx::Operand &operand);
  WarpValue readSpecial(llvm::StringRef name) const;
  /// `base` of an address with its offset.
  WarpValue getAddress(const ptx::Operand &operand);
  void write(unsigned index, const WarpValue &value, Mask lanes);

  void execute(unsigned number, Mask lanes);
  void access(const ptx::Instruction &instruction, Mask lanes);
  void copyAsync(const ptx::Instruction &instruction, Mask lanes);
  void copyBox(const ptx::Instruction &instruction, Mask lanes);
  void exchange(const ptx::Instruction &instruction, Mask lanes);
  void multiply(const ptx::Instruction &instruction, bool isWarpgroup);
  void countShared(const WarpValue &address, unsigned bytes, Mask lanes);
  /// `isCached`: L1 may have it.
  void countGlobal(const WarpValue &address, unsigned bytes, Mask lanes,
                   bool isWrite, bool isCached);
  void touch(uint64_t sector);

  /// Goes from `pc` by branch `number`.
  void branch(unsigned number, Mask lanes, Mask taken);
  /// Counts iterations of `loop`, which begins another one, that are like the
  /// last, and goes on behind them.
  void skipIterations(const Loop &loop);

  /// The word of 32 bits at `address`, where it is known.
  std::optional<uint32_t> readWord(uint64_t address, bool isShared) const;
  void writeWord(uint64_t address, bool isShared, std::optional<uint32_t> word);

  const Flow &flow;
  SharedWords *shared;
  std::array<int64_t, 3> blockId;
  std::array<std::array<int64_t, 3>, numLanes> threadId{};
  Mask alive = 0;
  Mask waiting = 0;       ///< at a barrier, for the others
  bool isTogether = true; ///< `place` is the place of all
  std::array<unsigned, numLanes> places{};
  unsigned place = 0;
  std::vector<WarpValue> values;
  llvm::StringMap<unsigned> symbols;
  std::vector<LoopRecord> records;
  /// The sectors in L1, by their last bits.
  std::array<uint64_t, 128> tags;
};

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_PREDICTION_WARP_H
