// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of pairs of bf16, added up in lanes of f32 by one instruction:
// x86's vdpbf16ps, which reads each operand as pairs of neighbours.

#ifndef BSR_CODEGEN_CPU_PAIRPRODUCTS_H
#define BSR_CODEGEN_CPU_PAIRPRODUCTS_H

#include "bsr/Codegen/CPU/Emitter.h"

namespace mlir::bsr::cpu {

/// Whether products of elements of the tensors `a` and `b` are added up in
/// pairs, in sums of `sumType`.
bool arePaired(const CPUTarget &target, Value a, Value b, Type sumType);

/// Whether vectors of `width` tokens of two features can be multiplied in
/// pairs of the features: sums are `width` lanes of f32.
bool canZip(const CPUTarget &target, int64_t width);

/// The lanes of `x` and of `y`, vectors of as many bf16, in pairs: an operand
/// for each register of sums. Pairs are in the order that unpack instructions
/// make within 16 bytes, which `unzip` takes back.
SmallVector<Value> zip(Emitter &e, Value x, Value y);

/// `sums`, lanes of f32 in the order of `zip`, in the order of what it took.
Value unzip(Emitter &e, Value sums);

/// What `unzip` takes back: `sums` in the order of `zip`.
Value inOrderOfZip(Emitter &e, Value sums);

/// `sums + pairs * pair`, lane by lane, and of both products of a pair. `pair`
/// is a vector of two bf16, and the same for all lanes; `pairs` is what `zip`
/// made.
Value addPairs(Emitter &e, ArrayRef<Value> pairs, Value pair, Value sums);

/// `sums + a * b`: each lane adds up two products of neighbours of `a` and `b`,
/// vectors of twice as many bf16.
Value addNeighbours(Emitter &e, Value a, Value b, Value sums);

} // namespace mlir::bsr::cpu

#endif // BSR_CODEGEN_CPU_PAIRPRODUCTS_H
