// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The section `sparsity` as JSON for the runtime, and what that makes of it as
// YAML.

#include "Sparsity.h"
#include "Keys.h"

#include <cmath>

using namespace sparse_opt;
using namespace sparse_opt::train;

static constexpr std::string_view prefix = "sparsity.";

static const OrderedJson &keys() {
  static const OrderedJson keys = OrderedJson::parse(bsr_sparsity_keys());
  return keys;
}

/// The key that `name`, without the prefix, stands for, or null.
static const OrderedJson *find(const std::string &name) {
  for (const OrderedJson &key : keys()) {
    const OrderedJson &others = key["aliases"];
    if (key["name"] == name ||
        std::find(others.begin(), others.end(), name) != others.end())
      return &key;
  }
  return nullptr;
}

/// What kind of value the key has that `name` stands for; "" if there is none.
static std::string kindOf(const std::string &name) {
  const OrderedJson *key = find(name);
  return key ? (*key)["kind"] : "";
}

/// Whether `name` stands for the key that names a file.
static bool isFile(const std::string &name) {
  const OrderedJson *key = find(name);
  return key && (*key)["name"] == "file";
}

static std::string quote(const std::string &text) {
  if (!isUTF8(text))
    fail("expected the values of configuration key 'sparsity' to be in UTF-8, "
         "but got '",
         excerpt(text), "'");
  return Json(text).dump();
}

/// A value of the kind `kind` as JSON. The runtime refuses what is none of that
/// kind, as the text that it is.
static std::string toJson(const YAML::Node &node, const std::string &kind) {
  int64_t integer;
  double number;
  bool flag;
  std::string items;
  auto add = [&](const std::string &item) {
    items += (items.empty() ? "" : ", ") + item;
  };
  if (node.IsMap()) {
    for (const auto &entry : node)
      add(quote(entry.first.Scalar()) + ": " + toJson(entry.second, "number"));
    return "{" + items + "}";
  }
  if (node.IsSequence()) {
    for (const YAML::Node &item : node)
      add(toJson(item, ""));
    return "[" + items + "]";
  }
  if (!node.IsScalar())
    return "null";
  if (kind == "integer" && parseInteger(node.Scalar(), integer))
    return std::to_string(integer);
  if (kind == "number" && YAML::convert<double>::decode(node, number) &&
      std::isfinite(number))
    return numberText(number);
  if (kind == "flag" && YAML::convert<bool>::decode(node, flag))
    return flag ? "true" : "false";
  return quote(node.Scalar());
}

/// The keys of a map under names that begin with `start` as JSON; `path` is the
/// configuration file that they stand in, "" if in none.
static std::string groupToJson(const YAML::Node &node, const std::string &start,
                               const std::string &path) {
  if (!node.IsMap())
    return toJson(node, "");
  std::string items;
  for (const auto &entry : node) {
    YAML::Node value = entry.second;
    std::string key = entry.first.Scalar(), kind = kindOf(start + key);
    if (isFile(start + key) && value.IsScalar())
      value = YAML::Node(pathOf(value.Scalar(), path));
    items += (items.empty() ? "" : ", ") + quote(key) + ": " +
             (value.IsMap() && kind != "map"
                  ? groupToJson(value, start + key + ".", path)
                  : toJson(value, kind));
  }
  return "{" + items + "}";
}

void Sparsity::read(const YAML::Node &node, const std::string &path) {
  if (!node.IsSequence()) {
    description = groupToJson(node, "", path);
    return;
  }
  if (!node.size())
    fail("expected configuration key 'sparsity' to have a group, but got none");
  description.clear();
  for (const YAML::Node &group : node)
    description +=
        (description.empty() ? "[" : ", ") + groupToJson(group, "", path);
  description += "]";
}

void Sparsity::set(const std::string &name, const YAML::Node &node) {
  YAML::Node group;
  group[name.substr(prefix.size())] = node;
  settings += (settings.empty() ? "" : ", ") + groupToJson(group, "", "");
}

/// The groups of `rules`, each with what it is called.
static std::vector<std::pair<std::string, OrderedJson>>
groupsOf(const bsr_sparsity *rules) {
  std::vector<std::pair<std::string, OrderedJson>> groups;
  auto all = OrderedJson::parse(bsr_sparsity_text(rules));
  for (OrderedJson &group : all)
    groups.push_back({all.size() == 1
                          ? "sparsity"
                          : "sparsity[" + std::to_string(groups.size()) + "]",
                      std::move(group)});
  return groups;
}

void Sparsity::resolve() {
  bsr_sparsity *rules;
  if (bsr_sparsity_create(description.c_str(), ("[" + settings + "]").c_str(),
                          &rules) != BSR_OK)
    fail(bsr_last_error());
  made.reset(rules, bsr_sparsity_destroy);
}

void Sparsity::requireFiles(const std::string &values) const {
  for (const auto &[name, group] : groupsOf(rules()))
    if (group["init"] == "largest" && group["file"] == "" && values.empty())
      fail("expected configuration key '", name,
           ".file' to have a value for init largest, but got none");
}

/// Prints a value of a key.
static void emitJson(YAML::Emitter &out, const OrderedJson &value) {
  if (value.is_object())
    emitValue(out, value.get<std::map<std::string, double>>());
  else if (value.is_string())
    emitValue(out, value.get<std::string>());
  else if (value.is_boolean())
    emitValue(out, value.get<bool>());
  else if (value.is_number_float())
    emitValue(out, value.get<double>());
  else
    emitValue(out, value.get<int64_t>());
}

/// A value of a key as YAML on one line.
static std::string valueText(const OrderedJson &value) {
  YAML::Emitter out;
  out << YAML::Flow;
  emitJson(out, value);
  return out.c_str();
}

void Sparsity::emit(YAML::Emitter &out) const {
  auto groups = groupsOf(rules());
  if (groups.size() > 1)
    out << YAML::BeginSeq;
  for (const auto &[name, group] : groups) {
    out << YAML::BeginMap;
    for (const auto &[key, value] : group.items()) {
      out << YAML::Key << key << YAML::Value;
      emitJson(out, value);
    }
    out << YAML::EndMap;
  }
  if (groups.size() > 1)
    out << YAML::EndSeq;
}

std::vector<std::pair<std::string, std::string>> Sparsity::values() const {
  std::vector<std::pair<std::string, std::string>> values;
  for (const auto &[name, group] : groupsOf(rules()))
    for (const auto &[key, value] : group.items())
      values.push_back({name + "." + key, ::valueText(value)});
  return values;
}

bool Sparsity::owns(const std::string &name) {
  return name.rfind(prefix, 0) == 0;
}

bool Sparsity::isText(const std::string &name) {
  return kindOf(name.substr(prefix.size())) == "text";
}

std::vector<std::string> Sparsity::names() {
  std::vector<std::string> names;
  for (const OrderedJson &key : keys()) {
    names.push_back(std::string(prefix) + key["name"].get<std::string>());
    for (const OrderedJson &other : key["aliases"])
      names.push_back(std::string(prefix) + other.get<std::string>());
  }
  return names;
}

std::string Sparsity::describe() {
  std::string text;
  for (const OrderedJson &key : keys())
    text += describeKey(std::string(prefix) + key["name"].get<std::string>(),
                        key["help"], key["values"], ::valueText(key["default"]),
                        key["kind"] == "text" && key["choices"].empty(),
                        /*isRequired=*/false);
  return text;
}
