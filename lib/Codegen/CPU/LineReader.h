// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads windows of images by a table of where the rows of their matrix lie.

#ifndef BSR_LIB_CODEGEN_CPU_LINEREADER_H
#define BSR_LIB_CODEGEN_CPU_LINEREADER_H

#include "bsr/Codegen/CPU/Emitter.h"

namespace mlir::bsr::cpu {

/// Reads rows of a matrix of windows that lie in a line (`Windows.h`). Where a
/// row begins there, divisions by the places of a window would say again and
/// again: a kernel writes it down once.
class LineReader {
public:
  /// Emits the table, if `matrix` has such windows.
  LineReader(Emitter &e, Value matrix);

  bool hasTable() const { return table != nullptr; }
  /// The lanes of row `feature` at `lane`; there is a table.
  Value read(Index feature, Index lane);

private:
  Emitter &e;
  /// The line of all channels, one after the other, and the element of it that
  /// each row begins with.
  Value line, table;
};

} // namespace mlir::bsr::cpu

#endif // BSR_LIB_CODEGEN_CPU_LINEREADER_H
