// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What products multiply a weight with.

#ifndef BSR_GRADIENTS_WEIGHTUSES_H
#define BSR_GRADIENTS_WEIGHTUSES_H

#include "bsr/Analysis/Dependents.h"
#include "bsr/Analysis/StepData.h"
#include "bsr/Gradients/Spaces.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

namespace mlir::bsr {

/// What a product with a weight, or with a function of its entries,
/// multiplies that with: a tensor without what only reorders or rounds it. What
/// looks rows up multiplies with the places of ones, and their integers.
struct Factor {
  /// What of the tensor goes along a dimension of what is multiplied, if it is
  /// none of the tensor's own.
  enum : int64_t {
    Absent = -1,  ///< Nothing: the dimension is one of the product.
    ByPlace = -2, ///< The integers that are there are places along it.
    Lost = -3,    ///< Not known, such as a sum of two.
  };

  Value value;
  /// For each dimension of what is multiplied, the one of the tensor.
  SmallVector<int64_t> dims;
  /// The shape of what is multiplied, and its entries of the weight. Without
  /// dimensions where these are not known.
  SmallVector<int64_t> shape;
  Entries entries;
  /// True for what rows are looked up at.
  bool isPlace = false;
  /// True if data was added to the weight before: it is activations.
  bool isOfData = false;
  /// True for what has a factor as a part.
  bool isWhole = false;
};

/// A gradient, and which entries of the weight it has, if it is sure.
struct HiddenGradient {
  Value value;
  Entries entries;
  bool isSure = false;
};

/// What products multiply a weight with, as it is or as an entry-wise function
/// of it, and what follows from it. The step may make weights of the weight and
/// of `gradients`, which are masked, and multiply these as well.
struct Forward {
  Forward(const BoundWeight &weight, const StepData &data, const Spaces &spaces,
          ArrayRef<HiddenGradient> gradients = {});

  /// True if `op` reads a factor, or sums up what does, by way of `depth` sums
  /// at most.
  bool readsFactor(Operation *op, unsigned depth) const;

  SmallVector<Factor, 0> factors;
  /// The entry-wise functions of the weight and of gradients, and which entries
  /// they have, if that is known.
  llvm::MapVector<Value, std::optional<Entries>> values;
  /// Those of them that data enters, and the operations in which it does.
  DenseSet<Value> activations;
  SmallVector<Operation *> mixtures;
  SmallVector<Operation *> products;
  /// What depends on the products.
  Dependents after;
  /// What brings entries together before a product reads them, so that they are
  /// not zero off the pattern; or null.
  Operation *mixing = nullptr;

private:
  void findFactors(const BoundWeight &weight, const StepData &data,
                   ArrayRef<HiddenGradient> gradients);
  void follow(const StepData &data);
  void forget(Value value);
  void addProducts();
  void addEntryWise(OpOperand &use, const std::optional<Entries> &entries,
                    const StepData &data);
  void addProduct(OpOperand &use, linalg::LinalgOp op,
                  const std::optional<Entries> &entries);
  void addWholes();
  void addLookUp(tensor::ExtractOp extract,
                 const std::optional<Entries> &entries);
  void findMixing(const BoundWeight &weight, const StepData &data,
                  const Spaces &spaces);
};

} // namespace mlir::bsr

#endif // BSR_GRADIENTS_WEIGHTUSES_H
