// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The operations by which stages of a step exchange tensors.

#ifndef BSR_DIALECT_TRANSFERS_H
#define BSR_DIALECT_TRANSFERS_H

#include "bsr/Dialect/BSR.h"

#define GET_OP_CLASSES
#include "bsr/Dialect/BSRTransfers.h.inc"

#endif // BSR_DIALECT_TRANSFERS_H
