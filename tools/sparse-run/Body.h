// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The body of an operation that computes an element after the other.

#ifndef BSR_TOOLS_SPARSERUN_BODY_H
#define BSR_TOOLS_SPARSERUN_BODY_H

#include "Interpreter.h"

namespace tools {

/// A block of operations on numbers, ready to be run many times.
class Body {
public:
  Body() = default;
  Body(const Body &) = delete;
  Body &operator=(const Body &) = delete;

  /// Takes `block`, and what it uses from outside as `interpreter` has it.
  /// Reports operations that are not interpreted.
  mlir::LogicalResult prepare(mlir::Block &block,
                              const Interpreter &interpreter);

  /// Where the arguments of the block go before `run`.
  Number *getArguments() { return frame.data(); }
  /// Runs the block at `point`, which linalg.index reads.
  void run(const int64_t *point);
  /// Operand `index` of the terminator.
  Number getYielded(unsigned index) const { return frame[yielded[index]]; }
  /// Reports what went wrong in any run.
  mlir::LogicalResult finish() const;

private:
  struct Instruction {
    ScalarFunction function;
    llvm::SmallVector<unsigned, 3> operands; // places in the frame
    unsigned result;
  };

  unsigned addPlaces(mlir::ValueRange values);
  unsigned getPlace(mlir::Value value, const Interpreter &interpreter);
  ScalarFunction makeExtract(mlir::Operation *op,
                             const Interpreter &interpreter);

  std::vector<Number> frame;
  llvm::DenseMap<mlir::Value, unsigned> places;
  std::vector<Instruction> instructions;
  llvm::SmallVector<unsigned> yielded;
  const int64_t *point = nullptr;
  mlir::Operation *outside = nullptr; // reads outside of its tensor
};

} // namespace tools

#endif // BSR_TOOLS_SPARSERUN_BODY_H
