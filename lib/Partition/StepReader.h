// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads a step as a chain of parts.

#ifndef BSR_LIB_PARTITION_STEPREADER_H
#define BSR_LIB_PARTITION_STEPREADER_H

#include "bsr/Analysis/StepData.h"
#include "bsr/Partition/StepParts.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SetVector.h"
#include <string>

namespace mlir::bsr::partition {

/// The bytes of a tensor of static shape; 0 for everything else.
double getBytes(Value value);

/// Calls `visit` for what `op` reads, in bodies, too: a gather reads what it
/// looks up there.
void visitAll(Operation *op, function_ref<void(Value)> visit);

/// `value` without what only reorders, broadcasts or reshapes it.
Value getSource(Value value);

/// Whether a kernel of its own computes `op`.
bool hasKernel(Operation *op);

/// What `op` takes in a kernel of its own; nothing where it has none.
Work getWork(Operation *op);

/// Parameters with what else is carried for them.
struct Group {
  std::string name;
  double stateBytes = 0, gradientBytes = 0;
  llvm::SmallSetVector<unsigned, 2> parts; ///< that read it
};

/// What is known of a value that is not of the forward part.
struct Backward {
  static constexpr int none = -1, several = -2;
  int part = -1;      ///< where it is computed
  int last = -1;      ///< the last part whose next parameters it reaches
  int group = none;   ///< the only group that it reaches, or `several`
  bool isSum = false; ///< made of a group's gradients alone
};

/// Reads a step as a chain of parts: first what it is made of and its forward
/// part (StepReader.cpp), then what follows (StepReaderBackward.cpp), and where
/// all of it belongs (ReadParts.cpp).
class StepReader {
public:
  explicit StepReader(func::FuncOp step) : step(step), data(step) {}

  FailureOr<StepParts> read();
  StepPlaces getPlaces();

private:
  LogicalResult findLoss();
  LogicalResult findSamples();
  void findGroups();
  LogicalResult readForward();
  void mergeStates();
  void findReach();
  void readBackward();
  void readBackward(Operation *op);
  void nameParts();
  void countCuts();

  /// The groups that `value` is made of without data.
  ArrayRef<unsigned> getGroups(Value value);
  /// True if `value` is no activation: a number, or made of parameters alone
  /// or of data alone.
  bool isActivation(Value value) const {
    return activations.contains(value) && !isNumber(value);
  }

  func::FuncOp step;
  StepData data;
  StepParts result;
  Value loss;
  DenseSet<Operation *> forward;
  SmallVector<Group> groups;
  DenseMap<Value, unsigned> groupOf; ///< of arguments
  DenseMap<Value, SmallVector<unsigned>> groupsOf;
  DenseMap<unsigned, unsigned> resultGroups;
  /// Values that depend on data and parameters, and the parts of all that the
  /// forward part computes.
  DenseSet<Value> activations;
  DenseMap<Value, unsigned> partOf;
  DenseMap<Value, Backward> backward;
};

} // namespace mlir::bsr::partition

#endif // BSR_LIB_PARTITION_STEPREADER_H
