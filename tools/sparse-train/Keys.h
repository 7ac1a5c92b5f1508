// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tables of configuration keys: the fields of a structure by name, with their
// values, checked, in YAML.

#ifndef BSR_TOOLS_SPARSETRAIN_KEYS_H
#define BSR_TOOLS_SPARSETRAIN_KEYS_H

#include "support/Error.h"
#include "support/Json.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <string>
#include <variant>
#include <vector>
#include <yaml-cpp/yaml.h>

namespace bsr::train {

/// Which values of a key are valid, beside those of its type.
struct KeyRule {
  static constexpr double infinity = std::numeric_limits<double>::infinity();

  /// Limits of an integer or a number, both included.
  double min = 0, max = infinity;
  /// The values of a text, if it has only these.
  std::vector<std::string> choices = {};
  /// True for a text that must not be empty.
  bool required = false;
  /// True for a key that decides no bit of what a run learns and measures, or
  /// names a file that is known by its contents: a resumed run may have another
  /// value.
  bool isFree = false;
  /// True for a key that only the command line may give a value: no
  /// configuration has one, neither one that is read nor one that is written.
  bool isOfCommandLine = false;
};

/// A key of the structure `S`; a dot separates its section from its name.
template <typename S>
struct Key {
  const char *name;
  std::variant<int64_t S::*, double S::*, bool S::*, std::string S::*,
               std::vector<std::string> S::*,
               std::map<std::string, double> S::*>
      field;
  const char *help;
  KeyRule rule = {};

  bool isText() const {
    return std::holds_alternative<std::string S::*>(field);
  }
};

/// Reads a decimal integer; false if `text` is none. 010, which YAML takes for
/// 8 and people for 10, is none.
bool parseInteger(const std::string &text, int64_t &value);

/// The start of a text, and of a value as YAML, for a message.
std::string excerpt(const std::string &text);
std::string excerpt(const YAML::Node &node);

/// Throws the error for `name`, which is none of the keys `known`.
[[noreturn]] void refuseKey(const std::string &name,
                            const std::vector<std::string> &known);

/// The key called `name`, or null.
template <typename S>
const Key<S> *findKey(const std::vector<Key<S>> &keys,
                      const std::string &name) {
  auto found = std::find_if(keys.begin(), keys.end(), [&](const Key<S> &key) {
    return key.name == name;
  });
  return found == keys.end() ? nullptr : &*found;
}

/// What a value of `key` must be, in words.
template <typename S>
std::string describeValues(const Key<S> &key) {
  std::ostringstream words;
  if (!key.rule.choices.empty()) {
    words << "one of";
    for (const std::string &choice : key.rule.choices)
      words << (&choice == &key.rule.choices.front() ? " " : ", ") << choice;
    return words.str();
  }
  if (key.isText())
    return "a text in UTF-8";
  if (std::holds_alternative<std::vector<std::string> S::*>(key.field))
    return "a list of texts";
  if (std::holds_alternative<std::map<std::string, double> S::*>(key.field))
    words << "a map to numbers";
  else if (std::holds_alternative<bool S::*>(key.field))
    return "true or false";
  else
    words << (std::holds_alternative<int64_t S::*>(key.field) ? "an integer"
                                                              : "a number");
  if (key.rule.max < KeyRule::infinity)
    words << " from " << key.rule.min << " to " << key.rule.max;
  else
    words << " of at least " << key.rule.min;
  return words.str();
}

/// Reads `node` into a value of type T; false if it is none, or not valid.
template <typename T>
bool convert(const YAML::Node &node, const KeyRule &rule, T &value) {
  if (!node.IsScalar())
    return false;
  if constexpr (std::is_same_v<T, int64_t>) {
    if (!parseInteger(node.Scalar(), value))
      return false;
  } else if (!YAML::convert<T>::decode(node, value)) {
    return false;
  }
  if constexpr (std::is_same_v<T, bool>)
    return true;
  else if constexpr (std::is_arithmetic_v<T>)
    return value >= rule.min && value <= rule.max &&
           value <= std::numeric_limits<T>::max();
  else
    return isUTF8(value) && value.find('\0') == value.npos &&
           (rule.choices.empty() ||
            std::count(rule.choices.begin(), rule.choices.end(), value));
}

template <typename T>
bool convert(const YAML::Node &node, const KeyRule &rule,
             std::vector<T> &values) {
  if (!node.IsSequence())
    return false;
  values.clear();
  for (const YAML::Node &item : node)
    if (!convert(item, rule, values.emplace_back()))
      return false;
  return true;
}

template <typename T>
bool convert(const YAML::Node &node, const KeyRule &rule,
             std::map<std::string, T> &values) {
  if (!node.IsMap())
    return false;
  values.clear();
  for (const auto &item : node)
    if (!item.first.IsScalar() ||
        !convert(item.second, rule, values[item.first.Scalar()]))
      return false;
  return true;
}

/// Sets the field of `key`, which the error calls `name`, to what `node` holds.
template <typename S>
void setKey(S &section, const Key<S> &key, const std::string &name,
            const YAML::Node &node) {
  bool valid = std::visit(
      [&](auto field) { return convert(node, key.rule, section.*field); },
      key.field);
  if (!valid)
    fail("expected configuration key '", name, "' to be ", describeValues(key),
         ", but got '", excerpt(node), "'");
}

/// Prints `value`, which YAML reads back as it was.
template <typename T>
void emitValue(YAML::Emitter &out, const T &value) {
  if constexpr (std::is_same_v<T, double>) {
    char text[32]; // the shortest that reads back as `value`
    *std::to_chars(text, std::end(text) - 1, value).ptr = '\0';
    out << text;
  } else if constexpr (std::is_same_v<T, std::string>) {
    out << YAML::DoubleQuoted << value;
  } else if constexpr (std::is_same_v<T, std::map<std::string, double>>) {
    out << YAML::Flow << YAML::BeginMap;
    for (const auto &[name, number] : value) {
      out << YAML::Key << YAML::DoubleQuoted << name << YAML::Value;
      emitValue(out, number);
    }
    out << YAML::EndMap;
  } else {
    out << YAML::Flow << value;
  }
}

template <typename S>
void emitKey(YAML::Emitter &out, const S &section, const Key<S> &key) {
  std::visit([&](auto field) { emitValue(out, section.*field); }, key.field);
}

/// The value of `key` as YAML on one line.
template <typename S>
std::string valueText(const S &section, const Key<S> &key) {
  YAML::Emitter value;
  value << YAML::Flow;
  emitKey(value, section, key);
  return value.c_str();
}

/// A line on `key`, called `name`, with its default.
template <typename S>
std::string describeKey(const std::string &name, const Key<S> &key) {
  std::string line = "  " + name + ": " + key.help;
  std::string value = valueText(S(), key);
  // What is any text by default none says no more.
  bool isAnyText = key.isText() && key.rule.choices.empty();
  if (isAnyText && !key.rule.required && value == "\"\"")
    return line + "\n";
  return line + " (" + (isAnyText ? "" : describeValues(key) + ", ") +
         (key.rule.required ? "required" : "default " + value) + ")\n";
}

} // namespace bsr::train

#endif // BSR_TOOLS_SPARSETRAIN_KEYS_H
