// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which checkpoint a run goes on from, and whether it is still the same run.

#ifndef BSR_TOOLS_SPARSETRAIN_RESUME_H
#define BSR_TOOLS_SPARSETRAIN_RESUME_H

#include "Config.h"
#include "Data.h"
#include "Ranks.h"
#include "RunFolder.h"
#include "Session.h"

namespace sparse_opt::train {

/// What a checkpoint says of its run beside the state (JSON):
///
///     {"tokens": checksum of the token file or of the arrays,
///      "configuration": {key: value as YAML, ...}}
///
/// with the keys that decide what the run learns, see `decidingValues`. The
/// random state and the place in the data are functions of the seed and the
/// number of the step, the schedules of the configuration and that number.
std::string describeRun(const Config &config, const Data &data);

/// Loads the newest checkpoint that all stages have and that is intact in all
/// of them, and returns its path, "" if the run was interrupted before its
/// first. Warns of each newer one, and of what is wrong with it. Only the first
/// process of each of the `stages` has a `folder`; the others do nothing but
/// agree. Changes no file.
std::string loadNewest(Session &session, const RunFolder *folder,
                       const Ranks &ranks, int64_t stages);

/// Fails if the run is no longer the one that wrote `checkpoint`, which
/// `session` has loaded, unless `acceptChanges`. It may have other steps.
void requireSameRun(const Session &session, const std::string &checkpoint,
                    const Config &config, const Data &data, bool acceptChanges);

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_RESUME_H
