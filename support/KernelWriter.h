// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes kernels of which a block of threads does all that is done for one
// matrix. No loop but those over the blocks of a row ends by data, so that the
// compiler can tell how long they take.

#ifndef BSR_SUPPORT_KERNELWRITER_H
#define BSR_SUPPORT_KERNELWRITER_H

#include <functional>
#include <initializer_list>
#include <string>

namespace bsr {

/// Writes a kernel part by part. Registers are common to all parts; the labels
/// of a part end in `#`, which becomes its number.
class KernelWriter {
public:
  /// Loads the places that the next parts use to registers of their names.
  void use(std::initializer_list<const char *> fields);
  void add(std::string part);
  /// Waits for all threads of the block.
  void wait() { add("  bar.sync 0;\n"); }

  /// `body` for each item %i of `count`, all threads side by side.
  void forEachItem(const std::string &count, const std::string &body);
  /// `body` for each stored block %k of each row %line, a warp a row.
  void forEachBlock(const std::string &body);
  /// Makes the `count` entries at register `list` zero, of u32.
  void zero(const std::string &list, const std::string &count);

  /// Makes %key the key of rank %count - 1 of the `count` items, and %below how
  /// many keys are lower: radix selection, 8 bits at a time. `load` makes
  /// %value the key of %i, of `bits` bits, where %isIn holds.
  void select(const std::string &count, int bits, const std::string &load);

  /// Goes through the `count` items in order. Each warp has a run of them, 32
  /// at a time. `look` adds for its lanes to %sum, and to %ties, what the run
  /// has; `take` is called with both as of all items before these 32, and adds
  /// again. %all is the whole of the first.
  void scan(const std::string &count, const std::string &look,
            const std::string &take);
  /// Calls `body` for each of the `count` items, of which `flag` makes %isLow
  /// and %isTie, and of the ties the first %tiesWanted are taken too: %isTaken,
  /// and %place is how many are taken in front. %all is how many %isLow.
  void compact(const std::string &count,
               const std::function<std::string()> &flag,
               const std::string &body);

  /// The text that makes %low how many of the first `count` numbers at `list`
  /// come before something: for those `test` leaves %isLess true of number
  /// %other, at place %middle, where %isOpen holds.
  std::string search(const std::string &list, const std::string &count,
                     const std::string &test);

  /// `part` with the number of its labels.
  std::string number(std::string part);

  std::string text;

private:
  int parts = 0;
};

/// `part` with the registers that keys of `bits` bits have.
std::string ofBits(int bits, std::string part);

/// Makes %until the sum of itself in this lane and those in front.
std::string addUpLanes();

} // namespace bsr

#endif // BSR_SUPPORT_KERNELWRITER_H
