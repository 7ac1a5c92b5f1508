// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the step of a module and what its arguments carry.

#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mlir::bsr;

bool bsr::isStep(func::FuncOp func) {
  if (func.isExternal())
    return false;
  for (unsigned i = 0, e = func.getNumArguments(); i != e; ++i)
    if (attrs::name.ofArg(func, i))
      return true;
  return false;
}

LogicalResult bsr::forEachBody(ModuleOp module,
                               function_ref<LogicalResult(func::FuncOp)> run) {
  for (auto func : module.getOps<func::FuncOp>())
    if (!func.isDeclaration() && failed(run(func)))
      return failure();
  return success();
}

LogicalResult bsr::requireOwnSignature(func::FuncOp func, ModuleOp module) {
  if (failed(getReturn(func)))
    return failure();
  if (!SymbolTable::symbolKnownUseEmpty(func, module))
    return emitError(
        func.getLoc(),
        "expected no call of a step with marked arguments, but got "
        "one: inline it first");
  return success();
}

MarkAttr bsr::getMark(func::FuncOp func, unsigned arg) {
  auto mask = attrs::mask.ofArg(func, arg);
  if (!mask)
    return attrs::mark.ofArg(func, arg);
  for (unsigned weight : llvm::seq(func.getNumArguments()))
    if (auto mark = attrs::mark.ofArg(func, weight);
        mark && mark.getWeight() == mask.getWeight())
      return mark;
  return {};
}

bool bsr::isMarkedWeight(func::FuncOp func, unsigned arg) {
  auto mark = attrs::mark.ofArg(func, arg);
  auto role = attrs::role.ofArg(func, arg);
  return mark && attrs::name.ofArg(func, arg) == mark.getWeight() &&
         (!role || role == "param");
}

DictionaryAttr bsr::createOrigin(StringAttr name, RankedTensorType type) {
  Builder b(name.getContext());
  Attribute shape = b.getDenseI64ArrayAttr(type.getShape());
  SmallVector<int64_t> zeros(type.getRank(), 0);
  return b.getDictionaryAttr({{"name", name},
                              {"shape", shape},
                              {"offsets", b.getDenseI64ArrayAttr(zeros)},
                              {"sizes", shape}});
}

bool bsr::isScores(func::FuncOp step, unsigned index) {
  auto role = attrs::role.ofResult(step, index);
  return role && role.getValue() == "scores";
}

BlockArgument bsr::getScored(func::FuncOp step, unsigned index) {
  StringAttr name = attrs::name.ofResult(step, index);
  for (BlockArgument argument : step.getArguments()) {
    auto pattern = attrs::pattern.ofArg(step, argument.getArgNumber());
    if (pattern && attrs::name.ofArg(step, pattern.getInt()) == name)
      return argument;
  }
  return {};
}

SmallVector<BlockArgument> bsr::getCarriers(func::FuncOp step) {
  SmallVector<BlockArgument> carriers(step.getNumResults());
  for (BlockArgument argument : step.getArguments())
    if (auto result = attrs::result.ofArg(step, argument.getArgNumber()))
      carriers[result.getInt()] = argument;
  return carriers;
}

/// Whether `text` can stand in the manifest, in messages and on a terminal.
static bool isPlainText(StringRef text) {
  return llvm::json::isUTF8(text) && llvm::none_of(text, [](unsigned char c) {
           return c < ' ' || c == 127;
         });
}

/// Checks that the names and the texts that `op` has of this dialect, and its
/// own name, can be shown.
static LogicalResult verifyTexts(Operation *op) {
  StringAttr wrong;
  auto look = [&](Attribute attribute) {
    attribute.walk([&](StringAttr text) {
      if (!isPlainText(text.getValue()))
        wrong = text;
    });
  };
  if (isa<func::FuncOp>(op))
    look(op->getAttrDictionary());
  else
    for (NamedAttribute attribute : op->getDiscardableAttrs())
      if (isa_and_present<BSRDialect>(attribute.getNameDialect()))
        look(attribute.getValue());
  if (!wrong)
    return success();
  return emitError(op->getLoc(), "expected names of UTF-8 without control "
                                 "characters, but got ")
         << wrong;
}

FailureOr<func::FuncOp> bsr::getStep(ModuleOp module) {
  func::FuncOp step;
  for (auto func : module.getOps<func::FuncOp>()) {
    if (!isStep(func))
      continue;
    if (step) {
      func.emitError("expected one function with bsr.name arguments, but got @")
          << step.getName() << " and @" << func.getName();
      return failure();
    }
    step = func;
  }
  if (!step) {
    module.emitError(
        "expected one function with bsr.name arguments, but got none");
    return failure();
  }
  for (unsigned i = 0, e = step.getNumArguments(); i != e; ++i)
    if (!attrs::name.ofArg(step, i)) {
      emitError(step.getArgument(i).getLoc(),
                "expected a bsr.name for every argument, but got none for "
                "argument #")
          << i;
      return failure();
    }
  for (auto [i, carrier] : llvm::enumerate(getCarriers(step)))
    if (!carrier && !attrs::name.ofResult(step, i)) {
      step.emitError("expected a bsr.name for every result that carries no "
                     "argument, but got none for result #")
          << i;
      return failure();
    }
  WalkResult texts =
      module.walk([](Operation *op) { return WalkResult(verifyTexts(op)); });
  if (texts.wasInterrupted())
    return failure();
  return step;
}
