// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which iteration of a parallel loop, or block of a launch, touches which
// elements: used by bsr-verify-kernels.

#ifndef BSR_ANALYSIS_ITERATIONS_H
#define BSR_ANALYSIS_ITERATIONS_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <map>

namespace mlir::bsr {

/// The arrays of patterns among the arguments of a kernel.
struct PatternArrays {
  DenseSet<Value> pointers;
  /// Pointers and slots of one view.
  DenseSet<std::pair<Value, Value>> views;
};

/// A sum of atoms times coefficients, plus something in [low, high]; or
/// anything.
struct Sum {
  bool isKnown = false;
  std::map<unsigned, int64_t> coefficients; // of atoms, none 0
  int64_t low = 0, high = 0;

  static Sum constant(int64_t value) { return {true, {}, value, value}; }
  bool isExactly(int64_t value) const {
    return isKnown && coefficients.empty() && low == value && high == value;
  }
  bool operator==(const Sum &other) const {
    return isKnown && other.isKnown && coefficients == other.coefficients &&
           low == other.low && high == other.high;
  }
  /// The sum of this and `factor` times `other`; anything, if numbers of it are
  /// too large.
  Sum plus(const Sum &other, int64_t factor = 1) const;
};

/// What sums are made of.
struct Atom {
  /// An induction variable of the parallel loop; how far one inside has come,
  /// or a thread of a block, in [0, extent); a number in part `of` of a
  /// partition that `array` stands for, such as a position in a line of a
  /// pattern; the first position, by `array`, of line `of`, which the next line
  /// shares if this one is empty; the slot, in `array`, of the block at
  /// position `of`; the quotient and the rest of the number `of` by `divisor`,
  /// of which an access keeps only which one of its numbers it is.
  enum Kind { Iteration, Inner, Position, Start, Slot, Quotient, Rest } kind;
  /// The value itself; null for any position or slot of its description.
  Value source;
  std::optional<int64_t> extent;
  Value array;
  Sum of;
  int64_t divisor = 0;

  bool isDigit() const { return kind == Quotient || kind == Rest; }
  bool operator==(const Atom &other) const {
    return kind == other.kind && source == other.source &&
           extent == other.extent && array == other.array &&
           divisor == other.divisor && (source || of == other.of);
  }
};

/// A load or a store.
struct MemoryAccess {
  Operation *op;
  Value buffer;
  /// One for each dimension, then the numbers of which both digits are in what
  /// is before.
  SmallVector<Sum> indices;
  /// The atoms that are the quotient and the rest of each of these numbers.
  SmallVector<std::pair<unsigned, unsigned>> digits;
};

/// What the numbers in a parallel loop are made of. The iterations of a launch
/// are its blocks; the threads of one are like a loop inside, for barriers put
/// in order what they do.
class Iterations {
public:
  Iterations(scf::ForallOp loop, const PatternArrays &arrays);
  Iterations(gpu::LaunchOp launch, const PatternArrays &arrays);

  /// True if `value` is one for all iterations.
  bool isOutside(Value value) const {
    return !body.isAncestor(value.getParentRegion());
  }

  /// The access of `op`, if it is one.
  std::optional<MemoryAccess> getAccess(Operation *op);

  /// True if, whenever two iterations differ, so do the elements that
  /// `accesses`, all of one buffer, touch in them.
  bool areApart(ArrayRef<MemoryAccess> accesses);

private:
  Sum get(Value value);
  Sum compute(Value value);
  std::optional<int64_t> getConstant(Value value);
  Sum getVariable(scf::ForOp inner);
  Sum getPosition(arith::MinUIOp op);
  Sum getSlot(memref::LoadOp op);
  bool isInLine(memref::LoadOp op, const Sum &position, unsigned start);
  Sum getLeast(Value low);
  std::optional<int64_t> getLength(const Sum &low, Value high);
  std::optional<Sum> findStep(Value low, Value high);
  bool isInvariant(Value value);
  Sum getAtom(Atom atom);
  Sum getDigit(Atom::Kind kind, const Sum &number, Value divisor);
  unsigned getDigitOf(size_t number, unsigned digit);
  Sum forgetInner(const Sum &sum,
                  ArrayRef<std::pair<unsigned, unsigned>> digits);
  void addLanes(MemRefType type, int64_t lanes, ValueRange firsts,
                MutableArrayRef<Sum> indices);
  void addNumbers(MemoryAccess &access);
  Sum getUnion(const Sum &a, const Sum &b);
  void findDetermined(const Sum &sum, DenseSet<unsigned> &determined);

  /// What an iteration does.
  Region &body;
  /// What tells iterations apart, and how many values each of these has, if
  /// that is known.
  llvm::MapVector<Value, std::optional<int64_t>> variables;
  /// The threads of a block, with how many there are; the sizes of a launch,
  /// with what they are.
  DenseMap<Value, int64_t> threads;
  DenseMap<Value, Value> sizes;
  const PatternArrays &arrays;
  SmallVector<Atom> atoms;
  /// What is known of values already.
  DenseMap<Value, Sum> sums;
  DenseMap<Value, bool> invariant;
};

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_ITERATIONS_H
