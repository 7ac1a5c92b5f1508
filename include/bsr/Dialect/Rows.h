// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The operations that look rows of a matrix up by index.

#ifndef BSR_DIALECT_ROWS_H
#define BSR_DIALECT_ROWS_H

#include "bsr/Dialect/BSR.h"

#define GET_OP_CLASSES
#include "bsr/Dialect/BSRRows.h.inc"

#endif // BSR_DIALECT_ROWS_H
