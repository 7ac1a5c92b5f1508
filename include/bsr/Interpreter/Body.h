// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The body of an operation that computes an element after the other.

#ifndef BSR_INTERPRETER_BODY_H
#define BSR_INTERPRETER_BODY_H

#include "bsr/Interpreter/Scalars.h"

#include "mlir/IR/Block.h"

namespace mlir::bsr::interpreter {

/// What a body has from outside of its block.
class Surroundings {
public:
  virtual ~Surroundings() = default;

  /// The number that `value` is, or nothing if it is not known.
  virtual std::optional<Number> findNumber(Value value) const = 0;
  /// What `op` computes of all its operands that are numbers; null if it is not
  /// interpreted.
  virtual ScalarFunction getFunction(Operation *op) = 0;
};

/// A block of operations on numbers, ready to be run many times.
class Body {
public:
  Body() = default;
  Body(const Body &) = delete;
  Body &operator=(const Body &) = delete;

  /// Takes `block`. Returns the operation that is not interpreted, or null.
  Operation *prepare(Block &block, Surroundings &surroundings);

  /// Where the arguments of the block go before `run`.
  Number *getArguments() { return frame.data(); }
  /// Runs the block at `point`, which linalg.index reads.
  void run(const int64_t *point);
  /// Operand `index` of the terminator.
  Number getYielded(unsigned index) const { return frame[yielded[index]]; }

private:
  struct Instruction {
    ScalarFunction function;
    SmallVector<unsigned, 3> operands; // places in the frame
    unsigned result;
  };

  unsigned addPlaces(ValueRange values);
  bool addOperands(Operation *op, SmallVectorImpl<unsigned> &operands,
                   const Surroundings &surroundings);
  bool add(Operation *op, Surroundings &surroundings);

  std::vector<Number> frame;
  DenseMap<Value, unsigned> places;
  std::vector<Instruction> instructions;
  SmallVector<unsigned> yielded;
  const int64_t *point = nullptr;
};

} // namespace mlir::bsr::interpreter

#endif // BSR_INTERPRETER_BODY_H
