// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The grammar of a module.

#ifndef PTX_PARSER_H
#define PTX_PARSER_H

#include "KernelBuilder.h"

namespace ptx {

class Parser {
public:
  Parser(std::string_view text, Program &program)
      : text(text), tokens(tokenize(text)), program(program) {}

  void parseModule();

private:
  // ParserModule.cpp: what is outside of bodies.
  void parseTarget();
  void parseEntry();
  void skipBraces();
  void parseFunction();
  std::vector<std::string_view> parseFormals();
  void parseParameters(Kernel &kernel);
  void parseDirectives(Kernel &kernel);
  Dim parseDim();
  void parseVariable(bool isExtern);
  void parseInitialiser(Variable &variable, Type type, uint64_t count);
  void skipLine();

  // ParserBody.cpp: bodies and statements.
  void parseBody(KernelBuilder &builder);
  /// Up to the brace that ends it; returns the line of that.
  int parseBlock(KernelBuilder &builder);
  void parseCall(KernelBuilder &builder);
  std::vector<std::string_view> parseActuals();
  void parseRegisters(KernelBuilder &builder);
  void parsePlace(KernelBuilder &builder, Place::Space space);
  Statement parseStatement();
  Operand parseOperand();
  void parseAddress(Operand &operand);
  Literal parseLiteral();

  // Both.
  struct Declared {
    Type type = Type::B8;
    unsigned align = 0; ///< 0: that of the type
    std::string_view name;
    uint64_t count = 1;
    bool unsized = false;
    uint64_t bytes() const { return count * sizeOf(type); }
  };
  Declared parseDeclared();
  uint64_t parseInteger(const char *what);

  const Token &peek(unsigned ahead = 0) const {
    return tokens[std::min(next + ahead, tokens.size() - 1)];
  }
  const Token &take() {
    const Token &token = peek();
    if (token.kind != Token::End)
      ++next;
    return token;
  }
  bool accept(std::string_view text) {
    if (!peek().is(text))
      return false;
    take();
    return true;
  }
  void expect(std::string_view text);
  std::string_view expectWord(const char *what);

  std::string_view text;
  std::vector<Token> tokens;
  size_t next = 0;
  Program &program;
  std::map<std::string_view, Place> names; ///< variables of the module
  struct Function {
    std::vector<std::string_view> formals; ///< results, then parameters
    size_t body = 0; ///< the token of its first brace; 0: it has none
  };
  std::map<std::string_view, Function> functions;
  std::vector<std::string_view> calls; ///< that are being parsed
  unsigned sharedOfModule = 0, dynamicAlign = 16, sharedAlign = 16;
};

} // namespace ptx

#endif // PTX_PARSER_H
