// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes what a program on tensors means: one operation after the other, each
// by its definition, in doubles. No pass of the compiler and no kernel is used.

#ifndef BSR_INTERPRETER_INTERPRETER_H
#define BSR_INTERPRETER_INTERPRETER_H

#include "bsr/Interpreter/Body.h"
#include "bsr/Interpreter/Numbers.h"
#include "bsr/Interpreter/Rounding.h"
#include "bsr/Interpreter/Scalars.h"

#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include <memory>
#include <variant>

namespace mlir::bsr::interpreter {

/// A pattern: the slot of each block of the grid, row-major, or `absent`.
struct Blocks {
  static constexpr int64_t absent = -1;

  PatternType type;
  std::vector<int64_t> slots;

  int64_t getSlot(int64_t row, int64_t col) const {
    return slots[size_t(row * type.getGridCols() + col)];
  }
};

/// What a value is: nothing yet, a number, a tensor, a pattern.
using Datum = std::variant<std::monostate, Number, std::shared_ptr<const Array>,
                           std::shared_ptr<const Blocks>>;

class Interpreter : public Surroundings {
public:
  /// Interprets functions of `module`; `rounding` changes what they compute.
  explicit Interpreter(ModuleOp module, Rounding *rounding = nullptr)
      : symbols(module), rounding(rounding) {}

  /// What `function` returns for `arguments`. Reports what is not interpreted.
  FailureOr<llvm::SmallVector<Datum>> call(FunctionOpInterface function,
                                           llvm::ArrayRef<Datum> arguments);

  /// What `op`, on numbers or element by element, computes; null if it is not
  /// interpreted.
  ScalarFunction getFunction(Operation *op) override;
  std::optional<Number> findNumber(Value value) const override {
    return getNumber(value);
  }

  /// Takes `block` into `body`. Reports operations that are not interpreted.
  LogicalResult prepare(Body &body, Block &block);
  /// Reports a look-up of a body that was outside of its tensor.
  LogicalResult finish() const;

  /// What a value that was computed is.
  Number getNumber(Value value) const;
  const Array &getArray(Value value) const;
  const Blocks &getPattern(Value value) const;
  int64_t getInteger(OpFoldResult value) const;

  void set(Value value, Number number) { values[value] = number; }
  void set(Value value, Array array) {
    values[value] = std::make_shared<const Array>(std::move(array));
  }
  void set(Value value, Blocks pattern) {
    values[value] = std::make_shared<const Blocks>(std::move(pattern));
  }
  void set(Value value, const Datum &datum) { values[value] = datum; }
  const Datum &get(Value value) const { return values.find(value)->second; }

private:
  FailureOr<llvm::SmallVector<Datum>> run(Block &block,
                                          llvm::ArrayRef<Datum> arguments);
  LogicalResult run(Operation *op);
  LogicalResult runCall(Operation *op, FlatSymbolRefAttr name,
                        ValueRange arguments);
  LogicalResult runFor(scf::ForOp op);
  LogicalResult runWhile(scf::WhileOp op);
  void runElementWise(Operation *op, const ScalarFunction &function);
  void forget(Operation *op);
  llvm::SmallVector<Datum> getAll(ValueRange values) const;
  void setAll(ValueRange values, llvm::ArrayRef<Datum> data);

  ScalarFunction makeExtract(Operation *op);

  SymbolTable symbols;
  Rounding *rounding;
  llvm::DenseMap<Value, Datum> values;
  unsigned depth = 0;           // of calls
  Operation *outside = nullptr; // reads outside of its tensor
};

/// The shape of a tensor type.
std::vector<int64_t> getShape(Type type);
int64_t getNumElements(const std::vector<int64_t> &shape);
/// An array for a tensor of type `type` whose elements are unspecified: NaN, or
/// an integer that shows.
Array makeUnspecified(Type type);
/// The elements of a constant, or a failure for one that has none.
FailureOr<Array> getElements(ElementsAttr attribute);

/// What is said of a look-up outside of its tensor.
inline constexpr llvm::StringLiteral outsideMessage =
    "expected indices within the tensor, but got others";

/// Rooms of operations: each interprets `op`, or answers nothing if it is not
/// one of them. Failures are reported.
std::optional<LogicalResult> interpretLinalg(Operation *op,
                                             Interpreter &interpreter);
std::optional<LogicalResult> interpretTensor(Operation *op,
                                             Interpreter &interpreter);
std::optional<LogicalResult> interpretBlocks(Operation *op,
                                             Interpreter &interpreter);
std::optional<LogicalResult> interpretAttention(Operation *op,
                                                Interpreter &interpreter);

} // namespace mlir::bsr::interpreter

#endif // BSR_INTERPRETER_INTERPRETER_H
