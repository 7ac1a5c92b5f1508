// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where the spaces of PTX lie among addresses.

#ifndef PTX_WINDOWS_H
#define PTX_WINDOWS_H

#include <cstdint>

namespace ptx {

/// Shared memory begins here: the first KiB belongs to the system, as on sm_90.
constexpr uint32_t sharedBase = 1024;

/// A shared address of a block of a cluster has its rank plus one in bits 24
/// and up. GPUs have the rank there, in addresses of the block's own variables,
/// too: a descriptor of `wgmma` that takes more than 18 bits of one is wrong,
/// but for the first block. Here it is wrong for all. Without these bits, an
/// address is one of the block itself.
constexpr unsigned rankShift = 24;

/// Generic addresses: bits 48 and up say which space.
constexpr unsigned windowShift = 48;
constexpr uint64_t sharedWindow = uint64_t(1) << windowShift;
constexpr uint64_t localWindow = uint64_t(2) << windowShift;
constexpr uint64_t paramWindow = uint64_t(3) << windowShift;

enum class Space : uint8_t { Global, Shared, Local, Param, Generic };

} // namespace ptx

#endif // PTX_WINDOWS_H
