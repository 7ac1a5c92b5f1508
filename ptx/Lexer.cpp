// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Lexer.h"

using namespace ptx;

static bool isDigit(char c) { return c >= '0' && c <= '9'; }
static bool isLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
static bool beginsWord(char c) {
  return isLetter(c) || c == '_' || c == '$' || c == '%' || c == '.';
}

std::vector<Token> ptx::tokenize(std::string_view text) {
  std::vector<Token> tokens;
  int line = 1;
  size_t i = 0;
  auto at = [&](size_t place) {
    return place < text.size() ? text[place] : '\0';
  };
  auto push = [&](Token::Kind kind, size_t begin) {
    tokens.push_back({kind, line, text.substr(begin, i - begin)});
  };
  while (i < text.size()) {
    char c = text[i];
    size_t begin = i;
    if (c == '\n') {
      ++line;
      ++i;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++i;
    } else if (c == '/' && at(i + 1) == '/') {
      while (i < text.size() && text[i] != '\n')
        ++i;
    } else if (c == '/' && at(i + 1) == '*') {
      size_t end = text.find("*/", i + 2);
      if (end == std::string_view::npos)
        failAt(line, "expected a comment to end, but got the end of the text");
      for (; i < end + 2; ++i)
        line += text[i] == '\n';
    } else if (c == '"') {
      size_t end = text.find_first_of("\"\n", i + 1);
      if (end == std::string_view::npos || text[end] == '\n')
        failAt(line, "expected a string to end, but got the end of the line");
      i = end + 1;
      tokens.push_back(
          {Token::String, line, text.substr(begin + 1, end - begin - 1)});
    } else if (isDigit(c)) {
      // Hexadecimal digits, the marks x, f, d, U, and a fraction.
      while (isDigit(at(i)) || isLetter(at(i)) || at(i) == '.')
        ++i;
      push(Token::Number, begin);
    } else if (beginsWord(c)) {
      while (beginsWord(at(i)) || isDigit(at(i)) ||
             (at(i) == ':' && at(i + 1) == ':'))
        i += at(i) == ':' ? 2 : 1;
      push(Token::Word, begin);
    } else if (std::string_view("{}[]()<>,;:@!|+-=*").find(c) !=
               std::string_view::npos) {
      ++i;
      push(Token::Punctuation, begin);
    } else {
      failAt(line, "expected a token of PTX, but got byte ",
             unsigned(static_cast<unsigned char>(c)));
    }
  }
  tokens.push_back({Token::End, line, "the end of the text"});
  return tokens;
}
