// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The numbers that the lanes of a warp hold, as far as they are known.

#ifndef BSR_LIB_CODEGEN_GPU_PREDICTION_WARPVALUES_H
#define BSR_LIB_CODEGEN_GPU_PREDICTION_WARPVALUES_H

#include "bsr/Codegen/GPU/Prediction/PTX.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/MathExtras.h"
#include <array>

namespace mlir::bsr::gpu {

constexpr unsigned numLanes = 32;
/// A bit a lane.
using Mask = uint32_t;

/// What a register holds. Bits above its type's may be anything.
struct WarpValue {
  Mask known = 0;
  bool isData = false; ///< it follows from what is in memory
  std::array<uint64_t, numLanes> lanes{};

  static WarpValue get(llvm::function_ref<uint64_t(unsigned)> get) {
    WarpValue value;
    value.known = ~Mask(0);
    for (unsigned lane = 0; lane != numLanes; ++lane)
      value.lanes[lane] = get(lane);
    return value;
  }
};

/// The bits of a type, and what is above them where it is 64 bits wide.
struct Extension {
  unsigned bits = 64;
  bool isSigned = false;

  uint64_t operator()(uint64_t number) const {
    if (bits >= 64)
      return number;
    return isSigned ? static_cast<uint64_t>(llvm::SignExtend64(number, bits))
                    : number & llvm::maskTrailingOnes<uint64_t>(bits);
  }
};

/// How an instruction computes its result of registers, where that is
/// arithmetic of integers, bits or predicates.
struct Computation {
  /// Null where the result is not known.
  uint64_t (*function)(const std::array<uint64_t, 3> &,
                       const Computation &) = nullptr;
  Extension from, to; ///< of operands and result
  unsigned numOperands = 0;
  bool isSelect = false;

  static Computation get(const ptx::Instruction &instruction);
  WarpValue evaluate(llvm::ArrayRef<const WarpValue *> operands) const;
  bool isLess(uint64_t x, uint64_t y) const {
    return from.isSigned ? int64_t(x) < int64_t(y) : x < y;
  }
};

/// How a value changes with each iteration of a loop.
struct Progress {
  bool isLinear = true; ///< by the same in the lanes that are alive, or known
                        ///< in none
  std::array<uint64_t, numLanes> step{};

  /// Of values at the end of three iterations that follow each other.
  static Progress get(const WarpValue &now, const WarpValue &before,
                      const WarpValue &earlier, Mask alive);
  /// Makes `value` what it is `count` iterations later.
  void advance(WarpValue &value, int64_t count) const;
};

/// How many of the next evaluations of comparison `setp` have the outcome of
/// the last one, which was of `x` and `y`, where these grow by `dx` and `dy`
/// each; the largest number if all have.
int64_t getUnchanged(const ptx::Instruction &setp, uint64_t x, uint64_t y,
                     uint64_t dx, uint64_t dy);

} // namespace mlir::bsr::gpu

#endif // BSR_LIB_CODEGEN_GPU_PREDICTION_WARPVALUES_H
