// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "CheckpointFile.h"
#include "Sealed.h"
#include <cstring>

using namespace check;

Session check::trained(const Step &step, int updates, uint64_t seed) {
  Session session = start(step, seed);
  require(bsr_session_initialize(session.get()));
  *static_cast<float *>(dataOf(session, 5)) = 0.05f;
  for (int i = 0; i < updates; ++i) {
    require(bsr_session_run(session.get()));
    require(updatePatterns(session, 0.5, nullptr));
  }
  return session;
}

void check::save(const Session &session, const std::string &path,
                 const char *metadata) {
  require(bsr_session_save(session.get(), path.c_str(), metadata));
}

std::string check::goodFile() {
  Step step = loadFake();
  Folder folder;
  save(trained(step, 2), folder.file("good"), "{\"cursor\": 3}");
  return readFile(folder.file("good"));
}

Parts::Parts(const std::string &file) {
  uint64_t size;
  std::memcpy(&size, file.data(), 8);
  header = file.substr(8, size);
  data = file.substr(8 + size);
}

std::string Parts::file() const {
  uint64_t size = header.size();
  return std::string(reinterpret_cast<char *>(&size), 8) + header + data;
}

Json check::headerOf(const std::string &file) {
  return Json::parse(Parts(file).header);
}

std::string check::withHeader(const std::string &file, const Json &header) {
  Parts parts(file);
  parts.header = header.dump();
  return sealed(parts.file());
}
