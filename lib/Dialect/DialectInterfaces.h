// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What MLIR's inliner and its bytecode ask of the dialect.

#ifndef BSR_LIB_DIALECT_DIALECTINTERFACES_H
#define BSR_LIB_DIALECT_DIALECTINTERFACES_H

#include "mlir/Bytecode/BytecodeImplementation.h"
#include "mlir/Transforms/InliningUtils.h"

namespace mlir::bsr {

/// Functions with operations of the dialect are inlined. What a `bsr.launch`
/// calls is a kernel, and stays one: calls of the dialect are not inlined, the
/// default.
struct BSRInlinerInterface : DialectInlinerInterface {
  explicit BSRInlinerInterface(Dialect *dialect)
      : DialectInlinerInterface(dialect) {}
  bool isLegalToInline(Operation *, Region *, bool, IRMapping &) const final {
    return true;
  }
};

/// The version that bytecode says of the dialect. It rises by one when older
/// readers would take an operation, type or attribute for another than what was
/// written.
struct BSRDialectVersion : DialectVersion {
  static constexpr uint64_t current = 1;

  explicit BSRDialectVersion(uint64_t version) : version(version) {}
  uint64_t version;
};

struct BSRBytecodeInterface : BytecodeDialectInterface {
  explicit BSRBytecodeInterface(Dialect *dialect)
      : BytecodeDialectInterface(dialect) {}
  void writeVersion(DialectBytecodeWriter &writer) const final {
    writer.writeVarInt(BSRDialectVersion::current);
  }
  std::unique_ptr<DialectVersion>
  readVersion(DialectBytecodeReader &reader) const final {
    uint64_t version;
    if (failed(reader.readVarInt(version)))
      return nullptr;
    if (version > BSRDialectVersion::current) {
      reader.emitError("expected bytecode of the dialect bsr of version ")
          << BSRDialectVersion::current << " at most, but got version "
          << version << ": read it with the sparse-opt that wrote it";
      return nullptr;
    }
    return std::make_unique<BSRDialectVersion>(version);
  }
};

} // namespace mlir::bsr

#endif // BSR_LIB_DIALECT_DIALECTINTERFACES_H
