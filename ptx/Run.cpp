// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ptx-run: runs one kernel of a file of PTX and prints its results.

#include "Arguments.h"
#include "Device.h"
#include "support/Error.h"
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

using namespace ptx;

static const char *const helpBeforeChips =
    R"(ptx-run FILE [--entry NAME] --grid X[,Y,Z] --block X[,Y,Z] [OPTION]... [--arg ARGUMENT]...

Runs a kernel of a file of PTX on the processor, checks every access, and prints
the outputs.

  --cluster X[,Y,Z] blocks of a cluster (1)
  --shared BYTES    dynamic shared memory (0)
  --shared-offset BYTES
                    by which shared memory begins behind a multiple of 1024 (0): a
                    kernel may rely on the alignment that it declares alone
  --chip NAME       )";
static const char *const helpBehindChips = R"( (the file's target)
  --threads N       threads of the processor (PTX_RUN_THREADS, or one a core)
  --registers N     registers a thread, as ptxas would say
  --limit N         warp instructions of one block (4294967296)
  --blocks N,...    runs these thread blocks alone, with the others of their clusters
  --repeat N        runs the kernel N times
  --counts          prints what the kernel did
  --speed           prints warp instructions a second
  --hash            prints a hash of each output instead of its numbers
  --write FOLDER    writes the bytes of each output to FOLDER/argument-N instead
  --entries         prints the entries of the file and their parameters
  --device          runs the kernel on the first NVIDIA GPU instead, where nothing
                    is checked: no --chip, --threads, --registers, --limit, --blocks,
                    --shared-offset, --counts, --speed. PTX_RUN_DEVICE=1 does the same, and these have no effect
  --device-name     prints the GPU's name and version, and nothing else

ARGUMENT is one of

)";

namespace {
struct CommandLine {
  std::string file, entry;
  std::string folder; ///< where outputs go, or "" for the standard output
  LaunchOptions options;
  std::vector<std::string> arguments;
  bool hasGrid = false, hasBlock = false, counts = false, speed = false,
       hash = false, entries = false, device = false, deviceName = false;
  /// One of the options that only the interpreter has.
  std::string checked;
  unsigned repeat = 1;
};
} // namespace

static uint64_t readWhole(const std::string &option, const std::string &text,
                          uint64_t most) {
  char *end = nullptr;
  errno = 0;
  uint64_t value = std::strtoull(text.c_str(), &end, 10);
  if (text.empty() || text[0] < '0' || text[0] > '9' || *end || errno ||
      value > most)
    sparse_opt::fail("expected ", option, " to be a number up to ", most,
                     ", but got '", text, "'");
  return value;
}

static Dim readDim(const std::string &option, const std::string &text) {
  Dim dim;
  unsigned *extents[] = {&dim.x, &dim.y, &dim.z};
  size_t begin = 0;
  for (unsigned i = 0;; ++i) {
    size_t end = text.find(',', begin);
    if (i == 3)
      sparse_opt::fail("expected ", option,
                       " to have at most 3 extents, but got '", text, "'");
    *extents[i] = unsigned(
        readWhole(option, text.substr(begin, end - begin), 0x7fffffff));
    if (end == std::string::npos)
      return dim;
    begin = end + 1;
  }
}

static std::vector<uint64_t> readNumbers(const std::string &option,
                                         const std::string &text) {
  std::vector<uint64_t> numbers;
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find(',', begin);
    numbers.push_back(
        readWhole(option, text.substr(begin, end - begin), uint64_t(1) << 62));
  }
  return numbers;
}

/// Says whether the environment wants kernels on a GPU.
static bool asksForDevice() {
  const char *value = std::getenv("PTX_RUN_DEVICE");
  std::string text = value ? value : "";
  if (!text.empty() && text != "0" && text != "1")
    sparse_opt::fail("expected PTX_RUN_DEVICE to be 0 or 1, but got '", text,
                     "'");
  return text == "1";
}

static CommandLine readCommandLine(int argc, char **argv) {
  CommandLine line;
  LaunchOptions &options = line.options;
  for (int i = 1; i < argc; ++i) {
    std::string option = argv[i];
    auto value = [&]() -> std::string {
      if (i + 1 == argc)
        sparse_opt::fail("expected a value of ", option, ", but got none");
      return argv[++i];
    };
    for (const char *checked :
         {"--chip", "--threads", "--registers", "--limit", "--counts",
          "--speed", "--blocks", "--shared-offset"})
      if (option == checked)
        line.checked = option;
    if (option == "--entry")
      line.entry = value();
    else if (option == "--grid")
      options.grid = readDim(option, value()), line.hasGrid = true;
    else if (option == "--block")
      options.block = readDim(option, value()), line.hasBlock = true;
    else if (option == "--cluster")
      options.cluster = readDim(option, value());
    else if (option == "--shared")
      options.dynamicShared = unsigned(readWhole(option, value(), 1 << 20));
    else if (option == "--shared-offset")
      options.sharedOffset = unsigned(readWhole(option, value(), 1023));
    else if (option == "--threads")
      options.threads = unsigned(readWhole(option, value(), 1024));
    else if (option == "--registers")
      options.registers = unsigned(readWhole(option, value(), 65536));
    else if (option == "--limit")
      options.limit = readWhole(option, value(), uint64_t(1) << 62);
    else if (option == "--blocks")
      options.blocks = readNumbers(option, value());
    else if (option == "--repeat")
      line.repeat = unsigned(readWhole(option, value(), 1000000));
    else if (option == "--arg")
      line.arguments.push_back(value());
    else if (option == "--counts")
      line.counts = true;
    else if (option == "--speed")
      line.speed = true;
    else if (option == "--hash")
      line.hash = true;
    else if (option == "--write")
      line.folder = value();
    else if (option == "--entries")
      line.entries = true;
    else if (option == "--device")
      line.device = true;
    else if (option == "--device-name")
      line.deviceName = true;
    else if (option == "--chip") {
      std::string name = value();
      options.chip = nvidia::findChip(name);
      if (!options.chip)
        sparse_opt::fail("expected a chip of ", nvidia::listChips(),
                         ", but got '", name, "'");
    } else if (option.size() > 1 && option[0] == '-')
      sparse_opt::fail("expected an option of ptx-run --help, but got '",
                       option, "'");
    else if (line.file.empty())
      line.file = option;
    else
      sparse_opt::fail("expected one file, but got '", line.file, "' and '",
                       option, "'");
  }
  if (line.deviceName)
    return line;
  if (line.file.empty())
    sparse_opt::fail("expected a file of PTX, but got none");
  if (!line.entries && (!line.hasGrid || !line.hasBlock))
    sparse_opt::fail("expected --grid and --block, but got ",
                     line.hasGrid ? "no --block" : "no --grid");
  if (line.device && !line.checked.empty())
    sparse_opt::fail(
        "expected --device without what only the interpreter does, but "
        "got ",
        line.checked);
  line.device |= asksForDevice();
  return line;
}

static void printEntries(const Module &module) {
  for (const EntryInfo &info : module.entries()) {
    std::printf("%s: %u bytes of shared memory", info.name.c_str(),
                info.staticShared);
    if (info.maxThreads)
      std::printf(", at most %u threads", info.maxThreads);
    std::printf("\n");
    for (const Parameter &parameter : info.parameters)
      std::printf("  %s: %u bytes at %u\n", parameter.name.c_str(),
                  parameter.size, parameter.offset);
  }
}

static std::string readFile(const std::string &name) {
  std::ifstream file(name, std::ios::binary);
  if (!file)
    sparse_opt::fail("expected file '", name, "' to be readable, but got none");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// The bytes of all parameters of an entry.
static std::vector<uint8_t>
layParameters(const EntryInfo &info, const std::vector<Argument> &arguments) {
  if (arguments.size() != info.parameters.size())
    sparse_opt::fail("expected ", info.parameters.size(), " arguments of '",
                     info.name, "', but got ", arguments.size());
  std::vector<uint8_t> bytes(info.parameterBytes);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Parameter &parameter = info.parameters[i];
    if (arguments[i].bytes.size() != parameter.size)
      sparse_opt::fail("expected ", parameter.size, " bytes as argument ", i,
                       " of '", info.name, "', but got ",
                       arguments[i].bytes.size());
    std::copy(arguments[i].bytes.begin(), arguments[i].bytes.end(),
              bytes.begin() + parameter.offset);
  }
  return bytes;
}

/// Runs the kernel in the interpreter; returns what there is to print of that.
static std::string interpret(const CommandLine &line, const Module &module,
                             const EntryInfo &info, Memory &memory) {
  Counts counts;
  auto begin = std::chrono::steady_clock::now();
  for (unsigned i = 0; i < line.repeat; ++i)
    counts.add(launch(module, info.name, line.options, memory));
  double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
          .count();
  std::string text = line.counts ? counts.text() : "";
  char speed[100];
  std::snprintf(speed, sizeof(speed),
                "%.2f million warp instructions a second, %.3f s\n",
                double(counts.total()) / seconds / 1e6, seconds);
  return line.speed ? text + speed : text;
}

static int run(int argc, char **argv) {
  CommandLine line = readCommandLine(argc, argv);
  if (line.deviceName) {
    std::printf("%s\n", Device().name().c_str());
    return 0;
  }
  std::string text = readFile(line.file);
  std::unique_ptr<Device> device;
  if (line.device && !line.entries) {
    device = std::make_unique<Device>();
    device->load(text); // what the driver says of it comes first
  }
  Module module(text);
  if (line.entries) {
    printEntries(module);
    return 0;
  }
  Memory memory;
  std::vector<Argument> arguments;
  for (const std::string &argument : line.arguments)
    arguments.push_back(readArgument(argument, memory));
  EntryInfo info = module.entry(line.entry);
  line.options.parameters = layParameters(info, arguments);
  std::string done;
  if (device) {
    line.options.chip = nullptr;
    line.options.registers = line.options.sharedOffset = 0;
    checkLaunch(module, info.name, line.options);
    device->run(info, line.options, arguments, line.repeat, memory);
  } else {
    done = interpret(line, module, info, memory);
  }
  for (unsigned i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].printed)
      continue;
    if (!line.folder.empty())
      writeArgument(arguments[i], i, memory, line.folder);
    else
      std::fputs(
          (line.hash ? printHash : printArgument)(arguments[i], i, memory)
              .c_str(),
          stdout);
  }
  std::fputs(done.c_str(), stdout);
  return 0;
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; ++i)
    if (std::string(argv[i]) == "--help") {
      std::printf("%s%s%s%s", helpBeforeChips, nvidia::listChips().c_str(),
                  helpBehindChips, argumentHelp);
      return 0;
    }
  try {
    return run(argc, argv);
  } catch (const sparse_opt::Error &error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
