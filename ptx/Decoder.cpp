// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Decoder.h"
#include <cstring>

using namespace ptx;

Decoder::Decoder(KernelBuilder &builder, const Statement &statement)
    : statement(statement), builder(builder) {
  std::string_view rest = statement.opcode;
  size_t dot = rest.find('.');
  name = rest.substr(0, dot);
  while (dot != std::string_view::npos) {
    rest.remove_prefix(dot + 1);
    dot = rest.find('.');
    parts.push_back(rest.substr(0, dot));
  }
}

void Decoder::require(unsigned version, bool architecture) {
  const Chip &chip = *builder.program.chip;
  if (chip.version < version ||
      (architecture && !(chip.isArchitecture && chip.version == version)))
    fail("expected target sm_", version, architecture ? "a" : " or newer",
         " for '", statement.opcode, "', but got ", chip.name);
}

bool Decoder::take(std::string_view modifier) {
  for (auto it = parts.begin(); it != parts.end(); ++it)
    if (*it == modifier) {
      parts.erase(it);
      return true;
    }
  return false;
}

void Decoder::expect(std::string_view modifier) {
  if (!take(modifier))
    fail("expected modifier '.", modifier, "', but got '", statement.opcode,
         "'");
}

std::optional<Type> Decoder::tryType() {
  for (auto it = parts.begin(); it != parts.end(); ++it)
    if (auto type = typeNamed(*it)) {
      parts.erase(it);
      return type;
    }
  return std::nullopt;
}

Type Decoder::type() {
  auto found = tryType();
  if (!found)
    fail("expected a type, but got '", statement.opcode, "'");
  return *found;
}

std::string_view Decoder::takeAny() {
  if (parts.empty())
    return {};
  std::string_view first = parts.front();
  parts.erase(parts.begin());
  return first;
}

int Decoder::choose(std::initializer_list<std::string_view> choices) {
  int index = 0;
  for (std::string_view choice : choices) {
    if (take(choice))
      return index;
    ++index;
  }
  return -1;
}

void Decoder::done() {
  if (!parts.empty())
    fail("expected a modifier of '", name, "', but got '.", parts.front(), "'");
}

const Operand &Decoder::operand(size_t index) const {
  if (index >= size())
    fail("expected more operands of '", statement.opcode, "', but got ",
         size());
  return statement.operands[index];
}

void Decoder::expectOperands(size_t least, size_t most) {
  if (size() >= least && size() <= most)
    return;
  fail("expected ", least,
       least == most ? "" : sparse_opt::concatenate(" to ", most),
       " operands of '", statement.opcode, "', but got ", size());
}

std::optional<Register> Decoder::lookup(std::string_view name) {
  if (auto found = builder.find(name))
    return found;
  return builder.special(name);
}

/// The bits of a literal as a value of the type.
static uint64_t bitsOf(const Decoder &d, const Literal &literal, Type type) {
  auto toDouble = [](uint64_t bits) {
    double value;
    std::memcpy(&value, &bits, 8);
    return value;
  };
  auto toSingle = [](uint64_t bits) {
    uint32_t narrow = uint32_t(bits);
    float value;
    std::memcpy(&value, &narrow, 4);
    return value;
  };
  uint64_t bits = literal.bits;
  if (literal.kind == Literal::Integer &&
      (type == Type::F32 || type == Type::F64))
    d.fail("expected a floating-point number, but got ", int64_t(bits));
  if (sizeOf(type) == 4 && literal.kind == Literal::Double) {
    float value = float(toDouble(bits));
    uint32_t narrow;
    std::memcpy(&narrow, &value, 4);
    return narrow;
  }
  if (sizeOf(type) == 8 && literal.kind == Literal::Single) {
    double value = toSingle(bits);
    std::memcpy(&bits, &value, 8);
    return bits;
  }
  if (sizeOf(type) < 4 && literal.kind != Literal::Integer)
    d.fail("expected an integer of ", 8 * sizeOf(type),
           " bits, but got a floating-point number");
  return bits;
}

static void checkSize(const Decoder &d, const Operand &operand, Register found,
                      Type type, bool wider) {
  unsigned size = sizeOf(type);
  bool fits = found.bytes == size || (wider && found.bytes > size) ||
              (size == 1 && found.bytes == 2);
  if (!found.bytes)
    d.fail("expected a register of ", 8 * size, " bits, but got predicate '",
           operand.name, "'");
  if (!fits)
    d.fail("expected a register of ", 8 * size, " bits, but got '",
           operand.name, "' of ", 8 * found.bytes);
}

uint32_t Decoder::use(const Operand &operand, Type type, bool wider) {
  if (operand.kind == Operand::Number)
    return builder.constant(bitsOf(*this, operand.literal, type),
                            sizeOf(type) == 8);
  if (operand.kind != Operand::Name)
    fail("expected a register or a number, but got another operand of '",
         statement.opcode, "'");
  if (auto found = lookup(operand.name)) {
    checkSize(*this, operand, *found, type, wider);
    uses.push_back(found->slot);
    return found->slot;
  }
  if (const Place *place = builder.findPlace(operand.name)) {
    // An address: of 64 bits, or the lower half of it.
    if (sizeOf(type) < 4)
      fail("expected a register, but got variable '", operand.name, "'");
    if (place->space == Place::Shared || place->space == Place::Local ||
        place->space == Place::Param) {
      bool isShared = place->space == Place::Shared;
      uint64_t base = isShared ? sharedBase : 0;
      return builder.constant(base + place->offset + uint64_t(operand.offset),
                              sizeOf(type) == 8, isShared);
    }
    if (operand.offset)
      fail("expected a variable without an offset, but got '", operand.name,
           "'");
    bool wide = sizeOf(type) == 8;
    if (!wide && place->space == Place::Module)
      fail("expected an address of 64 bits, but got '", operand.name, "'");
    return builder.addressOf(operand.name, *place, wide).slot;
  }
  fail("expected a register, but got '", operand.name, "'");
}

uint32_t Decoder::define(const Operand &operand, Type type, bool wider) {
  if (operand.kind != Operand::Name)
    fail("expected a register to write, but got another operand of '",
         statement.opcode, "'");
  if (operand.name == "_")
    return builder.scratch();
  auto found = builder.find(operand.name);
  if (!found)
    fail("expected a register to write, but got '", operand.name, "'");
  checkSize(*this, operand, *found, type, wider);
  defs.push_back(found->slot);
  return found->slot;
}

unsigned Decoder::bytesOf(const Operand &operand) {
  auto found = lookup(operand.name);
  return found ? found->bytes : 0;
}

uint32_t Decoder::predicateNamed(std::string_view name) {
  auto found = builder.find(name);
  if (!found || found->bytes)
    fail("expected a predicate, but got '", name, "'");
  return found->slot;
}

uint32_t Decoder::predicate(const Operand &operand) {
  if (operand.kind == Operand::Number)
    return builder.constantPredicate(operand.literal.bits != 0);
  if (operand.kind != Operand::Name)
    fail("expected a predicate, but got another operand of '", statement.opcode,
         "'");
  return predicateNamed(operand.name);
}

void Decoder::address(const Operand &operand, unsigned index, Space space,
                      int64_t &offset) {
  if (operand.kind != Operand::Address)
    fail("expected an address in brackets, but got another operand of '",
         statement.opcode, "'");
  offset = operand.offset;
  if (operand.name.empty()) {
    insn.op[index] = builder.constant(0, true);
    return;
  }
  if (auto found = lookup(operand.name)) {
    bool narrow = space == Space::Shared || space == Space::Local;
    if (found->bytes != 8 && !(narrow && found->bytes == 4))
      fail("expected an address of 64 bits, but got '", operand.name, "' of ",
           8 * found->bytes);
    uses.push_back(found->slot);
    insn.op[index] = found->slot;
    if (found->bytes == 4)
      insn.narrow |= uint8_t(1u << index);
    return;
  }
  const Place *place = builder.findPlace(operand.name);
  if (!place)
    fail("expected a register or a variable, but got '", operand.name, "'");
  static constexpr Space spaces[] = {Space::Shared, Space::Shared, Space::Local,
                                     Space::Param, Space::Global};
  if (spaces[place->space] != space)
    fail("expected a variable of the space of '", statement.opcode,
         "', but got '", operand.name, "'");
  insn.op[index] = builder.addressOf(operand.name, *place, true).slot;
}

int64_t Decoder::number(size_t index) {
  const Operand &given = operand(index);
  if (given.kind != Operand::Number || given.literal.kind != Literal::Integer)
    fail("expected an integer as operand ", index, " of '", statement.opcode,
         "', but got another operand");
  return int64_t(given.literal.bits);
}

void Decoder::storesShared(unsigned bytes) {
  unsigned &shift = builder.kernel.sharedShift;
  shift = std::min(shift, bytes == 1 ? 0u : bytes == 2 ? 1u : 2u);
}

void Decoder::storesGlobal(unsigned bytes) {
  unsigned &shift = builder.kernel.globalShift;
  shift = std::min(shift, bytes == 1 ? 0u : bytes == 2 ? 1u : 2u);
}

Insn Decoder::finish() {
  auto &slots = builder.kernel.slots;
  auto append = [&](const std::vector<uint32_t> &from, uint32_t &begin,
                    uint32_t &count) {
    begin = uint32_t(slots.size());
    count = uint32_t(from.size());
    slots.insert(slots.end(), from.begin(), from.end());
  };
  append(listed, insn.list, insn.count);
  append(uses, insn.uses, insn.numUses);
  append(defs, insn.defs, insn.numDefs);
  return insn;
}

Insn ptx::decode(KernelBuilder &builder, const Statement &statement) {
  Decoder d(builder, statement);
  for (auto known :
       {decodeMove,    decodeInteger,  decodeBits,        decodeFields,
        decodeSigns,   decodeFloat,    decodeApproximate, decodeConvert,
        decodeCompare, decodeControl,  decodeRegisters,   decodeLoadStore,
        decodeAtomic,  decodeWarp,     decodeMatrix,      decodeAsyncCopy,
        decodeBarrier, decodeMbarrier, decodeBulkCopy,    decodeWgmma}) {
    d.insn.kind = Class::Other;
    if (known(d)) {
      d.done();
      unsigned version = builder.program.version;
      if (unsigned needed = versionOf(statement.opcode);
          version && version < needed)
        d.fail("expected .version ", needed / 10, ".", needed % 10,
               " or newer for '", statement.opcode, "', but got ", version / 10,
               ".", version % 10);
      Insn insn = d.finish();
      findResources(statement.opcode, insn);
      return insn;
    }
  }
  d.fail("expected an instruction that the interpreter knows, but got '",
         statement.opcode, "'");
}
