// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Directives, parameters and variables of a module.

#include "Parser.h"
#include <cstring>

using namespace ptx;

void Parser::expect(std::string_view text) {
  if (!accept(text))
    failAt(peek().line, "expected '", text, "', but got '", peek().text, "'");
}

std::string_view Parser::expectWord(const char *what) {
  if (peek().kind != Token::Word)
    failAt(peek().line, "expected ", what, ", but got '", peek().text, "'");
  return take().text;
}

uint64_t Parser::parseInteger(const char *what) {
  int line = peek().line;
  std::string_view text = peek().text;
  if (peek().kind == Token::Number) {
    Literal literal = parseLiteral();
    if (literal.kind == Literal::Integer)
      return literal.bits;
  }
  failAt(line, "expected ", what, ", but got '", text, "'");
}

void Parser::skipLine() {
  for (int line = peek().line;
       peek().kind != Token::End && peek().line == line;)
    take();
}

void Parser::parseTarget() {
  int line = peek().line;
  std::string_view name = expectWord("a target");
  program.target = name;
  program.chip = nvidia::findChip(name);
  if (!program.chip)
    failAt(line, "expected a target of ", nvidia::listChips(), ", but got '",
           name, "'");
  while (accept(","))
    if (std::string_view option = expectWord("an option of .target");
        option != "debug" && option != "texmode_independent")
      failAt(line, "expected an option of .target, but got '", option, "'");
}

Parser::Declared Parser::parseDeclared() {
  Declared made;
  for (;;) {
    int line = peek().line;
    std::string_view word = expectWord("a type");
    if (word == ".align") {
      uint64_t align = parseInteger("an alignment");
      if (align == 0 || align > 4096 || (align & (align - 1)))
        failAt(
            line,
            "expected an alignment that is a power of 2 up to 4096, but got ",
            align);
      made.align = unsigned(align);
      continue;
    }
    std::optional<Type> type;
    if (word.size() > 1 && word[0] == '.')
      type = typeNamed(word.substr(1));
    if (!type || sizeOf(*type) == 0 || *type == Type::TF32)
      failAt(line, "expected a type, but got '", word, "'");
    made.type = *type;
    break;
  }
  // .ptr .global .align 16 of a parameter
  while (peek().is(".ptr") || peek().is(".global") || peek().is(".shared") ||
         peek().is(".const") || peek().is(".local") || peek().is(".align")) {
    if (take().text == ".align")
      parseInteger("an alignment");
  }
  made.name = expectWord("a name");
  if (!made.align)
    made.align = sizeOf(made.type);
  while (accept("[")) {
    if (accept("]")) {
      made.unsized = true;
      continue;
    }
    int line = peek().line;
    uint64_t count = parseInteger("a number of elements");
    if (count == 0 || count > (1u << 30) || made.count > (1u << 30) / count)
      failAt(line, "expected 1 to 2^30 elements, but got ", count);
    made.count *= count;
    expect("]");
  }
  return made;
}

void Parser::parseInitialiser(Variable &variable, Type type, uint64_t count) {
  unsigned size = sizeOf(type);
  variable.initialised = true;
  unsigned depth = 0;
  uint64_t at = 0;
  do {
    while (accept("{"))
      ++depth;
    if (depth && accept("}")) {
      --depth;
    } else {
      int line = peek().line;
      bool minus = accept("-");
      if (peek().kind != Token::Number)
        failAt(line, "expected a number, but got '", peek().text, "'");
      Literal literal = parseLiteral();
      uint64_t bits = literal.bits;
      if (literal.kind == Literal::Double && type == Type::F32) {
        double value;
        std::memcpy(&value, &bits, 8);
        float narrow = float(value);
        bits = 0;
        std::memcpy(&bits, &narrow, 4);
      }
      if (minus)
        bits =
            isFloat(type) ? bits ^ (uint64_t(1) << (8 * size - 1)) : 0 - bits;
      if (at == count)
        failAt(line, "expected ", count, " values, but got more");
      std::memcpy(&variable.bytes[at++ * size], &bits, size);
    }
    while (depth && accept("}"))
      --depth;
  } while (accept(","));
  if (depth)
    failAt(peek().line, "expected '}', but got '", peek().text, "'");
}

void Parser::parseVariable(bool isExtern) {
  int line = peek().line;
  std::string_view space = take().text;
  do {
    Declared made = parseDeclared();
    Place place{Place::Module, 0, uint32_t(made.bytes())};
    if (space == ".shared" && made.unsized) {
      place.space = Place::DynamicShared;
      dynamicAlign = std::max(dynamicAlign, made.align);
    } else if (made.unsized || isExtern) {
      failAt(line, "expected a variable with a size, but got '", made.name,
             "'");
    } else if (space == ".shared") {
      place.space = Place::Shared;
      sharedAlign = std::max(sharedAlign, made.align);
      sharedOfModule =
          (sharedOfModule + made.align - 1) / made.align * made.align;
      place.offset = sharedOfModule;
      if (made.bytes() > 1u << 20)
        failAt(line, "expected at most 1 MiB of shared memory, but got ",
               made.bytes(), " bytes");
      sharedOfModule += unsigned(made.bytes());
    } else {
      Variable variable;
      variable.name = std::string(made.name);
      variable.align = made.align;
      variable.bytes.resize(made.bytes());
      if (accept("="))
        parseInitialiser(variable, made.type, made.count);
      program.variables.push_back(std::move(variable));
    }
    if (!names.emplace(made.name, place).second)
      failAt(line, "expected one variable '", made.name, "', but got two");
  } while (accept(","));
  expect(";");
}

void Parser::parseParameters(Kernel &kernel) {
  if (!accept("("))
    return;
  while (!accept(")")) {
    int line = peek().line;
    expect(".param");
    Declared made = parseDeclared();
    if (made.unsized || made.bytes() > 4096)
      failAt(line, "expected a parameter of at most 4096 bytes, but got '",
             made.name, "'");
    unsigned &end = kernel.info.parameterBytes;
    unsigned offset = (end + made.align - 1) / made.align * made.align;
    kernel.info.parameters.push_back(
        {std::string(made.name), offset, unsigned(made.bytes())});
    end = offset + unsigned(made.bytes());
    if (end > 32764)
      failAt(line, "expected at most 32764 bytes of parameters, but got ", end);
    if (!peek().is(")"))
      expect(",");
  }
}

Dim Parser::parseDim() {
  Dim dim;
  for (unsigned *extent : {&dim.x, &dim.y, &dim.z}) {
    int line = peek().line;
    uint64_t value = parseInteger("an extent");
    if (value == 0 || value > 1024)
      failAt(line, "expected an extent of 1 to 1024, but got ", value);
    *extent = unsigned(value);
    if (!accept(","))
      break;
  }
  return dim;
}

void Parser::parseDirectives(Kernel &kernel) {
  for (;;) {
    if (accept(".maxntid"))
      kernel.info.maxThreads = unsigned(parseDim().count());
    else if (accept(".reqntid"))
      kernel.info.requiredBlock = parseDim();
    else if (accept(".reqnctapercluster"))
      kernel.info.requiredCluster = parseDim();
    else if (accept(".minnctapersm") || accept(".maxclusterrank"))
      parseInteger("a number of blocks");
    else if (accept(".maxnreg"))
      kernel.info.maxRegisters =
          unsigned(parseInteger("a number of registers"));
    else if (accept(".pragma"))
      skipLine();
    else if (!accept(".explicitcluster") && !accept(".blocksareclusters"))
      break;
  }
}

void Parser::parseEntry() {
  Kernel kernel;
  kernel.line = peek().line;
  std::string_view name = expectWord("a name");
  kernel.info.name = name;
  for (const Kernel &other : program.kernels)
    if (other.info.name == name)
      failAt(kernel.line, "expected one entry '", name, "', but got two");
  parseParameters(kernel);
  parseDirectives(kernel);
  if (!peek().is("{"))
    failAt(peek().line, "expected '{', but got '", peek().text, "'");
  KernelBuilder builder(program, kernel, names);
  builder.staticShared = sharedOfModule;
  for (size_t i = 0; i < kernel.info.parameters.size(); ++i) {
    const Parameter &parameter = kernel.info.parameters[i];
    // The names outlive the parameters: those are moved, not copied.
    builder.declarePlace(parameter.name,
                         {Place::Param, parameter.offset, parameter.size},
                         kernel.line);
  }
  parseBody(builder);
  kernel.dynamicAlign = dynamicAlign;
  kernel.sharedAlign = std::max(sharedAlign, dynamicAlign);
  program.kernels.push_back(std::move(kernel));
}

/// To the end of a section or a function, or of its declaration.
void Parser::skipBraces() {
  while (!peek().is("{") && !peek().is(";") && peek().kind != Token::End)
    take();
  unsigned depth = 0;
  do {
    int line = peek().line;
    if (peek().kind == Token::End)
      failAt(line, "expected '}', but got the end of the text");
    depth += peek().is("{");
    depth -= peek().is("}");
    take();
  } while (depth);
}

std::vector<std::string_view> Parser::parseFormals() {
  std::vector<std::string_view> formals;
  if (!accept("("))
    return formals;
  while (!accept(")")) {
    if (!accept(".param"))
      expect(".reg");
    formals.push_back(parseDeclared().name);
    if (!peek().is(")"))
      expect(",");
  }
  return formals;
}

/// A call parses the body again, with names of its own.
void Parser::parseFunction() {
  Function function;
  function.formals = parseFormals();
  std::string_view name = expectWord("a name");
  for (std::string_view formal : parseFormals())
    function.formals.push_back(formal);
  while (!peek().is("{") && !peek().is(";") && peek().kind != Token::End)
    take();
  if (peek().is("{"))
    function.body = next;
  skipBraces();
  // A declaration may come before it.
  Function &known = functions[name];
  if (!known.body)
    known = std::move(function);
}

/// 83 of 8.3.
static unsigned readVersion(std::string_view text) {
  unsigned version = 0;
  for (char c : text)
    if (c != '.')
      version = version * 10 + unsigned(c - '0') % 10;
  return text.find('.') == std::string_view::npos ? version * 10 : version;
}

void Parser::parseModule() {
  bool isExtern = false;
  while (peek().kind != Token::End) {
    const Token &token = peek();
    if (accept(".version")) {
      if (peek().kind != Token::Number)
        failAt(token.line, "expected a version, but got '", peek().text, "'");
      program.version = readVersion(take().text);
    } else if (accept(".target")) {
      parseTarget();
    } else if (accept(".address_size")) {
      if (parseInteger("64") != 64)
        failAt(token.line, "expected .address_size 64, but got another one");
    } else if (token.is(".file") || token.is(".pragma") || token.is(".loc")) {
      skipLine();
    } else if (token.is(".section")) {
      skipBraces();
    } else if (accept(".extern")) {
      isExtern = true;
    } else if (accept(".visible") || accept(".weak") || accept(".common")) {
    } else if (accept(".func")) {
      parseFunction();
      isExtern = false;
    } else if (accept(".entry")) {
      if (!program.chip)
        failAt(token.line, "expected .target before an entry, but got none");
      parseEntry();
    } else if (token.is(".global") || token.is(".const") ||
               token.is(".shared")) {
      parseVariable(isExtern);
      isExtern = false;
    } else {
      failAt(token.line, "expected a directive of a module, but got '",
             token.text, "'");
    }
  }
  if (!program.chip)
    sparse_opt::fail("expected .target in a module, but got none");
}
