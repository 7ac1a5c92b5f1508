// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs fuzz targets: on inputs that libFuzzer makes, or on those of a corpus.
//
// Built with BSR_FUZZERS, the program is libFuzzer's, for the format that the
// environment variable BSR_FORMAT names. Built without, it is
//
//     fuzz-<part> CORPUS
//
// and runs the target of each format on the files of CORPUS/<format>.

#include "Target.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace sparse_opt;
namespace fs = std::filesystem;

fuzz::MemoryFile::MemoryFile(std::string_view contents)
    : number(memfd_create("input", MFD_CLOEXEC)),
      name("/proc/self/fd/" + std::to_string(number)) {
  while (!contents.empty()) {
    ssize_t count = write(number, contents.data(), contents.size());
    require(count > 0, "memory for the input");
    contents.remove_prefix(size_t(count));
  }
}

fuzz::MemoryFile::~MemoryFile() { close(number); }

const std::string &fuzz::temporaryFolder() {
  struct Folder {
    std::string path = (fs::temp_directory_path() / "fuzz.XXXXXX").string();
    Folder() { require(mkdtemp(path.data()), "a temporary folder"); }
    ~Folder() { fs::remove_all(path); }
  };
  static Folder folder;
  return folder.path;
}

void fuzz::require(bool holds, const char *what) {
  if (holds)
    return;
  std::fprintf(stderr, "error: expected %s\n", what);
  std::abort();
}

#ifdef BSR_FUZZERS
extern "C" int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
  static fuzz::Target target = [] {
    const char *format = std::getenv("BSR_FORMAT");
    auto targets = fuzz::targets();
    fuzz::require(format && targets.count(format), "BSR_FORMAT, a format");
    return targets[format];
  }();
  target({reinterpret_cast<const char *>(data), size});
  return 0;
}
#else
int main(int argc, char **argv) {
  fuzz::require(argc == 2, "the folder of the corpora");
  for (const auto &[format, target] : fuzz::targets()) {
    int count = 0;
    for (const fs::directory_entry &entry :
         fs::directory_iterator(fs::path(argv[1]) / format)) {
      std::ifstream file(entry.path(), std::ios::binary);
      std::string input(std::istreambuf_iterator<char>(file), {});
      std::fprintf(stderr, "%s\n", entry.path().c_str()); // the last one died
      target(input);
      ++count;
    }
    std::printf("%s: %d inputs\n", format.c_str(), count);
  }
  return 0;
}
#endif
