// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which operations of a step one kernel computes.

#ifndef BSR_LIB_TRANSFORMS_CLUSTERS_FUSIONGROUPS_H
#define BSR_LIB_TRANSFORMS_CLUSTERS_FUSIONGROUPS_H

#include "bsr/Analysis/ChainMatcher.h"
#include "bsr/Analysis/Materialization.h"
#include "llvm/ADT/SetVector.h"

namespace mlir::bsr {

/// Groups what is not computed where it is used.
class FusionGroups {
public:
  FusionGroups(Block &block, TargetAttrInterface target);

  /// A group of roots that one function computes; the first root's place is
  /// where the launch goes. Empty where all of them went to another one.
  using Group = SmallVector<Operation *>;
  SmallVector<Group> groups;

  /// The tensors that `group` reads, in order of first use, and the operations
  /// computed inside of it, roots included, in program order.
  void collect(const Group &group, SetVector<Value> &inputs,
               SetVector<Operation *> &members) const;

  /// What a group makes that lies in memory.
  struct Kept {
    /// Results that others read.
    SmallVector<Value> used;
    /// Element-wise roots that later nests of a chain read, rather than compute
    /// them again.
    SmallVector<Operation *> stored;
  };
  Kept getKept(size_t number) const;

private:
  bool isUsedOutside(Value value, const Group &group) const;
  bool isCheaperThanMemory(Operation *root, const Group &group) const;
  bool isProduct(size_t number) const {
    return !groups[number].empty() &&
           target.acceptsEpilogue(groups[number].front());
  }
  bool join(size_t number, Operation *root, const SetVector<Value> &inputs);
  bool follow(size_t number, Operation *root, const SetVector<Value> &inputs);
  bool replacesProduct(size_t number, Operation *root) const;
  std::optional<size_t> findGroup(Operation *root,
                                  const SetVector<Value> &inputs);
  void group(Operation *root);
  void remarkAlone(Operation *root, const SetVector<Value> &inputs,
                   int64_t ready) const;
  int64_t getTime(Value value) const;

  TargetAttrInterface target;
  TargetCosts costs;
  Materialization roots;
  /// When a value is there: the number of the group or of the other operation
  /// that makes it.
  DenseMap<Operation *, int64_t> times;
  int64_t now = 0;
  /// The first group that may still grow.
  size_t firstOpen = 0;
  struct State {
    int64_t time;
    /// All roots are element-wise, of one space.
    bool isOneNest;
    /// The roots, if a work item can compute all of them.
    std::optional<ChainMatcher> chain;
  };
  /// What is known of each group; the groups of roots; those that read a value.
  std::vector<State> states;
  DenseMap<Operation *, size_t> groupOf;
  DenseMap<Value, SmallVector<size_t>> readers;
};

} // namespace mlir::bsr

#endif // BSR_LIB_TRANSFORMS_CLUSTERS_FUSIONGROUPS_H
