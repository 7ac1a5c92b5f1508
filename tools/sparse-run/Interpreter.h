// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes what a program on tensors means: one operation after the other, each
// by its definition, in doubles. No pass of the compiler and no kernel is used.

#ifndef BSR_TOOLS_SPARSERUN_INTERPRETER_H
#define BSR_TOOLS_SPARSERUN_INTERPRETER_H

#include "Numbers.h"
#include "Rounding.h"
#include "Scalars.h"

#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include <memory>
#include <variant>

namespace tools {

/// A pattern: the slot of each block of the grid, row-major, or `absent`.
struct Blocks {
  static constexpr int64_t absent = -1;

  mlir::bsr::PatternType type;
  std::vector<int64_t> slots;

  int64_t getSlot(int64_t row, int64_t col) const {
    return slots[size_t(row * type.getGridCols() + col)];
  }
};

/// What a value is: nothing yet, a number, a tensor, a pattern.
using Datum = std::variant<std::monostate, Number, std::shared_ptr<const Array>,
                           std::shared_ptr<const Blocks>>;

class Interpreter {
public:
  /// Interprets functions of `module`; `rounding` changes what they compute.
  explicit Interpreter(mlir::ModuleOp module, Rounding *rounding = nullptr)
      : symbols(module), rounding(rounding) {}

  /// What `function` returns for `arguments`. Reports what is not interpreted.
  mlir::FailureOr<llvm::SmallVector<Datum>>
  call(mlir::FunctionOpInterface function, llvm::ArrayRef<Datum> arguments);

  /// What `op`, on numbers or element by element, computes; null if it is not
  /// interpreted.
  ScalarFunction getFunction(mlir::Operation *op) const;

  /// What a value that was computed is.
  Number getNumber(mlir::Value value) const;
  const Array &getArray(mlir::Value value) const;
  const Blocks &getPattern(mlir::Value value) const;
  int64_t getInteger(mlir::OpFoldResult value) const;

  void set(mlir::Value value, Number number) { values[value] = number; }
  void set(mlir::Value value, Array array) {
    values[value] = std::make_shared<const Array>(std::move(array));
  }
  void set(mlir::Value value, Blocks pattern) {
    values[value] = std::make_shared<const Blocks>(std::move(pattern));
  }
  void set(mlir::Value value, const Datum &datum) { values[value] = datum; }
  const Datum &get(mlir::Value value) const {
    return values.find(value)->second;
  }

private:
  mlir::FailureOr<llvm::SmallVector<Datum>>
  run(mlir::Block &block, llvm::ArrayRef<Datum> arguments);
  mlir::LogicalResult run(mlir::Operation *op);
  mlir::LogicalResult runCall(mlir::Operation *op, mlir::FlatSymbolRefAttr name,
                              mlir::ValueRange arguments);
  mlir::LogicalResult runFor(mlir::scf::ForOp op);
  mlir::LogicalResult runWhile(mlir::scf::WhileOp op);
  void runElementWise(mlir::Operation *op, const ScalarFunction &function);
  void forget(mlir::Operation *op);
  llvm::SmallVector<Datum> getAll(mlir::ValueRange values) const;
  void setAll(mlir::ValueRange values, llvm::ArrayRef<Datum> data);

  mlir::SymbolTable symbols;
  Rounding *rounding;
  llvm::DenseMap<mlir::Value, Datum> values;
  unsigned depth = 0; // of calls
};

/// The shape of a tensor type.
std::vector<int64_t> getShape(mlir::Type type);
int64_t getNumElements(const std::vector<int64_t> &shape);
/// An array for a tensor of type `type` whose elements are unspecified: NaN, or
/// an integer that shows.
Array makeUnspecified(mlir::Type type);
/// The elements of a constant, or a failure for one that has none.
mlir::FailureOr<Array> getElements(mlir::ElementsAttr attribute);

/// What is said of a look-up outside of its tensor.
inline constexpr llvm::StringLiteral outsideMessage =
    "expected indices within the tensor, but got others";

/// Rooms of operations: each interprets `op`, or answers nothing if it is not
/// one of them. Failures are reported.
std::optional<mlir::LogicalResult> interpretLinalg(mlir::Operation *op,
                                                   Interpreter &interpreter);
std::optional<mlir::LogicalResult> interpretTensor(mlir::Operation *op,
                                                   Interpreter &interpreter);
std::optional<mlir::LogicalResult> interpretBlocks(mlir::Operation *op,
                                                   Interpreter &interpreter);
std::optional<mlir::LogicalResult> interpretAttention(mlir::Operation *op,
                                                      Interpreter &interpreter);

} // namespace tools

#endif // BSR_TOOLS_SPARSERUN_INTERPRETER_H
