// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a kernel goes through a cluster.

#ifndef BSR_DIALECT_BSRPLANS
#define BSR_DIALECT_BSRPLANS

include "bsr/Dialect/BSRDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def BSR_ClusterKind : I32EnumAttr<"ClusterKind", "how a kernel goes through a cluster", [
  I32EnumAttrCase<"Nests", 0, "nests">,
  I32EnumAttrCase<"Chain", 1, "chain">,
]> {
  let cppNamespace = "::mlir::bsr";
}

def BSR_PlanAttr : AttrDef<BSR_Dialect, "Plan"> {
  let mnemonic = "plan";
  let summary = "How a kernel goes through a cluster";
  let description = [{
    The kind of a `bsr.cluster`. `nests`: a kernel computes its roots, the operations that have a
    `#bsr.root`, one nest after the other, each result of which is one of the cluster or
    a piece of one. `chain`: each work item goes through all nests, and reads what it
    made itself. Work items are the iterations of the loops that all roots share, whose
    extents are `shared`; a loop of one iteration is none. If the first root is a product, the shared
    loops are the dimensions of its result, and the other roots are its epilogue.

    `bsr-cluster` and `bsr-plan-clusters` choose plans. The verifier of `bsr.cluster`
    checks that work items can follow one, for the module's target.

    Example:

    ```mlir
    #bsr.plan<nests>
    ```

    ```mlir
    #bsr.plan<chain, shared = [128]>
    ```
  }];
  let parameters = (ins EnumParameter<BSR_ClusterKind>:$kind,
                        OptionalArrayRefParameter<"int64_t">:$shared);
  let assemblyFormat = "`<` $kind (`,` `shared` `=` `[` $shared^ `]`)? `>`";
  let genVerifyDecl = 1;
}

def BSR_RootAttr : AttrDef<BSR_Dialect, "Root"> {
  let mnemonic = "root";
  let summary = "What the plan of a cluster says of an operation";
  let description = [{
    A kernel computes the operation in nest number `nest`, before what reads it;
    operations of a cluster without the attribute are computed where they are used. In
    a chain, `loops` says for each loop of the operation which shared loop it is, or -1 for a row; a
    product that comes first has none. A `total` is a sum over the shared loops. `place`
    is the result of the cluster in whose buffer the first result of the operation,
    which is none, lies until it has been read.

    Example:

    ```mlir
    #bsr.root<nest = 1>
    ```

    ```mlir
    #bsr.root<nest = 0 loops = [-1, 0] place = 0>
    ```

    ```mlir
    #bsr.root<nest = 1 loops = [-1, 0] total = true>
    ```
  }];
  let parameters = (ins "int64_t":$nest,
                        OptionalArrayRefParameter<"int64_t">:$loops,
                        DefaultValuedParameter<"bool", "false">:$isTotal,
                        OptionalParameter<"std::optional<int64_t>">:$place);
  let assemblyFormat = [{
    `<` `nest` `=` $nest (`loops` `=` `[` $loops^ `]`)? (`total` `=` $isTotal^)?
    (`place` `=` $place^)? `>`
  }];
  let genVerifyDecl = 1;
}

#endif // BSR_DIALECT_BSRPLANS
