// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What passes ask of targets and of operations, without knowing which there are.

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
    InterfaceMethod<[{
      True if the epilogue of the product `op` may make results that have the features of
      the product last, where its vectors run along tokens: work items transpose squares
      of what they have. Memory that is no result has the sums then.
    }], "bool", "transposesSums", (ins "::mlir::Operation *":$op), "",
        [{ return false; }]>,
    InterfaceMethod<[{
      True if work items keep in registers what an epilogue, or later nests of a chain,
      read of what they made: it is not stored for these, and computed again where
      registers do not have it.
    }], "bool", "keepsInRegisters", (ins), "", [{ return false; }]>,
    InterfaceMethod<[{
      True if there are kernels for `op`, a `bsr.attention` or its gradient, that are better
      than products with scores in memory: `bsr-find-attention` makes no other.
    }], "bool", "hasAttention", (ins "::mlir::Operation *":$op), "", [{ return false; }]>,
    InterfaceMethod<[{
      True if vectors run along the last dimension of tensors: tokens belong there, and
      `bsr-layout` moves them.
    }], "bool", "wantsTokensLast">,
    InterfaceMethod<[{
      The chip of a device on which the runtime launches the kernels of a step, as PTX
      names it; empty where a step calls its kernels as functions.
    }], "::llvm::StringRef", "getLaunchChip", (ins), "", [{ return ""; }]>,
  ];
}

def BSR_KernelOpInterface : OpInterface<"KernelOpInterface"> {
  let description = [{
    An operation that a kernel computes: each target has loops for it. It is what its
    cluster is called by in reports, and its operations are counted there.
  }];
  let cppNamespace = "::mlir::bsr";
  let methods = [
    InterfaceMethod<[{
      The kind of work, as `bsr.kind` of a cluster has it: spmm, spmm_transposed, sddmm,
      attention, attention_grad, block_scores, dense, scatter, gather, reduction, elementwise, copy or other.
    }], "::llvm::StringRef", "getWorkKind", (ins), "", [{ return "other"; }]>,
    InterfaceMethod<[{
      The floating-point operations of a product, all slots of its pattern counted; else
      0.
    }], "int64_t", "getFlops", (ins), "", [{ return 0; }]>,
    InterfaceMethod<[{
      The view of its pattern whose lines are written, or gathered, one after the other;
      nothing if there is no pattern.
    }], "std::optional<::mlir::bsr::View>", "getLineView", (ins), "",
        [{ return std::nullopt; }]>,
  ];
}

def BSR_ActivationsOpInterface : OpInterface<"ActivationsOpInterface"> {
  let description = [{
    An operation on activations: tensors of any rank with one dimension of features,
    the same one in all of them. The other dimensions are tokens, and may be permuted:
    in all activations of the operation alike.
  }];
  let cppNamespace = "::mlir::bsr";
  let methods = [
    InterfaceMethod<"The dimension of the features.", "uint64_t", "getFeatureDim">,
    InterfaceMethod<"Makes `dim` the dimension of the features.", "void",
                    "setFeatureDim", (ins "uint64_t":$dim)>,
    InterfaceMethod<"The operands that are activations; none if their layout is fixed.",
                    "::llvm::SmallVector<::mlir::OpOperand *, 2>",
                    "getReadActivations">,
    InterfaceMethod<"The result that is activations and has no fixed layout, or null.", "::mlir::Value",
                    "getMadeActivations", (ins), "", [{ return {}; }]>,
    InterfaceMethod<[{
      True if another operand has the tokens in the same order, so that the features
      alone may move among them.
    }], "bool", "keepsTokenOrder", (ins), "", [{ return false; }]>,
  ];
}

#endif // BSR_DIALECT_BSRINTERFACES
