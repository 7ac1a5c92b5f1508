// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What an iteration of a parallel loop reads and writes, and whether two can
// meet.

#include "bsr/Analysis/Bounds.h"
#include "bsr/Analysis/Iterations.h"
#include "mlir/Dialect/AMX/AMXDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"
#include <functional>
#include <numeric>

using namespace mlir;
using namespace mlir::bsr;

/// True if `index` is a multiple of `lanes`, as `extent` is: so many elements
/// fit in a dimension wherever the first one does.
static bool isWhole(const Sum &index, int64_t lanes, int64_t extent) {
  return index.isKnown && index.low == index.high && index.low % lanes == 0 &&
         extent % lanes == 0 &&
         llvm::all_of(index.coefficients,
                      [&](auto term) { return term.second % lanes == 0; });
}

/// Extends `indices`, of the first of `lanes` elements in a row, to all of
/// them. A vector that does not fit in the last dimension goes on in the next;
/// in the first one it fits, for a kernel writes nothing behind a buffer.
void Iterations::addLanes(MemRefType type, int64_t lanes, ValueRange firsts,
                          MutableArrayRef<Sum> indices) {
  bool isView = !type.getLayout().isIdentity();
  SmallVector<int64_t> strides = type.getStridesAndOffset().first;
  for (int64_t dim = type.getRank() - 1; dim >= 0 && lanes > 1; --dim) {
    Sum &index = indices[dim];
    int64_t extent = type.getDimSize(dim);
    // A dimension of one element is none.
    if (extent == 1 && dim != 0) {
      index = Sum::constant(0);
      continue;
    }
    int64_t last = index.high;
    for (auto [atom, coefficient] : index.coefficients)
      last += std::max<int64_t>(0, coefficient) *
              (atoms[atom].extent.value_or(extent + 1) - 1);
    if (std::optional<int64_t> most = getLargest(firsts[dim]))
      last = std::min(last, *most);
    if (index.isKnown &&
        (last + lanes - 1 < extent || isWhole(index, lanes, extent)) &&
        (!isView || strides[dim] == 1)) {
      index.high += lanes - 1;
      return;
    }
    // In a view, the next element may be anything.
    if (isView) {
      for (Sum &any : indices)
        any = Sum();
      return;
    }
    if (dim == 0) {
      index.high += lanes - 1;
      return;
    }
    int64_t first = index.isExactly(0) ? 0 : extent - 1;
    index = {true, {}, 0, extent - 1};
    lanes = (first + lanes - 1) / extent + 1;
  }
}

/// True if `sum` says nothing of iterations: it is of what differs within one.
static bool isInner(const Sum &sum, ArrayRef<Atom> atoms) {
  llvm::SmallSetVector<unsigned, 8> reached;
  auto reach = [&](const Sum &read) {
    reached.insert_range(llvm::make_first_range(read.coefficients));
  };
  reach(sum);
  for (size_t next = 0; next != reached.size(); ++next) {
    const Atom &atom = atoms[reached[next]];
    if (atom.isDigit())
      reach(atom.of);
    else if (atom.kind != Atom::Inner)
      return false;
  }
  return true;
}

/// Adds the numbers of which both the quotient and the rest by one divisor are
/// in the indices of `access`, or in such numbers.
void Iterations::addNumbers(MemoryAccess &access) {
  SmallVector<unsigned> seen;
  for (size_t next = 0; next != access.indices.size(); ++next) {
    Sum index = access.indices[next];
    if (!index.isKnown)
      continue;
    for (auto [number, coefficient] : index.coefficients) {
      const Atom &atom = atoms[number];
      if (!atom.isDigit() || llvm::is_contained(seen, number) ||
          isInner(atom.of, atoms))
        continue;
      for (unsigned other : seen) {
        if (atoms[other].kind == atom.kind || !(atoms[other].of == atom.of) ||
            atoms[other].divisor != atom.divisor)
          continue;
        access.digits.push_back({number, other});
        access.indices.push_back(atom.of);
      }
      seen.push_back(number);
    }
  }
}

std::optional<MemoryAccess> Iterations::getAccess(Operation *op) {
  auto make = [&](auto access, Type type) -> std::optional<MemoryAccess> {
    Value buffer =
        access->getOperand(isa<memref::StoreOp, vector::StoreOp>(op));
    auto bufferType = cast<MemRefType>(buffer.getType());
    MemoryAccess result{op, buffer, {}, {}};
    for (Value index : access.getIndices())
      result.indices.push_back(get(index));
    auto vector = dyn_cast<VectorType>(type);
    int64_t lanes = vector ? vector.getNumElements() : 1;
    if (vector && vector.getRank() > 1)
      result.indices.assign(bufferType.getRank(), Sum());
    else
      addLanes(bufferType, lanes, access.getIndices(), result.indices);
    addNumbers(result);
    for (Sum &index : result.indices)
      index = forgetInner(index, result.digits);
    for (auto [number, pair] : llvm::enumerate(result.digits))
      pair = {getDigitOf(number, pair.first), getDigitOf(number, pair.second)};
    return result;
  };
  // The rows of a tile lie anywhere.
  auto makeTile = [&](Value buffer) {
    return MemoryAccess{
        op,
        buffer,
        SmallVector<Sum>(cast<MemRefType>(buffer.getType()).getRank()),
        {}};
  };
  return llvm::TypeSwitch<Operation *, std::optional<MemoryAccess>>(op)
      .Case([&](amx::TileLoadOp load) { return makeTile(load.getBase()); })
      .Case([&](amx::TileStoreOp store) { return makeTile(store.getBase()); })
      .Case([&](memref::LoadOp load) { return make(load, load.getType()); })
      .Case([&](vector::LoadOp load) { return make(load, load.getType()); })
      .Case([&](memref::StoreOp store) {
        return make(store, store.getValueToStore().getType());
      })
      .Case([&](vector::StoreOp store) {
        return make(store, store.getValueToStore().getType());
      })
      .Default([](Operation *) { return std::nullopt; });
}

/// Adds the atoms that are the same whenever `sum` is: its highest digits, as
/// far as each is worth more than all that are lower together.
void Iterations::findDetermined(const Sum &sum,
                                DenseSet<unsigned> &determined) {
  if (!sum.isKnown)
    return;
  SmallVector<std::pair<int64_t, unsigned>> digits;
  for (auto [atom, coefficient] : sum.coefficients)
    digits.push_back({std::abs(coefficient), atom});
  llvm::sort(digits);
  SmallVector<int64_t> lower{sum.high - sum.low};
  for (auto [worth, atom] : digits) {
    std::optional<int64_t> extent = atoms[atom].extent;
    bool hasEnd = extent && lower.back() >= 0;
    lower.push_back(hasEnd ? lower.back() + worth * (*extent - 1) : -1);
  }
  for (size_t number = digits.size(); number-- != 0;) {
    auto [worth, atom] = digits[number];
    if (lower[number] < 0 || worth <= lower[number])
      return;
    if (!determined.insert(atom).second)
      continue;
    Atom known = atoms[atom];
    // An empty line begins where the next one does.
    if (known.isDigit() || known.kind == Atom::Start)
      continue;
    // The slot of a block tells its position, and so its line and its distance
    // from the first block there.
    Sum position = known.of;
    for (auto [start, coefficient] : known.of.coefficients)
      if (known.kind == Atom::Slot && atoms[start].kind == Atom::Start) {
        position.coefficients.erase(start);
        findDetermined(Sum(atoms[start].of), determined);
      }
    findDetermined(position, determined);
  }
}

/// A sum that is what `a` is and what `b` is.
Sum Iterations::getUnion(const Sum &a, const Sum &b) {
  Sum all = a;
  all.low = std::min(a.low, b.low);
  all.high = std::max(a.high, b.high);
  all.isKnown &= b.isKnown;
  if (a.coefficients == b.coefficients || !all.isKnown)
    return all;
  // The slots of two blocks: that of one of them.
  auto getOnly = [&](const Sum &sum) -> std::optional<Atom> {
    if (sum.coefficients.size() != 1 || sum.coefficients.begin()->second != 1)
      return std::nullopt;
    return atoms[sum.coefficients.begin()->first];
  };
  std::optional<Atom> x = getOnly(a), y = getOnly(b);
  if (!x || !y || x->kind != Atom::Slot || y->kind != Atom::Slot ||
      x->array != y->array || x->source || y->source ||
      x->of.coefficients != y->of.coefficients)
    return {};
  x->of = getUnion(x->of, y->of);
  return Sum{true, {}, all.low, all.high}.plus(getAtom(*x));
}

bool Iterations::areApart(ArrayRef<MemoryAccess> accesses) {
  DenseSet<unsigned> determined;
  auto visit = [&](size_t number) {
    Sum all = accesses.front().indices[number];
    for (const MemoryAccess &access : accesses.drop_front())
      all = getUnion(all, access.indices[number]);
    findDetermined(all, determined);
  };
  ArrayRef<std::pair<unsigned, unsigned>> digits = accesses.front().digits;
  size_t rank = accesses.front().indices.size() - digits.size();
  for (size_t dim = 0; dim != rank; ++dim)
    visit(dim);
  // Two digits make a number.
  bool isAlike = llvm::all_of(accesses, [&](const MemoryAccess &access) {
    return ArrayRef(access.digits) == digits;
  });
  for (auto [number, pair] : llvm::enumerate(digits))
    if (isAlike && determined.contains(pair.first) &&
        determined.contains(pair.second))
      visit(rank + number);
  return llvm::all_of(variables, [&](auto &entry) {
    auto &[variable, extent] = entry;
    return extent == 1 ||
           llvm::any_of(determined, [&, variable = variable](unsigned atom) {
             return atoms[atom].source == variable;
           });
  });
}
