// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What decodes one instruction: its modifiers one after the other, its operands
// to slots.

#ifndef PTX_DECODER_H
#define PTX_DECODER_H

#include "KernelBuilder.h"
#include "Windows.h"

namespace ptx {

/// Notes which unit an instruction occupies, and the FLOPs of a product.
void findResources(std::string_view opcode, Insn &insn);

/// The .version of PTX, times 10, that has an instruction; 0 where all do.
unsigned versionOf(std::string_view opcode);

/// Decodes a statement; fails where anything of it is unknown.
Insn decode(KernelBuilder &builder, const Statement &statement);

class Decoder {
public:
  Decoder(KernelBuilder &builder, const Statement &statement);

  /// The opcode without modifiers.
  std::string_view name;
  Insn insn;
  const Statement &statement;
  KernelBuilder &builder;

  template <typename... Parts>
  [[noreturn]] void fail(const Parts &...parts) const {
    failAt(statement.line, parts...);
  }
  /// Fails where the target of the module is older, or lacks what is this
  /// chip's only.
  void require(unsigned version, bool architecture = false);

  // Modifiers: each is taken once, and what is left is refused.
  bool take(std::string_view modifier);
  void expect(std::string_view modifier);
  /// The next modifier that is a type.
  std::optional<Type> tryType();
  Type type();
  /// The next modifier, whatever it is; empty where there is none.
  std::string_view takeAny();
  /// The place in `choices` of a modifier, or -1.
  int choose(std::initializer_list<std::string_view> choices);
  void done();

  // Operands.
  size_t size() const { return statement.operands.size(); }
  const Operand &operand(size_t index) const;
  void expectOperands(size_t least, size_t most);
  void expectOperands(size_t count) { expectOperands(count, count); }
  /// A slot to read, of exactly the type's size, or at least that.
  uint32_t use(const Operand &operand, Type type, bool wider = false);
  /// A slot to write; operand `_` is a slot that is never read.
  uint32_t define(const Operand &operand, Type type, bool wider = false);
  uint32_t use(size_t index, Type type) { return use(operand(index), type); }
  uint32_t define(size_t index, Type type) {
    return define(operand(index), type);
  }
  /// The bytes of a register.
  unsigned bytesOf(const Operand &operand);
  /// The index of a predicate; a number is one as well.
  uint32_t predicate(const Operand &operand);
  uint32_t predicateNamed(std::string_view name);
  /// The base of an address to slot `op[index]`, its offset to `imm` or `imm2`.
  void address(const Operand &operand, unsigned index, Space space,
               int64_t &offset);
  /// An operand that has to be a number.
  int64_t number(size_t index);
  /// Slots in Kernel::slots.
  void list(uint32_t slot) { listed.push_back(slot); }
  /// Moves the lists to the kernel.
  Insn finish();
  /// The kernel's granules are as small as a store of `bytes`.
  void storesShared(unsigned bytes);
  void storesGlobal(unsigned bytes);

private:
  std::vector<std::string_view> parts;
  std::vector<uint32_t> listed, uses, defs;
  std::optional<Register> lookup(std::string_view name);
};

// Each decodes the opcodes of its file and returns whether it knew the opcode.
bool decodeMove(Decoder &d);
bool decodeInteger(Decoder &d);
bool decodeBits(Decoder &d);
bool decodeFields(Decoder &d);
bool decodeSigns(Decoder &d);
bool decodeFloat(Decoder &d);
bool decodeApproximate(Decoder &d);
bool decodeConvert(Decoder &d);
bool decodeCompare(Decoder &d);
bool decodeControl(Decoder &d);
bool decodeRegisters(Decoder &d);
bool decodeLoadStore(Decoder &d);
bool decodeAtomic(Decoder &d);
bool decodeWarp(Decoder &d);
bool decodeMatrix(Decoder &d);
bool decodeAsyncCopy(Decoder &d);
bool decodeBarrier(Decoder &d);
bool decodeMbarrier(Decoder &d);
bool decodeBulkCopy(Decoder &d);
bool decodeWgmma(Decoder &d);

} // namespace ptx

#endif // PTX_DECODER_H
