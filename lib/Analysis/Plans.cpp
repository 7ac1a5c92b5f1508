// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a step derives of patterns alone, once for as long as they stay as they
// are.

#include "bsr/Analysis/Plans.h"
#include "bsr/Dialect/Attributes.h"

using namespace mlir;
using namespace mlir::bsr;

bool bsr::makesPlan(Operation *op) {
  auto kind = attrs::kind.get(op);
  return kind && kind.getValue() == planKind;
}

/// What the name of a function of plans has behind that of its step.
static constexpr StringLiteral suffix = "_plans";

std::string bsr::getPlansName(func::FuncOp step) {
  return (step.getName() + suffix).str();
}

func::FuncOp bsr::getPlans(func::FuncOp step) {
  auto name = StringAttr::get(step.getContext(), getPlansName(step));
  return SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(step, name);
}

bool bsr::isOfPlans(func::FuncOp func) {
  StringRef step = func.getName();
  return step.consume_back(suffix) &&
         SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
             func, StringAttr::get(func.getContext(), step));
}
