// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The schema of the manifest of a compiled step: which keys there are, and what
// each holds. Writers and readers of manifests both use it.
// docs/manifest.md says what the keys mean.

#ifndef BSR_SUPPORT_MANIFESTSCHEMA_H
#define BSR_SUPPORT_MANIFESTSCHEMA_H

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace sparse_opt {

/// The kinds of buffers. The runtime's `bsr_kind` has the same numbers.
inline constexpr const char *bufferKinds[] = {
    "dense",   "values",  "row_ptr", "col_idx", "slot",
    "col_ptr", "row_idx", "slot_t",  "output",  "scores"};

/// The norms that scores of blocks may be.
inline constexpr const char *scoreNorms[] = {"l1", "l2", "linf"};

/// When a GPU launches a kernel: once the patterns are other ones, in every run
/// of the step, and in those runs that compute scores.
inline constexpr const char *launchTimes[] = {"pattern", "step", "scores"};

/// No address space is larger, and no sum of a few of these overflows.
inline constexpr int64_t mostManifestBytes = int64_t(1) << 47;

/// Fails with `status` unless `manifest`, which `where` names, has every key
/// that it must have, no key that is not in the schema, and under each what the
/// schema says. What one key says of another is the reader's to check.
void checkManifest(const nlohmann::json &manifest, int status,
                   const std::string &where);

/// The same of a text, for callers without exceptions: the sentence that says
/// what is wrong, or "".
std::string findManifestError(std::string_view text, const std::string &where);

} // namespace sparse_opt

#endif // BSR_SUPPORT_MANIFESTSCHEMA_H
