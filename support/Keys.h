// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tables of keys: the fields of a structure by name, and which values are
// valid. What the values are read from is the caller's.

#ifndef BSR_SUPPORT_KEYS_H
#define BSR_SUPPORT_KEYS_H

#include "Error.h"
#include "Json.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace sparse_opt {

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
  /// True for a text that names a file or a folder.
  bool isPath = false;
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
  bool isMap() const {
    return std::holds_alternative<std::map<std::string, double> S::*>(field);
  }
};

/// The start of a text, for a message.
std::string excerpt(const std::string &text);

/// The shortest text that reads back as `value`.
std::string numberText(double value);

/// `names`, those that are most like `name` first.
std::vector<std::string> nearestFirst(const std::string &name,
                                      const std::vector<std::string> &names);

/// Throws the error for `name`, which is none of the keys `known`: it names the
/// nearest ones, at most three.
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
  if (key.isMap())
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

/// Whether `rule` holds for `value`, a boolean, an integer, a number or a text.
template <typename T>
bool isValid(const KeyRule &rule, const T &value) {
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

} // namespace sparse_opt

#endif // BSR_SUPPORT_KEYS_H
