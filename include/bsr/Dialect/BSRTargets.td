// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The targets: what a module is compiled for.

#ifndef BSR_DIALECT_BSRTARGETS
#define BSR_DIALECT_BSRTARGETS

include "bsr/Dialect/BSRDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

// The processor of a module that names none: AVX2.
defvar vectorBits = "256";
defvar numRegisters = "16";
defvar l1Bytes = "32 * 1024";
defvar l2Bytes = "512 * 1024";

def BSR_PairDots : I32EnumAttr<"PairDots", "how products of pairs of bf16 are computed", [
  I32EnumAttrCase<"None", 0, "none">,
  I32EnumAttrCase<"Native", 1, "native">,
  I32EnumAttrCase<"Emulated", 2, "emulated">]> {
  let cppNamespace = "::mlir::bsr";
}

def BSR_PairDotsParameter : EnumParameter<BSR_PairDots> {
  let defaultValue = "::mlir::bsr::PairDots::None";
}

def BSR_TileProducts : I32EnumAttr<"TileProducts", "how products of tiles of bf16 are computed", [
  I32EnumAttrCase<"None", 0, "none">,
  I32EnumAttrCase<"AMX", 1, "amx">,
  I32EnumAttrCase<"Emulated", 2, "emulated">]> {
  let cppNamespace = "::mlir::bsr";
}

def BSR_TileProductsParameter : EnumParameter<BSR_TileProducts> {
  let defaultValue = "::mlir::bsr::TileProducts::None";
}

def BSR_CPUAttr : AttrDef<BSR_Dialect, "CPU"> {
  let mnemonic = "cpu";
  let summary = "A processor with vector registers and caches";
  let description = [{
    What kernels are made for: the width of a vector register in bits, a power of 2
    from 64 to 4096; the number of vector registers, 8 to 256; the bytes of the
    first- and of the second-level cache of a core, 4 KiB to 16 MiB. A width that the
    processor does not have is correct: LLVM takes vectors apart.

    `bf16_dots` says how products of bf16 are summed up. With `none` they are converted to
    f32 and multiplied there. With `native` a lane of f32 adds up pairs of neighbouring
    bf16 by one instruction, `vdpbf16ps` of AVX512_BF16 or `bfdot` of AArch64's BF16; the
    processor has to have it, and subnormal numbers are zeros in it. With `emulated` the same kernels run everywhere:
    `bsr-emulate-dots` replaces each such instruction by plain vectors of the same
    roundings. A width below 128 bits has no pairs.

    `bf16_tiles` says whether sparse products of bf16 in blocks of whole tiles are computed
    by the tiles of AMX, 16 by 32 bf16 times 32 by 16 in one instruction, `tdpbf16ps`. With
    `amx` they are: the processor has to have it, and the kernel of the operating system
    has to permit it. With `emulated` the same kernels run everywhere: `bsr-emulate-dots`
    replaces what works on tiles by plain vectors of the same roundings. With `none`, and of
    other products, `bf16_dots` says what is done. Only vectors of 512 bits have tiles.

    `bsr.target` on a module holds it, as `bsr-set-target` or `sparse-compile` put it
    there. A module without one is for `#bsr.cpu`.

    Example:

    ```mlir
    #bsr.cpu
    ```

    ```mlir
    #bsr.cpu<vector_bits = 512, num_registers = 32, l1_bytes = 49152, l2_bytes = 2097152, bf16_dots = native>
    ```

    ```mlir
    #bsr.cpu<vector_bits = 512, num_registers = 32, l1_bytes = 49152, l2_bytes = 2097152, bf16_tiles = amx>
    ```
  }];
  let parameters = (ins DefaultValuedParameter<"int64_t", vectorBits>:$vector_bits,
                        DefaultValuedParameter<"int64_t", numRegisters>:$num_registers,
                        DefaultValuedParameter<"int64_t", l1Bytes>:$l1_bytes,
                        DefaultValuedParameter<"int64_t", l2Bytes>:$l2_bytes,
                        BSR_PairDotsParameter:$bf16_dots,
                        BSR_TileProductsParameter:$bf16_tiles);
  let builders = [
    AttrBuilder<(ins), !strconcat("return $_get($_ctxt, ", vectorBits, ", ", numRegisters,
                                  ", ", l1Bytes, ", ", l2Bytes,
                                  ", ::mlir::bsr::PairDots::None, "
                                  "::mlir::bsr::TileProducts::None);")>,
  ];
  let assemblyFormat = "(`<` struct(params)^ `>`)?";
  let genVerifyDecl = 1;
}

def BSR_ScalarAttr : AttrDef<BSR_Dialect, "Scalar"> {
  let mnemonic = "scalar";
  let summary = "A processor without vectors, caches or threads";
  let description = [{
    The plainest target: an operation becomes one nest of loops over its elements, one
    after the other, and everything has memory of its own. Nothing is fast; a kernel
    reads like the equation of its operation. Tests compare other targets with it.

    Example:

    ```mlir
    #bsr.scalar
    ```
  }];
  let assemblyFormat = "";
}

def BSR_GPUAttr : AttrDef<BSR_Dialect, "GPU"> {
  let mnemonic = "gpu";
  let summary = "An NVIDIA GPU";
  let description = [{
    A chip as PTX names it, `sm_80` or a later one that `support/Chips.cpp` has. Kernels are
    `gpu.func`s; a step launches them.

    A thread block computes `tile_outputs` (64, 128, 256 or 512) output features of
    `tile_tokens` (32, 64, 128 or 256) tokens of a product with a sparse weight on
    tensor cores; 0, the default, lets the model of the chip choose. A product that
    such a tile does not fit is computed by plain kernels.

    A dense product of f32 has `tile_outputs` rows and `tile_tokens` columns of the result
    if these are 128 by 256, 128 by 128, 64 by 128 or 64 by 64; else the model chooses.

    On `sm_90a`, `share_outputs` by `share_tokens` (1, 2 or 4 each, together at most 8) thread blocks,
    neighbours along outputs and tokens, are a thread block cluster: tensor copies bring
    activations to those of the same tokens that store a block there, and blocks of the weight to
    all those of the same outputs, and warpgroups multiply (`wgmma`). With `share_outputs` alone,
    tensor copies bring activations to those of the same tokens, and warps multiply (`mma.sync`).
    `share_outputs` is also how many thread blocks share the stored blocks of a gradient
    (`bsr.sddmm`) in blocks of 64 by 64 of 16-bit elements; of other gradients each has its own.
    8 is for these alone: of other products 4 share.
    0, the default, lets the model choose, such kernels or others.

    With `tf32`, tensor cores multiply f32, too: operands are rounded to tf32, which has 10
    bits of mantissa (to nearest, ties away from zero), and sums are of f32. Without, the
    default, f32 is multiplied as it is.

    Example:

    ```mlir
    #bsr.gpu
    ```

    ```mlir
    #bsr.gpu<chip = "sm_80">
    ```

    ```mlir
    #bsr.gpu<chip = "sm_90a", tile_outputs = 256, tile_tokens = 128>
    ```

    ```mlir
    #bsr.gpu<chip = "sm_90a", share_outputs = 2>
    ```

    ```mlir
    #bsr.gpu<chip = "sm_90a", share_outputs = 2, share_tokens = 2>
    ```

    ```mlir
    #bsr.gpu<tf32 = true>
    ```
  }];
  let parameters = (ins StringRefParameter<"the chip", [{"sm_90a"}]>:$chip,
                        DefaultValuedParameter<"int64_t", "0">:$tile_outputs,
                        DefaultValuedParameter<"int64_t", "0">:$tile_tokens,
                        DefaultValuedParameter<"int64_t", "0">:$share_outputs,
                        DefaultValuedParameter<"int64_t", "0">:$share_tokens,
                        DefaultValuedParameter<"bool", "false">:$tf32);
  let assemblyFormat = "(`<` struct(params)^ `>`)?";
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The feature of LLVM that is the first version of PTX that knows the chip,
    /// such as "+ptx80".
    StringRef getPTXFeature() const;
  }];
}

#endif // BSR_DIALECT_BSRTARGETS
