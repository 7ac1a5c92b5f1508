// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns copies between views into loops.

#include "bsr/Transforms/Passes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Utils/Utils.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/MemRef/Utils/MemRefUtils.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRLOWERCOPIES
#include "bsr/Transforms/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

namespace {
struct LowerCopies : bsr::impl::BSRLowerCopiesBase<LowerCopies> {
  using Base::Base;

  void runOnOperation() override {
    getOperation()->walk([](memref::CopyOp copy) {
      auto isContiguous = [](Value buffer) {
        return memref::isStaticShapeAndContiguousRowMajor(
            cast<MemRefType>(buffer.getType()));
      };
      if (isContiguous(copy.getSource()) && isContiguous(copy.getTarget()))
        return;
      OpBuilder b(copy);
      linalg::makeMemRefCopyOp(b, copy.getLoc(), copy.getSource(),
                               copy.getTarget());
      copy.erase();
    });
  }
};
} // namespace
