// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sessions on a device whose memory the processor must not touch. They are made
// inside of the runtime: its interface has the host alone.

#include "device/Device.h"
#include "Assertions.h"
#include "session/Session.h"
#include "support/Error.h"
#include <cstring>
#include <map>
#include <sys/mman.h>
#include <vector>

using namespace check;

namespace {
/// A device of addresses that fault: its memory lies behind them.
class Remote : public sparse_opt::Device {
public:
  ~Remote() override {
    if (!areas.empty())
      std::abort();
  }
  int32_t number() const override { return 7; }
  std::string name() const override { return "remote"; }
  const std::string &target() const override {
    static const std::string none;
    return none;
  }
  std::unique_ptr<sparse_opt::Program> load(const bsr_step &, void *const *,
                                            void *) override {
    std::abort(); // for steps of GPUs
  }
  bool isHost() const override { return false; }

  void *allocate(int64_t bytes) override {
    void *start = mmap(nullptr, size_t(bytes), PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
      return nullptr;
    areas[static_cast<char *>(start)].resize(size_t(bytes));
    return start;
  }
  void free(void *memory, int64_t bytes) override {
    areas.erase(static_cast<char *>(memory));
    munmap(memory, size_t(bytes));
  }
  void read(void *callers, const void *memory, int64_t bytes) override {
    if (bytes)
      std::memcpy(callers, behind(memory), size_t(bytes));
  }
  void write(void *memory, const void *callers, int64_t bytes) override {
    if (bytes)
      std::memcpy(behind(memory), callers, size_t(bytes));
  }
  void copy(void *to, const void *from, int64_t bytes) override {
    if (bytes)
      std::memcpy(behind(to), behind(from), size_t(bytes));
  }
  void zero(void *memory, int64_t bytes) override {
    if (bytes)
      std::memset(behind(memory), 0, size_t(bytes));
  }
  void computeNorms(bsr_norm norm, bsr_type type, const void *values,
                    const int32_t *slots, int64_t size, int64_t blocks,
                    void *room, double *norms) override {
    std::memset(behind(room), 0xff, size_t(8 * blocks));
    sparse_opt::hostDevice().computeNorms(
        norm, type, behind(values),
        reinterpret_cast<const int32_t *>(behind(slots)), size, blocks, nullptr,
        norms);
  }
  void runPatternKernel(const std::string &, int64_t, int64_t, unsigned,
                        const void *) override {
    std::abort(); // of GPUs
  }
  void fillSlots(void *values, int64_t bytes, const int32_t *slots,
                 int64_t count, uint64_t bits, void *room) override {
    std::memset(behind(room), 0xff, size_t(4 * count));
    sparse_opt::hostDevice().fillSlots(behind(values), bytes, slots, count,
                                       bits, nullptr);
  }

private:
  char *behind(const void *memory) {
    char *address = static_cast<char *>(const_cast<void *>(memory));
    auto area = std::prev(areas.upper_bound(address));
    return area->second.data() + (address - area->first);
  }

  std::map<char *, std::vector<char>> areas;
};
} // namespace

static Session startOn(sparse_opt::Device &device, const Step &step) {
  return Session(new bsr_session(*step, 1, device), bsr_session_destroy);
}

TEST(DeviceTest, SessionsHoldWhatTheHostDoes) {
  Remote remote;
  Step step = loadFake();
  Session there = startOn(remote, step), here = start(step);
  for (Session *session : {&there, &here}) {
    ASSERT_TRUE(succeeds(bsr_session_initialize(session->get())));
    ASSERT_TRUE(succeeds(bsr_session_make_pattern(session->get(), 0, 4)));
    float rate = 0.25f;
    ASSERT_TRUE(
        succeeds(bsr_session_write(session->get(), 5, 0, sizeof rate, &rate)));
  }
  ASSERT_TRUE(contentsOf(there, step) == contentsOf(here, step));

  // Dense weights, and a pattern of the caller's.
  float dense[8 * 12];
  for (int i = 0; i < 8 * 12; ++i)
    dense[i] = float(i * 7 % 96);
  int32_t rowPtr[] = {0, 1, 1, 2, 3}, colIdx[] = {3, 1, 0}, slot[] = {5, 0, 2};
  bsr_pattern_view view = {3, rowPtr, colIdx, slot, nullptr, nullptr, nullptr};
  for (Session *session : {&there, &here})
    ASSERT_TRUE(succeeds(bsr_session_take_largest(session->get(), 0, 5, BSR_L1,
                                                  BSR_F32, dense)));
  ASSERT_TRUE(contentsOf(there, step) == contentsOf(here, step));
  for (Session *session : {&there, &here})
    ASSERT_TRUE(
        succeeds(bsr_session_scale_fan_in(session->get(), 0, BSR_FAN_IN_ROWS)));
  ASSERT_TRUE(contentsOf(there, step) == contentsOf(here, step));
  for (Session *session : {&there, &here})
    ASSERT_TRUE(succeeds(bsr_session_set_pattern(session->get(), 0, &view)));
  ASSERT_TRUE(contentsOf(there, step) == contentsOf(here, step));
}

TEST(DeviceTest, SessionsTakeSnapshotsAndCheckpoints) {
  Remote remote;
  Step step = loadFake();
  Session there = startOn(remote, step), here = start(step);
  Folder folder;
  std::string path[] = {folder.file("there"), folder.file("here")};
  for (Session *session : {&there, &here}) {
    ASSERT_TRUE(succeeds(bsr_session_initialize(session->get())));
    ASSERT_TRUE(succeeds(bsr_session_make_pattern(session->get(), 0, 4)));
    ASSERT_TRUE(succeeds(bsr_session_save(
        session->get(), path[session == &here].c_str(), "metadata")));
  }
  ASSERT_TRUE(readFile(path[0]) == readFile(path[1]));

  std::string before = contentsOf(there, step);
  ASSERT_TRUE(succeeds(bsr_session_snapshot(there.get())));
  float ones[12];
  std::fill_n(ones, 12, 2.0f);
  ASSERT_TRUE(
      succeeds(bsr_session_write(there.get(), 2, 0, sizeof ones, ones)));
  ASSERT_TRUE(contentsOf(there, step) != before);
  ASSERT_TRUE(succeeds(bsr_session_restore(there.get())));
  ASSERT_TRUE(contentsOf(there, step) == before);

  Session again = startOn(remote, step);
  ASSERT_TRUE(succeeds(bsr_session_load(again.get(), path[1].c_str())));
  ASSERT_TRUE(contentsOf(again, step) == before);
}

TEST(DeviceTest, SessionsRefuseWhatNeedsTheHost) {
  Remote remote;
  Step step = loadFake();
  Session session = startOn(remote, step);
  ASSERT_TRUE(succeeds(bsr_session_initialize(session.get())));
  void *data = nullptr;
  ASSERT_TRUE(fails(bsr_session_host_data(session.get(), 0, &data),
                    BSR_INVALID_ARGUMENT,
                    "expected a session in the host's memory, but got one on "
                    "device 7"));
  ASSERT_FALSE(data);
  // The step is for the host, and says so before it touches a buffer.
  ASSERT_TRUE(fails(bsr_session_run(session.get()), BSR_INVALID_STEP,
                    "expected device 0 for step 'fake', but got device 7"));
}

TEST(DeviceTest, WithoutMemoryIsAnError) {
  struct Full : Remote {
    void *allocate(int64_t) override { return nullptr; }
  } full;
  Step step = loadFake();
  try {
    startOn(full, step);
  } catch (const sparse_opt::Error &error) {
    ASSERT_EQ(error.status, int(BSR_OUT_OF_MEMORY));
    ASSERT_EQ(error.sentence.substr(0, 9), "expected ");
    ASSERT_TRUE(
        error.sentence.find(" bytes of memory for the buffers of the step, "
                            "but got none") != std::string::npos);
    return;
  }
  FAIL() << "expected no session, but got one";
}
