// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All of the dialect, for the page that documents it.

#ifndef BSR_DIALECT_BSRDOCS
#define BSR_DIALECT_BSRDOCS

include "bsr/Dialect/BSRGroups.td"
include "bsr/Dialect/BSRRows.td"
include "bsr/Dialect/BSRTransfers.td"

#endif // BSR_DIALECT_BSRDOCS
