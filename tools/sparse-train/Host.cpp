// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Asks Linux about the machine and this process.

#include "Host.h"
#include "../Version.h"
#include "bsr/runtime.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <sys/utsname.h>
#include <thread>
#include <unistd.h>

using namespace sparse_opt;
using namespace sparse_opt::train;
using nlohmann::ordered_json;

/// What follows the colon in the first line of `path` that begins with `key`.
static std::string lookUp(const char *path, const std::string &key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.rfind(key, 0) == 0)
      return line.substr(line.find_first_not_of(" \t", line.find(':') + 1));
  return "";
}

int64_t train::peakMemory() {
  return std::atoll(lookUp("/proc/self/status", "VmHWM").c_str()) * 1024;
}

std::string train::identifyProcessor() {
  std::string text;
  for (const char *key :
       {"vendor_id", "cpu family", "model\t", "stepping", "flags",
        // of AArch64
        "CPU implementer", "CPU variant", "CPU part", "CPU revision",
        "Features"})
    text += lookUp("/proc/cpuinfo", key) + "\n";
  for (int cache : {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE})
    text += std::to_string(sysconf(cache)) + "\n";
  return text;
}

int64_t train::numThreads() {
  const char *threads = std::getenv("OMP_NUM_THREADS");
  return std::max(1l, threads ? std::atol(threads)
                              : long(std::thread::hardware_concurrency()));
}

ordered_json train::describeHost() {
  utsname system = {};
  uname(&system);
  char now[32];
  std::time_t seconds = std::time(nullptr);
  std::strftime(now, sizeof(now), "%FT%TZ", std::gmtime(&seconds));
  const char *threads = std::getenv("OMP_NUM_THREADS");
  return {
      {"started", now},
      {"host", system.nodename},
      {"system", std::string(system.sysname) + " " + system.release},
      {"processor", lookUp("/proc/cpuinfo", "model name")},
      {"threads",
       threads ? threads : std::to_string(std::thread::hardware_concurrency())},
      {"version", tools::version},
      {"runtime_version", bsr_runtime_version()},
      {"compiler", __VERSION__}};
}
