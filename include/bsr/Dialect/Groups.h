// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of rows with the matrix of the group that each row is in.

#ifndef BSR_DIALECT_GROUPS_H
#define BSR_DIALECT_GROUPS_H

#include "bsr/Dialect/BSR.h"

#define GET_OP_CLASSES
#include "bsr/Dialect/BSRGroups.h.inc"

#endif // BSR_DIALECT_GROUPS_H
