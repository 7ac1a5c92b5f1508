// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What checks the plans of clusters.

#ifndef BSR_DIALECT_CLUSTERVERIFIER_H
#define BSR_DIALECT_CLUSTERVERIFIER_H

#include "bsr/Dialect/BSR.h"
#include "mlir/IR/DialectInterface.h"

namespace mlir::bsr {

/// The part of the verifier of `bsr.cluster` that knows what kernels can do: an
/// analysis implements it, which the dialect does not know.
class ClusterVerifierInterface
    : public DialectInterface::Base<ClusterVerifierInterface> {
public:
  explicit ClusterVerifierInterface(Dialect *dialect) : Base(dialect) {}

  /// Checks the plan of `cluster`, which has one.
  virtual LogicalResult verifyPlan(ClusterOp cluster) const = 0;
};

} // namespace mlir::bsr

#endif // BSR_DIALECT_CLUSTERVERIFIER_H
