// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What launches that make the plan of a pattern have alike.

#ifndef BSR_CODEGEN_GPU_CORE_PLANMAKER_H
#define BSR_CODEGEN_GPU_CORE_PLANMAKER_H

#include "bsr/Codegen/Common/Blocks.h"
#include "bsr/Codegen/GPU/Core/BlockBuilder.h"

namespace mlir::bsr::gpu {

/// A thread block that makes the plan of a group of lines of a pattern.
class PlanMaker {
public:
  static constexpr int64_t threads = 256;

protected:
  PlanMaker(BlockBuilder &b, const PatternView &view)
      : b(b), i32(b.b.getI32Type()), group(b.block[0]),
        ptr(b.getPointer(view.ptr)), idx(b.getPointer(view.idx)) {}

  /// An entry of an index array of the pattern.
  Value readPattern(Value array, Value at) {
    return b.load(b.at(array, at, i32), i32);
  }
  /// Calls `body` for the numbers below `count`, each in one thread.
  void forEach(Value count, llvm::function_ref<void(Value)> body) {
    forEach(b.thread, count, threads, body);
  }
  void forEach(int64_t count, llvm::function_ref<void(Value)> body) {
    forEach(b.constant(count), body);
  }
  /// Calls `body` for the blocks of line `line` in the index arrays, each in
  /// one of `lanes` threads, of which this is number `lane`: where a block lies
  /// there, and where the line begins. Returns how many they are.
  Value forLine(Value line, Value lane, int64_t lanes,
                llvm::function_ref<void(Value at, Value low)> body) {
    Value low = readPattern(ptr, line);
    Value high = readPattern(ptr, b.add(line, 1));
    forEach(b.add(low, lane), high, lanes, [&](Value at) { body(at, low); });
    return b.sub(high, low);
  }

  BlockBuilder &b;
  Type i32;
  Value group;
  Value ptr, idx;

private:
  void forEach(Value low, Value high, int64_t step,
               llvm::function_ref<void(Value)> body) {
    b.loop(low, high, step, {}, [&](Value at, ValueRange) {
      body(at);
      return SmallVector<Value>();
    });
  }
};

} // namespace mlir::bsr::gpu

#endif // BSR_CODEGEN_GPU_CORE_PLANMAKER_H
