// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loads a compiled step from its shared library.

#include "Step.h"
#include "OpenMPRuntime.h"
#include "Processor.h"
#include "base/Status.h"
#include "support/File.h"
#include "support/Hash.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <string_view>

using namespace sparse_opt;

static thread_local int64_t loaded = 0;

int64_t sparse_opt::stepsLoaded() { return loaded; }

/// The kind of processors that `machine` of an ELF file stands for.
static std::string nameMachine(Elf64_Half machine) {
  switch (machine) {
  case EM_X86_64:
    return "x86-64";
  case EM_AARCH64:
    return "AArch64";
  default:
    return "ELF machine " + std::to_string(machine);
  }
}

/// That of this process.
#if defined(__aarch64__)
static constexpr Elf64_Half ownMachine = EM_AARCH64;
#else
static constexpr Elf64_Half ownMachine = EM_X86_64;
#endif

/// Reads `path`, and fails unless it is a whole ELF file for processors of this
/// kind. The dynamic loader maps a truncated library and dies of a bus error;
/// so it is not shown one.
static std::string readLibrary(const std::string &path) {
  std::string contents = readFile(path);
  auto requireEnd = [&](uint64_t start, uint64_t size) {
    if (size > contents.size() || start > contents.size() - size)
      fail(BSR_INVALID_STEP, "expected the library '", path, "' to have ",
           start + size, " bytes, but got ", contents.size());
  };
  Elf64_Ehdr header;
  if (contents.compare(0, SELFMAG, ELFMAG) != 0 ||
      contents.size() < sizeof header || contents[EI_CLASS] != ELFCLASS64)
    fail(BSR_INVALID_STEP, "expected '", path,
         "' to be a 64-bit ELF library, but got a file of another format");
  std::memcpy(&header, contents.data(), sizeof header);
  if (header.e_machine != ownMachine)
    fail(BSR_INVALID_STEP, "expected a step for this processor, ",
         nameMachine(ownMachine), ", but got '", path, "', which is for ",
         nameMachine(header.e_machine));
  requireEnd(header.e_shoff, uint64_t(header.e_shnum) * header.e_shentsize);
  requireEnd(header.e_phoff, uint64_t(header.e_phnum) * sizeof(Elf64_Phdr));
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, contents.data() + header.e_phoff + i * sizeof segment,
                sizeof segment);
    requireEnd(segment.p_offset, segment.p_filesz);
  }
  return contents;
}

/// Fails unless this processor, and the system, can run the step of `path`. An
/// instruction that they do not have would end the process.
static void requireFeatures(const Manifest &manifest, const std::string &path) {
  std::string obstacle = findObstacle(manifest.targetFeatures);
  if (!obstacle.empty())
    fail(BSR_INVALID_STEP, "expected a step for this processor, but got '",
         path, "', compiled for ", manifest.targetCpu, ", ", obstacle);
}

/// The address of `symbol` in `library`, loaded from `path`.
static void *findSymbol(void *library, const char *symbol,
                        const std::string &path) {
  void *address = dlsym(library, symbol);
  if (!address)
    fail(BSR_INVALID_STEP, "expected symbol '", symbol, "' in '", path,
         "', but got none");
  return address;
}

bsr_status bsr_step_load(const char *path, bsr_step **step) {
  return guarded([&] {
    requireArgument(path, "path");
    requireArgument(step, "step");
    requireThreads();
    std::string contents = readLibrary(path);
    // A name without a slash would be searched for elsewhere.
    std::string file = std::strchr(path, '/') ? path : std::string("./") + path;
    std::unique_ptr<void, int (*)(void *)> library(
        dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL), dlclose);
    if (!library)
      fail(BSR_INVALID_STEP, "expected a library that loads, but got '",
           dlerror(), "'");
    limitSpinning(library.get());

    auto version = *static_cast<const uint32_t *>(
        findSymbol(library.get(), "bsr_step_abi_version", path));
    if (version != BSR_STEP_ABI_VERSION)
      fail(BSR_INVALID_STEP, "expected interface version ",
           BSR_STEP_ABI_VERSION, " in '", path, "', but got ", version);
    auto *text = static_cast<const char *>(
        findSymbol(library.get(), "bsr_step_manifest", path));
    Manifest manifest =
        parseManifest(text, "the manifest of '" + std::string(path) + "'");
    bool isForGPU = !manifest.chip.empty();
    void *run =
        isForGPU ? nullptr : findSymbol(library.get(), "bsr_step_run", path);
    void *ptx =
        isForGPU ? findSymbol(library.get(), "bsr_step_ptx", path) : nullptr;
    void *cubin = isForGPU ? dlsym(library.get(), "bsr_step_cubin") : nullptr;
    requireFeatures(manifest, path);
    // A step that does not say what its code is: all of the file counts.
    if (manifest.code.empty())
      manifest.code = hexadecimal(xxh64(contents));
    void *timers = manifest.timers.empty()
                       ? nullptr
                       : findSymbol(library.get(), "bsr_step_timers", path);
    void *events =
        timers ? dlsym(library.get(), "bsr_step_trace_events") : nullptr;
    void *runScores =
        manifest.scoreNorm.empty() || isForGPU
            ? nullptr
            : findSymbol(library.get(), "bsr_step_run_scores", path);
    std::shared_ptr<bsr_step> made(new bsr_step{
        nullptr, std::move(manifest), text,
        reinterpret_cast<bsr_step::Run *>(run),
        reinterpret_cast<bsr_step::Run *>(runScores),
        static_cast<int64_t(*)[2]>(timers),
        static_cast<const int64_t(*)[2]>(events),
        static_cast<const char *>(ptx), cubin, std::move(library)});
    *step = made.get();
    made->self = std::move(made);
    ++loaded;
  });
}

void bsr_step_unload(bsr_step *step) {
  // Not inside the step, which may be gone at the end of this.
  if (step)
    std::shared_ptr<bsr_step> last = std::move(step->self);
}

const char *bsr_step_manifest_text(const bsr_step *step) {
  return step ? step->manifestText : "";
}

const char *bsr_step_name(const bsr_step *step) {
  return step ? step->manifest.name.c_str() : "";
}

const char *bsr_step_target_cpu(const bsr_step *step) {
  return step ? step->manifest.targetCpu.c_str() : "";
}

const char *bsr_step_chip(const bsr_step *step) {
  return step ? step->manifest.chip.c_str() : "";
}

int32_t bsr_step_accumulates(const bsr_step *step) {
  return step && step->manifest.applyBuffer >= 0;
}

int64_t bsr_step_micro_batches(const bsr_step *step) {
  return step ? step->manifest.microBatches : 1;
}

int64_t bsr_step_sharded(const bsr_step *step) {
  return step ? step->manifest.sharded : 0;
}

bsr_status bsr_step_whole_shape(const bsr_step *step, int64_t index,
                                const int64_t **shape) {
  return guarded([&] {
    requireArgument(step, "step");
    requireArgument(shape, "shape");
    requireIndex(index, bsr_step_num_buffers(step), "buffers");
    *shape = step->manifest.buffers[index].whole.data();
  });
}

int32_t bsr_step_communicates(const bsr_step *step) {
  return step && step->manifest.communicates;
}

int64_t bsr_step_num_buffers(const bsr_step *step) {
  return step ? int64_t(step->manifest.buffers.size()) : 0;
}

int64_t bsr_step_num_patterns(const bsr_step *step) {
  return step ? int64_t(step->manifest.patterns.size()) : 0;
}

int64_t bsr_step_num_products(const bsr_step *step, const char *kind) {
  if (!step || !kind)
    return 0;
  auto found = step->manifest.products.find(kind);
  return found == step->manifest.products.end() ? 0 : found->second;
}

int64_t bsr_step_num_left_dense(const bsr_step *step) {
  return step ? step->manifest.leftDense : 0;
}

int64_t bsr_step_num_timers(const bsr_step *step) {
  return step ? int64_t(step->manifest.timers.size()) : 0;
}

bsr_status bsr_step_timer(const bsr_step *step, int64_t index,
                          bsr_timer_info *info) {
  return guarded([&] {
    requireArgument(step, "step");
    requireArgument(info, "info");
    requireIndex(index, bsr_step_num_timers(step), "timers");
    const Timer &timer = step->manifest.timers[index];
    *info = {timer.kernel.c_str(),
             timer.kind.c_str(),
             timer.operands.c_str(),
             timer.flops,
             timer.bytes,
             timer.items,
             step->timers[index][1],
             step->timers[index][0]};
  });
}

void bsr_step_reset_timers(const bsr_step *step) {
  for (int64_t i = 0; i < bsr_step_num_timers(step); ++i)
    step->timers[i][0] = step->timers[i][1] = 0;
}

bsr_status bsr_step_read_trace_events(const bsr_step *step, int64_t first,
                                      bsr_trace_event *events, int64_t most,
                                      int64_t *count) {
  return guarded([&] {
    requireArgument(step, "step");
    requireArgument(count, "count");
    if (!step->events)
      fail(BSR_INVALID_ARGUMENT,
           "expected a step for processors that was "
           "compiled with --timers, but got '",
           step->manifest.name, "'");
    *count = step->events[0][0];
    if (!events)
      return;
    if (first < 0 || first > *count || *count - first > BSR_STEP_TRACE_EVENTS)
      fail(BSR_INVALID_ARGUMENT, "expected one of the last ",
           BSR_STEP_TRACE_EVENTS, " of ", *count, " trace events, but got ",
           first);
    for (int64_t i = first; i < std::min(*count, first + most); ++i) {
      auto &event = step->events[1 + i % BSR_STEP_TRACE_EVENTS];
      events[i - first] = {event[0], event[1]};
    }
  });
}

bsr_status bsr_step_buffer(const bsr_step *step, int64_t index,
                           bsr_buffer_info *info) {
  return guarded([&] {
    requireArgument(step, "step");
    requireArgument(info, "info");
    requireIndex(index, bsr_step_num_buffers(step), "buffers");
    const Buffer &buffer = step->manifest.buffers[index];
    *info = {buffer.name.c_str(),
             buffer.role.c_str(),
             buffer.init.c_str(),
             buffer.shape.data(),
             int64_t(buffer.shape.size()),
             buffer.elements,
             buffer.bytes,
             buffer.kind,
             buffer.type,
             buffer.carried,
             buffer.pattern};
  });
}

bsr_status bsr_step_pattern(const bsr_step *step, int64_t index,
                            bsr_pattern_info *info) {
  return guarded([&] {
    requireArgument(step, "step");
    requireArgument(info, "info");
    requireIndex(index, bsr_step_num_patterns(step), "patterns");
    const Pattern &pattern = step->manifest.patterns[index];
    *info = {pattern.name.c_str(), pattern.rows,      pattern.cols,
             pattern.extents,      pattern.blockRows, pattern.blockCols,
             pattern.slots,        pattern.density,   pattern.isStatic,
             pattern.weight};
  });
}

/// Index of the first of a list of `step` for which `matches` holds, or -1;
/// `name` is what it looks for.
template <typename Thing, typename Predicate>
static int64_t findFirst(const bsr_step *step, const char *name,
                         std::vector<Thing> Manifest::*list,
                         Predicate matches) {
  if (!step || !name)
    return -1;
  const std::vector<Thing> &things = step->manifest.*list;
  auto found = std::find_if(things.begin(), things.end(), matches);
  return found == things.end() ? -1 : found - things.begin();
}

int64_t bsr_step_find_buffer(const bsr_step *step, bsr_kind kind,
                             const char *name) {
  return findFirst(step, name, &Manifest::buffers, [&](const Buffer &buffer) {
    return buffer.kind == kind && buffer.name == name;
  });
}

int64_t bsr_step_find_role(const bsr_step *step, const char *role) {
  return findFirst(step, role, &Manifest::buffers,
                   [&](const Buffer &buffer) { return buffer.role == role; });
}
