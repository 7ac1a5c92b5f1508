// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The dialect's operations in upstream's bufferization.

#ifndef BSR_TRANSFORMS_BUFFERIZATION_BUFFERIZABLEOPINTERFACEIMPL_H
#define BSR_TRANSFORMS_BUFFERIZATION_BUFFERIZABLEOPINTERFACEIMPL_H

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace mlir::bsr {

/// Lets upstream's bufferization work on the dialect's operations: each becomes
/// its loops, into a new buffer. `bsr-lower-patterns` then turns the patterns
/// into index arrays.
void registerBufferizableOpInterfaceExternalModels(DialectRegistry &registry);

/// The same for transfers between stages.
void registerTransferBufferization(DialectRegistry &registry);
void registerShardBufferization(DialectRegistry &registry);

} // namespace mlir::bsr

#endif // BSR_TRANSFORMS_BUFFERIZATION_BUFFERIZABLEOPINTERFACEIMPL_H
