// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checkpoints that the tests make, and take apart.

#ifndef BSR_RUNTIME_CHECK_CHECKPOINTFILE_H
#define BSR_RUNTIME_CHECK_CHECKPOINTFILE_H

#include "Check.h"

namespace check {

/// A session of the fake step, some runs and updates on.
Session trained(const Step &step, int updates, uint64_t seed = 5);

void save(const Session &session, const std::string &path,
          const char *metadata = "");

/// The bytes of the checkpoint of such a session.
std::string goodFile();

/// What a safetensors file is made of.
struct Parts {
  std::string header, data;

  explicit Parts(const std::string &file);
  std::string file() const;
};

Json headerOf(const std::string &file);

/// The checkpoint `file` with another header, sealed.
std::string withHeader(const std::string &file, const Json &header);

} // namespace check

#endif // BSR_RUNTIME_CHECK_CHECKPOINTFILE_H
