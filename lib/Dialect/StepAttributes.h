// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What attributes of arguments and of functions share.

#ifndef LIB_DIALECT_STEPATTRIBUTES_H
#define LIB_DIALECT_STEPATTRIBUTES_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Diagnostics.h"

namespace mlir::bsr {

/// Checks that `density` is in (0, 1].
LogicalResult verifyDensity(function_ref<InFlightDiagnostic()> emitError,
                            double density);

/// Whether `attr` says of which argument of the program one is a part: a name
/// and a shape.
bool isOrigin(Attribute attr);

/// Whether `attr` is what a pattern says of arguments that were its masks: of
/// each a name, a type, how it lies, and perhaps its origin.
bool isMaskList(Attribute attr);

} // namespace mlir::bsr

#endif // LIB_DIALECT_STEPATTRIBUTES_H
