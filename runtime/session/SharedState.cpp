// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which buffers of a step are those of another one's state.

#include "SharedState.h"
#include "base/Status.h"
#include <algorithm>

using namespace sparse_opt;

/// A buffer in words: "'w' of 8x4x4 f32".
static std::string describe(const Buffer &buffer) {
  std::string text = "'" + buffer.name + "' of ";
  for (size_t i = 0; i < buffer.shape.size(); ++i)
    text += (i ? "x" : "") + std::to_string(buffer.shape[i]);
  return text + (buffer.shape.empty() ? "" : " ") + bsr_type_name(buffer.type);
}

/// Whether the buffer is a part of the state, and not of a batch.
static bool isState(const Buffer &buffer) {
  return isKept(buffer) || buffer.role == "buffer" || buffer.role == "constant";
}

/// The argument of `manifest` called `name`; -1 if there is none.
static int64_t findArgument(const Manifest &manifest, const std::string &name) {
  for (size_t i = 0; i < manifest.buffers.size(); ++i)
    if (const Buffer &buffer = manifest.buffers[i];
        buffer.name == name &&
        (buffer.kind == BSR_DENSE || buffer.kind == BSR_VALUES))
      return int64_t(i);
  return -1;
}

/// Fails unless pattern `own` of a step is `other`, that of the source.
static void requireSamePattern(const Pattern &own, const Pattern &other) {
  auto describe = [](const Pattern &pattern) {
    return std::to_string(pattern.rows) + "x" + std::to_string(pattern.cols) +
           " in blocks of " + std::to_string(pattern.blockRows) + "x" +
           std::to_string(pattern.blockCols) + " with " +
           std::to_string(pattern.slots) + " slots" +
           (pattern.isStatic ? ", static" : "");
  };
  std::string expected = describe(other), got = describe(own);
  if (expected != got || own.name != other.name)
    fail(BSR_INVALID_STEP, "expected the pattern of '", other.name, "', ",
         expected, ", as the source has it, but got that of '", own.name, "', ",
         got);
  for (int i = 0; i < 6; ++i)
    if (own.arrays[i] != other.arrays[i])
      fail(BSR_INVALID_STEP, "expected the static pattern of '", other.name,
           "' as the source has it, but got another");
}

/// Fails unless a step changes all that `source` does, and scores what it does.
static void requireSameTraining(const Manifest &step, const Manifest &source) {
  for (const Buffer &other : source.buffers) {
    if (!other.carried)
      continue;
    int64_t found = findArgument(step, other.name);
    if (found < 0 || !step.buffers[size_t(found)].carried)
      fail(BSR_INVALID_STEP, "expected a step that trains '", other.name,
           "', as the source does, but got one that leaves it as it is");
  }
  auto scored = [](const Manifest &manifest) {
    std::vector<std::string> names;
    for (const Pattern &pattern : manifest.patterns)
      if (pattern.scores >= 0)
        names.push_back(pattern.name);
    std::sort(names.begin(), names.end());
    return names;
  };
  std::vector<std::string> own = scored(step), others = scored(source);
  if (own != others)
    fail(BSR_INVALID_STEP, "expected scores of the blocks of ", others.size(),
         " weights, as the source has them, but got those of ", own.size());
}

std::vector<int64_t> sparse_opt::findShared(const Manifest &step,
                                            const Manifest *source,
                                            bool trains) {
  std::vector<int64_t> shared(step.buffers.size(), -1);
  if (!source)
    return shared;
  const Manifest &state = *source;
  // The patterns of the step, and those of the source.
  std::vector<int64_t> patterns(step.patterns.size(), -1);
  for (size_t i = 0; i < step.buffers.size(); ++i) {
    const Buffer &buffer = step.buffers[i];
    if (buffer.kind != BSR_DENSE && buffer.kind != BSR_VALUES)
      continue;
    int64_t found = findArgument(state, buffer.name);
    if (found < 0 || !isState(state.buffers[size_t(found)])) {
      if (isKept(buffer))
        fail(BSR_INVALID_STEP, "expected '", buffer.name, "', which step '",
             step.name, "' takes, to be of the state of step '", state.name,
             "', but it is not");
      continue;
    }
    const Buffer &other = state.buffers[size_t(found)];
    if (buffer.carried && !(trains && other.carried))
      fail(BSR_INVALID_STEP, "expected step '", step.name,
           "' to leave the state that it shares as it is, but it changes '",
           buffer.name, "'");
    if (buffer.kind == BSR_VALUES && other.kind == BSR_VALUES) {
      int64_t &known = patterns[size_t(buffer.pattern)];
      requireSamePattern(step.patterns[size_t(buffer.pattern)],
                         state.patterns[size_t(other.pattern)]);
      known = other.pattern;
    }
    if (buffer.kind != other.kind || buffer.type != other.type ||
        buffer.shape != other.shape)
      fail(BSR_INVALID_STEP, "expected ", describe(other),
           ", as the source has it, but got ", describe(buffer));
    shared[i] = found;
  }
  for (size_t i = 0; i < step.buffers.size(); ++i) {
    const Buffer &buffer = step.buffers[i];
    if (!isIndices(buffer.kind) && buffer.kind != BSR_SCORES)
      continue;
    int64_t pattern = patterns[size_t(buffer.pattern)];
    if (pattern < 0)
      fail(BSR_INVALID_STEP, "expected the pattern of '",
           step.patterns[size_t(buffer.pattern)].name,
           "' to be of the state of step '", state.name, "', but it is not");
    if (isIndices(buffer.kind))
      shared[i] =
          state.patterns[size_t(pattern)].indices[buffer.kind - BSR_ROW_PTR];
  }
  if (trains)
    requireSameTraining(step, state);
  return shared;
}
