// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// JSON that anybody may have written.

#ifndef BSR_TOOLS_SPARSETRAIN_JSON_H
#define BSR_TOOLS_SPARSETRAIN_JSON_H

#include <nlohmann/json.hpp>
#include <string_view>

namespace bsr {

/// Parses `text`. A discarded value, of no type at all, stands for what is no
/// JSON, has a number beyond all numbers, or is nested deeper than anything
/// that this program reads: most of what the library does with a value is
/// recursive.
template <typename Json>
Json parseJson(std::string_view text) {
  constexpr int deepest = 64;
  bool isDeep = false;
  auto keep = [&](int depth, nlohmann::detail::parse_event_t, Json &) {
    isDeep |= depth > deepest;
    return depth <= deepest;
  };
  Json value = Json::parse(text.begin(), text.end(), keep,
                           /*allow_exceptions=*/false);
  return isDeep ? Json(Json::value_t::discarded) : value;
}

} // namespace bsr

#endif // BSR_TOOLS_SPARSETRAIN_JSON_H
