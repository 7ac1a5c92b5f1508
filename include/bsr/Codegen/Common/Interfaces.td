// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the passes that make kernels ask of targets.

#ifndef BSR_CODEGEN_COMMON_INTERFACES
#define BSR_CODEGEN_COMMON_INTERFACES

include "mlir/IR/OpBase.td"

def BSR_KernelTargetAttrInterface : AttrInterface<"KernelTargetAttrInterface"> {
  let description = [{
    How kernels are made for a target, and how the activations lie that they hand to
    each other. A target implements it in its own folder of `lib/Codegen`, as an
    external model of its attribute, beside `TargetAttrInterface`.
  }];
  let cppNamespace = "::mlir::bsr";
  let methods = [
    InterfaceMethod<[{
      Lanes of a panel of activations; 0 if buffers are not cut.
    }], "int64_t", "getPanel", (ins), "", "return 0;">,
    InterfaceMethod<[{
      The buffer of `tensor`, `[..., rows, lanes]`, in panels, which divide the lanes:
      `[..., lanes / panel, rows, panel]`, with unused rows where the target
      wants some.
    }], "::mlir::RankedTensorType", "getPanelType",
        (ins "::mlir::RankedTensorType":$tensor), "", "return tensor;">,
    InterfaceMethod<[{
      The view of its pattern that the kernel of `op` walks, if it has a pattern.
    }], "std::optional<::mlir::bsr::View>", "getWalkedView",
        (ins "::mlir::Operation *":$op)>,
    InterfaceMethod<[{
      The plans of patterns that the kernel of `plan` follows.
    }], "::llvm::SmallVector<::mlir::bsr::PatternPlan>", "getPatternPlans",
        (ins "const ::mlir::bsr::ClusterPlan &":$plan), "", "return {};">,
    InterfaceMethod<[{
      The memory that the kernel of `plan` needs for itself.
    }], "::llvm::SmallVector<::mlir::MemRefType>", "getScratch",
        (ins "const ::mlir::bsr::ClusterPlan &":$plan)>,
    InterfaceMethod<[{
      The numbers of the arguments of `cluster` in whose buffers the kernel may write
      its results.
    }], "::llvm::SmallVector<int64_t>", "getInPlace",
        (ins "::mlir::bsr::ClusterOp":$cluster,
             "const ::mlir::bsr::ClusterPlan &":$plan), "", "return {};">,
    InterfaceMethod<[{
      Emits what `kernel` does where `builder` is. What cannot be emitted is reported.
    }], "::llvm::LogicalResult", "emitBody",
        (ins "::mlir::OpBuilder &":$builder, "::mlir::bsr::KernelBody &":$kernel)>,
  ];
}

#endif // BSR_CODEGEN_COMMON_INTERFACES
