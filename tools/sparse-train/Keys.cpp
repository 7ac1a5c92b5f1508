// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values of configuration keys in YAML.

#include "Keys.h"

#include <filesystem>

using namespace sparse_opt;

std::string train::excerpt(const YAML::Node &node) {
  return excerpt(YAML::Dump(node));
}

std::string train::pathOf(const std::string &value, const std::string &file) {
  if (value.rfind("./", 0) != 0)
    return value;
  return std::filesystem::path(file).replace_filename(value.substr(2));
}

bool train::parseInteger(const std::string &text, int64_t &value) {
  const char *begin = text.data(), *end = begin + text.size();
  begin += text.size() > 1 && text[0] == '+';
  auto parsed = std::from_chars(begin, end, value);
  bool hasZeros = end - begin > 1 && *begin == '0';
  return parsed.ec == std::errc() && parsed.ptr == end && !hasZeros;
}

std::string train::describeKey(const std::string &name, const std::string &help,
                               const std::string &values,
                               const std::string &defaultValue, bool isAnyText,
                               bool isRequired) {
  std::string line = "  " + name + ": " + help;
  // What is any text by default none says no more.
  if (isAnyText && !isRequired && defaultValue == "\"\"")
    return line + "\n";
  return line + " (" + (isAnyText ? "" : values + ", ") +
         (isRequired ? "required" : "default " + defaultValue) + ")\n";
}
