// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From LLVM IR to machine code.

#ifndef BSR_TOOLS_SPARSE_COMPILE_CODEGEN_H
#define BSR_TOOLS_SPARSE_COMPILE_CODEGEN_H

#include "CommandLine.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

#include <vector>

namespace mlir::bsr {

/// The machine to compile for, as the command line says: x86-64 or AArch64
/// Linux with GNU's C library. Of AArch64, NEON is used and SVE is not.
llvm::Expected<std::unique_ptr<llvm::TargetMachine>>
createTargetMachine(const CommandLine &options);

/// Whether `machine` is of another kind than the one this runs on, which cannot
/// load what is compiled for it.
bool isForeign(const llvm::TargetMachine &machine);

/// The vector registers of a machine.
struct VectorUnit {
  int64_t bits;
  int64_t registers;
  /// It has an instruction that multiplies pairs of bf16, for all widths, and
  /// multiplies bf16 faster by it than as f32.
  bool hasBF16Dots, hasFastBF16Dots;
  /// It multiplies tiles of bf16: AMX.
  bool hasTiles;
};
VectorUnit getVectorUnit(const llvm::TargetMachine &machine);

/// The features of `machine` without which a processor cannot run code for it:
/// those of which the code generator uses instructions by itself, and tiles if
/// `module`, in the LLVM dialect, has them.
std::vector<llvm::StringRef>
getRequiredFeatures(const llvm::TargetMachine &machine, mlir::ModuleOp module);

/// Bytes of the caches of a core, first and second level.
struct CacheSizes {
  int64_t first, second;
};
/// Those of the processor this runs on, if it says what they are; else, and for
/// others, 32 and 512 KiB.
CacheSizes getCacheSizes(bool isHost);

/// Optimizes `module` for `machine`. `level` is 0 to 3.
void optimize(llvm::Module &module, llvm::TargetMachine &machine,
              unsigned level);

/// Writes the object code of `module`.
void emitObject(llvm::Module &module, llvm::TargetMachine &machine,
                llvm::raw_pwrite_stream &os);

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_CODEGEN_H
