// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Combines partial reductions.

#ifndef BSR_CODEGEN_COMMON_COMBINE_H
#define BSR_CODEGEN_COMMON_COMBINE_H

#include "bsr/Codegen/Common/Evaluator.h"

namespace mlir::bsr {

/// What changes nothing when combined with `sum`, a result of a reduction, in
/// all lanes.
Value createNeutral(Evaluator &e, OpResult sum);

/// `a` and `b` combined as `sum` combines.
Value combine(Evaluator &e, OpResult sum, Value a, Value b);

} // namespace mlir::bsr

#endif // BSR_CODEGEN_COMMON_COMBINE_H
