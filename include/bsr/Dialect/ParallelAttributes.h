// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The attributes of steps of several processes, stages or micro-batches. The
// dialect verifies them with the others (Attributes.h).

#ifndef BSR_DIALECT_PARALLELATTRIBUTES_H
#define BSR_DIALECT_PARALLELATTRIBUTES_H

#include "bsr/Dialect/Attributes.h"

namespace mlir::bsr::attrs {

/// Names and types, as `Discardable` takes them.
#define BSR_ATTRIBUTE(helper, name, type)                                      \
  struct helper {                                                              \
    static constexpr StringLiteral getNameStr() { return name; }               \
    type getAttr(Operation *op);                                               \
  };
/// Of a step: it takes means over processes only in runs whose argument of role
/// `apply` is not 0; in others, each process adds up gradients.
BSR_ATTRIBUTE(Accumulates, "bsr.accumulates", UnitAttr)
/// Of a step: how many micro-batches a run of it goes through.
BSR_ATTRIBUTE(MicroBatches, "bsr.micro_batches", IntegerAttr)
/// Of a stage of a step: several processes may run it, which take means.
BSR_ATTRIBUTE(Replicas, "bsr.replicas", UnitAttr)
/// Of a step: the number of processes among which its state is sharded.
BSR_ATTRIBUTE(Sharded, "bsr.sharded", IntegerAttr)
/// Of a stage of a step: which it is, and how many there are.
BSR_ATTRIBUTE(Stages, "bsr.stages", DenseI64ArrayAttr)
/// Of an operation: its result lies in memory before something reads it.
BSR_ATTRIBUTE(Stored, "bsr.stored", UnitAttr)
/// Of a step: the whole shapes of the arguments whose shards it takes, by their
/// `bsr.name`.
BSR_ATTRIBUTE(WholeShapes, "bsr.whole_shapes", DictionaryAttr)
#undef BSR_ATTRIBUTE

inline constexpr Discardable<Accumulates> accumulates;
inline constexpr Discardable<MicroBatches> microBatches;
inline constexpr Discardable<Replicas> replicas;
inline constexpr Discardable<Sharded> sharded;
inline constexpr Discardable<Stages> stages;
inline constexpr Discardable<Stored> stored;
inline constexpr Discardable<WholeShapes> wholeShapes;

} // namespace mlir::bsr::attrs

#endif // BSR_DIALECT_PARALLELATTRIBUTES_H
