// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// GPUs of NVIDIA's as devices. All work is in one stream, so that it is done in
// the order of the calls; only reads wait for it.

#include "CudaDevice.h"
#include "base/Status.h"
#include "pattern/BlockNorm.h"
#include "step/Step.h"
#include "support/Chips.h"
#include "support/PatternKernels.h"
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <map>

using namespace sparse_opt;
using namespace sparse_opt::cuda;

static_assert(Driver::deviceError == BSR_DEVICE_ERROR);

static Address addressOf(const void *memory) {
  return reinterpret_cast<Address>(memory);
}

/// What steps are compiled for to run on a GPU of compute capability
/// `version`, as 90.
static std::string findCompileTarget(int version) {
  if (const nvidia::Chip *chip =
          version > 0 ? nvidia::findTarget(unsigned(version)) : nullptr)
    return std::string(chip->name);
  fail(BSR_DEVICE_ERROR,
       "expected a GPU of compute capability 8.0 or later, but got one of ",
       version / 10, ".", version % 10);
}

CudaDevice::CudaDevice(int ordinal) : ordinal(ordinal) {
  int count = driver.countDevices();
  if (ordinal >= count)
    fail(BSR_DEVICE_ERROR, "expected GPU ", ordinal, ", but got ", count,
         count == 1 ? " GPU" : " GPUs", ", counted from 0");
  driver.check(driver.cuDeviceGet(&device, ordinal), "GPU ", ordinal);
  compileTarget = findCompileTarget(driver.version(device));
  driver.check(driver.cuDevicePrimaryCtxRetain(&context, device),
               "a context of the GPU");
  CurrentContext current = makeCurrent();
  driver.check(driver.cuStreamCreate(&stream, nonBlockingStream),
               "a stream of the GPU");
}

void CudaDevice::wait() const {
  driver.check(driver.cuStreamSynchronize(stream), "the GPU to work");
}

void *CudaDevice::allocate(int64_t bytes) {
  CurrentContext current = makeCurrent();
  Address address = 0;
  Result result = driver.cuMemAlloc_v2(&address, size_t(bytes));
  if (result == OutOfMemory)
    return nullptr;
  driver.check(result, bytes, " bytes of the GPU's memory");
  return reinterpret_cast<void *>(address);
}

void CudaDevice::free(void *memory, int64_t) {
  // Of a GPU that was lost there is nothing to give back.
  if (CurrentContext current = tryCurrent(); current.isThere)
    driver.cuMemFree_v2(addressOf(memory));
}

void CudaDevice::read(void *callers, const void *memory, int64_t bytes) {
  if (!bytes)
    return;
  CurrentContext current = makeCurrent();
  driver.check(driver.cuMemcpyDtoHAsync_v2(callers, addressOf(memory),
                                           size_t(bytes), stream),
               "a copy from the GPU");
  wait();
}

CudaDevice::Stage *CudaDevice::findRoom(int64_t bytes) {
  if (bytes > Stage::size)
    return nullptr;
  Stage &last = stages[current];
  if (last.memory && last.used + bytes <= Stage::size)
    return &last;
  if (last.memory)
    driver.check(driver.cuEventRecord(last.read, stream), "an event");
  current = (current + 1) % int(std::size(stages));
  Stage &next = stages[current];
  if (next.memory) {
    // Copies out of it, the last time round, are done.
    driver.check(driver.cuEventSynchronize(next.read), "the GPU to work");
  } else {
    void *memory = nullptr;
    driver.check(driver.cuEventCreate(&next.read, 0), "an event");
    driver.check(driver.cuMemHostAlloc(&memory, size_t(Stage::size), 0),
                 Stage::size, " bytes of memory that the GPU reads");
    next.memory = static_cast<char *>(memory);
  }
  next.used = 0;
  return &next;
}

void CudaDevice::write(void *memory, const void *callers, int64_t bytes) {
  if (!bytes)
    return;
  CurrentContext current = makeCurrent();
  auto copy = [&](const void *from) {
    driver.check(driver.cuMemcpyHtoDAsync_v2(addressOf(memory), from,
                                             size_t(bytes), stream),
                 "a copy to the GPU");
  };
  std::unique_lock<std::mutex> lock(mutex);
  if (Stage *stage = findRoom(bytes)) {
    char *place = stage->memory + stage->used;
    std::memcpy(place, callers, size_t(bytes));
    stage->used += (bytes + 63) / 64 * 64;
    copy(place);
    return;
  }
  lock.unlock();
  copy(callers);
  wait();
}

void CudaDevice::copy(void *to, const void *from, int64_t bytes) {
  if (!bytes)
    return;
  CurrentContext current = makeCurrent();
  driver.check(driver.cuMemcpyDtoDAsync_v2(addressOf(to), addressOf(from),
                                           size_t(bytes), stream),
               "a copy on the GPU");
}

void CudaDevice::zero(void *memory, int64_t bytes) {
  if (!bytes)
    return;
  CurrentContext current = makeCurrent();
  driver.check(
      driver.cuMemsetD8Async(addressOf(memory), 0, size_t(bytes), stream),
      "zeros on the GPU");
}

void CudaDevice::runPatternKernel(const std::string &name, int64_t x, int64_t y,
                                  unsigned threads, const void *table) {
  if (!x || !y)
    return;
  CurrentContext current = makeCurrent();
  std::lock_guard<std::mutex> lock(mutex);
  if (!updates)
    updates = driver.load(patternKernels().c_str());
  Function function = nullptr;
  driver.check(driver.cuModuleGetFunction(&function, updates, name.c_str()),
               "a kernel '", name, "'");
  Address base = 0, address = addressOf(table); // places are addresses
  std::array<void *, 2> parameters = {&base, &address};
  driver.check(driver.cuLaunchKernel(function, unsigned(x), unsigned(y), 1,
                                     threads, 1, 1, 0, stream,
                                     parameters.data(), nullptr),
               "'", name, "' to be launched");
}

/// What can be given of `room` behind the rows at its start.
static char *behindRows(void *room) {
  return static_cast<char *>(room) + Device::roomForRows;
}

void CudaDevice::computeNorms(bsr_norm norm, bsr_type type, const void *values,
                              const int32_t *slots, int64_t size,
                              int64_t blocks, void *room, double *norms) {
  struct {
    UpdateRow row = {};
    UpdateResult result = {};
  } table;
  static_assert(sizeof table <= roomForRows);
  table.row.values = addressOf(values);
  table.row.slot = addressOf(slots);
  table.row.norms = addressOf(behindRows(room));
  table.row.result = addressOf(room) + offsetof(decltype(table), result);
  table.row.elements = uint32_t(size);
  table.row.blocks = uint32_t(blocks);
  write(room, &table, sizeof table);
  runPatternKernel(nameOfNorms(norm, type), blocksOfNorms(blocks), 1,
                   patternThreads, room);
  read(norms, behindRows(room), blocks * int64_t(sizeof *norms));
}

void CudaDevice::fillSlots(void *values, int64_t bytes, const int32_t *slots,
                           int64_t count, uint64_t bits, void *room) {
  if (!count)
    return;
  struct {
    FillRow row;
    uint64_t count;
  } table;
  uint64_t placeOfCount = addressOf(room) + offsetof(decltype(table), count);
  table.row = {addressOf(values),
               addressOf(behindRows(room)),
               placeOfCount,
               placeOfCount,
               uint64_t(bytes),
               0,
               uint64_t(std::numeric_limits<int64_t>::max()),
               bits};
  table.count = uint64_t(count);
  write(room, &table, sizeof table);
  write(behindRows(room), slots, count * int64_t(sizeof *slots));
  runPatternKernel(fillKernel, blocksOfFills(count, bytes), 1, patternThreads,
                   room);
}

void CudaDevice::order(Stream earlier, Stream later) {
  CurrentContext current = makeCurrent();
  std::lock_guard<std::mutex> lock(mutex);
  if (!reached)
    driver.check(driver.cuEventCreate(&reached, 0), "an event");
  driver.check(driver.cuEventRecord(reached, earlier), "an event");
  driver.check(driver.cuStreamWaitEvent(later, reached, 0),
               "a stream to wait for another");
}

void CudaDevice::waitFor(void *other) {
  order(static_cast<Stream>(other), stream);
}

void CudaDevice::letWait(void *other) {
  order(stream, static_cast<Stream>(other));
}

std::string CudaDevice::describeMemory() {
  size_t free = 0, total = 0;
  CurrentContext current = makeCurrent();
  if (driver.cuMemGetInfo_v2(&free, &total) != Success)
    return "";
  return concatenate(driver.describe(device), " has ", free, " of ", total,
                     " bytes left; a smaller batch, smaller slots or bf16 need "
                     "fewer");
}

Device &sparse_opt::cudaDevice(int ordinal) {
  // Never destroyed: at the end of a process the driver may be gone first.
  static std::mutex mutex;
  static auto &devices = *new std::map<int, std::unique_ptr<CudaDevice>>;
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<CudaDevice> &found = devices[ordinal];
  if (!found)
    found = std::make_unique<CudaDevice>(ordinal);
  return *found;
}
