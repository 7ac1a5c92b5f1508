// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The one header a user of the dialect includes.

#ifndef BSR_DIALECT_BSR_H
#define BSR_DIALECT_BSR_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Bufferization/IR/BufferizableOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/DestinationStyleOpInterface.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "bsr/Dialect/TargetCosts.h"

namespace mlir::bsr {

/// How the blocks of a pattern are listed: by block rows, or by block columns.
/// A line is a block row of one view, a block column of the other.
enum class View { Rows, Columns };
constexpr View views[] = {View::Rows, View::Columns};
inline View getOther(View view) {
  return view == View::Rows ? View::Columns : View::Rows;
}
/// Row-wise for what lies as the matrix, else column-wise.
inline View getView(bool transpose) {
  return transpose ? View::Columns : View::Rows;
}

} // namespace mlir::bsr

#include "bsr/Dialect/BSRAttrInterfaces.h.inc"
#include "bsr/Dialect/BSROpInterfaces.h.inc"
#include "bsr/Dialect/BSROpsEnums.h.inc"

#define GET_TYPEDEF_CLASSES
#include "bsr/Dialect/BSROpsTypes.h.inc"
#define GET_ATTRDEF_CLASSES
#include "bsr/Dialect/BSROpsAttributes.h.inc"
// The dialect's own attributes have these types.
#include "bsr/Dialect/BSROpsDialect.h.inc"
#define GET_OP_CLASSES
#include "bsr/Dialect/BSROps.h.inc"

namespace mlir::bsr {

/// Checks what `bsr.constant_pattern` and all sources of index arrays must
/// keep: pointers start at 0, do not decrease and end in the number of blocks;
/// indices are in range, sorted and unique per row. Says what is wrong through
/// `emitError`.
LogicalResult verifyRowView(function_ref<InFlightDiagnostic()> emitError,
                            PatternType type, ArrayRef<int32_t> rowPtr,
                            ArrayRef<int32_t> colIdx);

/// The target of the module that `op` is, or is in: its `bsr.target`, or
/// `#bsr.cpu` if it has none.
TargetAttrInterface getTarget(Operation *op);

/// The kinds (`bsr.kind`) of arguments that are the index arrays of `view`:
/// pointers, positions, slots.
std::array<StringRef, 3> getIndexKinds(View view);

/// The buffer that holds a ranked tensor of type `type`: its shape and
/// elements, identity layout.
MemRefType getDenseBufferType(Type type);

} // namespace mlir::bsr

#endif // BSR_DIALECT_BSR_H
