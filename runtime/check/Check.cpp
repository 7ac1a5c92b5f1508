// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Files, manifests and sessions of the tests.

#include "Check.h"
#include "base/Status.h"
#include "session/Session.h"
#include "support/Error.h"
#include <cstring>
#include <fstream>
#include <iterator>
#include <unistd.h>

using namespace check;

void check::require(bsr_status status) {
  if (status != BSR_OK)
    sparse_opt::fail(status, bsr_last_error());
}

Folder::Folder() {
  std::string name =
      std::filesystem::temp_directory_path() / "runtime-check-XXXXXX";
  if (!mkdtemp(name.data()))
    sparse_opt::fail("expected a temporary folder, but got none");
  path = name;
}

Folder::~Folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

size_t Folder::numFiles() const {
  return size_t(std::distance(std::filesystem::directory_iterator(path),
                              std::filesystem::directory_iterator()));
}

std::string check::readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void check::writeFile(const std::string &path, const std::string &contents) {
  // Some file systems flush a file that is written over, which takes long.
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << contents;
}

std::string check::fakePath(const std::string &name) {
  std::filesystem::path tools =
      std::filesystem::read_symlink("/proc/self/exe").parent_path();
  return tools.parent_path() / "lib" / ("libbsr_fake_step" + name + ".so");
}

const std::string &check::fakeStep() {
  static const std::string bytes = readFile(fakePath());
  return bytes;
}

Json check::fakeManifest() {
  size_t start = fakeStep().find("{\"format\"");
  return Json::parse(fakeStep().c_str() + start);
}

Json check::changed(Json json, const char *place, const char *value) {
  Json::json_pointer pointer{std::string(place)};
  if (value)
    json[pointer] = Json::parse(value);
  else
    json[pointer.parent_pointer()].erase(pointer.back());
  return json;
}

void check::writeStep(const std::string &path, const std::string &manifest) {
  if (manifest.size() >= 131072)
    sparse_opt::fail("expected a manifest that fits, but got a longer one");
  std::string bytes = fakeStep();
  bytes.replace(bytes.find("{\"format\""), manifest.size() + 1,
                manifest.c_str(), manifest.size() + 1);
  writeFile(path, bytes);
}

Json check::makeManifest(const std::vector<Matrix> &matrices) {
  Json buffers = Json::array(), patterns = Json::array();
  for (const Matrix &matrix : matrices) {
    size_t index = patterns.size(), first = buffers.size();
    std::string name = "w" + std::to_string(index);
    int64_t rows = matrix.rows / matrix.blockRows;
    int64_t cols = matrix.cols / matrix.blockCols;
    for (std::string prefix : {"", "m.", "v."})
      buffers.push_back(
          {{"name", prefix + name},
           {"kind", "values"},
           {"type", matrix.type},
           {"shape", {matrix.slots, matrix.blockRows, matrix.blockCols}},
           {"carried", true},
           {"pattern", index},
           {"init", prefix == "v." ? "constant(0.25)" : "normal(1)"}});
    std::pair<const char *, int64_t> arrays[] = {
        {"row_ptr", rows + 1},     {"col_idx", matrix.slots},
        {"slot", matrix.slots},    {"col_ptr", cols + 1},
        {"row_idx", matrix.slots}, {"slot_t", matrix.slots}};
    Json indices;
    for (auto [kind, size] : arrays) {
      indices[kind] = buffers.size();
      buffers.push_back({{"name", name},
                         {"kind", kind},
                         {"role", "pattern"},
                         {"type", "i32"},
                         {"shape", {size}},
                         {"carried", false},
                         {"pattern", index}});
    }
    patterns.push_back({{"name", name},
                        {"shape", {matrix.rows, matrix.cols}},
                        {"block", {matrix.blockRows, matrix.blockCols}},
                        {"slots", matrix.slots},
                        {"density", matrix.density},
                        {"static", false},
                        {"weight", first},
                        {"buffers", indices}});
  }
  Json manifest = {{"format", "bsr-step"}, {"version", 1},
                   {"name", "made"},       {"target_cpu", "any"},
                   {"arena_bytes", 64},    {"patterns", patterns},
                   {"left_dense", 0},      {"products", Json::object()}};
  for (size_t i = 0; i < matrices.size(); ++i) {
    const Matrix &matrix = matrices[i];
    if (!matrix.hasScores)
      continue;
    int64_t rows = matrix.rows / matrix.blockRows;
    int64_t cols = matrix.cols / matrix.blockCols;
    int64_t offset = manifest["arena_bytes"];
    manifest["score_norm"] = "l1";
    manifest["arena_bytes"] = offset + (4 * rows * cols + 63) / 64 * 64;
    buffers.push_back({{"name", "w" + std::to_string(i)},
                       {"kind", "scores"},
                       {"type", "f32"},
                       {"shape", {rows, cols}},
                       {"carried", false},
                       {"pattern", i},
                       {"arena_offset", offset}});
  }
  manifest["buffers"] = std::move(buffers);
  return manifest;
}

static Step loadFrom(const char *path) {
  bsr_step *step = nullptr;
  require(bsr_step_load(path, &step));
  return Step(step, bsr_step_unload);
}

Step check::loadFake() { return loadFrom(fakePath().c_str()); }

Step check::load(const Json &manifest) {
  Folder folder;
  writeStep(folder.file("step.so"), manifest.dump());
  return loadFrom(folder.file("step.so").c_str());
}

Session check::start(const Step &step, uint64_t seed) {
  bsr_session *session = nullptr;
  require(bsr_session_create(step.get(), "cpu", seed, &session));
  return Session(session, bsr_session_destroy);
}

bsr_pattern_view check::viewOf(const Session &session, int64_t pattern) {
  bsr_pattern_view view;
  require(bsr_session_get_pattern(session.get(), pattern, &view));
  return view;
}

void *check::dataOf(const Session &session, int64_t buffer) {
  void *data = nullptr;
  require(bsr_session_host_data(session.get(), buffer, &data));
  return data;
}

bsr_status check::initBuffer(const Session &session, int64_t buffer,
                             const std::string &rule) {
  return sparse_opt::guarded([&] { session->initBuffer(buffer, rule); });
}

bsr_status check::checkPatterns(const Session &session) {
  return sparse_opt::guarded([&] { session->checkPatterns(); });
}

bsr_status check::updatePatterns(const Session &session, double drop,
                                 int64_t *pruned) {
  int64_t before = session->counters.blocks_pruned;
  std::vector<bsr_pattern_update> updates(session->manifest().patterns.size(),
                                          {BSR_SET, BSR_L1, drop, 0, 0, 0});
  bsr_status status = bsr_session_update(session.get(), updates.data(),
                                         int64_t(updates.size()));
  if (status == BSR_OK && pruned)
    *pruned = session->counters.blocks_pruned - before;
  return status;
}

bsr_counters check::countersOf(const Session &session) {
  bsr_counters counters;
  require(bsr_session_counters(session.get(), &counters));
  return counters;
}

std::string check::contentsOf(const Session &session, const Step &step) {
  std::string contents;
  for (int64_t i = 0; i < bsr_step_num_buffers(step.get()); ++i) {
    bsr_buffer_info info;
    require(bsr_step_buffer(step.get(), i, &info));
    int64_t bytes = info.bytes;
    if (info.kind >= BSR_ROW_PTR && info.kind <= BSR_SLOT_T &&
        info.kind != BSR_ROW_PTR && info.kind != BSR_COL_PTR)
      bytes = 4 * viewOf(session, info.pattern).blocks;
    size_t size = contents.size();
    contents.resize(size + size_t(bytes));
    require(bsr_session_read(session.get(), i, 0, bytes, &contents[size]));
  }
  return contents;
}

uint64_t Numbers::below(uint64_t bound) {
  // Steele, Lea and Flood's SplitMix64.
  uint64_t z = state += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return (z ^ (z >> 31)) % bound;
}

bsr_pattern_update check::anyRule(const Matrix &matrix, Numbers &numbers) {
  double drop = double(numbers.below(101)) / 100;
  if (uint64_t corner = numbers.below(8); corner < 2)
    drop = double(corner);
  return {bsr_method(numbers.below(4)),
          bsr_norm(numbers.below(4)),
          drop,
          int64_t(numbers.below(uint64_t(matrix.slots) + 3)),
          int32_t(numbers.below(2)),
          0};
}
