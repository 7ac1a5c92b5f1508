// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the threads of a block do together, written out thread by thread.

#ifndef BSR_CODEGEN_GPU_CORE_BLOCKBUILDER_H
#define BSR_CODEGEN_GPU_CORE_BLOCKBUILDER_H

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/Builders.h"

namespace mlir::bsr::gpu {

/// Emits the body of a launch: 32-bit integers, pointers of global memory
/// (space 1) and of shared memory (space 3), copies that run beside what is
/// computed, and products of tensor cores. Offsets are in bytes where nothing
/// else is said. Arithmetic on constants is folded.
class BlockBuilder {
public:
  static constexpr int64_t warpThreads = 32;
  /// Bytes that a launch has of a block's shared memory beside those that it
  /// asks for: the symbol that names them has an element.
  static constexpr int64_t sharedSymbolBytes = 16;

  /// Launches `grid` blocks of `threads` threads, which share `sharedBytes`,
  /// and calls `body` for what a thread does. Neighbours in the grid, `cluster`
  /// of them, which divides it, are a thread block cluster.
  static void launch(OpBuilder &b, Location loc, std::array<int64_t, 2> grid,
                     int64_t threads, int64_t sharedBytes,
                     llvm::function_ref<void(BlockBuilder &)> body,
                     std::array<int64_t, 2> cluster = {1, 1});

  OpBuilder &b;
  Location loc;
  /// The thread in its block, the lane in its warp, the warp in its block.
  Value thread, lane, warp;
  /// The block in the grid.
  std::array<Value, 2> block;
  /// The shared memory of the block.
  Value shared;

  Value constant(int64_t value);
  /// `count` times 0 in f32: sums in front of a mainloop.
  SmallVector<Value> zeros(int64_t count);
  Value add(Value x, Value y);
  Value add(Value x, int64_t y) { return add(x, constant(y)); }
  Value sub(Value x, Value y);
  Value mul(Value x, int64_t y);
  /// `x * y + z`.
  Value multiplyAdd(Value x, int64_t y, Value z) { return add(mul(x, y), z); }
  /// The quotient and the remainder of `x`, which is not negative, by `y`.
  Value div(Value x, int64_t y);
  Value rem(Value x, int64_t y);
  Value bitAnd(Value x, Value y);
  Value bitOr(Value x, Value y);
  Value bitXor(Value x, Value y);
  Value shiftLeft(Value x, Value y);
  Value shiftRight(Value x, Value y);
  Value min(Value x, Value y);
  Value max(Value x, Value y);
  Value less(Value x, Value y);
  Value equal(Value x, Value y);
  Value select(Value condition, Value x, Value y);
  Value countOnes(Value x);
  /// Of `x`, which is not 0.
  Value countTrailingZeros(Value x);

  /// Iterations from `low` to below `high`; `body` returns what it carries on.
  SmallVector<Value>
  loop(Value low, Value high, int64_t step, ValueRange carried,
       llvm::function_ref<SmallVector<Value>(Value, ValueRange)> body);
  /// `count` iterations, `together` of which are written out without a loop
  /// around them, the `i`th behind iteration `first`.
  SmallVector<Value>
  unroll(int64_t count, int64_t together, ValueRange carried,
         llvm::function_ref<SmallVector<Value>(Value first, int64_t i,
                                               ValueRange carried)>
             body);
  /// `condition` holds: nothing is emitted for where it does not.
  void assume(Value condition);
  /// Does `body` where `condition` holds.
  void when(Value condition, llvm::function_ref<void()> body);
  /// What `body` returns where `condition` holds, else `otherwise`.
  SmallVector<Value> when(Value condition, ValueRange otherwise,
                          llvm::function_ref<SmallVector<Value>()> body);

  /// The first element of a buffer of the kernel, in global memory.
  Value getPointer(Value memref);
  /// `pointer` moved by `offset` elements of `type`.
  Value at(Value pointer, Value offset, Type type);
  Value at(Value pointer, int64_t offset, Type type) {
    return at(pointer, constant(offset), type);
  }
  /// `pointer` moved by `index * stride` elements of `type`, in 64 bits.
  Value atFar(Value pointer, Value index, int64_t stride, Type type);
  /// An offset in shared memory.
  Value at(Value offset);

  Value load(Value pointer, Type type);
  /// The 32-bit integers from `pointer` on, which `count * 4` divides.
  SmallVector<Value> loadIntegers(Value pointer, int64_t count);
  /// The `count` numbers of `type` from `pointer` on, which their bytes divide,
  /// in f32.
  SmallVector<Value> loadFloats(Value pointer, Type type, int64_t count);
  /// Stores `bytes` in shared memory, as many as `value` has.
  void storeShared(Value value, Value pointer, int64_t bytes = 4);
  /// The element of a buffer of the kernel at 32-bit indices, or the vector of
  /// elements that begins there. What a launch writes it names by indices:
  /// bsr-verify-kernels proves that no two blocks write one element.
  Value load(Value memref, ValueRange at);
  void store(Value value, Value memref, ValueRange at);

  /// What the lane has whose number differs in the bits of `mask`.
  Value exchange(Value value, int64_t mask);
  /// Waits for all threads of the block.
  void barrier();
  /// A thread has `count` registers from here on, more or fewer than before:
  /// a multiple of 8 from 24 to 256. All of a warpgroup ask for it, and wait
  /// until others have released as many (`sm_90a`).
  void setRegisters(int64_t count, bool isMore);
  /// Copies 4, 8 or 16 bytes to shared memory: `size` of them, and then zeros;
  /// all where it is null.
  void copyAsync(Value shared, Value global, Value size, int64_t bytes = 16);
  /// Ends a group of copies.
  void commitCopies();
  /// Waits for this thread's copies but those of the last `groups` groups.
  void waitForCopies(int64_t groups);

  /// Four 8x8 matrices of 16-bit elements, as 32-bit registers: lanes 8i to
  /// 8i + 7 have the addresses of the rows of matrix i.
  SmallVector<Value, 4> loadMatrices(Value shared, bool transpose);
  /// `value`, an f32, rounded to tf32 (to nearest, ties away from zero), as a
  /// 32-bit register.
  Value roundToTF32(Value value);
  /// `sums`, a fragment of 16x8, plus the product of fragments of 16x16 and
  /// 16x8 of `type`, f16 or bf16, or of 16x8 and 8x8 of tf32 if it is f32.
  SmallVector<Value, 4> multiply(Type type, ArrayRef<Value> lhs,
                                 ArrayRef<Value> rhs, ArrayRef<Value> sums);

private:
  BlockBuilder(OpBuilder &b, Location loc) : b(b), loc(loc) {}
  SmallVector<Value> toIndices(ValueRange at);
};

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_BLOCKBUILDER_H
