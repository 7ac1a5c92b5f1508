// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// When patterns are updated, and by what numbers.

#include "PatternUpdates.h"
#include "support/Error.h"
#include "support/TensorFile.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

using namespace bsr;
using namespace bsr::train;

static bsr_norm normOf(const SparsityGroup &group) {
  return group.score == "l1"     ? BSR_L1
         : group.score == "l2"   ? BSR_L2
         : group.score == "linf" ? BSR_LINF
                                 : BSR_MEAN;
}

int64_t PatternUpdates::Weight::allBlocks() const {
  return info.rows / info.block_rows * (info.cols / info.block_cols);
}

int64_t PatternUpdates::Weight::mostBlocks() const {
  return std::min(info.slots, allBlocks());
}

/// The number of blocks of a density, as the compiler rounds it.
static int64_t countBlocks(double density, int64_t allBlocks) {
  return std::max<int64_t>(1, std::llround(density * double(allBlocks)));
}

/// The first of `groups` that `name` is of, or null.
static const SparsityGroup *groupOf(const std::vector<SparsityGroup> &groups,
                                    const std::string &name) {
  for (const SparsityGroup &group : groups)
    if (matches(group.match, name))
      return &group;
  return nullptr;
}

PatternUpdates::PatternUpdates(const std::vector<SparsityGroup> &groups,
                               int64_t steps, const Session &session,
                               const std::vector<WeightShape> &allWeights)
    : groups(groups), steps(steps),
      numPatterns(bsr_step_num_patterns(session.step())) {
  for (int64_t i = 0; i < numPatterns; ++i) {
    bsr_pattern_info info;
    bsr_step_pattern(session.step(), i, &info);
    const SparsityGroup *group = groupOf(groups, info.name);
    if (group && !info.is_static)
      weights.push_back({i, info, group, 0, BSR_MOST_BLOCKS});
  }
  std::string names;
  std::vector<std::vector<WeightShape>> members(groups.size());
  for (const WeightShape &weight : allWeights) {
    names += (names.empty() ? "" : ", ") + weight.name;
    if (const SparsityGroup *group = groupOf(groups, weight.name))
      members[group - groups.data()].push_back(weight);
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    const SparsityGroup &group = groups[i];
    std::string name = groupName(groups, i);
    if (members[i].empty() && !group.match.empty())
      fail("expected configuration key '", name,
           ".match' to be the first that matches one of ",
           names.empty() ? "no weights" : names, ", but got '", group.match,
           "'");
    // Whole steps: no two updates come after the same one.
    double length = std::max(std::floor(lengthOf(group)), 0.0);
    if (group.updates && double(group.updates) >= length)
      fail("expected configuration key '", name,
           ".updates' to be less than the ", length,
           " steps for them, but got ", group.updates);
    distributeDensities(group, members[i]);
  }
  requireSlots(groups);
  for (const Weight &weight : weights)
    if (weight.group->method == "rigl" &&
        bsr_step_find_buffer(session.step(), BSR_SCORES, weight.info.name) < 0)
      fail("expected a step compiled with --score-norm, to have scores of the "
           "blocks of '",
           weight.info.name, "', but got one without");
}

/// Sets the density of each of our weights in `group`, whose `members` are
/// those of all stages.
void PatternUpdates::distributeDensities(
    const SparsityGroup &group, const std::vector<WeightShape> &members) {
  std::map<std::string, double> densities;
  std::vector<const WeightShape *> shared; // without a density of their own
  for (const WeightShape &member : members) {
    auto own = std::find_if(
        group.densities.begin(), group.densities.end(),
        [&](const auto &entry) { return matches(entry.first, member.name); });
    if (own != group.densities.end())
      densities[member.name] = own->second;
    else if (!member.isStatic)
      shared.push_back(&member);
  }
  std::vector<double> distributed(shared.size(), group.density);
  if (group.distribution == "erk" && !shared.empty()) {
    std::vector<int64_t> rows, cols;
    for (const WeightShape *weight : shared) {
      rows.push_back(weight->rows);
      cols.push_back(weight->cols);
    }
    if (bsr_erk_densities(int64_t(shared.size()), rows.data(), cols.data(),
                          group.density, distributed.data()) != BSR_OK)
      fail(bsr_last_error());
  }
  for (size_t i = 0; i < shared.size(); ++i)
    densities[shared[i]->name] = distributed[i];

  for (Weight &weight : weights) {
    if (weight.group != &group)
      continue;
    weight.density = densities.at(weight.info.name);
    double first =
        group.method == "gmp" ? group.initialDensity : weight.density;
    if (first > 0)
      weight.firstBlocks = countBlocks(first, weight.allBlocks());
  }
}

/// `name` as a regular expression that matches nothing else.
static std::string escaped(const char *name) {
  std::string text = "^";
  for (; *name; ++name)
    text += std::strchr(".[]()*+?{}|^$\\", *name) ? std::string("\\") + *name
                                                  : std::string(1, *name);
  return text + "$";
}

/// Fails unless the slots of each weight have room for its blocks.
void PatternUpdates::requireSlots(
    const std::vector<SparsityGroup> &groups) const {
  const Weight *first = nullptr;
  std::ostringstream marks;
  for (const Weight &weight : weights) {
    if (weight.firstBlocks <= weight.mostBlocks())
      continue;
    first = first ? first : &weight;
    marks << " --mark=\"match=" << escaped(weight.info.name)
          << " block=" << weight.info.block_rows << "x"
          << weight.info.block_cols << " density="
          << double(weight.firstBlocks) / double(weight.allBlocks()) << '"';
  }
  if (first)
    fail("expected '", first->info.name, "' to have slots for ",
         first->firstBlocks, " blocks, but got ", first->info.slots,
         ": compile the step with", marks.str(), " in front of other marks");
}

void PatternUpdates::initialize(Session &session) const {
  for (const SparsityGroup &group : groups) {
    std::optional<TensorFile> dense;
    if (group.init == "largest")
      dense.emplace("safetensors file", group.file);
    for (const Weight &weight : weights) {
      if (weight.group != &group)
        continue;
      const bsr_pattern_info &info = weight.info;
      if (group.init == "largest") {
        bsr_buffer_info buffer;
        bsr_step_buffer(session.step(), info.weight, &buffer);
        session.takeLargest(
            weight.pattern, weight.firstBlocks, normOf(group), buffer.type,
            std::string(dense->read(info.name, ElementType(buffer.type),
                                    {info.rows, info.cols})));
      } else if (group.init == "file") {
        std::string path = group.file;
        const std::string place = "{name}";
        if (size_t at = path.find(place); at != std::string::npos)
          path.replace(at, place.size(), info.name);
        session.readPattern(weight.pattern, path);
      } else if (weight.firstBlocks != BSR_MOST_BLOCKS) {
        session.makePattern(weight.pattern, weight.firstBlocks);
      }
    }
  }
}

bool PatternUpdates::setValues(const std::string &name) const {
  return std::any_of(weights.begin(), weights.end(), [&](const Weight &weight) {
    return weight.info.name == name && weight.group->init == "largest";
  });
}

bool PatternUpdates::leavePatterns() const {
  return std::any_of(weights.begin(), weights.end(), [](const Weight &weight) {
    return weight.group->method != "static" && !weight.group->every &&
           !weight.group->updates;
  });
}

/// The step at which updates of `group` end.
double PatternUpdates::endOf(const SparsityGroup &group) const {
  return group.end ? double(group.end) : group.until * double(steps);
}

double PatternUpdates::lengthOf(const SparsityGroup &group) const {
  return endOf(group) - double(group.begin);
}

bool PatternUpdates::isDue(const SparsityGroup &group, int64_t step) const {
  bool prunes = group.method == "gmp";
  // Pruning ends with an update; replacing ends before one.
  int64_t last =
      int64_t(prunes ? std::floor(endOf(group)) : std::ceil(endOf(group)) - 1);
  if (group.method == "static" || step < std::max<int64_t>(group.begin, 1) ||
      step > last)
    return false;
  if (!group.every && !group.updates)
    return false;
  if (prunes && step == last)
    return true;
  if (group.every)
    return step % group.every == 0;
  // Update i, of 1 to `updates`, comes after floor(i * length / parts) steps.
  double length = lengthOf(group), parts = double(group.updates + !prunes);
  double elapsed = double(step - group.begin);
  auto isUpdate = [&](double i) {
    return i >= 1 && i <= double(group.updates) &&
           std::floor(i * length / parts) == elapsed;
  };
  // The quotient may be rounded to the other side of a whole number.
  double nearest = std::round(elapsed * parts / length);
  return isUpdate(nearest - 1) || isUpdate(nearest) || isUpdate(nearest + 1);
}

bool PatternUpdates::areDue(int64_t step, bool anywhere) const {
  auto isGroupDue = [&](const SparsityGroup &group) {
    return isDue(group, step);
  };
  auto isWeightDue = [&](const Weight &weight) {
    return isGroupDue(*weight.group);
  };
  return anywhere ? std::any_of(groups.begin(), groups.end(), isGroupDue)
                  : std::any_of(weights.begin(), weights.end(), isWeightDue);
}

bool PatternUpdates::needScores(int64_t step) const {
  return std::any_of(weights.begin(), weights.end(), [&](const Weight &weight) {
    return weight.group->method == "rigl" && isDue(*weight.group, step);
  });
}

double PatternUpdates::dropOf(const SparsityGroup &group, int64_t step) const {
  bsr_schedule schedule = group.schedule == "cosine"   ? BSR_COSINE
                          : group.schedule == "linear" ? BSR_LINEAR
                                                       : BSR_CONSTANT;
  double period = group.halfPeriod ? double(group.halfPeriod) : lengthOf(group);
  return bsr_drop_fraction(schedule, group.drop,
                           double(step - group.begin) / period);
}

/// How many blocks gradual pruning leaves of a weight after `step` steps.
int64_t PatternUpdates::blocksOf(const Weight &weight, int64_t step) const {
  const SparsityGroup &group = *weight.group;
  double all = double(weight.allBlocks());
  double first =
      double(weight.firstBlocks == BSR_MOST_BLOCKS ? weight.mostBlocks()
                                                   : weight.firstBlocks);
  double t = double(step - group.begin) /
             (std::floor(endOf(group)) - double(group.begin));
  return countBlocks(bsr_gmp_density(first / all, weight.density, t),
                     weight.allBlocks());
}

std::vector<bool> PatternUpdates::due(int64_t step) const {
  std::vector<bool> due(static_cast<size_t>(numPatterns));
  for (const Weight &weight : weights)
    due[size_t(weight.pattern)] = isDue(*weight.group, step);
  return due;
}

std::optional<double> PatternUpdates::update(Session &session,
                                             int64_t step) const {
  std::vector<bsr_pattern_update> updates(
      size_t(numPatterns), bsr_pattern_update{BSR_STATIC, BSR_L1, 0, 0, 0});
  std::optional<double> drop;
  for (const Weight &weight : weights) {
    const SparsityGroup &group = *weight.group;
    if (!isDue(group, step))
      continue;
    bsr_pattern_update &update = updates[size_t(weight.pattern)];
    update.norm = normOf(group);
    if (group.method == "gmp") {
      update.method = BSR_GMP;
      update.blocks = blocksOf(weight, step);
      continue;
    }
    update.method = group.method == "rigl" ? BSR_RIGL : BSR_SET;
    update.drop = dropOf(group, step);
    update.allow_return = group.allowReturn;
    drop = std::max(drop.value_or(0), update.drop);
  }
  session.update(updates);
  return drop;
}
