// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The names of the attributes that front doors and passes leave on functions,
// arguments and operations. The dialect says which of them may stand where, and
// what they are: its description, and its verifiers.

#ifndef BSR_DIALECT_ATTRIBUTENAMES_H
#define BSR_DIALECT_ATTRIBUTENAMES_H

#include "llvm/ADT/StringRef.h"

namespace mlir::bsr::attrs {

/// Of an argument: other names of a tied weight.
constexpr llvm::StringLiteral aliases = "bsr.aliases";
/// Of a step: the bytes of its arena.
constexpr llvm::StringLiteral arenaBytes = "bsr.arena_bytes";
/// Of an argument: a buffer that the step updates in place.
constexpr llvm::StringLiteral carried = "bsr.carried";
/// Of a pattern argument: the share of blocks that it starts with.
constexpr llvm::StringLiteral density = "bsr.density";
/// Of a cluster or a kernel: the floating-point operations of its products.
constexpr llvm::StringLiteral flops = "bsr.flops";
/// Of an argument: how a driver may initialise it.
constexpr llvm::StringLiteral init = "bsr.init";
/// Of an argument: what it is that was none before; of a cluster or a kernel:
/// the kind of its work.
constexpr llvm::StringLiteral kind = "bsr.kind";
/// Of an operation: its results have tokens last.
constexpr llvm::StringLiteral lanes = "bsr.lanes";
/// Of a step: the clusters that go between a dense matrix and its stored
/// blocks.
constexpr llvm::StringLiteral leftDense = "bsr.left_dense";
/// Of a step: the bytes that are live at once.
constexpr llvm::StringLiteral liveBytes = "bsr.live_bytes";
/// Of an argument: it is to be block-sparse.
constexpr llvm::StringLiteral mark = "bsr.mark";
/// Of an argument: it is the mask of a weight.
constexpr llvm::StringLiteral mask = "bsr.mask";
/// Of a pattern argument: the arguments that were its masks.
constexpr llvm::StringLiteral masks = "bsr.masks";
/// Of an argument or a result: its path; of a constant pattern: its weight.
constexpr llvm::StringLiteral name = "bsr.name";
/// Of an argument: what it is a part of.
constexpr llvm::StringLiteral origin = "bsr.origin";
/// Of a launch: the operands that are cut in panels.
constexpr llvm::StringLiteral panels = "bsr.panels";
/// Of an argument of values: the index of its pattern.
constexpr llvm::StringLiteral pattern = "bsr.pattern";
/// Of an argument: the entry of the step's patterns that it belongs to.
constexpr llvm::StringLiteral patternNumber = "bsr.pattern_number";
/// Of a step: its patterns.
constexpr llvm::StringLiteral patterns = "bsr.patterns";
/// Of an operation: most bytes are live there.
constexpr llvm::StringLiteral peak = "bsr.peak";
/// Of a step: how many products of each kind its clusters compute.
constexpr llvm::StringLiteral products = "bsr.products";
/// Of an operation: it is computed a second time.
constexpr llvm::StringLiteral recomputed = "bsr.recomputed";
/// Of an argument: the index of the result that is its next value.
constexpr llvm::StringLiteral result = "bsr.result";
/// Of an argument or a result: what it is for.
constexpr llvm::StringLiteral role = "bsr.role";
/// Of a step: the norm that its scores are.
constexpr llvm::StringLiteral scoreNorm = "bsr.score_norm";
/// Of a step: where its scores lie; of an allocation: whose scores it holds.
constexpr llvm::StringLiteral scores = "bsr.scores";
/// Of an operation in a cluster: its result is kept for later nests.
constexpr llvm::StringLiteral stored = "bsr.stored";
/// Of a step: what its timers measure.
constexpr llvm::StringLiteral timers = "bsr.timers";
/// Of a step: the weights whose gradient was not found.
constexpr llvm::StringLiteral unmasked = "bsr.unmasked";
/// Of an argument or a result: the caller takes its integers for unsigned.
constexpr llvm::StringLiteral isUnsigned = "bsr.unsigned";
/// Of a step: the weights that the program has and the step does not use.
constexpr llvm::StringLiteral unused = "bsr.unused";

} // namespace mlir::bsr::attrs

#endif // BSR_DIALECT_ATTRIBUTENAMES_H
