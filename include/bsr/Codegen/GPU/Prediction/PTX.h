// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels as LLVM writes them in PTX, to be counted.

#ifndef BSR_CODEGEN_GPU_PREDICTION_PTX_H
#define BSR_CODEGEN_GPU_PREDICTION_PTX_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <optional>
#include <string>
#include <vector>

namespace mlir::bsr::ptx {

/// What an instruction works on. An address is one of these and an offset.
struct Operand {
  /// Special registers are `%tid.x` and the like; symbols parameters and
  /// variables.
  enum class Kind { Register, Immediate, Special, Symbol };

  Kind kind;
  bool isAddress = false;
  unsigned index = 0;        ///< of a register
  int64_t value = 0;         ///< an immediate, or the offset of an address
  llvm::StringRef name = {}; ///< of a special register or symbol
};

struct Instruction {
  llvm::SmallVector<llvm::StringRef, 6> parts; ///< `mul`, `wide`, `s32`
  llvm::SmallVector<Operand, 4> operands;      ///< vectors are taken apart
  unsigned numResults = 0;       ///< operands in front that are written
  std::optional<unsigned> guard; ///< a register
  bool isGuardNegated = false;
  unsigned target = 0; ///< of a branch: the number of an instruction

  llvm::StringRef name() const { return parts.front(); }
  bool has(llvm::StringRef part) const;
  /// The last part that is a type: `s32`, `f32`, `b64`, `pred`; or "".
  llvm::StringRef type() const;
  bool isBranch() const { return name() == "bra"; }
};

/// An entry. Its strings are of the text that it was parsed from.
struct Kernel {
  llvm::StringRef name;
  llvm::SmallVector<llvm::StringRef> parameters;
  std::vector<Instruction> instructions;
  unsigned numRegisters = 0; ///< all names, predicates among them

  std::optional<unsigned> getParameter(llvm::StringRef symbol) const;
};

/// The bits of a type such as `s32`, 1 for `pred`, or 0.
unsigned getBits(llvm::StringRef type);

/// Reads the entries of `text`, which `ptxas` accepts.
llvm::Expected<std::vector<Kernel>> parse(llvm::StringRef text);

} // namespace mlir::bsr::ptx

#endif // BSR_CODEGEN_GPU_PREDICTION_PTX_H
