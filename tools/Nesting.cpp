// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counts levels without parsing: tokens that are no brackets do not matter.

#include "Nesting.h"
#include "mlir/Bytecode/BytecodeReader.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MemoryBufferRef.h"

using llvm::StringRef;

namespace {
/// Goes through a text, one token after the other.
class Counter {
public:
  explicit Counter(StringRef text) : rest(text) {}

  size_t count() {
    while (!rest.empty())
      take();
    return deepest;
  }

private:
  /// A bracket that is open, and the terms of the expression in it so far.
  struct Level {
    char bracket;
    size_t terms = 0;
  };

  static char getOpening(char closing) {
    switch (closing) {
    case ')':
      return '(';
    case ']':
      return '[';
    case '}':
      return '{';
    default:
      return '<';
    }
  }

  /// Takes the next token from the rest.
  void take() {
    if (rest.starts_with("//")) {
      rest = rest.drop_until([](char c) { return c == '\n'; });
    } else if (rest.consume_front("->") || rest.consume_front(">=") ||
               rest.consume_front("<=") || rest.consume_front("==")) {
      hasContent = true;
    } else if (rest.front() == '"') {
      takeString();
    } else if (rest.front() == '#' || rest.front() == '!') {
      takeAlias();
    } else if (llvm::isAlpha(rest.front())) {
      takeWord();
    } else {
      takeCharacter(rest.front());
      rest = rest.drop_front();
    }
  }

  void takeString() {
    rest = rest.drop_front();
    while (!rest.empty() && rest.front() != '"' && rest.front() != '\n')
      rest = rest.drop_front(rest.front() == '\\' && rest.size() > 1 ? 2 : 1);
    rest = rest.drop_front(!rest.empty());
    hasContent = true;
  }

  void takeWord() {
    StringRef word = rest.take_while([](char c) { return llvm::isAlnum(c); });
    rest = rest.drop_front(word.size());
    hasContent = true;
    if (word == "mod" || word == "floordiv" || word == "ceildiv")
      addTerm();
  }

  /// `#name` or `!name`: of an alias, the levels of what it stands for count
  /// where it is named.
  void takeAlias() {
    size_t size = 1;
    while (size != rest.size() &&
           (llvm::isAlnum(rest[size]) || StringRef("._$").contains(rest[size])))
      ++size;
    StringRef name = rest.take_front(size);
    rest = rest.drop_front(size);
    StringRef next = rest.ltrim(" \t");
    if (levels.empty() && next.starts_with("=") && !next.starts_with("==")) {
      rest = next.drop_front();
      defined = name;
      hasContent = false;
      return;
    }
    hasContent = true;
    reach(levels.size() + aliases.lookup(name));
  }

  void takeCharacter(char c) {
    switch (c) {
    case '(':
    case '[':
    case '{':
    case '<':
      levels.push_back({c});
      reach(levels.size());
      break;
    case ')':
    case ']':
    case '}':
    case '>':
      close(getOpening(c));
      break;
    case ',':
      if (!levels.empty())
        levels.back().terms = 0;
      break;
    case '+':
    case '-':
    case '*':
      addTerm();
      break;
    case '\n':
      if (levels.empty() && hasContent)
        defined = "";
      return;
    default:
      break;
    }
    hasContent |= !llvm::isSpace(c);
  }

  void addTerm() {
    if (!levels.empty() && levels.back().bracket != '{')
      reach(levels.size() + ++levels.back().terms);
  }

  /// Closes the innermost bracket `opening` and what was left open in it: `<`
  /// is a sign, too.
  void close(char opening) {
    auto found = llvm::find_if(llvm::reverse(levels), [&](const Level &level) {
      return level.bracket == opening ||
             (opening == '<' && level.bracket != '<');
    });
    if (found != levels.rend() && found->bracket == opening)
      levels.truncate(levels.rend() - found - 1);
  }

  void reach(size_t level) {
    deepest = std::max(deepest, level);
    if (!defined.empty()) {
      size_t &known = aliases[defined];
      known = std::max(known, level);
    }
  }

  StringRef rest;
  llvm::SmallVector<Level> levels;
  size_t deepest = 0;
  /// The levels of each alias, and the one whose definition this is.
  llvm::StringMap<size_t> aliases;
  StringRef defined;
  /// Whether something stands behind its `=`.
  bool hasContent = false;
};
} // namespace

size_t tools::getNesting(StringRef text) { return Counter(text).count(); }

llvm::Error tools::verifyNesting(StringRef path, StringRef text) {
  if (mlir::isBytecode(llvm::MemoryBufferRef(text, path)))
    return llvm::Error::success();
  constexpr size_t most = 500;
  size_t nesting = getNesting(text);
  if (nesting <= most)
    return llvm::Error::success();
  return llvm::createStringError(
      "expected '" + path + "' to nest regions, brackets and terms at most " +
      llvm::Twine(most) + " deep, but got " + llvm::Twine(nesting));
}
