// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Modules of unit tests, from their text.

#ifndef BSR_UNITTESTS_PARSE_H
#define BSR_UNITTESTS_PARSE_H

#include "bsr/Dialect/BSR.h"
#include "bsr/Pipelines/Pipelines.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/InitAllDialects.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

namespace mlir::bsr::test {

/// A context with all dialects, and a module.
class ModuleTest : public ::testing::Test {
protected:
  ModuleTest() {
    DialectRegistry registry;
    registerAllDialects(registry);
    registerDialect(registry);
    context.appendDialectRegistry(registry);
    context.loadDialect<BSRDialect>();
  }

  /// Parses `text` into `module`.
  void parse(StringRef text) {
    module = parseSourceString<ModuleOp>(text, &context);
    ASSERT_TRUE(module);
  }

  /// The first operation of type `OpTy` in the module.
  template <typename OpTy>
  OpTy find() {
    OpTy found;
    module->walk([&](OpTy op) {
      found = op;
      return WalkResult::interrupt();
    });
    return found;
  }

  /// The operations of type `OpTy`, in their order.
  template <typename OpTy>
  SmallVector<OpTy> findAll() {
    SmallVector<OpTy> all;
    module->walk([&](OpTy op) { all.push_back(op); });
    return all;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

} // namespace mlir::bsr::test

#endif // BSR_UNITTESTS_PARSE_H
