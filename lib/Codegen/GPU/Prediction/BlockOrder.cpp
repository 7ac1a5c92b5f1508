// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order of a kernel's instructions in which lanes of a warp meet again.

#include "BlockOrder.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"

using namespace llvm;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;
using namespace mlir::bsr::ptx;

static bool isEnd(const Instruction &instruction) {
  return instruction.name() == "ret" || instruction.name() == "exit";
}

namespace {
/// The basic blocks of a kernel.
class Blocks {
public:
  explicit Blocks(const Kernel &kernel);

  /// All blocks, those that nothing leads to last.
  SmallVector<unsigned> getOrder();
  /// The first instruction of `block`, and that behind its last.
  unsigned getBegin(unsigned block) const { return begins[block]; }
  unsigned getEnd(unsigned block) const { return begins[block + 1]; }

private:
  unsigned getBlock(unsigned instruction) const {
    return llvm::upper_bound(begins, instruction) - begins.begin() - 1;
  }
  BitVector getReachable(unsigned from) const;

  std::vector<unsigned> begins;
  std::vector<SmallVector<unsigned, 2>> successors;
};
} // namespace

Blocks::Blocks(const Kernel &kernel) {
  unsigned count = kernel.instructions.size();
  begins = {0, count};
  for (auto [number, instruction] : llvm::enumerate(kernel.instructions)) {
    if (instruction.isBranch())
      begins.push_back(instruction.target);
    if (instruction.isBranch() || isEnd(instruction))
      begins.push_back(number + 1);
  }
  llvm::sort(begins);
  begins.erase(llvm::unique(begins), begins.end());
  for (unsigned block = 0; block + 1 != begins.size(); ++block) {
    const Instruction &last = kernel.instructions[getEnd(block) - 1];
    SmallVector<unsigned, 2> &to = successors.emplace_back();
    bool isAlways = !last.guard && (last.isBranch() || isEnd(last));
    if (!isAlways && getEnd(block) != count)
      to.push_back(getBlock(getEnd(block)));
    if (last.isBranch() && last.target != count)
      to.push_back(getBlock(last.target));
  }
}

BitVector Blocks::getReachable(unsigned from) const {
  BitVector reached(successors.size());
  SmallVector<unsigned> work{from};
  while (!work.empty()) {
    unsigned block = work.pop_back_val();
    if (reached.test(block))
      continue;
    reached.set(block);
    llvm::append_range(work, successors[block]);
  }
  return reached;
}

SmallVector<unsigned> Blocks::getOrder() {
  // Ways out of a loop are gone before those that stay in it: in the reverse of
  // the order in which blocks are left, they come behind it.
  unsigned count = successors.size();
  for (unsigned block = 0; block != count; ++block)
    if (SmallVector<unsigned, 2> &to = successors[block];
        to.size() == 2 && getReachable(to[0]).test(block) &&
        !getReachable(to[1]).test(block))
      std::swap(to[0], to[1]);
  BitVector seen(count);
  SmallVector<unsigned> order;
  SmallVector<std::pair<unsigned, unsigned>> path;
  auto enter = [&](unsigned block) {
    seen.set(block);
    path.push_back({block, 0});
  };
  if (count)
    enter(0);
  while (!path.empty()) {
    auto &[block, number] = path.back();
    if (number == successors[block].size()) {
      order.push_back(block);
      path.pop_back();
    } else if (unsigned next = successors[block][number++]; !seen.test(next)) {
      enter(next);
    }
  }
  std::reverse(order.begin(), order.end());
  for (unsigned block = 0; block != count; ++block)
    if (!seen.test(block))
      order.push_back(block);
  return order;
}

LaidOutKernel::LaidOutKernel(const Kernel &from) : kernel(from) {
  unsigned count = from.instructions.size();
  // Where each instruction goes; the end stays.
  std::vector<unsigned> places(count + 1, count);
  Blocks blocks(from);
  unsigned place = 0;
  for (unsigned block : blocks.getOrder())
    for (unsigned i = blocks.getBegin(block); i != blocks.getEnd(block); ++i)
      places[i] = place++;
  next.resize(count);
  for (unsigned i = 0; i != count; ++i) {
    Instruction &instruction = kernel.instructions[places[i]];
    instruction = from.instructions[i];
    if (instruction.isBranch())
      instruction.target = places[instruction.target];
    next[places[i]] = places[i + 1];
  }
}
