// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What passes ask of targets, without knowing which there are.

#ifndef BSR_DIALECT_BSRINTERFACES
#define BSR_DIALECT_BSRINTERFACES

include "mlir/IR/OpBase.td"

def BSR_TargetAttrInterface : AttrInterface<"TargetAttrInterface"> {
  let description = [{
    What a module is compiled for, as passes that decide what is computed together see
    it. A target implements it in its own folder of `lib/Codegen`, as an external model
    of its attribute.
  }];
  let cppNamespace = "::mlir::bsr";
  let methods = [
    InterfaceMethod<[{
      What operations and memory cost, for the choice of what is computed where it is
      used and of what is one cluster.
    }], "::mlir::bsr::TargetCosts", "getCosts">,
    InterfaceMethod<[{
      True if kernels can run an epilogue on the sums of the product `op` where a work
      item has them: element-wise operations and sums over all tokens, which then read
      no product from memory.
    }], "bool", "acceptsEpilogue", (ins "::mlir::Operation *":$op)>,
  ];
}

#endif // BSR_DIALECT_BSRINTERFACES
