// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values of configuration keys in YAML.

#ifndef BSR_TOOLS_SPARSETRAIN_KEYS_H
#define BSR_TOOLS_SPARSETRAIN_KEYS_H

#include "support/Keys.h"

#include <yaml-cpp/yaml.h>

namespace sparse_opt::train {

/// Reads a decimal integer; false if `text` is none. 010, which YAML takes for
/// 8 and people for 10, is none.
bool parseInteger(const std::string &text, int64_t &value);

using sparse_opt::excerpt;
/// The start of a value as YAML, for a message.
std::string excerpt(const YAML::Node &node);

/// The path that `value` of the configuration file `file` names: one that
/// begins with "./" is in the folder of the file.
std::string pathOf(const std::string &value, const std::string &file);

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
  return isValid(rule, value);
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
    out << numberText(value);
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

/// A line on the key called `name`, with what it means, `values`, which are
/// valid, and its default. `isAnyText`: of a text, if any is.
std::string describeKey(const std::string &name, const std::string &help,
                        const std::string &values,
                        const std::string &defaultValue, bool isAnyText,
                        bool isRequired);

template <typename S>
std::string describeKey(const Key<S> &key) {
  return describeKey(
      key.name, key.help, describeValues(key), valueText(S(), key),
      key.isText() && key.rule.choices.empty(), key.rule.required);
}

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_KEYS_H
