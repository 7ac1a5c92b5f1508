// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs some thread blocks of launches in the interpreter of PTX. Its errors,
// which are exceptions, become those of LLVM here and nowhere else.

#include "LaunchSampler.h"
#include "support/Error.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include <map>
#include <numeric>

using namespace llvm;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// What `body` returns, or the interpreter's error.
template <typename Body>
static auto protect(Body body) -> Expected<decltype(body())> {
  try {
    return body();
  } catch (const sparse_opt::Error &error) {
    return createStringError(error.sentence);
  }
}

Expected<std::unique_ptr<LaunchSampler>> LaunchSampler::create(StringRef text) {
  return protect([&] {
    return std::unique_ptr<LaunchSampler>(
        new LaunchSampler(::ptx::Module(std::string_view(text))));
  });
}

const ::ptx::Kernel *LaunchSampler::find(StringRef name) const {
  const auto &kernels = module.program().kernels;
  auto found = llvm::find_if(kernels, [&](const ::ptx::Kernel &kernel) {
    return kernel.info.name == name;
  });
  return found == kernels.end() ? nullptr : &*found;
}

Expected<uint64_t> LaunchSampler::allocate(int64_t bytes) {
  return protect(
      [&] { return memory.allocateZeros(std::max<int64_t>(bytes, 1)); });
}

void LaunchSampler::write(uint64_t address, const void *from, size_t bytes) {
  memory.write(address, from, bytes);
}

Expected<::ptx::EncodedTensorMap>
LaunchSampler::encode(const ::ptx::TensorMap &map) {
  return protect([&] { return ::ptx::encode(map); });
}

namespace {
/// The mean of a count over those that ran, and how well it is known.
class Mean {
public:
  void add(double value) {
    ++count;
    sum += value;
    squares += value * value;
  }
  /// True if the standard error is below 1 %.
  bool isSettled() const {
    double mean = sum / count;
    double error = (squares / count - mean * mean) / (count - 1);
    return error <= 1e-4 * mean * mean;
  }

private:
  double count = 0, sum = 0, squares = 0;
};
} // namespace

/// Bytes that memory is read and written in.
static constexpr double sectorBytes = 32;

/// What the whole launch does, `share` times what `counts` has.
static KernelWork scale(const ::ptx::Counts &counts, double share,
                        const ::ptx::LaunchOptions &options) {
  KernelWork work;
  work.blocks = double(options.grid.count());
  work.warps = double(divideCeil(options.block.count(), uint64_t(32)));
  work.longestWarp = double(counts.longestWarp);
  auto fill = [&](auto &to, const auto &from) {
    for (size_t i = 0; i != to.size(); ++i)
      to[i] = share * double(from[i]);
  };
  work.instructions = share * double(counts.total());
  fill(work.arithmetic, counts.units);
  fill(work.tensorFlops, counts.mmaFlops);
  fill(work.warpgroupFlops, counts.wgmmaFlops);
  // What passes L1 goes to shared memory alone.
  double l1Sectors = double(counts.globalSectors - counts.passedSectors);
  work.sharedBytes =
      share *
      (l1Sectors * sectorBytes + double(counts.sharedWavefronts) * sharedBytes +
       double(counts.bulkBytes) + double(counts.wgmmaBytes));
  work.l2Bytes = share * double(counts.l2Sectors) * sectorBytes;
  return work;
}

/// Multiples of the golden ratio, without their whole parts, lie evenly however
/// many they are: such a stride that comes to all of `count`.
static uint64_t findStride(uint64_t count) {
  constexpr double ratio = 0.6180339887498949;
  auto stride = std::max<uint64_t>(uint64_t(double(count) * ratio), 1);
  while (std::gcd(stride, count) != 1)
    ++stride;
  return stride;
}

::ptx::Counts LaunchSampler::runSome(StringRef kernel,
                                     ::ptx::LaunchOptions options) {
  // Thread blocks of one launch may do very different work: a mean that is not
  // settled is taken only where more of them would take too long.
  constexpr uint64_t fewest = 8, most = 32'000'000;
  uint64_t all = options.grid.count(), stride = findStride(all);
  uint64_t clusters = all / options.cluster.count();
  ::ptx::Counts counts;
  std::array<Mean, 3> means;
  auto isDone = [&](uint64_t ran) {
    return ran == clusters || counts.total() >= most ||
           (ran >= fewest && llvm::all_of(means, [](const Mean &mean) {
              return mean.isSettled();
            }));
  };
  DenseSet<uint64_t> ran;
  for (uint64_t i = 0; !isDone(ran.size()); ++i) {
    uint64_t block = i * stride % all;
    if (!ran.insert(::ptx::clusterOf(block, options)).second)
      continue;
    options.blocks = {block};
    ::ptx::Counts made =
        ::ptx::launch(module, std::string_view(kernel), options, memory);
    counts.add(made);
    for (auto [mean, count] :
         llvm::zip_equal(means, std::array{made.total(), made.globalSectors,
                                           made.sharedWavefronts}))
      mean.add(double(count));
  }
  return counts;
}

double LaunchSampler::getMemoryBytes(const ::ptx::Counts &counts, double share,
                                     ArrayRef<BufferRange> buffers) const {
  std::map<uint32_t, int64_t> sizes;
  for (const BufferRange &range : buffers) {
    int64_t &size = sizes[memory.find(range.address)->number];
    size = std::max(size, range.bytes);
  }
  double bytes = 0;
  for (auto [number, size] : sizes)
    if (number < counts.buffers.size()) {
      const ::ptx::BufferTraffic &traffic = counts.buffers[number];
      for (uint64_t sectors : {traffic.read, traffic.written})
        bytes += std::min(share * double(sectors) * sectorBytes, double(size));
    }
  return bytes;
}

Expected<Sample> LaunchSampler::run(StringRef kernel,
                                    ::ptx::LaunchOptions options,
                                    ArrayRef<BufferRange> buffers,
                                    bool isWhole) {
  options.threads = 1;
  options.limit = 1 << 28;
  options.suspendsWaits = true;
  options.countsBuffers = true;
  options.findsGlobalRaces = false; // which takes half of the time
  return protect([&] {
    ::ptx::Counts counts =
        isWhole
            ? ::ptx::launch(module, std::string_view(kernel), options, memory)
            : runSome(kernel, options);
    double share = double(options.grid.count()) / double(counts.blocks);
    Sample sample{scale(counts, share, options), counts.blocks};
    sample.work.memoryBytes = getMemoryBytes(counts, share, buffers);
    return sample;
  });
}
