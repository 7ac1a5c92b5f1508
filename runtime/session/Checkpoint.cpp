// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Saves a training run to one safetensors file, and resumes it from there.

#include "Session.h"
#include "base/Element.h"
#include "base/Status.h"
#include "comm/Communicator.h"
#include "support/Hash.h"
#include "support/TensorFile.h"
#include <array>
#include <charconv>
#include <cstring>
#include <set>

using namespace sparse_opt;

static std::string_view bytesAt(const void *data, int64_t size) {
  return {static_cast<const char *>(data), size_t(size)};
}

/// The contents of buffer `index`: where they lie, or a copy in `copy` of what
/// lies on a device, or in shares of several processes, which all call this:
/// only the first one gets it then.
static std::string_view contentsOf(const bsr_session &session, size_t index,
                                   std::string &copy) {
  const Buffer &buffer = session.manifest().buffers[index];
  int64_t bytes = buffer.bytes;
  if (isShard(buffer)) {
    auto *communicator =
        static_cast<Communicator *>(session.context.communicator);
    if (communicator->member() == 0)
      copy.resize(size_t(buffer.wholeBytes));
    communicator->collect(session.buffers[index], bytes, copy.data(),
                          buffer.wholeBytes);
    return copy;
  }
  if (session.device.isHost())
    return bytesAt(session.buffers[index], bytes);
  copy.resize(size_t(bytes));
  session.device.read(copy.data(), session.buffers[index], bytes);
  return copy;
}

/// All tensors of a checkpoint of `session`; `copies`, one for each buffer,
/// hold those of another device.
static std::vector<Tensor> listTensors(const bsr_session &session,
                                       std::vector<std::string> &copies) {
  const Manifest &manifest = session.manifest();
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < manifest.buffers.size(); ++i)
    if (const Buffer &buffer = manifest.buffers[i]; isKept(buffer))
      tensors.push_back({buffer.name, elementType(buffer.type), buffer.whole,
                         contentsOf(session, i, copies[i])});
  for (size_t i = 0; i < manifest.patterns.size(); ++i) {
    const Pattern &pattern = manifest.patterns[i];
    bsr_pattern_view view = session.view(int64_t(i));
    auto add = [&](bsr_kind kind, const int32_t *data, int64_t size) {
      tensors.push_back({pattern.tensorName(kind),
                         ElementType::I32,
                         {size},
                         bytesAt(data, 4 * size)});
    };
    add(BSR_ROW_PTR, view.row_ptr, pattern.gridRows() + 1);
    add(BSR_COL_IDX, view.col_idx, view.blocks);
    add(BSR_SLOT, view.slot, view.blocks);
    if (pattern.isStatic)
      continue;
    if (const std::vector<float> &sums = session.scoreSums[i]; !sums.empty())
      tensors.push_back({pattern.tensorName(scoresTensor),
                         ElementType::F32,
                         {int64_t(sums.size())},
                         bytesAt(sums.data(), 4 * int64_t(sums.size()))});
    auto addBits = [&](const char *what, const uint64_t *bits, int64_t words) {
      tensors.push_back({pattern.tensorName(what),
                         ElementType::I8,
                         {8 * words},
                         bytesAt(bits, 8 * words)});
    };
    const PatternHistory &history = session.histories[i];
    addBits(everTensor, history.ever, PatternHistory::everWords(pattern));
    addBits(newestTensor, history.newest, PatternHistory::newestWords(pattern));
  }
  return tensors;
}

/// What the patterns of a checkpoint are, for programs that have no step: JSON.
static std::string describeMatrices(const Manifest &manifest) {
  OrderedJson matrices = OrderedJson::array();
  for (const Pattern &pattern : manifest.patterns) {
    OrderedJson values = OrderedJson::array();
    for (int32_t buffer : pattern.values)
      if (const Buffer &own = manifest.buffers[buffer];
          isKept(own) && own.role != "count")
        values.push_back(own.name);
    matrices.push_back({{"name", pattern.name},
                        {"shape", {pattern.rows, pattern.cols}},
                        {"block", {pattern.blockRows, pattern.blockCols}},
                        {"slots", pattern.slots},
                        {"values", values}});
  }
  return matrices.dump();
}

static OrderedJson describeSession(const bsr_session &session,
                                   const char *metadata) {
  const bsr_counters &counters = session.counters;
  return {{"checksum", ""},
          {"format", "bsr-checkpoint"},
          {"version", "1"},
          {"seed", std::to_string(counters.seed)},
          {"steps", std::to_string(counters.steps)},
          {"pattern_updates", std::to_string(counters.pattern_updates)},
          {"blocks_pruned", std::to_string(counters.blocks_pruned)},
          {"blocks_regrown", std::to_string(counters.blocks_regrown)},
          {"manifest", hexadecimal(session.manifest().interfaceHash)},
          {"code", session.manifest().code},
          {"compilation", session.manifest().compilation},
          {"matrices", describeMatrices(session.manifest())},
          {"metadata", metadata}};
}

bsr_status bsr_session_save(const bsr_session *session, const char *path,
                            const char *metadata) {
  return guarded([&] {
    requireArgument(session, "session");
    const Manifest &manifest = session->manifest();
    bool isWriter = session->member() == 0 || !manifest.sharded;
    if (isWriter)
      requireArgument(path, "path");
    session->requireOwner();
    session->requireProcesses();
    metadata = metadata ? metadata : "";
    if (!isUTF8(metadata))
      fail(BSR_INVALID_ARGUMENT,
           "expected the metadata of a checkpoint to be UTF-8, but got '",
           Json(metadata).dump(-1, ' ', true, Json::error_handler_t::replace),
           "'");
    session->checkPatterns();
    // What a step leaves in slots without a block depends on what its memory
    // held before: it is no part of the run.
    for (size_t i = 0; i < manifest.patterns.size(); ++i)
      if (const Pattern &pattern = manifest.patterns[i];
          !pattern.isStatic && session->view(int64_t(i)).blocks < pattern.slots)
        session->zeroUnusedSlots(int64_t(i));
    std::vector<std::string> copies(session->buffers.size());
    std::vector<Tensor> tensors = listTensors(*session, copies);
    if (isWriter)
      writeTensors(path, describeSession(*session, metadata), tensors);
  });
}

/// The most bytes that the tensors of a checkpoint of `session` have.
static int64_t mostBytes(const bsr_session &session) {
  int64_t bytes = 0;
  for (const Buffer &buffer : session.manifest().buffers)
    bytes += isKept(buffer) ? buffer.wholeBytes : 0;
  for (const Pattern &pattern : session.manifest().patterns)
    bytes += 4 * (pattern.gridRows() + 1) + 8 * pattern.slots +
             4 * pattern.allBlocks() +
             8 * (PatternHistory::everWords(pattern) +
                  PatternHistory::newestWords(pattern));
  return bytes;
}

namespace {
/// A checkpoint in memory, checked against a session before it is applied.
class Checkpoint {
public:
  Checkpoint(const bsr_session &session, const std::string &path)
      : session(session), file("checkpoint", path, mostBytes(session)),
        where(file.where()) {
    readMetadata();
    readBuffers();
    readPatterns();
    refuseOthers();
    file.requireCovered();
  }

  /// Makes `target`, the session that was checked, go on from here. Cannot
  /// fail but for memory, before anything has changed.
  void apply(bsr_session &target);

  /// Lets `target` say what the checkpoint says of itself.
  void describe(bsr_session &target) {
    target.metadata.swap(metadata);
    target.stepDifference.swap(stepDifference);
  }

private:
  /// The row view of a pattern.
  struct Rows {
    std::vector<int32_t> rowPtr, colIdx, slot;

    bsr_pattern_view view() const {
      return {int64_t(colIdx.size()),
              rowPtr.data(),
              colIdx.data(),
              slot.data(),
              nullptr,
              nullptr,
              nullptr};
    }
  };

  void readMetadata();
  void readBuffers();
  void readPatterns();
  void readHistory(const Pattern &pattern);
  void readScores(const Pattern &pattern);
  void refuseOthers();

  /// A number of the metadata.
  template <typename T>
  T readNumber(const JsonObject &metadata, const char *key);

  /// Checks the entry of tensor `name` and returns its data.
  std::string_view readTensor(const std::string &name, ElementType type,
                              const std::vector<int64_t> &shape);

  const bsr_session &session;
  TensorFile file;
  const std::string &where;
  bsr_counters counters = {};
  std::string metadata;
  std::string stepDifference;
  std::set<std::string> known = {"__metadata__"};
  std::vector<std::string_view> buffers; // those that it holds
  std::vector<Rows> patterns;
  std::vector<std::array<std::string_view, 2>> histories; // ever, newest
  std::vector<std::string_view> scoreSums;
};
} // namespace

template <typename T>
T Checkpoint::readNumber(const JsonObject &object, const char *key) {
  std::string text = object.text(key);
  T number = 0;
  const char *end = text.data() + text.size();
  auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || text[0] == '-')
    object.refuse(key, "a number from 0");
  return number;
}

/// What of `now`, how the code of a step was made, was another in `then`.
static std::string listChanges(const OrderedJson &now, const Json &then) {
  std::string changes;
  auto text = [](const auto &value) {
    return value.is_string() ? value.template get<std::string>() : value.dump();
  };
  auto add = [&](const std::string &key, const std::string &value,
                 const std::string &old) {
    if (value != old)
      changes +=
          (changes.empty() ? ": " : "; ") + key + " " + value + ", was " + old;
  };
  for (auto &item : now.items())
    add(item.key(), text(item.value()),
        text(then.value(item.key(), Json("unknown"))));
  for (auto &item : then.items())
    if (!now.contains(item.key()))
      add(item.key(), "unknown", text(item.value()));
  return changes;
}

/// What tells a step from that of a checkpoint, whose metadata is `object`, or
/// "": whatever the runs of one depend on and those of the other do not.
static std::string describeDifference(const JsonObject &object,
                                      const std::string &where,
                                      const Manifest &manifest) {
  bool same = object.text("manifest") == hexadecimal(manifest.interfaceHash);
  if (same && object.text("code") == manifest.code)
    return "";
  Json then = parseJson(object.text("compilation"), BSR_INVALID_CHECKPOINT,
                        "the compilation of " + where);
  JsonObject checked(then, BSR_INVALID_CHECKPOINT,
                     "the compilation of " + where);
  return (same ? "other code" : "another manifest") +
         listChanges(OrderedJson::parse(manifest.compilation),
                     checked.members());
}

void Checkpoint::readMetadata() {
  JsonObject found = file.metadata();
  if (found.text("format") != "bsr-checkpoint")
    found.refuse("format", "\"bsr-checkpoint\"");
  if (found.text("version") != "1")
    found.refuse("version", "\"1\"");
  file.requireChecksum();

  JsonObject object(found.members(), BSR_INVALID_CHECKPOINT,
                    "the metadata of " + where);
  counters.seed = readNumber<uint64_t>(object, "seed");
  counters.steps = readNumber<int64_t>(object, "steps");
  counters.pattern_updates = readNumber<int64_t>(object, "pattern_updates");
  counters.blocks_pruned = readNumber<int64_t>(object, "blocks_pruned");
  counters.blocks_regrown = readNumber<int64_t>(object, "blocks_regrown");
  metadata = object.text("metadata");
  stepDifference = describeDifference(object, where, session.manifest());
}

std::string_view Checkpoint::readTensor(const std::string &name,
                                        ElementType type,
                                        const std::vector<int64_t> &shape) {
  known.insert(name);
  return file.read(name, type, shape);
}

void Checkpoint::readBuffers() {
  for (const Buffer &buffer : session.manifest().buffers)
    if (isKept(buffer))
      buffers.push_back(
          readTensor(buffer.name, elementType(buffer.type), buffer.whole));
}

void Checkpoint::readPatterns() {
  for (const Pattern &pattern : session.manifest().patterns) {
    Rows &rows = patterns.emplace_back();
    auto read = [&](bsr_kind kind, std::vector<int32_t> &array, int64_t size) {
      std::string_view data =
          readTensor(pattern.tensorName(kind), ElementType::I32, {size});
      array.resize(data.size() / sizeof(int32_t));
      data.copy(reinterpret_cast<char *>(array.data()), data.size());
      array.reserve(1); // an address, even if empty
    };
    read(BSR_ROW_PTR, rows.rowPtr, pattern.gridRows() + 1);
    read(BSR_COL_IDX, rows.colIdx, anySize);
    read(BSR_SLOT, rows.slot, int64_t(rows.colIdx.size()));
    try {
      checkPattern(pattern, rows.view(), session.scratch);
    } catch (const Error &error) {
      fail(BSR_INVALID_CHECKPOINT, error.sentence, ", in ", where);
    }
    if (pattern.isStatic &&
        (rows.rowPtr != pattern.arrays[0] || rows.colIdx != pattern.arrays[1] ||
         rows.slot != pattern.arrays[2]))
      fail(BSR_INVALID_CHECKPOINT, "expected the static pattern '",
           pattern.name, "' of this step, but got another one in ", where);
    readHistory(pattern);
    readScores(pattern);
  }
}

/// Reads sums of scores, which a checkpoint has where one was made between the
/// steps that are summed.
void Checkpoint::readScores(const Pattern &pattern) {
  std::string_view &sums = scoreSums.emplace_back();
  std::string name = pattern.tensorName(scoresTensor);
  if (!pattern.isStatic && file.has(name))
    sums = readTensor(name, ElementType::F32, {pattern.allBlocks()});
}

/// Reads which blocks a pattern ever had, and which are new.
void Checkpoint::readHistory(const Pattern &pattern) {
  auto &history = histories.emplace_back();
  if (pattern.isStatic)
    return;
  auto read = [&](const char *what, int64_t words, int64_t bits) {
    std::string name = pattern.tensorName(what);
    std::string_view data = readTensor(name, ElementType::I8, {8 * words});
    uint64_t last = 0;
    std::memcpy(&last, data.end() - 8, 8);
    if (bits % 64 && last >> bits % 64)
      fail(BSR_INVALID_CHECKPOINT, "expected tensor '", name, "' of ", where,
           " to hold ", bits, " bits, but got more");
    return data;
  };
  history = {
      read(everTensor, PatternHistory::everWords(pattern), pattern.allBlocks()),
      read(newestTensor, PatternHistory::newestWords(pattern), pattern.slots)};
}

/// Fails if the checkpoint holds more than the session has a place for.
void Checkpoint::refuseOthers() {
  if (file.header().size() == known.size())
    return;
  for (auto &[name, entry] : file.header().items())
    if (!known.count(name))
      fail(BSR_INVALID_CHECKPOINT,
           "expected a checkpoint of this step, but got ", where,
           " with another tensor '", name, "'");
}

void Checkpoint::apply(bsr_session &target) {
  for (size_t i = 0; i < patterns.size(); ++i)
    target.scoreSums[i].reserve(scoreSums[i].size() / sizeof(float));
  auto buffer = buffers.begin();
  for (size_t i = 0; i < target.buffers.size(); ++i) {
    if (!isKept(target.manifest().buffers[i]))
      continue;
    target.device.write(target.buffers[i],
                        buffer->data() + target.shardOffset(int64_t(i)),
                        target.manifest().buffers[i].bytes);
    ++buffer;
  }
  for (size_t i = 0; i < patterns.size(); ++i) {
    const Pattern &pattern = target.manifest().patterns[i];
    if (pattern.isStatic)
      continue;
    assignPattern(pattern, patterns[i].view(), target.indices(int64_t(i)));
  }
  target.patternsChanged();
  target.counters.seed = counters.seed;
  target.counters.steps = counters.steps;
  target.counters.pattern_updates = counters.pattern_updates;
  target.counters.blocks_pruned = counters.blocks_pruned;
  target.counters.blocks_regrown = counters.blocks_regrown;
  for (size_t i = 0; i < patterns.size(); ++i)
    if (!target.manifest().patterns[i].isStatic) {
      target.loadHistory(int64_t(i), histories[i][0], histories[i][1]);
      target.loadScores(int64_t(i), scoreSums[i]);
    }
  describe(target);
}

bsr_status bsr_session_load(bsr_session *session, const char *path) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(path, "path");
    session->requireOwner();
    Checkpoint(*session, path).apply(*session);
  });
}

bsr_status bsr_session_check(bsr_session *session, const char *path) {
  return guarded([&] {
    requireArgument(session, "session");
    requireArgument(path, "path");
    Checkpoint(*session, path).describe(*session);
  });
}

const char *bsr_session_metadata(const bsr_session *session) {
  return session ? session->metadata.c_str() : "";
}

const char *bsr_session_step_difference(const bsr_session *session) {
  return session ? session->stepDifference.c_str() : "";
}
