// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bodies of entries: declarations, labels and instructions.

#include "Decoder.h"
#include "Parser.h"
#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace ptx;

Literal Parser::parseLiteral() {
  const Token &token = take();
  std::string text(token.text);
  auto bad = [&]() {
    failAt(token.line, "expected a number, but got '", text, "'");
  };
  Literal literal;
  char *end = nullptr;
  char mark = text.size() > 1 && text[0] == '0' ? char(text[1] | 32) : '\0';
  if (mark == 'f' || mark == 'd') {
    literal.kind = mark == 'f' ? Literal::Single : Literal::Double;
    if (text.size() != (mark == 'f' ? 10u : 18u))
      bad();
    literal.bits = std::strtoull(text.c_str() + 2, &end, 16);
  } else if (text.find('.') != std::string::npos) {
    double value = std::strtod(text.c_str(), &end);
    literal.kind = Literal::Double;
    std::memcpy(&literal.bits, &value, 8);
  } else {
    errno = 0;
    if (mark == 'b')
      literal.bits = std::strtoull(text.c_str() + 2, &end, 2);
    else
      literal.bits = std::strtoull(text.c_str(), &end, 0);
    if (errno == ERANGE || (mark == 'x' && text.size() < 3))
      bad();
    if (*end == 'U')
      ++end;
  }
  if (*end)
    bad();
  return literal;
}

void Parser::parseAddress(Operand &operand) {
  operand.kind = Operand::Address;
  if (peek().kind == Token::Word)
    operand.name = take().text;
  else if (peek().kind == Token::Number)
    operand.offset = int64_t(parseInteger("an address"));
  else
    failAt(peek().line, "expected an address, but got '", peek().text, "'");
  if (peek().is("+") || peek().is("-")) {
    bool minus = take().is("-");
    minus ^= accept("-");
    uint64_t offset = parseInteger("an offset");
    operand.offset += int64_t(minus ? 0 - offset : offset);
  }
  if (accept(",")) {
    Operand coordinates = parseOperand();
    if (coordinates.kind != Operand::Vector)
      failAt(peek().line, "expected coordinates in braces, but got '",
             peek().text, "'");
    operand.elements = std::move(coordinates.elements);
  }
  expect("]");
}

Operand Parser::parseOperand() {
  Operand operand;
  const Token &token = peek();
  if (accept("[")) {
    parseAddress(operand);
    return operand;
  }
  if (accept("{")) {
    operand.kind = Operand::Vector;
    do {
      operand.elements.push_back(parseOperand());
      if (operand.elements.back().kind != Operand::Name &&
          operand.elements.back().kind != Operand::Number)
        failAt(token.line,
               "expected registers and numbers in braces, but got others");
    } while (accept(","));
    expect("}");
    return operand;
  }
  operand.negated = accept("!");
  bool minus = accept("-");
  if (peek().kind == Token::Number) {
    operand.kind = Operand::Number;
    operand.literal = parseLiteral();
    if (minus && operand.literal.kind == Literal::Integer)
      operand.literal.bits = 0 - operand.literal.bits;
    else if (minus)
      operand.literal.bits ^= operand.literal.kind == Literal::Single
                                  ? uint64_t(1) << 31
                                  : uint64_t(1) << 63;
  } else if (peek().kind == Token::Word && !minus) {
    operand.name = take().text;
    if (accept("|"))
      operand.second = expectWord("a predicate");
    // A variable with an offset, as in mov.
    if (peek().is("+") && peek(1).kind == Token::Number) {
      take();
      operand.offset = int64_t(parseInteger("an offset"));
    }
  } else {
    failAt(peek().line, "expected an operand, but got '", peek().text, "'");
  }
  return operand;
}

Statement Parser::parseStatement() {
  Statement statement;
  const char *begin = peek().text.data();
  statement.line = peek().line;
  if (accept("@")) {
    statement.guardNegated = accept("!");
    statement.guard = expectWord("a predicate");
  }
  statement.line = peek().line;
  statement.opcode = expectWord("an instruction");
  while (!peek().is(";")) {
    statement.operands.push_back(parseOperand());
    if (!peek().is(";"))
      expect(",");
  }
  const char *end = take().text.data();
  // One line, with single spaces.
  for (const char *at = begin; at != end; ++at) {
    bool space = *at == ' ' || *at == '\t' || *at == '\n' || *at == '\r';
    if (!space)
      statement.text += *at;
    else if (!statement.text.empty() && statement.text.back() != ' ')
      statement.text += ' ';
  }
  return statement;
}

void Parser::parseRegisters(KernelBuilder &builder) {
  int line = peek().line;
  std::string_view word = expectWord("a type");
  std::optional<Type> type;
  if (word.size() > 1 && word[0] == '.')
    type = typeNamed(word.substr(1));
  if (!type || *type == Type::TF32)
    failAt(line, "expected a type, but got '", word, "'");
  do {
    std::string_view name = expectWord("a register");
    if (accept("<")) {
      uint64_t count = parseInteger("a number of registers");
      if (count > 1u << 20)
        failAt(line, "expected at most 1048576 registers, but got ", count);
      builder.declareMany(name, unsigned(count), *type, line);
      expect(">");
    } else {
      builder.declare(name, *type, line);
    }
  } while (accept(","));
  expect(";");
}

void Parser::parsePlace(KernelBuilder &builder, Place::Space space) {
  int line = peek().line;
  Declared made = parseDeclared();
  if (made.unsized || made.bytes() > 1u << 20)
    failAt(line, "expected a variable of at most 1 MiB, but got '", made.name,
           "'");
  if (space == Place::Shared)
    sharedAlign = std::max(sharedAlign, made.align);
  uint32_t &end =
      space == Place::Shared ? builder.staticShared : builder.kernel.localBytes;
  uint32_t offset = (end + made.align - 1) / made.align * made.align;
  end = offset + uint32_t(made.bytes());
  if (end > 1u << 24)
    failAt(line, "expected at most 16 MiB of variables, but got ", end,
           " bytes");
  builder.declarePlace(made.name, {space, offset, uint32_t(made.bytes())},
                       line);
  expect(";");
}

/// The label behind the instructions of a function, which no text can name.
static constexpr std::string_view endOfFunction = "the end";

std::vector<std::string_view> Parser::parseActuals() {
  std::vector<std::string_view> actuals;
  if (!accept("("))
    return actuals;
  while (!accept(")")) {
    actuals.push_back(expectWord("a variable of .param"));
    if (!peek().is(")"))
      expect(",");
  }
  return actuals;
}

/// The instructions of the function stand in the place of the call, its
/// parameters for the variables of the caller.
void Parser::parseCall(KernelBuilder &builder) {
  const Token begin = take();
  std::vector<std::string_view> actuals = parseActuals();
  if (!actuals.empty())
    expect(",");
  std::string_view name = expectWord("a function");
  auto found = functions.find(name);
  if (found == functions.end())
    failAt(begin.line, "expected a function that the text declares, but got '",
           name, "'");
  if (accept(","))
    for (std::string_view actual : parseActuals())
      actuals.push_back(actual);
  expect(";");
  const Function &function = found->second;
  if (!function.body) {
    Statement statement;
    statement.line = begin.line;
    statement.text = "call " + std::string(name) + ";";
    statement.opcode = "call";
    builder.append(decode(builder, statement), statement);
    return;
  }
  if (actuals.size() != function.formals.size())
    failAt(begin.line, "expected ", function.formals.size(),
           " results and parameters of '", name, "', but got ", actuals.size());
  if (std::find(calls.begin(), calls.end(), name) != calls.end())
    failAt(begin.line,
           "expected functions that do not call themselves, but "
           "got '",
           name, "'");
  std::vector<Place> places;
  for (std::string_view actual : actuals) {
    const Place *place = builder.findPlace(actual);
    if (!place || place->space != Place::Local)
      failAt(begin.line, "expected a variable of .param, but got '", actual,
             "'");
    places.push_back(*place);
  }
  calls.push_back(name);
  builder.open(/*isFunction=*/true);
  for (size_t i = 0; i < places.size(); ++i)
    builder.declarePlace(function.formals[i], places[i], begin.line);
  size_t after = next;
  next = function.body;
  int line = parseBlock(builder);
  next = after;
  builder.declareLabel(endOfFunction, line);
  builder.close();
  calls.pop_back();
}

void Parser::parseBody(KernelBuilder &builder) {
  // A kernel that ends without an instruction returns.
  Statement last;
  last.line = parseBlock(builder);
  last.text = "}";
  last.opcode = "ret";
  builder.append(decode(builder, last), last);
  builder.finish();
}

int Parser::parseBlock(KernelBuilder &builder) {
  expect("{");
  for (unsigned depth = 1;;) {
    const Token &token = peek();
    if (token.kind == Token::End)
      failAt(token.line, "expected '}', but got the end of the text");
    if (accept("{")) {
      if (++depth > 64)
        failAt(token.line,
               "expected at most 64 scopes in each other, but got more");
      builder.open();
    } else if (accept("}")) {
      if (--depth == 0)
        return token.line;
      builder.close();
    } else if (accept(".reg")) {
      parseRegisters(builder);
    } else if (accept(".local") || accept(".param")) {
      parsePlace(builder, Place::Local);
    } else if (accept(".shared")) {
      parsePlace(builder, Place::Shared);
    } else if (token.is(".loc") || token.is(".pragma")) {
      skipLine();
    } else if (accept(";")) {
    } else if (token.kind == Token::Word && peek(1).is(":")) {
      take();
      take();
      if (accept(".branchtargets")) {
        std::vector<std::string_view> labels;
        do
          labels.push_back(expectWord("a label"));
        while (accept(","));
        expect(";");
        builder.declareTargets(token.text, std::move(labels), token.line);
      } else {
        builder.declareLabel(token.text, token.line);
      }
    } else if (token.is("call") || token.is("call.uni")) {
      parseCall(builder);
    } else {
      Statement statement = parseStatement();
      if (!calls.empty() &&
          (statement.opcode == "ret" || statement.opcode == "ret.uni")) {
        statement.opcode = "bra";
        statement.operands.emplace_back();
        statement.operands.back().name = endOfFunction;
      }
      builder.append(decode(builder, statement), statement);
    }
  }
}
