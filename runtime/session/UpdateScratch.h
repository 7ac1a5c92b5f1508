// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory that an update of patterns on a device works in.

#ifndef BSR_RUNTIME_SESSION_UPDATESCRATCH_H
#define BSR_RUNTIME_SESSION_UPDATESCRATCH_H

#include "base/Manifest.h"
#include "device/Memory.h"
#include "support/UpdateRow.h"

namespace sparse_opt {

/// Cuts parts off a room, or only counts them.
class ScratchCursor {
public:
  explicit ScratchCursor(void *room = nullptr)
      : room(reinterpret_cast<uint64_t>(room)) {}

  /// The place of the next `count` elements of `elementBytes`.
  uint64_t cut(int64_t count, int64_t elementBytes) {
    uint64_t place = room + used;
    used += Memory::partBytes(count * elementBytes);
    return place;
  }

  int64_t used = 0;

private:
  uint64_t room;
};

/// Bytes of the rows of one pattern's tables.
int64_t tableBytes(const Pattern &pattern);

/// Cuts off what an update works with that chooses `count` of `blocks` blocks,
/// but for what the host reads.
void cutWork(const Pattern &pattern, int64_t blocks, int64_t count,
             UpdateRow &row, ScratchCursor &cursor);

/// Cuts off what says which of `blocks` blocks are pruned, which is kept while
/// other patterns are in the room.
void cutFlags(int64_t blocks, UpdateRow &row, ScratchCursor &cursor);

/// Cuts off the lists that the host reads.
void cutLists(int64_t count, UpdateRow &row, ScratchCursor &cursor);

/// The most that an update of `pattern` needs, without flags.
int64_t roomForUpdate(const Pattern &pattern);

/// The memory of a session that updates of its patterns need: they are done in
/// groups that fit.
int64_t roomForUpdates(const Manifest &manifest);

} // namespace sparse_opt

#endif // BSR_RUNTIME_SESSION_UPDATESCRATCH_H
