// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// JSON whose every access is checked and fails with a sentence.

#ifndef BSR_SUPPORT_JSON_H
#define BSR_SUPPORT_JSON_H

#include "Error.h"
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace sparse_opt {

/// What is read. Its objects are trees, so that many keys take little time.
using Json = nlohmann::json;
/// What is written, in the order in which it is made: of a few keys.
using OrderedJson = nlohmann::ordered_json;

/// Parses `text`, which `where` names; refuses a key that an object has twice,
/// a number that no double holds, and nesting that no format of ours has: most
/// of what the library does with a value is recursive.
Json parseJson(std::string_view text, int status, const std::string &where);

/// The same, with a discarded value, of no type at all, for what is refused.
Json parseJson(std::string_view text);

/// Whether `text` is UTF-8, as JSON demands.
bool isUTF8(const std::string &text);

/// An object of a document. Fails with `status`; `where` names the object.
class JsonObject {
public:
  JsonObject(const Json &value, int status, std::string where);

  /// Member `key`, of the kind that the function names.
  int64_t integer(const char *key, int64_t least = INT64_MIN,
                  int64_t most = INT64_MAX) const;
  double number(const char *key) const;
  bool boolean(const char *key) const;
  std::string text(const char *key) const;
  std::vector<int64_t> integers(const char *key, int64_t least = INT64_MIN,
                                int64_t most = INT64_MAX) const;
  std::vector<std::string> texts(const char *key) const;
  const Json &array(const char *key) const;
  JsonObject object(const char *key) const;

  bool has(const char *key) const { return value.contains(key); }
  const Json &members() const { return value; }

  /// Fails because member `key` is not `expected`.
  [[noreturn]] void refuse(const char *key, const std::string &expected) const;

private:
  const Json &member(const char *key, const char *expected) const;

  const Json &value;
  int status;
  std::string where;
};

} // namespace sparse_opt

#endif // BSR_SUPPORT_JSON_H
