// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A session of a compiled step on random numbers.

#ifndef BSR_TOOLS_SPARSE_COMPILE_SAMPLESESSION_H
#define BSR_TOOLS_SPARSE_COMPILE_SAMPLESESSION_H

#include "../sparse-run/Files.h"
#include "bsr/runtime.h"
#include "mlir/Support/LLVM.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace mlir::bsr {

/// Runs the step of a library on processors, from a random pattern of as many
/// blocks as it has room for, and random numbers.
class SampleSession {
public:
  static llvm::Expected<SampleSession> create(llvm::StringRef library);

  /// Fills each buffer: integers that the step counts with or looks up are from
  /// 0 up to `bound`, without it; floats are normally distributed, state that
  /// is carried is positive, as second moments are, and rates are small.
  llvm::Error fill(int64_t bound);
  /// The arguments by name, the indices of pattern `w` as `w.bsr.row_ptr`,
  /// `w.bsr.col_idx` and `w.bsr.slot`.
  llvm::Expected<tools::NamedArrays> getArguments() const;
  llvm::Error run();
  /// Runs, and returns the nanoseconds of each launch of a kernel whose name
  /// begins with `prefix`, in their order, of a step with timers.
  llvm::Expected<llvm::SmallVector<int64_t>> runTimed(llvm::StringRef prefix);
  /// What lies in the buffer of result `name` after a run, the next value of an
  /// argument or an output.
  llvm::Expected<tools::NamedArray> getResult(const std::string &name) const;
  /// Whether two results have the same bytes.
  llvm::Expected<bool> areSame(const std::string &name,
                               const std::string &other) const;
  /// For each slot of the values `name`, whether a block lies there; nothing if
  /// `name` is no values of a pattern with indices.
  llvm::Expected<llvm::SmallVector<bool>>
  getLiveSlots(const std::string &name) const;

private:
  struct Release {
    void operator()(bsr_step *step) const { bsr_step_unload(step); }
    void operator()(bsr_session *session) const {
      bsr_session_destroy(session);
    }
  };

  /// What the step says of buffer `index`.
  bsr_buffer_info getInfo(int64_t index) const;
  llvm::Expected<std::vector<char>> readBytes(int64_t index) const;
  llvm::Expected<tools::NamedArray> read(int64_t index) const;
  /// The buffer of this name that is no index, or -1.
  int64_t find(const std::string &name) const;
  llvm::Error fill(int64_t index, const bsr_buffer_info &info, int64_t bound);

  std::unique_ptr<bsr_step, Release> step;
  std::unique_ptr<bsr_session, Release> session;
};

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_SAMPLESESSION_H
