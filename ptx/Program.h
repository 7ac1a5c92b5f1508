// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A module, decoded.

#ifndef PTX_PROGRAM_H
#define PTX_PROGRAM_H

#include "Interpreter.h"
#include <string>
#include <vector>

namespace ptx {

struct Insn;
struct Warp;

/// Executes an instruction for the lanes of `mask`, which is never 0.
using Handler = void(Warp &warp, const Insn &insn, uint32_t mask);

/// What the loop over instructions needs to know of one.
enum Flag : uint8_t {
  Branches = 1,
  Exits = 2,
  MayWait = 4,            ///< the handler may say that the warp waits
  Converges = 8,          ///< all lanes of the member mask execute it at once
  WritesAccumulator = 16, ///< writes a register that wgmma uses
  CopiesState = 32,       ///< the handler says which registers have a value
};

struct Insn {
  Handler *handler = nullptr;
  uint32_t op[4] = {}; ///< slots of operands, as the handler wants them
  uint32_t list = 0, count = 0; ///< more slots, in Kernel::slots
  uint32_t uses = 0, numUses = 0, defs = 0, numDefs = 0; ///< in Kernel::slots
  int32_t guard = -1;                                    ///< a predicate
  bool guardNegated = false;
  uint8_t flags = 0;
  Class kind = Class::Other;
  uint8_t narrow = 0;  ///< bit i: `op[i]` is an address of 32 bits
  uint32_t target = 0; ///< of a branch
  uint32_t order = 0;  ///< of parted lanes, the lowest runs
  int32_t members =
      -1; ///< the slot of a member mask, or allLanes, or notExited
  int64_t imm = 0, imm2 = 0;
  uint32_t aux = 0;
  int line = 0;
  uint8_t unit = nvidia::numUnits; ///< nvidia::Unit; numUnits: none
  uint8_t tensorType = 0;          ///< nvidia::TensorType, of a product
  uint32_t flops = 0;              ///< of a product, by one warp
};

/// Values of Insn::members that are no slots.
constexpr int32_t allLanes = -1, notExited = -2;

/// A value that a slot holds throughout a launch.
struct Constant {
  uint32_t slot;
  bool wide;
  uint64_t value;
  bool isShared = false; ///< an address in shared memory of the block
};

enum class Special : uint8_t {
  TidX,
  TidY,
  TidZ,
  NtidX,
  NtidY,
  NtidZ,
  CtaidX,
  CtaidY,
  CtaidZ,
  NctaidX,
  NctaidY,
  NctaidZ,
  LaneId,
  WarpId,
  NWarpId,
  LanemaskEq,
  LanemaskLt,
  LanemaskLe,
  LanemaskGt,
  LanemaskGe,
  ClusterCtarank,
  ClusterNctarank,
  ClusterCtaidX,
  ClusterCtaidY,
  ClusterCtaidZ,
  ClusterNctaidX,
  ClusterNctaidY,
  ClusterNctaidZ,
  ClusteridX,
  ClusteridY,
  ClusteridZ,
  NclusteridX,
  NclusteridY,
  NclusteridZ,
  DynamicSmemSize,
  TotalSmemSize,
  Clock,
  Clock64,
  GlobalTimer,
  SmId,
  NSmId,
  DynamicShared, ///< the address of .extern .shared
  DynamicShared32,
};

struct Kernel {
  EntryInfo info;
  int line = 0;
  std::vector<Insn> code;
  std::vector<std::string> texts; ///< of the instructions
  std::vector<uint32_t> slots;
  uint32_t numSlots = 0, numPredicates = 0;
  std::vector<Constant> constants;
  std::vector<Constant> constantPredicates;
  std::vector<std::pair<uint32_t, Special>> specials;
  /// Slots that hold the address of a variable of the module.
  std::vector<std::pair<uint32_t, std::string>> addresses;
  std::vector<bool> accumulators; ///< slots that wgmma reads or writes
  unsigned localBytes = 0;
  unsigned dynamicAlign = 16;
  unsigned sharedAlign = 16; ///< the largest one of a variable of .shared
  unsigned globalShift = 2, sharedShift = 2; ///< granules of the race checks
  bool globalAtomics = false;
};

/// Sets `Insn::order` of all instructions.
void orderLanes(Kernel &kernel);

/// A variable of .global or .const.
struct Variable {
  std::string name;
  unsigned align = 1;
  bool initialised = false;
  std::vector<uint8_t> bytes;
};

struct Program {
  uint64_t number = 0; ///< no other program has it
  std::string target;
  unsigned version = 0; ///< 10 times .version; 0: the text says none
  const Chip *chip = nullptr;
  std::vector<Kernel> kernels;
  std::vector<Variable> variables;

  const Kernel &kernel(std::string_view name) const;
};

} // namespace ptx

#endif // PTX_PROGRAM_H
