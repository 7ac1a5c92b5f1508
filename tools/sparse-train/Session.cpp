// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calls the runtime, and turns its status codes into exceptions.

#include "Session.h"
#include "support/Error.h"

#include <algorithm>
#include <functional>
#include <numeric>

using namespace sparse_opt;
using namespace sparse_opt::train;

static void check(bsr_status status) {
  if (status != BSR_OK)
    fail(bsr_last_error());
}

Session::Session(const std::string &path, const std::string &device,
                 uint64_t seed) {
  open(path);
  bsr_session *made;
  check(bsr_session_create(step(), device.c_str(), seed, &made));
  session.reset(made);
  listBuffers();
}

Session::Session(const std::string &path, Session &source) {
  open(path);
  bsr_session *made;
  check(bsr_session_continue(step(), source.session.get(), &made));
  session.reset(made);
  listBuffers();
}

void Session::open(const std::string &path) {
  bsr_step *made;
  check(bsr_step_load(path.c_str(), &made));
  loaded.reset(made);
}

void Session::listBuffers() {
  others.resize(size_t(microBatches()));
  for (int64_t i = 0; i < bsr_step_num_buffers(step()); ++i) {
    bsr_buffer_info info;
    check(bsr_step_buffer(step(), i, &info));
    if (info.kind != BSR_DENSE && info.kind != BSR_VALUES &&
        info.kind != BSR_OUTPUT)
      continue;
    if (addToMicroBatch(i, info.name))
      continue;
    const int64_t *whole;
    check(bsr_step_whole_shape(step(), i, &whole));
    int64_t wholeElements = std::accumulate(whole, whole + info.rank,
                                            int64_t(1), std::multiplies<>());
    all.push_back({i,
                   info.name,
                   info.role,
                   info.type,
                   {info.shape, info.shape + info.rank},
                   info.elements,
                   info.carried != 0,
                   wholeElements,
                   info.init});
  }
}

bool Session::addToMicroBatch(int64_t index, const std::string &name) {
  for (int64_t number = 1; number < microBatches(); ++number) {
    std::string prefix = "micro" + std::to_string(number) + ".";
    if (name.rfind(prefix, 0) != 0)
      continue;
    if (const Buffer *first = find(name.substr(prefix.size()))) {
      others[size_t(number)][first->index] = index;
      return true;
    }
  }
  return false;
}

std::string Session::targetOf(const std::string &device) {
  const char *target;
  check(bsr_device_target(device.c_str(), &target));
  return target;
}

const Buffer *Session::find(const std::string &name) const {
  auto found = std::find_if(all.begin(), all.end(),
                            [&](const Buffer &b) { return b.name == name; });
  return found == all.end() ? nullptr : &*found;
}

const Buffer *Session::findRole(const std::string &role) const {
  auto found = std::find_if(all.begin(), all.end(),
                            [&](const Buffer &b) { return b.role == role; });
  return found == all.end() ? nullptr : &*found;
}

void Session::read(const Buffer &buffer, void *data) const {
  check(bsr_session_read(session.get(), buffer.index, 0,
                         buffer.elements * bsr_type_bytes(buffer.type), data));
}

void Session::write(const Buffer &buffer, const void *data) {
  int64_t index = buffer.index;
  const auto &own = others[size_t(selected)];
  if (auto found = own.find(index); found != own.end())
    index = found->second;
  check(bsr_session_write(session.get(), index, 0,
                          buffer.elements * bsr_type_bytes(buffer.type), data));
}

bsr_pattern_view Session::pattern(int64_t index) const {
  bsr_pattern_view view;
  check(bsr_session_get_pattern(session.get(), index, &view));
  return view;
}

bsr_pattern_statistics Session::statistics(int64_t pattern) const {
  bsr_pattern_statistics statistics;
  check(bsr_session_statistics(session.get(), pattern, &statistics));
  return statistics;
}

void Session::initialize() { check(bsr_session_initialize(session.get())); }
void Session::run() { check(bsr_session_run(session.get())); }
void Session::snapshot() { check(bsr_session_snapshot(session.get())); }
void Session::restore() { check(bsr_session_restore(session.get())); }

void Session::runScores() { check(bsr_session_run_scores(session.get())); }

void Session::sumScores(const std::vector<int32_t> &steps) {
  check(bsr_session_sum_scores(session.get(), steps.data(),
                               int64_t(steps.size())));
}

void Session::makePattern(int64_t index, int64_t blocks) {
  check(bsr_session_make_pattern(session.get(), index, blocks));
}

void Session::readPattern(int64_t index, const std::string &path) {
  check(bsr_session_read_pattern(session.get(), index, path.c_str()));
}

void Session::setPattern(int64_t index, const bsr_pattern_view &view) {
  check(bsr_session_set_pattern(session.get(), index, &view));
}

void Session::setNewBlocks(int64_t index, const bsr_new_blocks &start) {
  check(bsr_session_set_new_blocks(session.get(), index, &start));
}

void Session::communicate(bsr_communicator *communicator) {
  check(bsr_session_communicate(session.get(), communicator));
}

void Session::takeLargest(int64_t index, int64_t blocks, bsr_norm norm,
                          bsr_type type, const std::string &dense) {
  check(bsr_session_take_largest(session.get(), index, blocks, norm, type,
                                 dense.data()));
}

void Session::scaleFanIn(int64_t index, bsr_fan_in fanIn) {
  check(bsr_session_scale_fan_in(session.get(), index, fanIn));
}

void Session::update(const std::vector<bsr_pattern_update> &updates) {
  check(bsr_session_update(session.get(), updates.data(),
                           int64_t(updates.size())));
}

void Session::save(const std::string &path, const std::string &metadata) const {
  check(bsr_session_save(session.get(), path.empty() ? nullptr : path.c_str(),
                         metadata.c_str()));
}

std::string Session::load(const std::string &path) {
  bsr_status status = bsr_session_load(session.get(), path.c_str());
  if (status == BSR_INVALID_CHECKPOINT || status == BSR_IO_ERROR)
    return bsr_last_error();
  check(status);
  return "";
}

std::string Session::metadata() const {
  return bsr_session_metadata(session.get());
}

std::string Session::stepDifference() const {
  return bsr_session_step_difference(session.get());
}

bsr_counters Session::counters() const {
  bsr_counters counters;
  check(bsr_session_counters(session.get(), &counters));
  return counters;
}
