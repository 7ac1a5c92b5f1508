// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checked access to JSON.

#include "Json.h"
#include <set>

using namespace sparse_opt;

namespace {
/// The first fault of a text, found without a value being built. The library's
/// own way to look at a text while it is parsed takes a time that is quadratic
/// in the members of an object.
class JsonFault : private nlohmann::json_sax<nlohmann::json> {
public:
  /// Most of what the library does with a value is recursive.
  static constexpr size_t deepest = 64;

  enum Kind {
    None,
    Syntax, // at `byte`
    Number, // that no double holds
    Depth,  // more than `deepest`
    Twin    // an object has `name` twice
  };

  explicit JsonFault(std::string_view text) {
    nlohmann::json_sax<nlohmann::json> *handler = this;
    (void)nlohmann::json::sax_parse(text.begin(), text.end(), handler);
  }

  Kind kind = None;
  size_t byte = 0;
  std::string name;

private:
  bool refuse(Kind found) {
    kind = found;
    return false;
  }
  bool start() {
    keys.emplace_back();
    return keys.size() <= deepest || refuse(Depth);
  }
  bool end() {
    keys.pop_back();
    return true;
  }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t) override { return true; }
  bool number_unsigned(uint64_t) override { return true; }
  bool number_float(double, const std::string &) override { return true; }
  bool string(std::string &) override { return true; }
  bool binary(binary_t &) override { return true; }
  bool start_object(size_t) override { return start(); }
  bool end_object() override { return end(); }
  bool start_array(size_t) override { return start(); }
  bool end_array() override { return end(); }
  bool key(std::string &key) override {
    if (keys.back().insert(key).second)
      return true;
    name = key;
    return refuse(Twin);
  }
  bool parse_error(size_t position, const std::string &,
                   const nlohmann::detail::exception &error) override {
    byte = position;
    // The library's "number overflow".
    constexpr int overflow = 406;
    return refuse(error.id == overflow ? Number : Syntax);
  }

  std::vector<std::set<std::string>> keys; // of the objects that are open
};
} // namespace

Json sparse_opt::parseJson(std::string_view text, int status,
                           const std::string &where) {
  JsonFault fault(text);
  switch (fault.kind) {
  case JsonFault::None:
    break;
  case JsonFault::Syntax:
    fail(status, "expected ", where, " to be JSON, but got an error at byte ",
         fault.byte);
  case JsonFault::Number:
    fail(status, "expected ", where,
         " to have numbers that a double holds, but got a larger one");
  case JsonFault::Depth:
    fail(status, "expected ", where, " to nest values at most ",
         JsonFault::deepest, " deep, but got deeper ones");
  case JsonFault::Twin:
    fail(status, "expected ", where, " to have each key once, but got '",
         fault.name, "' twice");
  }
  return Json::parse(text.begin(), text.end());
}

Json sparse_opt::parseJson(std::string_view text) {
  if (JsonFault(text).kind != JsonFault::None)
    return Json(Json::value_t::discarded);
  return Json::parse(text.begin(), text.end());
}

bool sparse_opt::isUTF8(const std::string &text) {
  try {
    (void)Json(text).dump();
    return true;
  } catch (const Json::type_error &) {
    return false;
  }
}

/// The start of `value` as text, for a message.
static std::string excerpt(const Json &value) {
  constexpr size_t longest = 60;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > longest)
    text = text.substr(0, longest) + "...";
  return text;
}

JsonObject::JsonObject(const Json &value, int status, std::string where)
    : value(value), status(status), where(std::move(where)) {
  if (!value.is_object())
    fail(status, "expected ", this->where, " to be an object, but got ",
         excerpt(value));
}

void JsonObject::refuse(const char *key, const std::string &expected) const {
  auto found = value.find(key);
  fail(status, "expected '", key, "' of ", where, " to be ", expected,
       ", but got ", found == value.end() ? "nothing" : excerpt(*found));
}

const Json &JsonObject::member(const char *key, const char *expected) const {
  auto found = value.find(key);
  if (found == value.end())
    refuse(key, expected);
  return *found;
}

/// Whether `value` is an integer in [least, most].
static bool isInteger(const Json &value, int64_t least, int64_t most) {
  if (!value.is_number_integer())
    return false;
  if (value.is_number_unsigned() && value.get<uint64_t>() > uint64_t(INT64_MAX))
    return false;
  return value.get<int64_t>() >= least && value.get<int64_t>() <= most;
}

static std::string describeRange(const char *noun, int64_t least,
                                 int64_t most) {
  return std::string(noun) + " in [" + std::to_string(least) + ", " +
         std::to_string(most) + "]";
}

int64_t JsonObject::integer(const char *key, int64_t least,
                            int64_t most) const {
  auto found = value.find(key);
  if (found == value.end() || !isInteger(*found, least, most))
    refuse(key, describeRange("an integer", least, most));
  return found->get<int64_t>();
}

double JsonObject::number(const char *key) const {
  const Json &found = member(key, "a number");
  if (!found.is_number())
    refuse(key, "a number");
  return found.get<double>();
}

bool JsonObject::boolean(const char *key) const {
  const Json &found = member(key, "true or false");
  if (!found.is_boolean())
    refuse(key, "true or false");
  return found.get<bool>();
}

std::string JsonObject::text(const char *key) const {
  const Json &found = member(key, "a string");
  if (!found.is_string())
    refuse(key, "a string");
  return found.get<std::string>();
}

const Json &JsonObject::array(const char *key) const {
  const Json &found = member(key, "an array");
  if (!found.is_array())
    refuse(key, "an array");
  return found;
}

std::vector<int64_t> JsonObject::integers(const char *key, int64_t least,
                                          int64_t most) const {
  std::vector<int64_t> result;
  for (const Json &element : array(key)) {
    if (!isInteger(element, least, most))
      fail(status, "expected '", key, "[", result.size(), "]' of ", where,
           " to be ", describeRange("an integer", least, most), ", but got ",
           excerpt(element));
    result.push_back(element.get<int64_t>());
  }
  return result;
}

std::vector<std::string> JsonObject::texts(const char *key) const {
  std::vector<std::string> result;
  for (const Json &element : array(key)) {
    if (!element.is_string())
      fail(status, "expected '", key, "[", result.size(), "]' of ", where,
           " to be a string, but got ", excerpt(element));
    result.push_back(element.get<std::string>());
  }
  return result;
}

JsonObject JsonObject::object(const char *key) const {
  return JsonObject(member(key, "an object"), status,
                    std::string("'") + key + "' of " + where);
}
