// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads kernels in PTX.

#include "bsr/Codegen/GPU/Prediction/PTX.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSwitch.h"

using namespace llvm;
using namespace mlir::bsr::ptx;

bool Instruction::has(StringRef part) const {
  return llvm::is_contained(parts, part);
}

StringRef Instruction::type() const {
  for (StringRef part : llvm::reverse(parts))
    if (getBits(part))
      return part;
  return "";
}

std::optional<unsigned> Kernel::getParameter(StringRef symbol) const {
  const auto *found = llvm::find(parameters, symbol);
  if (found == parameters.end())
    return std::nullopt;
  return found - parameters.begin();
}

unsigned mlir::bsr::ptx::getBits(StringRef type) {
  if (type == "pred")
    return 1;
  StringRef digits = type;
  if (!digits.consume_front("bf") && !digits.consume_front("tf") &&
      !digits.consume_front("s") && !digits.consume_front("u") &&
      !digits.consume_front("b") && !digits.consume_front("f"))
    return 0;
  return StringSwitch<unsigned>(digits)
      .Case("8", 8)
      .Case("16", 16)
      .Cases({"32", "16x2"}, 32)
      .Case("64", 64)
      .Case("128", 128)
      .Default(0);
}

namespace {
/// Reads one kernel, statement by statement.
class BodyReader {
public:
  BodyReader(Kernel &kernel) : kernel(kernel) {}

  /// Reads `statement`, without its semicolon.
  Error read(StringRef statement);
  /// Gives branches the numbers of their targets.
  Error resolve();

private:
  Error readOperand(StringRef text, bool isAddress, Instruction &to);
  /// Reads what is separated by commas, vectors and addresses among it.
  Error readOperands(StringRef text, Instruction &to);
  unsigned getRegister(StringRef name) {
    return registers.try_emplace(name, registers.size()).first->second;
  }

  Kernel &kernel;
  StringMap<unsigned> registers, labels;
  std::vector<std::pair<unsigned, StringRef>> branches;
};
} // namespace

static Error refuse(const Twine &expected, const Twine &got) {
  return createStringError("expected " + expected + " in PTX, but got '" + got +
                           "'");
}

static bool isSpecial(StringRef name) {
  return llvm::any_of(
      ArrayRef<StringRef>{"%tid.", "%ntid.", "%ctaid.", "%nctaid.", "%laneid",
                          "%warpid", "%nwarpid", "%clock", "%smid"},
      [&](StringRef prefix) { return name.starts_with(prefix); });
}

Error BodyReader::readOperand(StringRef text, bool isAddress, Instruction &to) {
  text = text.trim();
  Operand operand{Operand::Kind::Immediate, isAddress};
  if (isAddress) {
    auto [base, offset] = text.split('+');
    text = base.trim();
    if (!offset.empty() && offset.trim().getAsInteger(0, operand.value))
      return refuse("an offset", offset);
  }
  text.consume_front("!");
  if (text.starts_with("%")) {
    operand.kind =
        isSpecial(text) ? Operand::Kind::Special : Operand::Kind::Register;
    operand.name = text;
    if (operand.kind == Operand::Kind::Register)
      operand.index = getRegister(text);
  } else if (uint64_t bits; (text.consume_front_insensitive("0f") ||
                             text.consume_front_insensitive("0d"))) {
    if (text.getAsInteger(16, bits))
      return refuse("a float", text);
    operand.value = static_cast<int64_t>(bits);
  } else if (int64_t number; !text.getAsInteger(0, number)) {
    operand.value += number;
  } else if (uint64_t large; !text.getAsInteger(0, large)) {
    operand.value = static_cast<int64_t>(large);
  } else if (!text.empty()) {
    operand.kind = Operand::Kind::Symbol;
    operand.name = text;
  } else {
    return refuse("an operand", text);
  }
  to.operands.push_back(operand);
  return Error::success();
}

Error BodyReader::readOperands(StringRef text, Instruction &to) {
  bool isAddress = false;
  while (!(text = text.ltrim(" \t\n,|")).empty()) {
    char first = text.front();
    if (first == '{' || first == '}' || first == ']' || first == '[') {
      // The first vector is what is written.
      if (first == '}' && to.numResults == 0)
        to.numResults = to.operands.size();
      isAddress = first == '[' || (isAddress && first != ']');
      text = text.drop_front();
      continue;
    }
    StringRef operand =
        text.take_until([](char c) { return StringRef(",|{}[]").contains(c); });
    text = text.drop_front(operand.size());
    if (Error error = readOperand(operand, isAddress, to))
      return error;
    if (to.numResults == 0 && to.operands.size() == 1 && !isAddress)
      to.numResults = text.starts_with("|") ? 2 : 1;
  }
  return Error::success();
}

Error BodyReader::read(StringRef statement) {
  // Labels, and braces of scopes.
  while (!(statement = statement.trim()).empty()) {
    if (statement.consume_front("{") || statement.consume_front("}"))
      continue;
    StringRef word = statement.take_while(
        [](char c) { return isAlnum(c) || c == '$' || c == '_' || c == '%'; });
    StringRef rest = statement.drop_front(word.size()).ltrim();
    if (word.empty() || !rest.starts_with(":") || rest.starts_with("::"))
      break;
    labels[word] = kernel.instructions.size();
    statement = rest.drop_front();
  }
  if (statement.empty() || statement.starts_with("."))
    return Error::success();

  Instruction instruction;
  if (statement.consume_front("@")) {
    instruction.isGuardNegated = statement.consume_front("!");
    StringRef guard = statement.take_until(isSpace);
    instruction.guard = getRegister(guard);
    statement = statement.drop_front(guard.size()).ltrim();
  }
  StringRef opcode = statement.take_until(isSpace);
  opcode.split(instruction.parts, '.', -1, /*KeepEmpty=*/false);
  StringRef operands = statement.drop_front(opcode.size()).trim();
  if (instruction.isBranch()) {
    branches.emplace_back(kernel.instructions.size(), operands);
  } else if (llvm::is_contained({"call", "brx", "tcgen05"},
                                instruction.name()) ||
             (instruction.has("bulk") && !instruction.has("tensor"))) {
    return refuse("instructions that the model knows", opcode);
  } else {
    if (Error error = readOperands(operands, instruction))
      return error;
    // What these name first they read.
    if (llvm::is_contained({"st", "stmatrix", "red", "bar", "barrier", "cp",
                            "membar", "fence", "prefetch", "mbarrier"},
                           instruction.name()) &&
        !instruction.has("try_wait"))
      instruction.numResults = 0;
  }
  kernel.instructions.push_back(std::move(instruction));
  kernel.numRegisters = registers.size();
  return Error::success();
}

Error BodyReader::resolve() {
  for (auto [number, label] : branches) {
    auto found = labels.find(label);
    if (found == labels.end())
      return refuse("the label of a branch", label);
    kernel.instructions[number].target = found->second;
  }
  return Error::success();
}

/// Takes the next statement off the front of `text`, without comments before it
/// and the semicolon or brace after it.
static StringRef takeStatement(StringRef &text) {
  while ((text = text.ltrim()).starts_with("//"))
    text = text.split('\n').second;
  StringRef statement = text.take_until([](char c) { return c == ';'; });
  text = text.drop_front(std::min(statement.size() + 1, text.size()));
  return statement;
}

/// Reads the kernel whose name `text` begins with, and takes it off.
static Expected<Kernel> parseKernel(StringRef &text) {
  Kernel kernel;
  kernel.name = text.ltrim().take_until(
      [](char c) { return c == '(' || c == '{' || isSpace(c); });
  StringRef head = text.take_until([](char c) { return c == '{'; });
  text = text.drop_front(head.size());
  StringRef parameters = head.split('(').second.split(')').first;
  while (!parameters.trim().empty()) {
    auto [parameter, rest] = parameters.split(',');
    parameter = parameter.split('[').first.rtrim();
    kernel.parameters.push_back(
        parameter.substr(parameter.find_last_of(" \t\n") + 1));
    parameters = rest;
  }
  // The body ends where its first brace is closed.
  size_t depth = 0, end = 0;
  for (; end != text.size(); ++end) {
    depth += text[end] == '{';
    if (text[end] == '}' && --depth == 0)
      break;
  }
  if (end == text.size())
    return refuse("the body of '" + kernel.name + "'", text.take_front(20));
  StringRef body = text.substr(1, end - 1);
  text = text.drop_front(end + 1);
  BodyReader reader(kernel);
  while (!body.empty())
    if (Error error = reader.read(takeStatement(body)))
      return error;
  if (Error error = reader.resolve())
    return error;
  return kernel;
}

Expected<std::vector<Kernel>> mlir::bsr::ptx::parse(StringRef text) {
  constexpr StringLiteral entry(".entry");
  std::vector<Kernel> kernels;
  for (size_t at; (at = text.find(entry)) != StringRef::npos;) {
    text = text.drop_front(at + entry.size());
    Expected<Kernel> kernel = parseKernel(text);
    if (!kernel)
      return kernel.takeError();
    kernels.push_back(std::move(*kernel));
  }
  return kernels;
}
