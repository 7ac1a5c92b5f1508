// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// JSON that anybody may have written.

#ifndef BSR_TOOLS_SPARSETRAIN_JSON_H
#define BSR_TOOLS_SPARSETRAIN_JSON_H

#include "../../runtime/JsonSyntax.h"

#include <nlohmann/json.hpp>
#include <string_view>

namespace bsr {

/// Parses `text`. A discarded value, of no type at all, stands for what has a
/// `JsonFault`.
inline nlohmann::json parseJson(std::string_view text) {
  if (JsonFault(text).kind != JsonFault::None)
    return nlohmann::json(nlohmann::json::value_t::discarded);
  return nlohmann::json::parse(text.begin(), text.end());
}

} // namespace bsr

#endif // BSR_TOOLS_SPARSETRAIN_JSON_H
