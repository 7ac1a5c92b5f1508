// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes, in the order of the pipeline: why, Before, After, options, statistics.

#ifndef BSR_TRANSFORMS_PASSES
#define BSR_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

def BSRVerifyLowered : Pass<"bsr-verify-lowered"> {
  let summary = "Fail if an operation of the bsr dialect is left";
  let description = [{
    The contract at the end of a lowering pipeline: no `bsr` operation or type is
    left. What is left is reported where it stands.

    Before:

    ```mlir
    func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
    ```

    After:

    ```mlir
    func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      return %x : tensor<4xf32>
    }
    ```
  }];
}

#endif // BSR_TRANSFORMS_PASSES
