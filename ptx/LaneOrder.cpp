// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// In which order the parted lanes of a warp run: by the order of basic blocks
// in which all of a loop come before what follows it, so that lanes which have
// left a loop wait for the others. That of the text puts exits of loops before
// their ends. Strongly connected components, a loop each, are found by R.
// Tarjan, "Depth-first search and linear graph algorithms", 1972.

#include "Program.h"
#include <algorithm>

using namespace ptx;

namespace {
/// A basic block: its first instruction and the one after its last.
struct BasicBlock {
  uint32_t begin, end;
  std::vector<uint32_t> successors;
  uint32_t region = 0; ///< of the blocks that are searched together
  uint32_t number = 0; ///< in the order of the search; 0: not found yet
  uint32_t lowest = 0; ///< the first one on the stack that it reaches
  bool onStack = false;
};

class LaneOrder {
public:
  explicit LaneOrder(Kernel &kernel);
  /// Gives each instruction its place.
  void assign();

private:
  using Blocks = std::vector<uint32_t>;
  template <typename Function>
  void forSuccessors(uint32_t index, Function function) const;
  /// The strongly connected components of the loop `loop` without its header,
  /// the first block; those that lead to others behind them, each with the
  /// block first by which it is entered.
  std::vector<Blocks> findComponents(const Blocks &loop);
  void search(uint32_t root, std::vector<Blocks> &components);

  Kernel &kernel;
  std::vector<BasicBlock> blocks;
  Blocks stack;
  uint32_t numRegions = 0, numFound = 0;
};
} // namespace

/// Calls `function` with each instruction that may run after that at `index`,
/// the next one of the text last.
template <typename Function>
void LaneOrder::forSuccessors(uint32_t index, Function function) const {
  const Insn &insn = kernel.code[index];
  if (insn.flags & Branches) {
    if (insn.count)
      for (uint32_t i = 0; i != insn.count; ++i)
        function(kernel.slots[insn.list + i]);
    else
      function(insn.target);
  }
  if (insn.guard >= 0 || !(insn.flags & (Branches | Exits)))
    function(index + 1);
}

LaneOrder::LaneOrder(Kernel &kernel) : kernel(kernel) {
  auto size = uint32_t(kernel.code.size());
  std::vector<bool> begins(size + 1);
  begins[0] = true;
  for (uint32_t index = 0; index != size; ++index)
    if (kernel.code[index].flags & (Branches | Exits)) {
      begins[index + 1] = true;
      forSuccessors(index, [&](uint32_t next) { begins[next] = true; });
    }
  std::vector<uint32_t> blockOf(size);
  for (uint32_t index = 0; index != size; ++index) {
    if (begins[index])
      blocks.push_back({index, index, {}});
    ++blocks.back().end;
    blockOf[index] = uint32_t(blocks.size() - 1);
  }
  for (BasicBlock &block : blocks)
    forSuccessors(block.end - 1, [&](uint32_t next) {
      block.successors.push_back(blockOf[next]);
    });
}

void LaneOrder::search(uint32_t root, std::vector<Blocks> &components) {
  struct Visit {
    uint32_t block;
    size_t next = 0; ///< successor
  };
  std::vector<Visit> visits{{root}};
  uint32_t region = blocks[root].region;
  while (!visits.empty()) {
    Visit &visit = visits.back();
    BasicBlock &block = blocks[visit.block];
    if (visit.next == 0) {
      block.number = block.lowest = ++numFound;
      block.onStack = true;
      stack.push_back(visit.block);
    }
    if (visit.next != block.successors.size()) {
      uint32_t index = block.successors[visit.next++];
      const BasicBlock &successor = blocks[index];
      if (successor.region != region)
        continue;
      if (!successor.number)
        visits.push_back({index});
      else if (successor.onStack)
        block.lowest = std::min(block.lowest, successor.number);
      continue;
    }
    if (block.lowest == block.number) {
      auto begin = stack.end() - 1;
      while (*begin != visit.block)
        --begin;
      components.emplace_back(begin, stack.end());
      stack.erase(begin, stack.end());
      for (uint32_t index : components.back())
        blocks[index].onStack = false;
    }
    uint32_t lowest = block.lowest;
    visits.pop_back();
    if (!visits.empty()) {
      BasicBlock &from = blocks[visits.back().block];
      from.lowest = std::min(from.lowest, lowest);
    }
  }
}

std::vector<LaneOrder::Blocks> LaneOrder::findComponents(const Blocks &loop) {
  uint32_t region = ++numRegions;
  for (uint32_t index : loop) {
    blocks[index].region = region;
    blocks[index].number = 0;
  }
  BasicBlock &header = blocks[loop.front()];
  header.region = 0;
  std::vector<Blocks> components;
  auto visit = [&](uint32_t index) {
    if (blocks[index].region == region && !blocks[index].number)
      search(index, components);
  };
  // By where lanes enter, then what none reaches.
  std::for_each(header.successors.begin(), header.successors.end(), visit);
  std::for_each(loop.begin(), loop.end(), visit);
  return components;
}

void LaneOrder::assign() {
  // Deeper loops are ordered as they are found, so that this stays linear.
  constexpr unsigned maxDepth = 64;
  struct Loop {
    Blocks blocks;
    unsigned depth;
  };
  std::vector<Loop> open(1, {{}, 0});
  for (uint32_t block = 0; block != blocks.size(); ++block)
    open[0].blocks.push_back(block);
  uint32_t order = 0;
  while (!open.empty()) {
    Loop loop = std::move(open.back());
    open.pop_back();
    size_t numPlaced = loop.depth == maxDepth ? loop.blocks.size() : 1;
    for (size_t i = 0; i != numPlaced; ++i) {
      const BasicBlock &block = blocks[loop.blocks[i]];
      for (uint32_t index = block.begin; index != block.end; ++index)
        kernel.code[index].order = order++;
    }
    if (loop.blocks.size() > numPlaced)
      for (Blocks &component : findComponents(loop.blocks))
        open.push_back({std::move(component), loop.depth + 1});
  }
}

void ptx::orderLanes(Kernel &kernel) { LaneOrder(kernel).assign(); }
