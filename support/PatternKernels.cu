// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels of PatternKernels.h. The build compiles them to PTX by clang,
// without anything of CUDA (PatternKernels.cmake).

#pragma clang force_cuda_host_device begin
#include "ThreadBlock.h"

using namespace sparse_opt;

// A kernel for blocks of as many threads, of which a multiprocessor has as many
// at least; if that is not given, ptxas keeps registers for two of the largest.
#define BSR_KERNEL(...)                                                        \
  extern "C" __attribute__((global, launch_bounds(__VA_ARGS__), flatten)) void

/// Row `number` of a table.
template <typename Row>
static Global<const Row> rowAt(uint64_t table, unsigned number) {
  return atPlace<const Row>(table) + number;
}

/// The number of a thread in x, of all blocks.
static unsigned numberOfThread() {
  return __nvvm_read_ptx_sreg_ctaid_x() * patternThreads +
         __nvvm_read_ptx_sreg_tid_x();
}

static void takeFirst(Global<uint64_t> least, uint64_t number) {
  __scoped_atomic_fetch_min(least, number, __ATOMIC_RELAXED,
                            __MEMORY_SCOPE_DEVICE);
}

namespace {
/// The partial sum that a thread has of its block's norm.
template <typename T>
class ThreadPart {
public:
  ThreadPart(Global<const T> block, unsigned part) : block(block), part(part) {}

  template <typename Add>
  double add(uint32_t size, Add add) const {
    double sum = 0;
    Global<const T> next = block + part, end = block + size;
    // Four elements are loaded side by side.
    for (auto last = end - 3 * normParts; next < last; next += 4 * normParts) {
      T elements[4];
#pragma unroll
      for (unsigned i = 0; i < 4; ++i)
        elements[i] = load(next + i * normParts);
#pragma unroll
      for (unsigned i = 0; i < 4; ++i)
        sum = add(sum, elements[i]);
    }
    for (; next < end; next += normParts)
      sum = add(sum, load(next));
    return sum;
  }
  template <typename Add>
  static void fold(double &sum, unsigned distance, Add add) {
    int low = __nvvm_d2i_lo(sum), high = __nvvm_d2i_hi(sum);
    low = __nvvm_shfl_sync_down_i32(allLanes, low, distance, 31);
    high = __nvvm_shfl_sync_down_i32(allLanes, high, distance, 31);
    sum = add(sum, __nvvm_lohi_i2d(low, high));
  }
  static double first(double sum) { return sum; }
  T only() const { return load(block); }

private:
  static T load(Global<const T> from) {
    if constexpr (__is_floating_point(T))
      return *from;
    else
      return {from->bits};
  }

  Global<const T> block;
  unsigned part;
};
} // namespace

/// Threads behind the last block have it, too: shuffles are of whole warps.
template <typename Norm, typename T>
static void computeNorm(uint64_t base, uint64_t table) {
  auto row = rowAt<UpdateRow>(table, __nvvm_read_ptx_sreg_ctaid_y());
  unsigned thread = numberOfThread(), part = thread % normParts;
  unsigned blocks = row->blocks, own = thread / normParts;
  if (thread / 32 * (32 / normParts) >= blocks)
    return;
  unsigned k = own < blocks ? own : blocks - 1;
  uint64_t slot = atPlace<uint32_t>(base + row->slot)[k];
  uint32_t size = row->elements;
  auto values = atPlace<const T>(base + row->values);
  double norm = normOf<Norm>(ThreadPart<T>(values + slot * size, part), size);
  if (part != 0 || own >= blocks)
    return;
  atPlace<double>(base + row->norms)[k] = norm;
  if (norm != norm)
    takeFirst(&atPlace<UpdateResult>(base + row->result)->nanBlock, k);
}

#define BSR_NORMS(type, T)                                                     \
  BSR_KERNEL(patternThreads)                                                   \
  bsr_norm_sum_##type(uint64_t base, uint64_t table) {                         \
    computeNorm<Sum, T>(base, table);                                          \
  }                                                                            \
  BSR_KERNEL(patternThreads)                                                   \
  bsr_norm_squares_##type(uint64_t base, uint64_t table) {                     \
    computeNorm<SumOfSquares, T>(base, table);                                 \
  }                                                                            \
  BSR_KERNEL(patternThreads)                                                   \
  bsr_norm_largest_##type(uint64_t base, uint64_t table) {                     \
    computeNorm<Largest, T>(base, table);                                      \
  }

BSR_NORMS(f64, double)
BSR_NORMS(f32, float)
BSR_NORMS(f16, Half)
BSR_NORMS(bf16, BFloat)

/// Scores of stored blocks do not matter unless they may return.
static void checkScores(ThreadBlock &team) {
  uint32_t cols = team.row->cols, all = team.row->rows * cols;
  auto marks = team.words(team.row->marks),
       colIdx = team.words(team.row->colIdx);
  auto scores = team.floats(team.row->scores);
  team.zero(marks, (all + 31) / 32);
  team.wait();
  if (!team.row->returns)
    team.forEachBlock([&](uint32_t k, uint32_t r) {
      team.markBit(marks, r * cols + colIdx[k]);
    });
  team.wait();
  team.forEachItem(all, [&](uint32_t block) {
    float score = scores[block];
    if ((score != score) & !team.isSet(marks, block))
      takeFirst(&team.result()->nanScore, block);
  });
}

static ThreadBlock teamOfBlock(uint64_t base, uint64_t table) {
  return {base, table + sizeof(UpdateRow) * __nvvm_read_ptx_sreg_ctaid_x()};
}

BSR_KERNEL(updateThreads, 1)
bsr_choose_pruned(uint64_t base, uint64_t table) {
  ThreadBlock team = teamOfBlock(base, table);
  if (team.row->regrowth == Regrowth::Scores)
    checkScores(team);
  if (team.row->count)
    choosePruned(team);
}

BSR_KERNEL(updateThreads, 1)
bsr_update_patterns(uint64_t base, uint64_t table) {
  ThreadBlock team = teamOfBlock(base, table);
  if (team.row->count)
    changePattern(team);
}

/// Stores a piece of a slot.
static void storePiece(Global<char> piece, uint64_t bits, bool isWide,
                       unsigned number) {
  using Wide = uint64_t __attribute__((ext_vector_type(2)));
  if (isWide)
    *(Global<Wide>)piece = Wide{bits, bits};
  else
    *(Global<uint16_t>)piece = uint16_t(bits >> (number % 4 * 16));
}

/// Pieces of 16 bytes where slots are of as many, else of 2, go round threads.
BSR_KERNEL(patternThreads)
bsr_fill_slots(uint64_t base, uint64_t table) {
  auto row = rowAt<FillRow>(table, __nvvm_read_ptx_sreg_ctaid_y());
  uint64_t first = row->first, end = row->end, bytes = row->bytes;
  uint64_t fresh = *atPlace<uint64_t>(base + row->fresh), bits = row->bits;
  auto values = atPlace<char>(base + row->values);
  auto slots = atPlace<const uint32_t>(base + row->slots);
  bool isWide = bytes % 16 == 0;
  uint64_t size = isWide ? 16 : 2, pieces = bytes / size;
  uint64_t count = *atPlace<uint64_t>(base + row->count) * pieces;
  uint64_t step = uint64_t(__nvvm_read_ptx_sreg_nctaid_x()) * patternThreads;
  for (uint64_t i = numberOfThread(); i < count; i += step) {
    uint64_t k = i / pieces, piece = i - k * pieces, slot = slots[k];
    if ((slot >= first) & (slot < end))
      storePiece(values + (slot - first) * bytes + piece * size,
                 k < fresh ? bits : 0, isWide, unsigned(piece));
  }
}

#pragma clang force_cuda_host_device end
