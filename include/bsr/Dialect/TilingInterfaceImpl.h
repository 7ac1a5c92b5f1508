// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The dialect's operations in upstream's tiling.

#ifndef BSR_DIALECT_TILINGINTERFACEIMPL_H
#define BSR_DIALECT_TILINGINTERFACEIMPL_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace mlir::bsr {

/// Lets upstream's tiling work on the operations that tile (see the dialect's
/// description).
void registerTilingInterfaceExternalModels(DialectRegistry &registry);

} // namespace mlir::bsr

#endif // BSR_DIALECT_TILINGINTERFACEIMPL_H
