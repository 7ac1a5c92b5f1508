// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Event files of TensorBoard.

#ifndef BSR_TOOLS_SPARSETRAIN_TENSORBOARD_H
#define BSR_TOOLS_SPARSETRAIN_TENSORBOARD_H

#include "Files.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace sparse_opt::train {

/// Numbers by their names.
using Scalars = std::vector<std::pair<std::string, double>>;

/// A file of scalars that TensorBoard reads:
///
///     events.out.tfevents.<seconds since 1970>.<host>
///
/// It is a sequence of records (little-endian)
///
///     uint64   length
///     uint32   checksum of the length
///     char     event[length]      a protocol buffer, tensorflow.Event
///     uint32   checksum of the event
///
/// whose checksum is a masked CRC-32C: ((crc >> 15) | (crc << 17)) +
/// 0xa282ead8.
class EventFile {
public:
  /// Begins a new file in `folder`. Events in older files from step `first` on
  /// are void: they are those of an interrupted run that is repeated.
  void open(const std::filesystem::path &folder, int64_t first);

  /// Adds the numbers of one step, and flushes. Throws `Error` on failure.
  void add(int64_t step, const Scalars &scalars);
  /// Adds the picture `tag`, of rows of equal length, of grey values from 0,
  /// black, to 255.
  void addImage(int64_t step, const std::string &tag,
                const std::vector<std::string> &rows);
  /// Adds the distribution of `values` as `tag`, in thirty buckets of equal
  /// width. Those that are not finite are left out.
  void addHistogram(int64_t step, const std::string &tag,
                    const std::vector<double> &values);
  /// Says by what settings the run is to be compared with others in the tab
  /// HPARAMS: names and values as text, which may be numbers.
  void
  addSettings(const std::vector<std::pair<std::string, std::string>> &settings);

  /// The event files of `folder` that this class wrote: the first event of each
  /// says so.
  static std::vector<std::filesystem::path>
  find(const std::filesystem::path &folder);

private:
  void write(int64_t step, const std::string &fields);

  OutputFile file;
};

/// CRC-32C (Castagnoli) of `bytes`.
uint32_t crc32c(std::string_view bytes);

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_TENSORBOARD_H
