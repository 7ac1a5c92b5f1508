// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes a bufferized step leave its results in buffers of the caller.
// Upstream's buffer-results-to-out-params knows no arguments that carry a
// result.

#include "bsr/Analysis/Decisions.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Transforms/Bufferization/Passes.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRSTORERESULTS
#include "bsr/Transforms/Bufferization/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// The buffer that `value` is a view of.
static Value getRoot(Value value) {
  while (auto view = value.getDefiningOp<ViewLikeOpInterface>())
    value = view.getViewSource();
  return value;
}

/// Adds an argument for each of the results `indices` of `step`, all at once:
/// one by one, each would rewrite the attributes of all others.
static FailureOr<Block::BlockArgListType>
addOutputs(func::FuncOp step, ArrayRef<unsigned> indices) {
  Builder b(step.getContext());
  unsigned end = step.getNumArguments();
  SmallVector<Type> types;
  SmallVector<DictionaryAttr> allAttrs;
  for (unsigned index : indices) {
    NamedAttrList attrs;
    if (DictionaryAttr known = step.getResultAttrDict(index))
      attrs.append(known);
    attrs::kind.set(attrs, b.getStringAttr("output"));
    types.push_back(step.getResultTypes()[index]);
    allAttrs.push_back(attrs.getDictionary(step.getContext()));
  }
  SmallVector<unsigned> places(indices.size(), end);
  SmallVector<Location> locs(indices.size(), step.getLoc());
  if (failed(step.insertArguments(places, types, allAttrs, locs)))
    return failure();
  return step.getArguments().drop_front(end);
}

/// Leaves `buffer`, the scores of weight `name`, in memory of the step.
static void keepScores(OpBuilder &b, Value buffer, Attribute name) {
  auto alloc = buffer.getDefiningOp<memref::AllocOp>();
  if (!alloc || attrs::scores.isOn(alloc)) {
    alloc = memref::AllocOp::create(b, buffer.getLoc(),
                                    cast<MemRefType>(buffer.getType()));
    memref::CopyOp::create(b, buffer.getLoc(), buffer, alloc);
  }
  attrs::scores.set(alloc, name);
}

/// Gives every result of `step` that carries no argument a buffer of the
/// caller: as the buffer it is computed in where it has one of its own, else by
/// a copy. Scores stay where they are.
static LogicalResult storeOutputs(func::FuncOp step, func::ReturnOp terminator,
                                  ArrayRef<BlockArgument> carriers) {
  OpBuilder b(terminator);
  SmallVector<unsigned> indices;
  for (auto [index, carrier] : llvm::enumerate(carriers)) {
    if (carrier)
      continue;
    if (isScores(step, index))
      keepScores(b, terminator.getOperand(index),
                 attrs::name.ofResult(step, index));
    else
      indices.push_back(index);
  }
  FailureOr<Block::BlockArgListType> outputs = addOutputs(step, indices);
  if (failed(outputs))
    return failure();
  for (auto [index, output] : llvm::zip_equal(indices, *outputs)) {
    Value buffer = terminator.getOperand(index);
    auto alloc = buffer.getDefiningOp<memref::AllocOp>();
    if (alloc && !attrs::scores.isOn(alloc)) {
      buffer.replaceAllUsesWith(output);
      alloc.erase();
    } else {
      memref::CopyOp::create(b, terminator.getLoc(), buffer, output);
    }
  }
  return success();
}

/// Copies the next values that are not computed in place to the arguments that
/// they are carried in. Returns how many.
static unsigned storeUpdates(func::FuncOp step, func::ReturnOp terminator,
                             ArrayRef<BlockArgument> carriers) {
  OpBuilder b(terminator);
  Location loc = terminator.getLoc();
  SmallVector<BlockArgument> updated;
  SmallVector<Value> sources;
  for (auto [carrier, buffer] :
       llvm::zip_equal(carriers, terminator.getOperands())) {
    if (!carrier || carrier == buffer)
      continue;
    StringAttr name = attrs::name.ofArg(step, carrier.getArgNumber());
    PassRemark::missed("bsr-store-results", "NotInPlace",
                       {buffer.getLoc(), step}, DiagnosticSeverity::Remark)
            .add("Argument", name)
        << "expected the next value of " << name
        << " to be computed in place, but got a copy at the end of the step";
    updated.push_back(carrier);
    sources.push_back(buffer);
  }
  // What is about to be overwritten and still needed goes through a copy.
  for (Value &source : sources) {
    if (!llvm::is_contained(updated, getRoot(source)))
      continue;
    Value copy =
        memref::AllocOp::create(b, loc, cast<MemRefType>(source.getType()));
    memref::CopyOp::create(b, loc, source, copy);
    source = copy;
  }
  for (auto [argument, source] : llvm::zip_equal(updated, sources))
    memref::CopyOp::create(b, loc, source, argument);
  return updated.size();
}

namespace {
struct StoreResults : bsr::impl::BSRStoreResultsBase<StoreResults> {
  using Base::Base;

  void runOnOperation() override {
    func::FuncOp step = getOperation();
    if (!isStep(step))
      return;
    FailureOr<func::ReturnOp> terminator = getReturn(step);
    if (failed(terminator))
      return signalPassFailure();
    for (Type type : step.getResultTypes())
      if (!isa<MemRefType>(type)) {
        step.emitError("expected results in buffers, which bsr-bufferize "
                       "makes, but got ")
            << type;
        return signalPassFailure();
      }
    SmallVector<BlockArgument> carriers = getCarriers(step);
    if (failed(storeOutputs(step, *terminator, carriers)))
      return signalPassFailure();
    numCopied += storeUpdates(step, *terminator, carriers);
    (*terminator)->setOperands({});
    if (failed(step.eraseResults(llvm::BitVector(carriers.size(), true))))
      return signalPassFailure();
    SmallVector<DictionaryAttr> all;
    step.getAllArgAttrs(all);
    for (DictionaryAttr &known : all) {
      NamedAttrList attrs(known);
      if (!attrs.erase(attrs::result))
        continue;
      attrs::carried.set(attrs, UnitAttr::get(&getContext()));
      known = attrs.getDictionary(&getContext());
    }
    step.setAllArgAttrs(all);
  }
};
} // namespace
