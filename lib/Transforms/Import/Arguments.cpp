// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gives a step several arguments in place of one.

#include "Arguments.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;

//===----------------------------------------------------------------------===//
// Partitions
//===----------------------------------------------------------------------===//

Partition Partition::ofStack(int64_t size) {
  return {0, llvm::to_vector(llvm::seq<int64_t>(size + 1)), /*isStack=*/true};
}

RankedTensorType Partition::getType(RankedTensorType whole,
                                    int64_t index) const {
  SmallVector<int64_t> shape(whole.getShape());
  if (isStack)
    shape.erase(shape.begin() + dim);
  else
    shape[dim] = starts[index + 1] - starts[index];
  return whole.clone(shape);
}

namespace {
/// A part as a slice of a tensor of type `type`.
struct Slice {
  Slice(OpBuilder &b, const Partition &partition, RankedTensorType type,
        int64_t index)
      : offsets(type.getRank(), b.getIndexAttr(0)),
        sizes(getAsIndexOpFoldResult(b.getContext(), type.getShape())),
        strides(type.getRank(), b.getIndexAttr(1)) {
    int64_t start = partition.starts[index];
    offsets[partition.dim] = b.getIndexAttr(start);
    sizes[partition.dim] = b.getIndexAttr(partition.starts[index + 1] - start);
  }

  SmallVector<OpFoldResult> offsets, sizes, strides;
};
} // namespace

Value Partition::extract(OpBuilder &b, Location loc, Value whole,
                         int64_t index) const {
  auto type = cast<RankedTensorType>(whole.getType());
  Slice slice(b, *this, type, index);
  return tensor::ExtractSliceOp::create(b, loc, getType(type, index), whole,
                                        slice.offsets, slice.sizes,
                                        slice.strides);
}

Value Partition::join(OpBuilder &b, Location loc, ArrayRef<Value> parts) const {
  auto part = cast<RankedTensorType>(parts.front().getType());
  SmallVector<int64_t> shape(part.getShape());
  if (isStack)
    shape.insert(shape.begin() + dim, starts.back());
  else
    shape[dim] = starts.back();
  Value whole = tensor::EmptyOp::create(b, loc, shape, part.getElementType());
  auto type = cast<RankedTensorType>(whole.getType());
  for (auto [i, value] : llvm::enumerate(parts)) {
    Slice slice(b, *this, type, i);
    whole = tensor::InsertSliceOp::create(b, loc, value, whole, slice.offsets,
                                          slice.sizes, slice.strides);
  }
  return whole;
}

//===----------------------------------------------------------------------===//
// Attributes of parts
//===----------------------------------------------------------------------===//

StringAttr bsr::getPartName(StringAttr name, int64_t index) {
  return StringAttr::get(name.getContext(),
                         name.getValue() + "." + Twine(index));
}

LogicalResult
bsr::verifyPartNames(func::FuncOp func,
                     ArrayRef<std::optional<Partition>> partitions) {
  for (auto [arg, partition] : llvm::enumerate(partitions)) {
    if (!partition)
      continue;
    auto name = attrs::name.ofArg(func, arg);
    for (unsigned other : llvm::seq(func.getNumArguments())) {
      auto taken = attrs::name.ofArg(func, other);
      for (int64_t index : llvm::seq(partition->size()))
        if (taken && taken == getPartName(name, index) &&
            attrs::role.ofArg(func, arg) == attrs::role.ofArg(func, other))
          return emitError(func.getLoc(), "expected no argument named ")
                 << taken << " beside " << name
                 << ", which has a part of that name, but got argument #"
                 << other;
    }
  }
  return success();
}

/// The origin of part `index` of an argument of type `type` with `attributes`.
/// An argument that is a part itself has the last dimensions of its origin.
static DictionaryAttr getPartOrigin(DictionaryAttr attributes,
                                    RankedTensorType type,
                                    const Partition &partition, int64_t index) {
  Builder b(attributes.getContext());
  auto get = [&](DictionaryAttr origin, StringRef key) {
    return llvm::to_vector(origin.getAs<DenseI64ArrayAttr>(key).asArrayRef());
  };
  auto known = attrs::origin.get(attributes);
  if (!known)
    known = createOrigin(attrs::name.get(attributes), type);
  SmallVector<int64_t> offsets = get(known, "offsets"),
                       sizes = get(known, "sizes");
  int64_t dim = sizes.size() - type.getRank() + partition.dim;
  offsets[dim] += partition.starts[index];
  sizes[dim] = partition.starts[index + 1] - partition.starts[index];
  NamedAttrList origin(known);
  origin.set("offsets", b.getDenseI64ArrayAttr(offsets));
  origin.set("sizes", b.getDenseI64ArrayAttr(sizes));
  return origin.getDictionary(b.getContext());
}

/// The attributes of part `index` of an argument of type `type` with
/// `attributes`; its result is number `result`.
static DictionaryAttr getPartAttributes(DictionaryAttr attributes,
                                        RankedTensorType type,
                                        const Partition &partition,
                                        int64_t index, int64_t result) {
  Builder b(attributes.getContext());
  NamedAttrList list(attributes);
  attrs::name.set(list, getPartName(attrs::name.get(attributes), index));
  attrs::origin.set(list, getPartOrigin(attributes, type, partition, index));
  if (auto aliases = attrs::aliases.get(attributes)) {
    SmallVector<Attribute> names;
    for (auto alias : aliases.getAsRange<StringAttr>())
      names.push_back(getPartName(alias, index));
    attrs::aliases.set(list, b.getArrayAttr(names));
  }
  if (auto mark = attrs::mark.get(attributes)) {
    ArrayRef<MarkDim> dims = mark.getDims().drop_front(partition.isStack);
    if (dims == ArrayRef({MarkDim::Row, MarkDim::Col}))
      dims = {};
    attrs::mark.set(list,
                    mark.withDims(dims, getPartName(mark.getWeight(), index)));
  }
  if (auto mask = attrs::mask.get(attributes))
    attrs::mask.set(list, MaskAttr::get(b.getContext(),
                                        getPartName(mask.getWeight(), index),
                                        mask.getTranspose()));
  if (attributes.contains(attrs::result))
    attrs::result.set(list, b.getI64IntegerAttr(result));
  return list.getDictionary(b.getContext());
}

//===----------------------------------------------------------------------===//
// Arguments and results
//===----------------------------------------------------------------------===//

static int64_t getCount(const std::optional<Partition> &partition) {
  return partition ? partition->size() : 1;
}

void bsr::splitArguments(func::FuncOp func,
                         ArrayRef<std::optional<Partition>> partitions,
                         function_ref<void(Value, ArrayRef<Value>)> joined,
                         function_ref<void(Value)> cut) {
  Block &body = func.getBody().front();
  Operation *terminator = body.getTerminator();
  OpBuilder b = OpBuilder::atBlockBegin(&body);
  unsigned numArguments = func.getNumArguments();

  // The partitions of results, and their first numbers.
  SmallVector<std::optional<Partition>> nexts(func.getNumResults());
  for (auto [arg, partition] : llvm::enumerate(partitions))
    if (auto result = attrs::result.ofArg(func, arg))
      nexts[result.getInt()] = partition;
  SmallVector<int64_t> firsts;
  int64_t first = 0;
  for (const std::optional<Partition> &partition : nexts) {
    firsts.push_back(first);
    first += getCount(partition);
  }

  SmallVector<DictionaryAttr> argumentAttributes, resultAttributes;
  for (auto [arg, partition] : llvm::enumerate(partitions)) {
    BlockArgument old = body.getArgument(arg);
    DictionaryAttr attributes = func.getArgAttrDict(arg);
    auto result = attrs::result.ofArg(func, arg);
    int64_t next = result ? firsts[result.getInt()] : 0;
    if (!partition) {
      old.replaceAllUsesWith(body.addArgument(old.getType(), old.getLoc()));
      NamedAttrList list(attributes);
      if (result)
        attrs::result.set(list, b.getI64IntegerAttr(next));
      argumentAttributes.push_back(list.getDictionary(b.getContext()));
      continue;
    }
    auto type = cast<RankedTensorType>(old.getType());
    SmallVector<Value> parts;
    for (int64_t i : llvm::seq(partition->size())) {
      parts.push_back(
          body.addArgument(partition->getType(type, i), old.getLoc()));
      argumentAttributes.push_back(
          getPartAttributes(attributes, type, *partition, i, next + i));
    }
    Value whole = partition->join(b, old.getLoc(), parts);
    old.replaceAllUsesWith(whole);
    joined(whole, parts);
  }
  body.eraseArguments(0, numArguments);

  b.setInsertionPoint(terminator);
  SmallVector<Value> returned;
  for (auto [i, operand] : llvm::enumerate(terminator->getOperands())) {
    DictionaryAttr attributes = func.getResultAttrDict(i);
    if (!attributes)
      attributes = b.getDictionaryAttr({});
    if (!nexts[i]) {
      returned.push_back(operand);
      resultAttributes.push_back(attributes);
      continue;
    }
    cut(operand);
    for (int64_t index : llvm::seq(nexts[i]->size())) {
      returned.push_back(
          nexts[i]->extract(b, operand.getLoc(), operand, index));
      NamedAttrList list(attributes);
      if (auto name = attrs::name.get(attributes))
        attrs::name.set(list, getPartName(name, index));
      resultAttributes.push_back(list.getDictionary(b.getContext()));
    }
  }
  terminator->setOperands(returned);
  func.setType(b.getFunctionType(body.getArgumentTypes(),
                                 ValueRange(returned).getTypes()));
  func.setAllArgAttrs(argumentAttributes);
  func.setAllResultAttrs(resultAttributes);
}
