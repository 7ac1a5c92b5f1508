// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernels that make the plans of patterns, and their launches: what is
// equal there is once.

#include "PlanKernels.h"
#include "bsr/Analysis/Plans.h"
#include "bsr/Dialect/Attributes.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace mlir::bsr;

/// The function of a kernel that makes `plan`: on the index arrays of its view
/// and on its own arrays.
static func::FuncOp createFunction(const PatternPlan &plan, StringRef name) {
  OpBuilder b(plan.op->getContext());
  Location loc = plan.op->getLoc();
  SmallVector<Type> types;
  auto pattern = cast<PatternType>(plan.pattern.getType());
  for (Type type : pattern.getIndexTypes(plan.view))
    types.push_back(getDenseBufferType(type));
  llvm::append_range(types, plan.types);
  auto function =
      func::FuncOp::create(loc, (name + "_plan").str(),
                           FunctionType::get(b.getContext(), types, {}));
  function.setPrivate();
  attrs::kind.set(function, b.getStringAttr(planKind));
  Block *entry = function.addEntryBlock();
  b.setInsertionPointToStart(entry);
  PatternView view{entry->getArgument(0), entry->getArgument(1),
                   entry->getArgument(2)};
  plan.emit(b, loc, view, entry->getArguments().drop_front(3));
  b.setInsertionPointToEnd(entry);
  func::ReturnOp::create(b, loc);
  return function;
}

PlanKernel PlanKernels::getKernel(const PatternPlan &plan, StringRef name) {
  func::FuncOp function = createFunction(plan, name);
  for (PlanKernel &known : kernels)
    if (known.view == plan.view &&
        known.function.getFunctionType() == function.getFunctionType() &&
        OperationEquivalence::isRegionEquivalentTo(
            &known.function.getBody(), &function.getBody(),
            OperationEquivalence::IgnoreLocations)) {
      function.erase();
      return known;
    }
  // In front of the first cluster that follows it.
  symbols.insert(function,
                 Block::iterator(plan.op->getParentOfType<ClusterOp>()));
  kernels.push_back({function, plan.view, plan.types});
  return kernels.back();
}

ValueRange PlanKernels::getArrays(const PlanKernel &kernel, Value pattern) {
  func::FuncOp function = kernel.function;
  LaunchOp &launch = launches[{function, pattern, kernel.view}];
  if (launch)
    return launch.getResults();
  OpBuilder b(pattern.getContext());
  b.setInsertionPointAfterValue(pattern);
  Location loc = function.getLoc();
  auto indices = IndicesOp::create(b, loc, pattern, kernel.view);
  SmallVector<Value> arrays;
  for (MemRefType type : kernel.types)
    arrays.push_back(tensor::EmptyOp::create(b, loc, type.getShape(),
                                             type.getElementType()));
  launch = LaunchOp::create(
      b, loc, TypeRange(ValueRange(arrays)), FlatSymbolRefAttr::get(function),
      indices.getResults(), arrays, b.getDenseI64ArrayAttr({}));
  attrs::kind.set(launch, b.getStringAttr(planKind));
  return launch.getResults();
}
