// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The shared memory of a block, and which warp touched which granule of it
// when.

#ifndef PTX_SHARED_H
#define PTX_SHARED_H

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace ptx {

struct Insn;
struct Warp;

/// Stands for a lane where several lanes of a warp access at once.
constexpr unsigned anyLane = 63;
/// The same where one instruction of the whole warp does.
constexpr unsigned wholeWarp = 62;

class Shared {
public:
  Shared() = default;
  Shared(const Shared &) = delete;
  Shared &operator=(const Shared &) = delete;
  ~Shared();
  /// Forgets everything; `end` is the first address behind it. Groups of warps
  /// read as one, by wgmma.
  void reset(uint32_t end, unsigned shift, unsigned warps, unsigned groups);
  uint32_t end() const { return last; }
  uint8_t *at(uint32_t address) { return &held.bytes[address - first]; }

  // Each checks the access of a lane that is inside of the memory, and notes
  // it.
  void read(Warp &warp, const Insn &insn, unsigned lane, uint32_t address,
            unsigned size);
  /// The same as a read by each of several lanes of the warp, where nothing is
  /// wrong with that; says whether nothing is.
  bool readTogether(Warp &warp, uint32_t address, unsigned size);
  /// `values`, where they are known, are those that are written: threads may
  /// write the same ones to one place.
  void write(Warp &warp, const Insn &insn, unsigned lane, uint32_t address,
             unsigned size, const uint8_t *values = nullptr);
  void atomic(Warp &warp, const Insn &insn, unsigned lane, uint32_t address,
              unsigned size);
  /// A cp.async into it begins, and ends.
  void beginCopy(Warp &warp, const Insn &insn, unsigned lane, uint32_t address,
                 unsigned size);
  void endCopy(Warp &warp, unsigned lane, uint32_t address, unsigned size);
  /// The same at a time of the copies that have no warp.
  void endCopyAt(uint32_t address, unsigned size, uint32_t clock);
  /// A bulk copy into it begins, and ends.
  void beginBulk(Warp &warp, const Insn &insn, unsigned lane, uint32_t address,
                 unsigned size);
  void endBulk(uint32_t address, unsigned size, uint32_t clock);
  /// An asynchronous operation reads it until endAsyncRead().
  void beginAsyncRead(Warp &warp, const Insn &insn, unsigned lane,
                      uint32_t address, unsigned size);
  void endAsyncRead(Warp &warp, unsigned lane, uint32_t address, unsigned size);
  /// The same for a read of a group of warps, at a time of the group.
  void endGroupRead(unsigned group, uint32_t address, unsigned size,
                    uint32_t time);
  /// The 8 bytes are an mbarrier, or bytes again.
  void beginBarrier(Warp &warp, const Insn &insn, unsigned lane,
                    uint32_t address);
  void useBarrier(Warp &warp, const Insn &insn, unsigned lane,
                  uint32_t address);
  void endBarrier(uint32_t address);

private:
  enum : uint8_t {
    Written = 1,
    Copying = 2,  ///< by cp.async
    Arriving = 4, ///< by a bulk copy
    IsBarrier = 8,
    HasReaders = 16,
    ByAsync = 32,  ///< written by the asynchronous proxy
    ByAtomic = 64, ///< written by an atomic operation
    ByMany = 128,  ///< `others` have written the same
  };
  struct Cell {
    uint32_t clock = 0; ///< of the last write
    uint16_t writer =
        0; ///< warp * 32 + lane; a bulk copy has a warp of its own
    uint8_t flags = 0;
    uint8_t asyncReaders = 0;
  };
  static bool isAfterWrite(const uint32_t *clock, unsigned id, unsigned lane,
                           const Cell &cell);
  /// The writer whose write of the cell nothing puts before an access, or -1.
  int findRace(const Warp &warp, unsigned lane, size_t cell) const;
  static bool isReadable(const uint32_t *clock, unsigned id, unsigned lane,
                         const Cell &cell);
  /// Of a cell that has readers.
  uint32_t &readerOf(size_t cell, size_t warp) {
    return held.readers.data()[warp * readerStride + cell];
  }
  /// The same of any cell, which now has readers.
  uint32_t &addReader(size_t cell, size_t warp);
  /// Says whether another thread has written the same at the same time.
  bool checkWrite(Warp &warp, const Insn &insn, unsigned lane, size_t cell,
                  bool isSame = false);
  /// The cell has its last writer, and another one before.
  void noteOther(size_t cell);
  /// Fails where the cell is not readable.
  void checkRead(Warp &warp, const Insn &insn, unsigned lane, size_t cell);
  template <typename Body>
  void forCells(uint32_t address, unsigned size, Body body) {
    size_t end = (address - first + size - 1) >> shift;
    for (size_t i = (address - first) >> shift; i <= end; ++i)
      body(i);
  }

  uint32_t first = 0, last = 0;
  unsigned shift = 2, numWarps = 1, numReaders = 1;
  size_t readerStride = 0;
  /// What a block leaves to the next one: new memory costs more than many a
  /// launch.
  struct Storage {
    std::vector<uint8_t> bytes;
    std::vector<Cell> cells;
    /// By warp and cell, clock * 64 + lane; of cells without readers, anything.
    std::vector<uint32_t> readers;
  };
  struct Pool;
  static Pool &pool();
  Storage held;
  /// Of cells with ByMany, the writers but the last one.
  std::unordered_map<size_t, std::vector<Cell>> others;
};

} // namespace ptx

#endif // PTX_SHARED_H
