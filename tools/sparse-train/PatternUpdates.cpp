// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Asks the runtime what is due, and does it.

#include "PatternUpdates.h"
#include "support/Error.h"
#include "support/TensorFile.h"

#include <algorithm>
#include <map>

using namespace sparse_opt;
using namespace sparse_opt::train;

PatternUpdates::PatternUpdates(const bsr_sparsity *rules, int64_t steps,
                               const Session &session,
                               const std::vector<WeightShape> &allWeights)
    : numWeights(int64_t(allWeights.size())) {
  const bsr_step *step = session.step();
  std::vector<bsr_sparse_weight> given;
  std::map<std::string, int64_t> indices;
  for (const WeightShape &weight : allWeights) {
    indices[weight.name] = int64_t(given.size());
    given.push_back({weight.name.c_str(), weight.rows, weight.cols, 0, 0, 0,
                     weight.isStatic, weight.isFrozen, 0, weight.extents});
  }
  std::vector<bsr_pattern_info> infos(size_t(bsr_step_num_patterns(step)));
  for (size_t i = 0; i < infos.size(); ++i) {
    bsr_pattern_info &info = infos[i];
    bsr_step_pattern(step, int64_t(i), &info);
    places.push_back(indices.at(info.name));
    bsr_sparse_weight &weight = given[size_t(places.back())];
    weight.block_rows = info.block_rows;
    weight.block_cols = info.block_cols;
    weight.slots = info.slots;
    weight.has_scores = bsr_step_find_buffer(step, BSR_SCORES, info.name) >= 0;
  }
  bsr_updates *made;
  if (bsr_updates_create(rules, steps, numWeights, given.data(), &made) !=
      BSR_OK)
    fail(bsr_last_error());
  updates.reset(made);
  for (size_t i = 0; i < infos.size(); ++i) {
    bsr_weight_rule rule;
    bsr_updates_rule(made, places[i], &rule);
    if (rule.group >= 0)
      weights.push_back(
          {int64_t(i), infos[i], rule, allWeights[size_t(places[i])].isFrozen});
  }
}

void PatternUpdates::initialize(Session &session,
                                const FirstValues &values) const {
  std::map<std::string, TensorFile> files; // of dense weights, by their paths
  for (const auto &[pattern, info, rule, isFrozen] : weights) {
    if (rule.first == BSR_FIRST_LARGEST) {
      std::string path = rule.file;
      bsr_buffer_info buffer;
      bsr_step_buffer(session.step(), info.weight, &buffer);
      std::optional<std::string> dense = values.read(info.weight);
      if (!path.empty())
        dense = files.try_emplace(path, "safetensors file", path)
                    .first->second.read(info.name, ElementType(buffer.type),
                                        {info.rows, info.cols});
      if (!dense)
        fail("expected the file of configuration key 'values' to have weight '",
             info.name, "' for init largest, but got none");
      session.takeLargest(pattern, rule.blocks, rule.score, buffer.type,
                          *dense);
    } else if (rule.first == BSR_FIRST_FILE) {
      session.readPattern(pattern, rule.file);
    } else if (rule.blocks != BSR_MOST_BLOCKS) {
      session.makePattern(pattern, rule.blocks);
    }
  }
}

void PatternUpdates::scaleFirstValues(Session &session) const {
  for (const Weight &weight : weights)
    session.scaleFanIn(weight.pattern, weight.rule.fan_in);
}

void PatternUpdates::startBlocks(Session &session) const {
  for (const Weight &weight : weights)
    if (!weight.isFrozen)
      session.setNewBlocks(weight.pattern, weight.rule.start);
}

bool PatternUpdates::setValues(const std::string &name) const {
  return std::any_of(weights.begin(), weights.end(), [&](const Weight &weight) {
    return weight.info.name == name && weight.rule.first == BSR_FIRST_LARGEST;
  });
}

void PatternUpdates::requireValues(const Session &session,
                                   const FirstValues &values) const {
  std::vector<std::string> missing;
  for (const Buffer &buffer : session.buffers())
    if (buffer.role == "param" && buffer.init.empty() &&
        !setValues(buffer.name) && !values.read(buffer.index))
      missing.push_back(buffer.name);
  if (missing.empty())
    return;
  std::string others =
      missing.size() > 1
          ? " and " + std::to_string(missing.size() - 1) + " more"
          : "";
  fail("expected the step to say what parameter '", missing.front(), "'",
       others, " begins with, but got no rule: export it with inits={\"",
       missing.front(),
       "\": \"normal(0.02)\"}, or zeros, ones, constant(c), or name a "
       "safetensors file of values with --set values=FILE");
}

bool PatternUpdates::leavePatterns() const {
  return std::any_of(weights.begin(), weights.end(), [](const Weight &weight) {
    return !weight.isFrozen && weight.rule.method != BSR_STATIC &&
           !weight.rule.has_updates;
  });
}

std::vector<std::string> PatternUpdates::frozen() const {
  std::vector<std::string> names;
  for (const Weight &weight : weights)
    if (weight.isFrozen && weight.rule.method != BSR_STATIC)
      names.push_back(weight.info.name);
  return names;
}

std::vector<bsr_pattern_update>
PatternUpdates::dueAnywhere(int64_t step) const {
  std::vector<bsr_pattern_update> due(static_cast<size_t>(numWeights));
  bsr_updates_due(updates.get(), step, numWeights, due.data());
  return due;
}

std::vector<bsr_pattern_update> PatternUpdates::due(int64_t step) const {
  std::vector<bsr_pattern_update> all = dueAnywhere(step), due;
  for (int64_t place : places)
    due.push_back(all[size_t(place)]);
  return due;
}

static bool isDue(const bsr_pattern_update &update) {
  return update.method != BSR_STATIC;
}

bool PatternUpdates::areDue(int64_t step, bool anywhere) const {
  auto all = anywhere ? dueAnywhere(step) : due(step);
  return std::any_of(all.begin(), all.end(), isDue);
}

std::vector<int32_t> PatternUpdates::scoredOf(int64_t step) const {
  std::vector<int32_t> all(static_cast<size_t>(numWeights)), scored;
  bsr_updates_scored(updates.get(), step, numWeights, all.data());
  for (int64_t place : places)
    scored.push_back(all[size_t(place)]);
  return scored;
}

bool PatternUpdates::needScores(int64_t step) const {
  auto scored = scoredOf(step);
  return std::any_of(scored.begin(), scored.end(),
                     [](int32_t steps) { return steps > 0; });
}

void PatternUpdates::sumScores(Session &session, int64_t step) const {
  auto scored = scoredOf(step);
  if (std::any_of(scored.begin(), scored.end(),
                  [](int32_t steps) { return steps > 1; }))
    session.sumScores(scored);
}

void PatternUpdates::update(Session &session, int64_t step) const {
  session.update(due(step));
}
