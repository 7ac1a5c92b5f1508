// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rules of sparsity: keys, messages, and what is due when, against the
// definition taken literally and a table.

#include "bsr/sparsity.h"
#include "Assertions.h"
#include "SparsityTable.h"
#include <cmath>
#include <set>

using namespace check;

namespace {
using Rules = std::unique_ptr<bsr_sparsity, void (*)(bsr_sparsity *)>;
using Updates = std::unique_ptr<bsr_updates, void (*)(bsr_updates *)>;
} // namespace

static Rules read(const std::string &description,
                  const char *settings = nullptr) {
  bsr_sparsity *rules = nullptr;
  require(bsr_sparsity_create(description.c_str(), settings, &rules));
  return Rules(rules, bsr_sparsity_destroy);
}

static Updates plan(const Rules &rules, int64_t steps,
                    const std::vector<bsr_sparse_weight> &weights) {
  bsr_updates *updates = nullptr;
  require(bsr_updates_create(rules.get(), steps, int64_t(weights.size()),
                             weights.data(), &updates));
  return Updates(updates, bsr_updates_destroy);
}

static bsr_weight_rule ruleOf(const Updates &updates, int64_t index) {
  bsr_weight_rule rule;
  require(bsr_updates_rule(updates.get(), index, &rule));
  return rule;
}

static std::vector<bsr_pattern_update> dueOf(const Updates &updates,
                                             int64_t step, size_t count) {
  std::vector<bsr_pattern_update> due(count);
  require(bsr_updates_due(updates.get(), step, int64_t(count), due.data()));
  return due;
}

/// A weight of blocks of 1x1 with a slot for each, and scores.
static bsr_sparse_weight square(const char *name, int64_t size = 10) {
  return {name, size, size, 1, 1, size * size, 0, 0, 1, 0};
}

static std::string textOf(const Rules &rules) {
  return bsr_sparsity_text(rules.get());
}

/// Demands that a description is refused.
static void refuses(const std::string &description, const std::string &sentence,
                    const char *settings = nullptr) {
  bsr_sparsity *rules = nullptr;
  ASSERT_TRUE(fails(bsr_sparsity_create(description.c_str(), settings, &rules),
                    BSR_INVALID_ARGUMENT, sentence));
  ASSERT_FALSE(rules);
}

/// Demands that a plan of 40 steps is refused.
static void refusesPlan(const std::string &description,
                        const std::vector<bsr_sparse_weight> &weights,
                        const std::string &sentence) {
  Rules rules = read(description);
  bsr_updates *updates = nullptr;
  ASSERT_TRUE(fails(bsr_updates_create(rules.get(), 40, int64_t(weights.size()),
                                       weights.data(), &updates),
                    BSR_INVALID_ARGUMENT, sentence));
  ASSERT_FALSE(updates);
}

TEST(SparsityTest, Keys) {
  std::string defaults = textOf(read("{}"));
  Json group = Json::parse(defaults)[0],
       keys = Json::parse(bsr_sparsity_keys());
  ASSERT_EQ(keys.size(), group.size());
  ASSERT_EQ(keys.size(), 25u);
  size_t names = 0;
  for (const Json &key : keys) {
    ASSERT_EQ(key["default"], group[key["name"].get<std::string>()]);
    Json all = key["aliases"];
    all.push_back(key["name"]);
    for (const Json &name : all) {
      Json value = key["default"];
      if (name == "sparsity")
        value = 1;
      // By its name with dots, and as objects within each other.
      std::string flat = name, inner = flat.substr(flat.find('.') + 1);
      Json nested = {{flat.substr(0, flat.find('.')), {{inner, value}}}};
      Json given = {{flat, value}};
      if (key["name"] == "method")
        given["every"] = 0;
      ASSERT_EQ(textOf(read(given.dump())), defaults);
      if (inner != flat)
        ASSERT_EQ(textOf(read(nested.dump())), defaults);
      ++names;
    }
  }
  ASSERT_EQ(names, 53u);
  ASSERT_EQ(std::string(bsr_sparsity_text(nullptr)), "");
  ASSERT_EQ(std::string(bsr_sparsity_options(nullptr)), "");
}

TEST(SparsityTest, Text) {
  Rules rules = read(R"([{"match": "ffn", "algorithm": "rigl",
    "sparsity": 0.75, "drop_fraction": {"type": "linear", "init": 0.3},
    "update": {"freq": 100, "begin": 5, "stop": 7500},
    "densities": {"b": 0.5, "a": 1}, "regrow": {"allow_return": true,
    "values": "random", "std": 0.5, "state": "mean"}},
    {"method": "static"}])");
  Json groups = Json::parse(textOf(rules));
  ASSERT_EQ(groups[0]["method"], "rigl");
  ASSERT_EQ(groups[0]["density"], 0.25);
  ASSERT_EQ(groups[0]["schedule"], "linear");
  ASSERT_EQ(groups[0]["drop"], 0.3);
  ASSERT_EQ(groups[0]["every"], 100);
  ASSERT_EQ(groups[0]["end"], 7500);
  ASSERT_EQ(groups[0]["allow_return"], true);
  ASSERT_EQ(groups[0]["new_values"], "random");
  ASSERT_EQ(groups[0]["new_std"], 0.5);
  ASSERT_EQ(groups[0]["new_state"], "mean");
  ASSERT_EQ(groups[1]["new_values"], "zero");
  ASSERT_EQ(groups[1]["new_state"], "first");
  ASSERT_EQ(groups[1]["method"], "static");
  ASSERT_EQ(textOf(read(textOf(rules))), textOf(rules));
  auto optionsOf = [](const char *text) {
    return std::string(bsr_sparsity_options(read(text).get()));
  };
  ASSERT_EQ(bsr_sparsity_options(rules.get()), std::string("--score-norm=l1"));
  ASSERT_EQ(optionsOf("{}"), "");
  ASSERT_EQ(optionsOf("[]"), "");
  ASSERT_EQ(optionsOf(R"({"new_step": "block"})"), "--block-steps");
  ASSERT_EQ(optionsOf(R"([{"match": "a", "new_step": "block", "new_ramp": 20},
    {"regrow": {"step": "block", "ramp": 20}, "method": "rigl", "every": 5}])"),
            "--score-norm=l1 --block-steps --block-ramp=20");
  ASSERT_EQ(textOf(read("[]")), "[]");
}

TEST(SparsityTest, Settings) {
  const char *settings = R"([{"every": 3}, {"update.freq": 4},
                             {"drop_fraction": {"init": 0.1}}])";
  Rules rules = read(R"([{"every": 2}, {"updates": 3}])", R"([{"updates": 0},
                             {"every": 3}, {"update.freq": 4},
                             {"drop_fraction": {"init": 0.1}}])");
  for (const Json &group : Json::parse(textOf(rules))) {
    ASSERT_EQ(group["every"], 4);
    ASSERT_EQ(group["updates"], 0);
    ASSERT_EQ(group["drop"], 0.1);
  }
  // Values are looked at together when all are set.
  refuses(R"([{}, {"updates": 3}])",
          "expected configuration key 'sparsity[1].every' or "
          "'sparsity[1].updates', but got both",
          settings);
  refuses("{}",
          "expected settings of 'sparsity' to be a list of maps of keys, but "
          "got '{}'",
          "{}");
  refuses("{}",
          "expected configuration key 'sparsity' to be a map of keys, but got "
          "'3'",
          "[3]");
  refuses("{}",
          "expected settings of sparsity to be JSON, but got an error at "
          "byte 2",
          "[");
}

TEST(SparsityTest, RefusesValues) {
  auto value = [](const std::string &name, const std::string &given,
                  const std::string &sentence) {
    refuses("{\"" + name + "\": " + given + "}",
            "expected configuration key 'sparsity." + name + "' to be " +
                sentence);
  };
  std::string share = "a number from 0 to 1, but got ",
              whole = "an integer of at least 0, but got ",
              text = "a text in UTF-8, but got ";
  for (const char *name : {"density", "sparsity", "initial_density", "until",
                           "drop", "drop_fraction"}) {
    value(name, "1.5", share + "'1.5'");
    value(name, "-1e-300", share + "'-1e-300'");
    value(name, "\"0.5\"", share + "'0.5'");
    value(name, "true", share + "'true'");
    value(name, "null", share + "'null'");
    value(name, "[0.5]", share + "'[0.5]'");
  }
  for (const char *name :
       {"every", "updates", "begin", "end", "half_period", "update.freq"}) {
    value(name, "-1", whole + "'-1'");
    value(name, "2.0", whole + "'2'");
    value(name, "\"2\"", whole + "'2'");
    value(name, "9223372036854775808", whole + "'9223372036854775808'");
  }
  for (const char *name : {"match", "file"}) {
    value(name, "3", text + "'3'");
    value(name, "\"a\\u0000b\"", text + "'a\\x00b'");
  }
  value("method", "\"snfs\"", "one of static, set, rigl, gmp, but got 'snfs'");
  value("distribution", "\"dense\"",
        "one of uniform, erk, er, global, but got 'dense'");
  value("init", "\"ones\"", "one of random, largest, file, but got 'ones'");
  value("schedule", "\"step\"",
        "one of cosine, linear, constant, but got "
        "'step'");
  value("score", "\"l3\"", "one of l1, l2, linf, mean, but got 'l3'");
  value("allow_return", "1", "true or false, but got '1'");
  value("new_values", "\"ones\"", "one of zero, random, but got 'ones'");
  value("new_state", "\"zero\"", "one of first, mean, kept, but got 'zero'");
  value("new_std", "-1", "a number of at least 0, but got '-1'");
  value("densities", "{\"w\": 2}",
        "a map to numbers from 0 to 1, but got '{\"w\":2}'");
  value("densities", "0.5", "a map to numbers from 0 to 1, but got '0.5'");
}

TEST(SparsityTest, RefusesKeys) {
  refuses("{\"methd\": \"set\"}",
          "expected a configuration key (the nearest is 'sparsity.method'), "
          "but got 'sparsity.methd'");
  refuses("{\"update\": {\"frequ\": 3}}",
          "expected a configuration key (the nearest is "
          "'sparsity.update.freq'), but got 'sparsity.update.frequ'");
  refuses("{\"every\": 3, \"update\": {\"freq\": 4}}",
          "expected configuration key 'sparsity.every' once, but got "
          "'sparsity.update.freq' beside it");
  refuses("{\"every\": 3, \"every\": 4}",
          "expected the rules of sparsity to have each key once, but got "
          "'every' twice");
  refuses("[{}, 3]", "expected configuration key 'sparsity[1]' to be a map of "
                     "keys, but got '3'");
  refuses("3", "expected configuration key 'sparsity' to be a map of keys or a "
               "list of such maps, but got '3'");
  refuses("{", "expected the rules of sparsity to be JSON, but got an error at "
               "byte 2");
}

TEST(SparsityTest, RefusesTogether) {
  std::string start = "expected configuration key 'sparsity.";
  refuses(R"({"match": "("})",
          start + "match' to hold a regular expression, but got '('");
  refuses(R"({"densities": {"[": 0.5}})",
          start + "densities' to hold a regular expression, but got '['");
  refuses("{\"match\": \"" + std::string(1001, 'a') + "\"}",
          start + "match' to hold a regular expression of at most 1000 bytes, "
                  "but got one of 1001");
  refuses(R"({"every": 3, "updates": 4})",
          start + "every' or 'sparsity.updates', but got both");
  refuses(R"({"algorithm": "rigl"})",
          start + "every' or 'sparsity.updates' to have a value beside a "
                  "method, but got none");
  read(R"({"method": "rigl", "every": 0})");
  read(R"({"method": "static"})");
  refuses(R"({"begin": 5, "end": 5})",
          start + "end' to be more than 'sparsity.begin' 5, but got 5");
  refuses(R"({"method": "gmp", "every": 3})",
          start + "density' to have a value for method gmp, but got none");
  refuses(R"({"initial_density": 0.5})",
          start + "initial_density' to be left out for another method than "
                  "gmp, but got 0.5");
  refuses(R"({"distribution": "global"})",
          start +
              "distribution' to be uniform, erk or er for another method than "
              "gmp, which ranks the blocks of several weights, but got "
              "global");
  refuses(R"({"init": "largest", "fan_in": "rows"})",
          start + "fan_in' to be dense for init largest, whose values are "
                  "those of dense weights, but got rows");
  refuses(R"({"new_std": 0.5})",
          start + "new_std' to be left out unless new_values is random, but "
                  "got 0.5");
  refuses(R"({"new_step": "block", "new_state": "mean"})",
          start + "new_state' to be first beside new_step block, which counts "
                  "from it, but got mean");
  refuses(R"({"new_ramp": 1})",
          start + "new_ramp' to be 0, or from 2 to 16777216, but got 1");
  refuses(R"([{"match": "a"}, {"new_ramp": 5}])",
          "expected configuration key 'sparsity[1].new_ramp' to be that of "
          "sparsity[0], 0, since a step has one for all weights, but got 5");
  refuses(R"([{"new_step": "block"}, {"new_step": "matrix"}])",
          "expected configuration key 'sparsity[1].new_step' to be that of "
          "sparsity[0], block, since a step has one for all weights, but got "
          "matrix");
  refuses(R"({"init": "file"})",
          start + "file' to have a value for init file, but got none");
  refuses(R"({"file": "x"})",
          start + "init' to be largest or file where there is a file, but got "
                  "random");
  refuses(R"({"dist_type": "erk"})",
          start + "density' to have a value to distribute by erk, but got "
                  "none");
}

TEST(SparsityTest, GlobalDensities) {
  // Blocks of all matrices of the group but a frozen one, one with a density of
  // its own, and one whose pattern stays: 64 and 16 of 256 and 64.
  std::vector<bsr_sparse_weight> weights = {
      {"a", 32, 32, 2, 2, 256, 0, 0, 0, 0},
      {"b", 16, 16, 2, 2, 64, 0, 0, 0, 0},
      {"own", 16, 16, 2, 2, 64, 0, 0, 0, 0},
      {"cold", 16, 16, 2, 2, 64, 0, 1, 0, 0},
      {"still", 16, 16, 2, 2, 64, 1, 0, 0, 0}};
  Updates updates =
      plan(read(R"({"method": "gmp", "density": 0.25, "distribution": "global",
    "initial_density": 0.5, "densities": {"own": 0.125}, "every": 10,
    "end": 20, "score": "linf"})"),
           40, weights);
  for (int64_t i : {0, 1, 3})
    ASSERT_EQ(ruleOf(updates, i).density, 0.25);
  ASSERT_EQ(ruleOf(updates, 0).blocks, 128);
  for (int64_t step : {10, 20}) {
    auto due = dueOf(updates, step, weights.size());
    double density = bsr_gmp_density(0.5, 0.25, double(step) / 20);
    for (size_t i : {0u, 1u}) {
      ASSERT_EQ(int(due[i].method), int(BSR_GMP));
      ASSERT_EQ(int(due[i].norm), int(BSR_LINF));
      ASSERT_EQ(due[i].together, 1);
      ASSERT_EQ(due[i].blocks, bsr_density_blocks(density, 320));
    }
    ASSERT_EQ(due[2].together, 0);
    ASSERT_EQ(
        due[2].blocks,
        bsr_density_blocks(bsr_gmp_density(0.5, 0.125, double(step) / 20), 64));
    for (size_t i : {3u, 4u})
      ASSERT_EQ(int(due[i].method), int(BSR_STATIC));
  }
  const char *global = R"({"method": "gmp", "density": 0.25, "every": 10,
    "distribution": "global"})";
  weights[1].block_cols = 4;
  refusesPlan(global, weights,
              "expected blocks of one size in the group 'sparsity' with "
              "distribution global, but got 2x2 of 'a' and 2x4 of 'b'");
  weights[1] = {"b", 16, 16, 0, 0, 0, 0, 0, 0, 0};
  refusesPlan(
      global, weights,
      "expected configuration key 'sparsity.distribution' to be uniform, "
      "erk or er where processes have parts of the weights, but got global "
      "for 'b'");
}

// By erk a weight counts the extents of its array, by er its rows and columns.
TEST(SparsityTest, Extents) {
  std::vector<bsr_sparse_weight> weights = {
      square("a"), {"b", 8, 18, 1, 1, 144, 0, 0, 1, 0}};
  weights[1].extents = 8 + 2 + 3 + 3;
  for (const char *distribution : {"erk", "er"}) {
    Updates updates = plan(read(std::string(R"({"density": 0.25,
      "method": "static", "distribution": ")") +
                                distribution + "\"}"),
                           40, weights);
    int64_t rows[] = {10, 8}, cols[] = {10, 18}, extents[] = {20, 16};
    bool isErk = std::string(distribution) == "erk";
    double densities[2];
    ASSERT_TRUE(succeeds(bsr_erdos_renyi_densities(
        2, rows, cols, isErk ? extents : nullptr, 0.25, densities)));
    for (int64_t i : {0, 1})
      ASSERT_EQ(ruleOf(updates, i).density, densities[i]);
  }
}

TEST(SparsityTest, Arguments) {
  bsr_sparsity *rules = nullptr;
  ASSERT_TRUE(
      fails(bsr_sparsity_create(nullptr, nullptr, &rules), BSR_INVALID_ARGUMENT,
            "expected argument 'description' to point somewhere, but got "
            "null"));
  Rules any = read("{}");
  bsr_updates *made = nullptr;
  ASSERT_TRUE(
      fails(bsr_updates_create(any.get(), -1, 0, nullptr, &made),
            BSR_INVALID_ARGUMENT,
            "expected steps and a count of at least 0, but got -1 and 0"));
  refusesPlan(
      "{}", {{"w", 10, 10, 3, 1, 4, 0, 0, 0, 0}},
      "expected weight 'w' to have slots, extents, and sizes that its block "
      "divides, but got 4, 0, 10x10 and 3x1");
  Updates updates = plan(any, 40, {square("w")});
  bsr_weight_rule rule;
  ASSERT_TRUE(fails(bsr_updates_rule(updates.get(), 1, &rule),
                    BSR_INVALID_ARGUMENT,
                    "expected the index of one of 1 weights, but got 1"));
  bsr_pattern_update due[2];
  ASSERT_TRUE(
      fails(bsr_updates_due(updates.get(), 1, 2, due), BSR_INVALID_ARGUMENT,
            "expected room for the 1 weights of these updates, but got 2"));
  bsr_sparsity_destroy(nullptr);
  bsr_updates_destroy(nullptr);
  ASSERT_FALSE(bsr_updates_create(any.get(), 0, 0, nullptr, &made));
  bsr_updates_destroy(made);
}

TEST(SparsityTest, RefusesPlans) {
  std::vector<bsr_sparse_weight> two = {square("a"), square("b.c")};
  refusesPlan(R"([{"match": "d"}, {}])", two,
              "expected configuration key 'sparsity[0].match' to be the first "
              "that matches one of a, b.c, but got 'd'");
  refusesPlan(R"([{}, {"match": "a"}])", two,
              "expected configuration key 'sparsity[1].match' to be the first "
              "that matches one of a, b.c, but got 'a'");
  refusesPlan(R"({"match": "a"})", {},
              "expected configuration key 'sparsity.match' to be the first "
              "that matches one of no weights, but got 'a'");
  refusesPlan(R"({"updates": 30})", two,
              "expected configuration key 'sparsity.updates' to be less than "
              "the 30 steps for them, but got 30");
  refusesPlan(R"({"updates": 29, "until": 0.74375})", two,
              "expected configuration key 'sparsity.updates' to be less than "
              "the 29 steps for them, but got 29");
  refusesPlan(R"({"densities": {"a": 0.5, "^a$": 0.25}})", two,
              "expected one expression of configuration key "
              "'sparsity.densities' to match 'a', but got '^a$' and 'a'");
  plan(read(R"({"densities": {"a": 0.5, "^a$": 0.5}})"), 40, two);
  two[1].has_scores = 0;
  refusesPlan(R"({"method": "rigl", "every": 3})", two,
              "expected a step compiled with --score-norm, to have scores of "
              "the blocks of 'b.c', but got one without");
  two[0].slots = two[1].slots = 40;
  std::string sentence =
      "expected 'a' to have slots for 47 blocks, but got 40: compile the step "
      "with --mark=\"match=^a$ block=1x1 density=0.47\" --mark=\"match=^b\\.c$ "
      "block=1x1 density=0.47\" in front of other marks";
  refusesPlan(R"({"density": 0.47})", two, sentence);
  // What gmp leaves at the end has to have room, too.
  refusesPlan(R"({"method": "gmp", "density": 0.47, "every": 3})", two,
              sentence);
  refusesPlan(
      R"({"method": "gmp", "density": 0.2, "initial_density": 0.47, "every": 3})",
      two, sentence);
  two[0] = {"a", 3, 1, 1, 1, 1, 0, 0, 0, 0};
  two[1].is_static = 1;
  // As many digits as it takes: 0.666667 of a large matrix is another number.
  refusesPlan(R"({"density": 0.6})", two,
              "expected 'a' to have slots for 2 blocks, but got 1: compile the "
              "step with --mark=\"match=^a$ block=1x1 "
              "density=0.6666666666666666\" in front of other marks");
}

TEST(SparsityTest, Rules) {
  // Densities of one expression, by erk, of a weight of another process, which
  // takes its share, and of one whose pattern stays, which takes none.
  std::vector<bsr_sparse_weight> weights = {
      square("a", 8),  {"b", 16, 8, 2, 2, 32, 0, 0, 1, 0},
      square("own"),   {"far", 16, 16, 0, 0, 0, 0, 0, 0, 0},
      square("still"), square("other")};
  weights[4].is_static = 1;
  Updates updates = plan(read(R"([{"match": "^(a|b|own|far|still)$",
    "density": 0.25, "dist_type": "erk", "densities": {"own": 0.125},
    "method": "rigl", "every": 2, "score": "linf", "allow_return": true,
    "new_values": "random", "new_std": 0.25, "new_state": "kept",
    "init": "file", "file": "p/{name}-{name}", "fan_in": "columns"}])"),
                         40, weights);
  int64_t rows[] = {8, 16, 16}, cols[] = {8, 8, 16};
  double densities[3];
  ASSERT_TRUE(succeeds(
      bsr_erdos_renyi_densities(3, rows, cols, nullptr, 0.25, densities)));
  ASSERT_EQ(ruleOf(updates, 0).density, densities[0]);
  ASSERT_EQ(ruleOf(updates, 0).blocks, bsr_density_blocks(densities[0], 64));
  ASSERT_EQ(ruleOf(updates, 1).blocks, bsr_density_blocks(densities[1], 32));
  ASSERT_EQ(ruleOf(updates, 2).density, 0.125);
  ASSERT_EQ(ruleOf(updates, 2).blocks, 13);
  ASSERT_EQ(ruleOf(updates, 3).density, densities[2]);
  ASSERT_EQ(ruleOf(updates, 3).blocks, BSR_MOST_BLOCKS);
  bsr_weight_rule rule = ruleOf(updates, 0);
  ASSERT_EQ(std::string(rule.file), "p/a-{name}");
  ASSERT_EQ(int(rule.first), int(BSR_FIRST_FILE));
  ASSERT_EQ(int(rule.method), int(BSR_RIGL));
  ASSERT_EQ(int(rule.score), int(BSR_LINF));
  ASSERT_EQ(rule.has_updates, 1);
  ASSERT_EQ(int(rule.start.values), int(BSR_VALUES_RANDOM));
  ASSERT_EQ(int(rule.start.state), int(BSR_STATE_KEPT));
  ASSERT_EQ(rule.start.std, 0.25);
  ASSERT_EQ(int(rule.fan_in), int(BSR_FAN_IN_COLUMNS));
  for (int64_t none : {4, 5}) {
    ASSERT_EQ(ruleOf(updates, none).group, -1);
    ASSERT_EQ(std::string(ruleOf(updates, none).file), "");
  }
  auto due = dueOf(updates, 2, weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    bool isDue = i < 4;
    ASSERT_EQ(int(due[i].method), int(isDue ? BSR_RIGL : BSR_STATIC));
    ASSERT_EQ(int(due[i].norm), int(isDue ? BSR_LINF : BSR_L1));
    ASSERT_EQ(due[i].allow_return, int32_t(isDue));
  }
  // A file of dense weights has all of them.
  updates = plan(read(R"({"init": "largest", "file": "{name}"})"), 40, weights);
  ASSERT_EQ(std::string(ruleOf(updates, 0).file), "{name}");
  ASSERT_EQ(int(ruleOf(updates, 0).first), int(BSR_FIRST_LARGEST));
  ASSERT_EQ(ruleOf(updates, 0).blocks, BSR_MOST_BLOCKS);
  ASSERT_EQ(ruleOf(updates, 0).has_updates, 0);
  ASSERT_EQ(int(ruleOf(updates, 0).fan_in), int(BSR_FAN_IN_DENSE));

  ASSERT_EQ(bsr_density_blocks(0, 100), 1);
  ASSERT_EQ(bsr_density_blocks(0.124, 100), 12);
  ASSERT_EQ(bsr_density_blocks(0.125, 100), 13);
  ASSERT_EQ(bsr_density_blocks(1, 100), 100);
}

// A weight that is not trained begins by its rule, in its share of the density,
// and has neither updates nor scores.
TEST(SparsityTest, Frozen) {
  std::vector<bsr_sparse_weight> weights = {square("a"), square("b", 20)};
  const char *rigl = R"({"method": "rigl", "every": 2, "density": 0.2,
                         "distribution": "erk"})";
  const char *gmp = R"({"method": "gmp", "every": 2, "density": 0.75,
                        "initial_density": 0.5})";
  double density = ruleOf(plan(read(rigl), 40, weights), 0).density;
  weights[1].is_frozen = 1;
  weights[1].has_scores = 0;
  weights[1].slots = 200;
  Updates updates = plan(read(rigl), 40, weights);
  ASSERT_EQ(ruleOf(updates, 0).density, density);
  ASSERT_EQ(ruleOf(updates, 1).group, 0);
  ASSERT_EQ(int(dueOf(updates, 2, 2)[0].method), int(BSR_RIGL));
  ASSERT_EQ(int(dueOf(updates, 2, 2)[1].method), int(BSR_STATIC));
  updates = plan(read(gmp), 40, weights);
  ASSERT_EQ(ruleOf(updates, 1).blocks, 200);
  ASSERT_EQ(int(dueOf(updates, 2, 2)[1].method), int(BSR_STATIC));
}

// Pruning whose steps are none is at its end, not at a quotient of zeros.
TEST(SparsityTest, NoLength) {
  Updates updates = plan(read(R"({"method": "gmp", "density": 0.29,
    "initial_density": 0.4, "every": 10, "begin": 30})"),
                         40, {square("w")});
  ASSERT_EQ(int(dueOf(updates, 29, 1)[0].method), int(BSR_STATIC));
  ASSERT_EQ(dueOf(updates, 30, 1)[0].blocks, 29);
  ASSERT_EQ(int(dueOf(updates, 31, 1)[0].method), int(BSR_STATIC));
}

namespace {
/// The rule of a run, in whole numbers: the end is at `end64` / 64 steps.
struct Definition {
  bool prunes;
  int64_t every, updates, begin, end64;

  /// The steps after which there are updates, as docs/sparsity.md has them.
  std::set<int64_t> due(int64_t steps) const {
    std::set<int64_t> places;
    int64_t length64 = end64 - 64 * begin, parts = updates + !prunes;
    for (int64_t i = 1; i <= updates; ++i)
      places.insert(begin + i * length64 / (64 * parts));
    std::set<int64_t> due;
    for (int64_t s = 1; s <= steps; ++s) {
      bool isWithin = s >= begin && 64 * s < end64;
      bool isEnd = prunes && s == end64 / 64 && s >= begin;
      bool isPlace = every ? s % every == 0 : places.count(s) > 0;
      if ((isWithin && isPlace) || (isEnd && (every || updates)))
        due.insert(s);
    }
    return due;
  }
};
} // namespace

TEST(SparsityTest, Due) {
  Numbers numbers(17);
  auto below = [&](int64_t bound) {
    return int64_t(numbers.below(uint64_t(bound)));
  };
  for (int run = 0; run < 3000; ++run) {
    int64_t steps = 1 + below(120), until64 = 1 + below(64);
    Definition rule = {below(2) == 1, 0, 0, below(3) * below(steps), 0};
    int64_t end = below(2) ? rule.begin + 1 + below(steps) : 0;
    rule.end64 = end ? 64 * end : until64 * steps;
    int64_t length = std::max<int64_t>(rule.end64 / 64 - rule.begin, 0);
    if (rule.end64 < 64 * rule.begin)
      length = 0;
    if (below(2))
      rule.every = 1 + below(20);
    else if (length > 1)
      rule.updates = 1 + below(length - 1);
    int64_t period = below(2) ? 1 + below(steps) : 0;
    double drop = double(below(101)) / 100, last = double(1 + below(80)) / 100;
    double first = last + double(below(20)) / 100;
    const char *schedules[] = {"constant", "linear", "cosine"};
    int64_t schedule = below(3);
    Json group = {{"method", rule.prunes ? "gmp" : "set"},
                  {"every", rule.every},
                  {"updates", rule.updates},
                  {"begin", rule.begin},
                  {"end", end},
                  {"until", double(until64) / 64},
                  {"density", last},
                  {"drop", drop},
                  {"schedule", schedules[schedule]},
                  {"half_period", period}};
    if (rule.prunes)
      group["initial_density"] = first;
    Updates updates = plan(read(group.dump()), steps, {square("w", 23)});
    std::set<int64_t> expected = rule.due(steps);
    for (int64_t s = 0; s <= steps; ++s) {
      bsr_pattern_update due = dueOf(updates, s, 1)[0];
      ASSERT_EQ(due.method != BSR_STATIC, expected.count(s) > 0);
      if (due.method == BSR_STATIC)
        continue;
      double elapsed = double(s - rule.begin);
      if (rule.prunes) {
        double t = elapsed / double(length);
        double start = std::floor(first * 529 + 0.5) / 529;
        double blocks =
            length ? (last + (start - last) * std::pow(1 - t, 3)) * 529 + 0.5
                   : last * 529 + 0.5;
        // Where the sum is nearly whole, its last bit decides.
        if (std::fabs(blocks - std::round(blocks)) > 1e-9)
          ASSERT_EQ(due.blocks, int64_t(blocks));
        continue;
      }
      double whole = double(rule.end64) / 64 - double(rule.begin);
      double t = std::min(elapsed / (period ? double(period) : whole), 1.0);
      double share = schedule == 0 ? 1
                     : schedule == 1
                         ? 1 - t
                         : (1 + std::cos(3.14159265358979323846 * t)) / 2;
      ASSERT_LT(std::fabs(due.drop - drop * share), 1e-12);
    }
  }
}

// What sparse-train and the Python package computed, each by itself, before
// both called this.
TEST(SparsityTest, AsBefore) {
  for (const char *line : sparsityTable) {
    Json row = Json::parse(line), rules = Json::array(), due = Json::array();
    std::vector<bsr_sparse_weight> weights;
    for (const Json &w : row["weights"])
      weights.push_back({w[0].get_ref<const std::string &>().c_str(), w[1],
                         w[2], w[3], w[4], w[5], 0, 0, 1, 0});
    int64_t steps = row["steps"];
    Updates updates = plan(read(row["sparsity"].dump()), steps, weights);
    for (size_t i = 0; i < weights.size(); ++i) {
      bsr_weight_rule rule = ruleOf(updates, int64_t(i));
      if (rule.group < 0)
        continue;
      int64_t blocks =
          rule.blocks == BSR_MOST_BLOCKS ? weights[i].slots : rule.blocks;
      rules.push_back({weights[i].name, rule.group, rule.density, blocks});
    }
    for (int64_t s = 0; s <= steps + 1; ++s) {
      Json entries = Json::array();
      auto all = dueOf(updates, s, weights.size());
      for (size_t i = 0; i < weights.size(); ++i) {
        if (all[i].method == BSR_GMP)
          entries.push_back({weights[i].name, "gmp", all[i].blocks});
        else if (all[i].method != BSR_STATIC)
          entries.push_back({weights[i].name,
                             all[i].method == BSR_RIGL ? "rigl" : "set",
                             all[i].drop});
      }
      if (!entries.empty())
        due.push_back({s, entries});
    }
    ASSERT_EQ(rules, row["rules"]);
    ASSERT_EQ(due, row["due"]);
  }
}
