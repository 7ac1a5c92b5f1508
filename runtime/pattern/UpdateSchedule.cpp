// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// After which steps patterns are updated, and by what numbers.

#include "Sparsity.h"
#include "base/Status.h"
#include "support/Keys.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <optional>

using namespace sparse_opt;

namespace {
/// A weight with its rule.
struct Weight {
  std::string name, file;
  int64_t allBlocks;  // 0 of another process
  int64_t mostBlocks; // that slots allow
  bool isFrozen;
  bool isShared; // whether its group has a density for all together
  bsr_weight_rule rule = {-1,     0, 0,  BSR_FIRST_RANDOM, "", BSR_STATIC,
                          BSR_L1, 0, {}, BSR_FAN_IN_DENSE};
};
} // namespace

struct bsr_updates {
  bsr_updates(const bsr_sparsity &sparsity, int64_t steps, int64_t count,
              const bsr_sparse_weight *given);

  /// What is due for `weight` after `step` steps.
  bsr_pattern_update due(int64_t step, const Weight &weight) const;

  /// As bsr_updates_scored says of `weight`.
  int32_t scored(int64_t step, const Weight &weight) const;

  /// Fails unless `count` is that of the weights.
  void requireRoom(int64_t count) const;

  void distribute(size_t index, const bsr_sparse_weight *given,
                  const std::vector<int64_t> &members);
  void requireSlots(const bsr_sparse_weight *given) const;

  double endOf(const SparsityGroup &group) const;
  double lengthOf(const SparsityGroup &group) const;
  bool isDue(const SparsityGroup &group, int64_t step) const;
  double dropOf(const SparsityGroup &group, int64_t step) const;
  double densityAt(const SparsityGroup &group, double first, double last,
                   int64_t step) const;
  int64_t blocksOf(const Weight &weight, int64_t step) const;
  int64_t blocksTogether(int64_t group, int64_t step) const;
  void requireTogether(const bsr_sparse_weight *given) const;

  std::vector<SparsityGroup> groups;
  int64_t steps;
  std::vector<Weight> weights;
};

/// The place of `text` in `names`, which has it.
template <typename Enum, size_t size>
static Enum enumOf(const std::string &text, const char *const (&names)[size]) {
  return Enum(std::find(names, names + size, text) - names);
}

static bsr_norm scoreOf(const SparsityGroup &group) {
  return enumOf<bsr_norm>(group.score, {"l1", "l2", "linf", "mean"});
}

static bsr_first_blocks firstOf(const SparsityGroup &group) {
  return enumOf<bsr_first_blocks>(group.init, {"random", "largest", "file"});
}

static bsr_schedule scheduleOf(const SparsityGroup &group) {
  return enumOf<bsr_schedule>(group.schedule, {"constant", "linear", "cosine"});
}

static bsr_fan_in fanInOf(const SparsityGroup &group) {
  return enumOf<bsr_fan_in>(group.fanIn, {"dense", "rows", "columns"});
}

static bsr_new_blocks startOf(const SparsityGroup &group) {
  return {enumOf<bsr_new_values>(group.newValues, {"zero", "random"}),
          enumOf<bsr_new_state>(group.newState, {"first", "mean", "kept"}),
          group.newStd, group.newStep == "block", group.newRamp};
}

/// Fails unless a caller can mean `weight`.
static void requireWeight(const bsr_sparse_weight &weight) {
  requireArgument(weight.name, "name");
  auto divides = [](int64_t block, int64_t size) {
    return block > 0 && size % block == 0;
  };
  bool isRight = weight.rows > 0 && weight.cols > 0 && weight.extents >= 0 &&
                 weight.slots >= 0 &&
                 (!weight.slots || (divides(weight.block_rows, weight.rows) &&
                                    divides(weight.block_cols, weight.cols)));
  if (!isRight)
    fail("expected weight '", weight.name,
         "' to have slots, extents, and sizes that its block divides, but got ",
         weight.slots, ", ", weight.extents, ", ", weight.rows, "x",
         weight.cols, " and ", weight.block_rows, "x", weight.block_cols);
}

bsr_updates::bsr_updates(const bsr_sparsity &sparsity, int64_t steps,
                         int64_t count, const bsr_sparse_weight *given)
    : groups(sparsity.groups), steps(steps) {
  std::string names;
  std::vector<std::vector<int64_t>> members(groups.size());
  for (int64_t i = 0; i < count; ++i) {
    const bsr_sparse_weight &weight = given[i];
    requireWeight(weight);
    names += (names.empty() ? "" : ", ") + std::string(weight.name);
    int64_t all = weight.slots ? weight.rows / weight.block_rows *
                                     (weight.cols / weight.block_cols)
                               : 0;
    weights.push_back({weight.name, "", all, std::min(weight.slots, all),
                       weight.is_frozen != 0, /*isShared=*/false});
    auto group = std::find_if(groups.begin(), groups.end(), [&](auto &group) {
      return matches(group.match, weight.name);
    });
    if (group != groups.end())
      members[size_t(group - groups.begin())].push_back(i);
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    const SparsityGroup &group = groups[i];
    std::string name = groupName(i, groups.size());
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
    distribute(i, given, members[i]);
  }
  requireSlots(given);
  requireTogether(given);
  for (int64_t i = 0; i < count; ++i)
    if (bsr_method_reads_scores(weights[size_t(i)].rule.method) &&
        given[i].slots && !given[i].is_frozen && !given[i].has_scores)
      fail("expected a step compiled with --score-norm, to have scores of the "
           "blocks of '",
           given[i].name, "', but got one without");
}

/// The density that `group` has for the weight called `name` alone.
static std::optional<double> ownDensity(const SparsityGroup &group,
                                        const std::string &groupName,
                                        const char *name) {
  const std::string *expression = nullptr;
  for (const auto &[candidate, density] : group.densities) {
    if (!matches(candidate, name))
      continue;
    // A map has no order that would say which one comes first.
    if (expression && group.densities.at(*expression) != density)
      fail("expected one expression of configuration key '", groupName,
           ".densities' to match '", name, "', but got '", *expression,
           "' and '", candidate, "'");
    expression = &candidate;
  }
  if (!expression)
    return std::nullopt;
  return group.densities.at(*expression);
}

/// Gives group `index` its `members`, by their places in `given`.
void bsr_updates::distribute(size_t index, const bsr_sparse_weight *given,
                             const std::vector<int64_t> &members) {
  const SparsityGroup &group = groups[index];
  std::vector<Weight *> shared; // without a density of their own
  std::vector<int64_t> rows, cols, extents;
  for (int64_t member : members) {
    if (given[member].is_static)
      continue;
    Weight &weight = weights[size_t(member)];
    weight.file = group.file;
    const std::string place = "{name}";
    if (size_t at = weight.file.find(place);
        group.init == "file" && at != std::string::npos)
      weight.file.replace(at, place.size(), weight.name);
    bsr_weight_rule &rule = weight.rule;
    rule = {int64_t(index),
            group.density,
            BSR_MOST_BLOCKS,
            firstOf(group),
            "",
            methodOf(group),
            scoreOf(group),
            group.every || group.updates,
            startOf(group),
            fanInOf(group)};
    auto own =
        ownDensity(group, groupName(index, groups.size()), given[member].name);
    if (own) {
      rule.density = *own;
      continue;
    }
    weight.isShared = group.distribution == "global" && !weight.isFrozen;
    shared.push_back(&weight);
    rows.push_back(given[member].rows);
    cols.push_back(given[member].cols);
    extents.push_back(given[member].extents
                          ? given[member].extents
                          : given[member].rows + given[member].cols);
  }
  bool isErk = group.distribution == "erk";
  if ((isErk || group.distribution == "er") && !shared.empty()) {
    std::vector<double> densities(shared.size());
    if (bsr_erdos_renyi_densities(int64_t(shared.size()), rows.data(),
                                  cols.data(), isErk ? extents.data() : nullptr,
                                  group.density, densities.data()) != BSR_OK)
      fail(bsr_last_error());
    for (size_t i = 0; i < shared.size(); ++i)
      shared[i]->rule.density = densities[i];
  }
  for (int64_t member : members) {
    Weight &weight = weights[size_t(member)];
    double first = weight.rule.method == BSR_GMP ? group.initialDensity
                                                 : weight.rule.density;
    if (first > 0 && weight.allBlocks)
      weight.rule.blocks = bsr_density_blocks(first, weight.allBlocks);
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
void bsr_updates::requireSlots(const bsr_sparse_weight *given) const {
  std::string first, marks;
  for (size_t i = 0; i < weights.size(); ++i) {
    const Weight &weight = weights[i];
    int64_t blocks = weight.rule.blocks;
    if (weight.rule.method == BSR_GMP && weight.allBlocks && !weight.isFrozen)
      blocks = std::max(
          blocks, bsr_density_blocks(weight.rule.density, weight.allBlocks));
    if (blocks <= weight.mostBlocks)
      continue;
    if (first.empty())
      first = concatenate("expected '", weight.name, "' to have slots for ",
                          blocks, " blocks, but got ", given[i].slots);
    marks += concatenate(
        " --mark=\"match=", escaped(given[i].name),
        " block=", given[i].block_rows, "x", given[i].block_cols,
        " density=", numberText(double(blocks) / double(weight.allBlocks)),
        "\"");
  }
  if (!first.empty())
    fail(first, ": compile the step with", marks, " in front of other marks");
}

/// The step at which updates of `group` end.
double bsr_updates::endOf(const SparsityGroup &group) const {
  return group.end ? double(group.end) : group.until * double(steps);
}

double bsr_updates::lengthOf(const SparsityGroup &group) const {
  return endOf(group) - double(group.begin);
}

bool bsr_updates::isDue(const SparsityGroup &group, int64_t step) const {
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

double bsr_updates::dropOf(const SparsityGroup &group, int64_t step) const {
  double period = group.halfPeriod ? double(group.halfPeriod) : lengthOf(group);
  return bsr_drop_fraction(scheduleOf(group), group.drop,
                           double(step - group.begin) / period);
}

/// The density that gradual pruning from `first` to `last` has after `step`
/// steps.
double bsr_updates::densityAt(const SparsityGroup &group, double first,
                              double last, int64_t step) const {
  double length = std::floor(endOf(group)) - double(group.begin);
  // Pruning that has no length is at its end.
  double t = length > 0 ? double(step - group.begin) / length : 1;
  return bsr_gmp_density(first, last, t);
}

/// How many blocks `weight` begins with.
static int64_t firstBlocks(const Weight &weight) {
  return weight.rule.blocks == BSR_MOST_BLOCKS ? weight.mostBlocks
                                               : weight.rule.blocks;
}

/// How many blocks gradual pruning leaves of a weight after `step` steps.
int64_t bsr_updates::blocksOf(const Weight &weight, int64_t step) const {
  if (!weight.allBlocks)
    return 0;
  const SparsityGroup &group = groups[size_t(weight.rule.group)];
  double first = double(firstBlocks(weight)) / double(weight.allBlocks);
  return bsr_density_blocks(densityAt(group, first, weight.rule.density, step),
                            weight.allBlocks);
}

/// How many it leaves of all weights of a group that share a density.
int64_t bsr_updates::blocksTogether(int64_t index, int64_t step) const {
  const SparsityGroup &group = groups[size_t(index)];
  int64_t all = 0, first = 0;
  for (const Weight &weight : weights)
    if (weight.rule.group == index && weight.isShared) {
      all += weight.allBlocks;
      first += firstBlocks(weight);
    }
  return bsr_density_blocks(
      densityAt(group, double(first) / double(all), group.density, step), all);
}

/// Fails unless this process can rank the blocks of weights that share a
/// density.
void bsr_updates::requireTogether(const bsr_sparse_weight *given) const {
  std::vector<int64_t> firsts(groups.size(), -1);
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!weights[i].isShared)
      continue;
    const bsr_sparse_weight &weight = given[i];
    std::string name = groupName(size_t(weights[i].rule.group), groups.size());
    if (!weight.slots)
      fail("expected configuration key '", name,
           ".distribution' to be uniform, erk or er where processes have parts "
           "of "
           "the weights, but got global for '",
           weight.name, "'");
    int64_t &first = firsts[size_t(weights[i].rule.group)];
    if (first < 0)
      first = int64_t(i);
    const bsr_sparse_weight &other = given[first];
    if (weight.block_rows != other.block_rows ||
        weight.block_cols != other.block_cols)
      fail("expected blocks of one size in the group '", name,
           "' with distribution global, but got ", other.block_rows, "x",
           other.block_cols, " of '", other.name, "' and ", weight.block_rows,
           "x", weight.block_cols, " of '", weight.name, "'");
  }
}

bsr_pattern_update bsr_updates::due(int64_t step, const Weight &weight) const {
  bsr_pattern_update due = {BSR_STATIC, BSR_L1, 0, 0, 0, 0};
  if (weight.rule.group < 0 || weight.isFrozen)
    return due;
  const SparsityGroup &group = groups[size_t(weight.rule.group)];
  if (!isDue(group, step))
    return due;
  due.method = weight.rule.method;
  due.norm = weight.rule.score;
  if (weight.isShared) {
    due.together = int32_t(weight.rule.group + 1);
    due.blocks = blocksTogether(weight.rule.group, step);
  } else if (due.method == BSR_GMP) {
    due.blocks = blocksOf(weight, step);
  } else {
    due.drop = dropOf(group, step);
    due.allow_return = group.allowReturn;
  }
  return due;
}

int32_t bsr_updates::scored(int64_t step, const Weight &weight) const {
  if (!bsr_method_reads_scores(weight.rule.method) || weight.isFrozen)
    return 0;
  const SparsityGroup &group = groups[size_t(weight.rule.group)];
  for (int64_t later = 0; later < group.scoreSteps; ++later)
    if (isDue(group, step + later))
      return int32_t(group.scoreSteps);
  return 0;
}

bsr_status bsr_updates_create(const bsr_sparsity *sparsity, int64_t steps,
                              int64_t count, const bsr_sparse_weight *weights,
                              bsr_updates **updates) {
  return guarded([&] {
    requireArgument(sparsity, "sparsity");
    requireArgument(updates, "updates");
    if (steps < 0 || count < 0)
      fail("expected steps and a count of at least 0, but got ", steps, " and ",
           count);
    if (count)
      requireArgument(weights, "weights");
    *updates = std::make_unique<bsr_updates>(*sparsity, steps, count, weights)
                   .release();
  });
}

void bsr_updates_destroy(bsr_updates *updates) { delete updates; }

bsr_status bsr_updates_rule(const bsr_updates *updates, int64_t index,
                            bsr_weight_rule *rule) {
  return guarded([&] {
    requireArgument(updates, "updates");
    requireArgument(rule, "rule");
    requireIndex(index, int64_t(updates->weights.size()), "weights");
    const Weight &weight = updates->weights[size_t(index)];
    *rule = weight.rule;
    rule->file = weight.file.c_str();
  });
}

void bsr_updates::requireRoom(int64_t count) const {
  if (count != int64_t(weights.size()))
    fail("expected room for the ", weights.size(),
         " weights of these updates, but got ", count);
}

bsr_status bsr_updates_due(const bsr_updates *updates, int64_t step,
                           int64_t count, bsr_pattern_update *due) {
  return guarded([&] {
    requireArgument(updates, "updates");
    requireArgument(due, "due");
    updates->requireRoom(count);
    for (const Weight &weight : updates->weights)
      *due++ = updates->due(step, weight);
  });
}

bsr_status bsr_updates_scored(const bsr_updates *updates, int64_t step,
                              int64_t count, int32_t *scored) {
  return guarded([&] {
    requireArgument(updates, "updates");
    requireArgument(scored, "scored");
    updates->requireRoom(count);
    for (const Weight &weight : updates->weights)
      *scored++ = updates->scored(step, weight);
  });
}
