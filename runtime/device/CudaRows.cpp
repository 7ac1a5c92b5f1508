// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Launches functions of rows on the caller's memory and stream, without a
// session.

#include "CudaKernels.h"
#include "Memory.h"
#include "step/Rows.h"
#include "step/Step.h"

using namespace sparse_opt;
using namespace sparse_opt::cuda;

struct bsr_gpu_function {
  bsr_gpu_function(CudaDevice &device, std::shared_ptr<const bsr_step> step)
      : device(device), step(std::move(step)), kernels(device, *this->step) {}

  const Manifest &manifest() const { return step->manifest; }

  CudaDevice &device;
  std::shared_ptr<const bsr_step> step;
  CudaKernels kernels;
};

bsr_status bsr_gpu_function_load(const char *device, const bsr_step *step,
                                 bsr_gpu_function **function) {
  return guarded([&] {
    requireArgument(device, "device");
    requireArgument(step, "step");
    requireArgument(function, "function");
    if (std::string(device) == hostDevice().name())
      fail(BSR_INVALID_ARGUMENT, "expected a GPU, 'cuda' or 'cuda:' and a "
                                 "number, but got 'cpu'");
    // Devices that are not the host are GPUs of CUDA.
    auto &gpu = static_cast<CudaDevice &>(findDevice(device));
    CurrentContext current = gpu.makeCurrent();
    // Without a place for plans of their own, they would be overwritten.
    for (const Launch &launch : step->manifest.launches)
      for (const LaunchArgument &argument : launch.arguments)
        if (launch.when == Launch::Pattern &&
            argument.kind == LaunchArgument::Arena &&
            argument.value >= step->manifest.planBytes)
          fail(BSR_INVALID_STEP, "expected plans in the first ",
               step->manifest.planBytes, " bytes of the arena of '",
               step->manifest.name, "', but got one at ", argument.value,
               ": compile it again");
    *function = new bsr_gpu_function(gpu, step->self);
  });
}

void bsr_gpu_function_unload(bsr_gpu_function *function) {
  if (!function)
    return;
  guarded([&] {
    std::unique_ptr<bsr_gpu_function> last(function);
    CurrentContext current = function->device.makeCurrent();
    function->device.driver.cuCtxSynchronize();
  });
}

int64_t bsr_gpu_function_plan_bytes(const bsr_gpu_function *function) {
  return function ? function->manifest().planBytes : 0;
}

/// Whether rows of `part` are copied to and from memory for all rows of the
/// function: some are missing, or they lie where kernels cannot read them.
static bool isCopied(const bsr_gpu_row_kernel &kernel,
                     const bsr_row_buffer &buffer, void *const *addresses,
                     const RowPart &part) {
  const char *rows = getData(buffer, addresses) + part.first * buffer.row_bytes;
  return buffer.row_bytes &&
         (part.count != kernel.functions[part.function].rows ||
          !isAligned(rows));
}

/// The bytes of work memory that the function itself takes.
static int64_t restBytes(const bsr_gpu_function &function) {
  const Manifest &manifest = function.manifest();
  return Memory::partBytes(manifest.arenaBytes - manifest.planBytes);
}

/// The bytes of work memory of `part`.
static int64_t workBytes(const bsr_gpu_row_kernel &kernel,
                         void *const *addresses, const RowPart &part) {
  const bsr_gpu_row_function &function = kernel.functions[part.function];
  int64_t bytes = restBytes(*function.function);
  for (int64_t i = 0; i != kernel.num_buffers; ++i)
    if (isCopied(kernel, kernel.buffers[i], addresses, part))
      bytes += Memory::partBytes(function.rows * kernel.buffers[i].row_bytes);
  return bytes;
}

/// Fails unless the function of `part` has the buffers of `kernel`, and memory
/// for its plans.
static void requireFunction(const bsr_gpu_row_kernel &kernel,
                            const RowPart &part) {
  const bsr_gpu_row_function &function = kernel.functions[part.function];
  const Manifest &manifest = function.function->manifest();
  auto numBuffers = int64_t(manifest.buffers.size());
  if (kernel.num_buffers != numBuffers)
    fail(BSR_INVALID_ARGUMENT, "expected the ", numBuffers, " buffers of '",
         manifest.name, "', but got ", kernel.num_buffers);
  for (int64_t i = 0; i != numBuffers; ++i)
    if (int64_t bytes = kernel.buffers[i].row_bytes,
        all = manifest.buffers[size_t(i)].bytes;
        bytes && bytes * function.rows != all)
      fail(BSR_INVALID_ARGUMENT, "expected ", function.rows, " rows of buffer ",
           i, " to have ", all, " bytes, but got rows of ", bytes);
  if (manifest.planBytes && (!function.plans || !isAligned(function.plans)))
    fail(BSR_INVALID_ARGUMENT, "expected ", manifest.planBytes,
         " bytes for plans at a multiple of ", rowAlignment, ", but got ",
         function.plans ? "another address" : "none");
}

static void launch(const bsr_gpu_row_kernel &kernel, void *const *addresses,
                   const RowPart &part, char *work, Stream stream,
                   bool isCaptured) {
  bsr_gpu_row_function &function = kernel.functions[part.function];
  const CudaKernels &kernels = function.function->kernels;
  const Driver &driver = function.function->device.driver;
  auto addressOf = [](const void *memory) {
    return reinterpret_cast<Address>(memory);
  };
  std::vector<void *> taken(size_t(kernel.num_buffers));
  char *room = work + restBytes(*function.function);
  for (int64_t i = 0; i != kernel.num_buffers; ++i) {
    const bsr_row_buffer &buffer = kernel.buffers[i];
    int64_t bytes = buffer.row_bytes;
    char *rows = getData(buffer, addresses) + part.first * bytes;
    taken[size_t(i)] = rows;
    if (!isCopied(kernel, buffer, addresses, part))
      continue;
    taken[size_t(i)] = room;
    if (!buffer.is_result) {
      driver.check(driver.cuMemcpyDtoDAsync_v2(addressOf(room), addressOf(rows),
                                               size_t(part.count * bytes),
                                               stream),
                   "a copy on the GPU");
      if (int64_t more = (function.rows - part.count) * bytes)
        driver.check(
            driver.cuMemsetD8Async(addressOf(room + part.count * bytes), 0,
                                   size_t(more), stream),
            "zeros on the GPU");
    }
    room += Memory::partBytes(function.rows * bytes);
  }
  const LaunchMemory memory = {taken.data(),
                               static_cast<char *>(function.plans), work};
  if (!function.has_plans || isCaptured)
    for (const Launch *launch : kernels.select({Launch::Pattern}))
      kernels.enqueue(*launch, memory, stream);
  // What is recorded makes plans when the graph is launched, not before.
  if (!isCaptured)
    function.has_plans = 1;
  for (const Launch *launch : kernels.select({Launch::Step}))
    kernels.enqueue(*launch, memory, stream);
  for (int64_t i = 0; i != kernel.num_buffers; ++i) {
    const bsr_row_buffer &buffer = kernel.buffers[i];
    char *rows = getData(buffer, addresses) + part.first * buffer.row_bytes;
    if (buffer.row_bytes && buffer.is_result && taken[size_t(i)] != rows)
      driver.check(driver.cuMemcpyDtoDAsync_v2(
                       addressOf(rows), addressOf(taken[size_t(i)]),
                       size_t(part.count * buffer.row_bytes), stream),
                   "a copy on the GPU");
  }
}

bsr_status bsr_launch_rows(const bsr_gpu_row_kernel *kernel,
                           void *const *addresses, int64_t rows, void *work,
                           int64_t *work_bytes, void *stream,
                           int64_t *missing) {
  return guarded([&] {
    requireArgument(kernel, "kernel");
    requireArgument(addresses, "addresses");
    requireArgument(work_bytes, "work_bytes");
    requireArgument(missing, "missing");
    requireRows(*kernel, addresses, rows);
    int64_t needed = 0, absent = -1;
    const bsr_gpu_function *first = nullptr;
    forParts(*kernel, rows, [&](const RowPart &part) {
      const bsr_gpu_function *function =
          kernel->functions[part.function].function;
      if (!function) {
        absent = part.function;
        return false;
      }
      first = function;
      requireFunction(*kernel, part);
      needed = std::max(needed, workBytes(*kernel, addresses, part));
      return true;
    });
    *missing = absent;
    if (absent >= 0)
      return;
    bool isEnough = *work_bytes >= needed;
    *work_bytes = needed;
    if (!isEnough || !first)
      return;
    if (needed && (!work || !isAligned(work)))
      fail(BSR_INVALID_ARGUMENT, "expected work memory at a multiple of ",
           rowAlignment, " bytes, but got ", work ? "another address" : "none");
    CurrentContext current = first->device.makeCurrent();
    auto *given = static_cast<Stream>(stream);
    int status = 0;
    const Driver &driver = first->device.driver;
    driver.check(driver.cuStreamIsCapturing(given, &status),
                 "a stream of the GPU");
    forParts(*kernel, rows, [&](const RowPart &part) {
      launch(*kernel, addresses, part, static_cast<char *>(work), given,
             status != notCapturing);
      return true;
    });
  });
}
