// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The names, registers, constants and labels of a kernel while it is decoded.

#ifndef PTX_KERNELBUILDER_H
#define PTX_KERNELBUILDER_H

#include "Lexer.h"
#include "Program.h"
#include "Syntax.h"
#include "Types.h"
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

namespace ptx {

/// A register, or what is read like one.
struct Register {
  uint32_t slot = 0; ///< the index of a predicate
  uint8_t bytes = 0; ///< 0: a predicate
};

/// A variable of .shared, .local or .param, by its place.
struct Place {
  enum Space : uint8_t { Shared, DynamicShared, Local, Param, Module } space;
  uint32_t offset;
  uint32_t size;
};

class KernelBuilder {
public:
  KernelBuilder(Program &program, Kernel &kernel,
                const std::map<std::string_view, Place> &moduleNames)
      : program(program), kernel(kernel), moduleNames(moduleNames) {
    open();
  }

  /// A scope in braces; that of a function sees no names of its caller.
  void open(bool isFunction = false) {
    scopes.emplace_back();
    scopes.back().isFunction = isFunction;
  }
  void close();
  /// Ends the kernel, the last of whose instructions returns.
  void finish();

  void declare(std::string_view name, Type type, int line);
  /// `%r<8>`: %r0 to %r7.
  void declareMany(std::string_view prefix, unsigned count, Type type,
                   int line);
  void declarePlace(std::string_view name, Place place, int line);
  void declareLabel(std::string_view name, int line);
  /// The labels that brx.idx chooses from.
  void declareTargets(std::string_view name,
                      std::vector<std::string_view> labels, int line);
  /// Appends `insn`, which `statement` was decoded to, under its guard.
  void append(Insn insn, const Statement &statement);

  // For decoders.
  std::optional<Register> find(std::string_view name);
  const Place *findPlace(std::string_view name) const;
  /// A slot that always holds `value`.
  uint32_t constant(uint64_t value, bool wide, bool isShared = false);
  uint32_t constantPredicate(bool value);
  /// The predicate of the carry.
  uint32_t carry();
  /// A slot that is never read.
  uint32_t scratch();
  /// A slot of the address of a variable, as `mov` reads it.
  Register addressOf(std::string_view name, const Place &place, bool wide);
  std::optional<Register> special(std::string_view name);
  /// The instruction that is decoded jumps to the label; `place` is that of the
  /// target in its list, or -1.
  void jump(std::string_view label, int line, int place = -1);
  const std::vector<std::string_view> *targets(std::string_view name) const;

  Program &program;
  Kernel &kernel;
  uint32_t staticShared = 0;

private:
  /// `%r<8>` without eight entries.
  struct Range {
    std::string_view prefix;
    unsigned count;
    uint32_t first;
    uint8_t bytes;
  };
  struct Scope {
    bool isFunction = false;
    std::vector<Range> ranges;
    std::unordered_map<std::string_view, Register> registers;
    std::unordered_map<std::string_view, Place> places;
    std::unordered_map<std::string_view, uint32_t> labels;
  };
  struct Jump {
    size_t insn, depth;
    std::string_view label;
    int line, place;
  };
  uint32_t makeSlots(unsigned count, uint8_t bytes, int line);

  const std::map<std::string_view, Place> &moduleNames;
  std::optional<uint32_t> scratchSlot, carryPredicate;
  std::vector<Scope> scopes;
  std::vector<Jump> jumps;
  std::map<std::string_view, std::vector<std::string_view>> targetLists;
  std::map<std::tuple<uint64_t, bool, bool>, uint32_t> constants;
  std::map<unsigned, uint32_t> specials;
  std::map<std::string, uint32_t, std::less<>> addresses;
};

} // namespace ptx

#endif // PTX_KERNELBUILDER_H
