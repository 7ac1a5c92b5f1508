// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is wrong with JSON that anybody may have written, before it is parsed.

#ifndef BSR_RUNTIME_JSONSYNTAX_H
#define BSR_RUNTIME_JSONSYNTAX_H

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace bsr {

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

} // namespace bsr

#endif // BSR_RUNTIME_JSONSYNTAX_H
