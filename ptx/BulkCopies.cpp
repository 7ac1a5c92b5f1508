// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Copies of many bytes, and of boxes of tensors. PTX ISA, "cp.async.bulk",
// "cp.async.bulk.tensor", "cp.async.bulk.commit_group". A copy into shared
// memory arrives when every warp waits: as late as it can.

#include "Access.h"
#include "Lanes.h"
#include "Mbarriers.h"
#include <set>

using namespace ptx;

void ptx::land(Cluster &cluster, BulkCopy &copy) {
  Block &block = *copy.block;
  uint32_t now = ++cluster.arrivals;
  for (size_t i = 0; i < copy.places.size(); ++i) {
    std::memcpy(block.shared.at(copy.places[i]), &copy.data[16 * i], 16);
    block.shared.endBulk(copy.places[i], 16, now);
  }
  Mbarrier &barrier = block.mbarriers[copy.barrier];
  barrier.bytes -= copy.bytes;
  if (copy.arrives) {
    landCopies(*copy.warp, copy.lane, copy.serial, now);
    // What arrives twice leaves nothing to wait for.
    barrier.pending -= barrier.pending != 0;
  }
  barrier.clock.resize(cluster.numClocks());
  barrier.fenced.resize(cluster.numClocks());
  barrier.clock[cluster.numWarps()] = now;
  completePhase(cluster, barrier);
}

void ptx::checkCopies(Cluster &cluster) {
  for (BulkCopy &copy : cluster.bulkCopies)
    if (!copy.arrives)
      copy.warp->fail(*copy.insn, copy.lane,
                      "expected a wait for every bulk copy before a block "
                      "ends, but got none");
  for (Block &block : cluster.blocks)
    for (Warp &warp : block.warps)
      for (const BulkStore &store : warp.bulkStores)
        warp.fail(*store.insn, store.lane,
                  "expected a wait for every bulk copy before a block ends, "
                  "but got none");
}

namespace {
/// Bits of Insn::aux above the number of dimensions, which is 0 for plain
/// bytes.
enum : uint32_t { Multicast = 8 };

/// What a tensor copy moves: for each 16 bytes of the box in shared memory,
/// where it is in global memory; an address of 0 is outside of the tensor.
struct Box {
  std::vector<uint64_t> from;
  Swizzle swizzle = Swizzle::None;
  unsigned elementBytes = 1;
  std::vector<uint16_t> valid;   ///< bytes of each 16 that are in the tensor
  std::vector<uint16_t> skipped; ///< bytes before those
};
} // namespace

static TensorMap readMap(Warp &warp, const Insn &insn, unsigned lane,
                         uint64_t address) {
  const auto &parameters = warp.block->cluster->launch->options->parameters;
  try {
    if (address >> windowShift == 3) {
      address -= paramWindow;
      if (address % 64 || address + 128 > parameters.size())
        sparse_opt::fail(
            "expected a tensor map at a multiple of 64, but got offset ",
            address, " of the parameters");
      return decodeTensorMap(&parameters[address]);
    }
    if (address % 64)
      sparse_opt::fail("expected a tensor map at a multiple of 64, but got ",
                       address);
    return decodeTensorMap(
        accessGlobal(warp, insn, lane, address, 128, Access::Read));
  } catch (const sparse_opt::Error &error) {
    if (error.sentence.find(", in thread ") != std::string::npos)
      throw;
    warp.fail(insn, lane, error.sentence);
  }
}

static Box boxOf(const TensorMap &map, const int32_t *at) {
  Box box;
  box.swizzle = map.swizzle;
  unsigned size = map.elementBytes;
  uint32_t row = map.box[0] * size;
  uint32_t lines = 1;
  for (unsigned i = 1; i < map.dimensions; ++i)
    lines *= map.box[i];
  for (uint32_t line = 0; line < lines; ++line) {
    bool inside = true;
    uint64_t begin = map.address;
    uint32_t rest = line;
    for (unsigned i = 1; i < map.dimensions; ++i) {
      int64_t place = int64_t(at[i]) + rest % map.box[i];
      rest /= map.box[i];
      inside &= place >= 0 && uint64_t(place) < map.size[i];
      begin += uint64_t(place) * map.stride[i - 1];
    }
    for (uint32_t byte = 0; byte < row; byte += 16) {
      int64_t from = int64_t(at[0]) * size + byte, to = from + 16;
      int64_t first = std::max<int64_t>(from, 0);
      int64_t last = std::min<int64_t>(to, int64_t(map.size[0] * size));
      bool any = inside && first < last;
      box.from.push_back(any ? begin + uint64_t(first) : 0);
      box.skipped.push_back(uint16_t(any ? first - from : 0));
      box.valid.push_back(uint16_t(any ? last - first : 0));
    }
  }
  return box;
}

/// The slots of a copy: list[0] is the size or the first coordinate, and so on;
/// the mask of blocks comes last.
static Box readBox(Warp &warp, const Insn &insn, unsigned lane,
                   uint64_t global) {
  const uint32_t *slots = warp.list(insn);
  unsigned dimensions = insn.aux & 7;
  if (dimensions) {
    TensorMap map = readMap(warp, insn, lane, global);
    if (map.dimensions != dimensions)
      warp.fail(insn, lane, "expected a tensor of ", dimensions,
                " dimensions, but got ", map.dimensions);
    int32_t at[5] = {};
    for (unsigned i = 0; i < dimensions; ++i)
      at[i] = int32_t(warp.lanes<uint32_t>(slots[i])[lane]);
    return boxOf(map, at);
  }
  uint32_t size = warp.lanes<uint32_t>(slots[0])[lane];
  if (size == 0 || size % 16 || global % 16)
    warp.fail(insn, lane,
              "expected a size and an address that are multiples of 16, but "
              "got ",
              size, " bytes at ", global);
  Box box;
  for (uint32_t i = 0; i < size; i += 16) {
    box.from.push_back(global + i);
    box.valid.push_back(16);
    box.skipped.push_back(0);
  }
  return box;
}

static void checkShared(Warp &warp, const Insn &insn, unsigned lane,
                        uint64_t address) {
  unsigned align = insn.aux & 7 ? 128 : 16;
  if (address % align)
    warp.fail(insn, lane, "expected a shared address that is a multiple of ",
              align, ", but got ", address);
}

/// op[0] is the target, op[1] the source, op[2] the mbarrier.
static void copyIn(Warp &warp, const Insn &insn, uint32_t mask) {
  Cluster &cluster = *warp.block->cluster;
  const uint32_t *slots = warp.list(insn);
  forLanes(mask, [&](unsigned lane) {
    uint64_t to = warp.addressOf(insn, 0, lane) + uint64_t(insn.imm);
    uint64_t barrier = warp.addressOf(insn, 2, lane);
    uint64_t global = warp.addressOf(insn, 1, lane) + uint64_t(insn.imm2);
    checkShared(warp, insn, lane, to);
    Box box = readBox(warp, insn, lane, global);
    BulkCopy copy{};
    copy.warp = &warp;
    copy.insn = &insn;
    copy.lane = lane;
    copy.bytes = uint32_t(16 * box.from.size());
    copy.data.resize(copy.bytes);
    for (size_t i = 0; i < box.from.size(); ++i)
      if (box.valid[i])
        std::memcpy(&copy.data[16 * i + box.skipped[i]],
                    accessGlobal(warp, insn, lane, box.from[i], box.valid[i],
                                 Access::Read),
                    box.valid[i]);
    uint32_t targets = 0;
    if (insn.aux & Multicast) {
      targets = warp.lanes<uint32_t>(slots[insn.count - 1])[lane] & 0xffff;
      if (!targets || targets >> cluster.blocks.size())
        warp.fail(insn, lane, "expected a mask of the ", cluster.blocks.size(),
                  " blocks of the cluster, but got ", targets);
    }
    Block *own = &blockOf(warp, insn, lane, to, copy.bytes);
    Block *other = &blockOf(warp, insn, lane, barrier, 8);
    if (!targets && own != other)
      warp.fail(insn, lane,
                "expected the mbarrier in the block of the target, but got "
                "another block's");
    for (Block &block : cluster.blocks) {
      if (targets ? !(targets >> block.rank & 1) : &block != own)
        continue;
      block.shared.useBarrier(warp, insn, lane, uint32_t(barrier));
      if (&block != warp.block && !block.mbarriers[uint32_t(barrier)].published)
        warp.fail(insn, lane,
                  "expected fence.mbarrier_init or fence.proxy.async between "
                  "mbarrier.init and another block's bulk copy, but got none");
      copy.block = &block;
      copy.to = uint32_t(to);
      copy.barrier = uint32_t(barrier);
      copy.places.clear();
      for (uint32_t i = 0; i < copy.bytes; i += 16) {
        uint32_t place = swizzled(box.swizzle, uint32_t(to) + i);
        uint64_t checked = uint64_t(place) | uint64_t(block.rank + 1)
                                                 << rankShift;
        blockOf(warp, insn, lane, checked, 16);
        block.shared.beginBulk(warp, insn, lane, place, 16);
        copy.places.push_back(place);
      }
      cluster.bulkCopies.push_back(copy);
      ++cluster.counts.bulkCopies;
      cluster.counts.bulkBytes += copy.bytes;
    }
    // What a copy reads, it reads once for all.
    std::set<uint64_t> found;
    for (size_t i = 0; i < box.from.size(); ++i)
      if (box.valid[i])
        found.insert(box.from[i] / sectorBytes);
    std::vector<uint64_t> sectors(found.begin(), found.end());
    cluster.counts.globalSectors += sectors.size();
    cluster.counts.passedSectors += sectors.size();
    cluster.counts.l2Sectors += sectors.size();
    countBuffers(warp, sectors.data(), unsigned(sectors.size()),
                 /*writes=*/false);
  });
}

/// The lanes of `mask` without those that copy what a lane before them does:
/// machine code has one copy for them.
static uint32_t differentCopies(Warp &warp, const Insn &insn, uint32_t mask) {
  const uint32_t *slots = warp.list(insn);
  uint32_t different = 0;
  forLanes(mask, [&](unsigned lane) {
    bool isNew = true;
    forLanes(different, [&](unsigned other) {
      bool same =
          warp.addressOf(insn, 0, lane) == warp.addressOf(insn, 0, other) &&
          warp.addressOf(insn, 1, lane) == warp.addressOf(insn, 1, other);
      for (uint32_t i = 0; i < insn.count; ++i) {
        const uint32_t *values = warp.lanes<uint32_t>(slots[i]);
        same &= values[lane] == values[other];
      }
      isNew &= !same;
    });
    different |= uint32_t(isNew) << lane;
  });
  return different;
}

/// op[0] is the target, op[1] the source in shared memory.
static void copyOut(Warp &warp, const Insn &insn, uint32_t mask) {
  if (insn.aux & 7)
    mask = differentCopies(warp, insn, mask);
  forLanes(mask, [&](unsigned lane) {
    uint64_t global = warp.addressOf(insn, 0, lane) + uint64_t(insn.imm);
    uint64_t from = warp.addressOf(insn, 1, lane) + uint64_t(insn.imm2);
    checkShared(warp, insn, lane, from);
    Box box = readBox(warp, insn, lane, global);
    Block &block =
        blockOf(warp, insn, lane, from, unsigned(16 * box.from.size()));
    for (size_t i = 0; i < box.from.size(); ++i) {
      uint32_t place = swizzled(box.swizzle, uint32_t(from + 16 * i));
      block.shared.beginAsyncRead(warp, insn, lane, place, 16);
      warp.bulkStores.push_back(
          {&block, &insn, place, 16, warp.bulkGroup[lane], uint8_t(lane)});
      if (box.valid[i])
        std::memcpy(accessGlobal(warp, insn, lane, box.from[i], box.valid[i],
                                 Access::Write),
                    block.shared.at(place) + box.skipped[i], box.valid[i]);
    }
    ++warp.block->cluster->counts.bulkCopies;
  });
}

static void commit(Warp &warp, const Insn &, uint32_t mask) {
  forLanes(mask, [&](unsigned lane) { ++warp.bulkGroup[lane]; });
}

static void wait(Warp &warp, const Insn &insn, uint32_t mask) {
  size_t kept = 0;
  for (const BulkStore &store : warp.bulkStores) {
    bool due =
        mask >> store.lane & 1 &&
        int64_t(store.group) < int64_t(warp.bulkGroup[store.lane]) - insn.imm;
    if (due)
      store.block->shared.endAsyncRead(warp, store.lane, store.address,
                                       store.bytes);
    else
      warp.bulkStores[kept++] = store;
  }
  warp.bulkStores.erase(warp.bulkStores.begin() + long(kept),
                        warp.bulkStores.end());
}

static bool decodeGroups(Decoder &d) {
  if (d.take("commit_group")) {
    d.expectOperands(0);
    d.insn.handler = commit;
    return true;
  }
  if (!d.take("wait_group"))
    return false;
  d.take("read");
  d.expectOperands(1);
  d.insn.imm = d.number(0);
  if (d.insn.imm < 0)
    d.fail("expected a number of groups, but got ", d.insn.imm);
  d.insn.handler = wait;
  return true;
}

/// The global side: an address and a size, or a tensor map and coordinates.
static void decodeGlobal(Decoder &d, const Operand &operand, unsigned index,
                         unsigned dimensions, int64_t &offset) {
  d.address(operand, index, Space::Generic, offset);
  if (operand.elements.size() != dimensions)
    d.fail("expected ", dimensions, " coordinates, but got ",
           operand.elements.size());
  for (const Operand &element : operand.elements)
    d.list(d.use(element, Type::S32));
  d.insn.aux = dimensions;
}

bool ptx::decodeBulkCopy(Decoder &d) {
  if (d.name != "cp")
    return false;
  d.expect("async");
  d.expect("bulk");
  d.require(90);
  d.insn.kind = Class::AsyncCopy;
  if (decodeGroups(d))
    return true;
  bool tensor = d.take("tensor");
  int dimensions = tensor ? d.choose({"1d", "2d", "3d", "4d", "5d"}) + 1 : 0;
  if (tensor && !dimensions)
    d.fail("expected '.1d' to '.5d', but got '", d.statement.opcode, "'");
  d.take("tile");
  // The spaces stand in the order target, source.
  bool stores =
      d.statement.opcode.find("global.shared") != std::string_view::npos;
  if (d.choose({"shared::cluster", "shared::cta"}) < 0 || !d.take("global"))
    d.fail("expected a copy between '.global' and '.shared', but got '",
           d.statement.opcode, "'");
  bool hint = d.take("L2::cache_hint"),
       multicast = d.take("multicast::cluster");
  size_t extra = size_t(hint) + multicast;
  if (stores) {
    d.expect("bulk_group");
    if (multicast)
      d.fail("expected a copy to shared memory, but got '", d.statement.opcode,
             "'");
    d.expectOperands((tensor ? 2 : 3) + extra);
    decodeGlobal(d, d.operand(0), 0, unsigned(dimensions), d.insn.imm);
    d.address(d.operand(1), 1, Space::Shared, d.insn.imm2);
    if (!tensor)
      d.list(d.use(2, Type::U32));
    d.storesGlobal(2);
    d.insn.handler = copyOut;
  } else {
    d.expect("mbarrier::complete_tx::bytes");
    size_t barrier = tensor ? 2 : 3;
    d.expectOperands(barrier + 1 + extra);
    int64_t offset;
    d.address(d.operand(0), 0, Space::Shared, d.insn.imm);
    decodeGlobal(d, d.operand(1), 1, unsigned(dimensions), d.insn.imm2);
    if (!tensor)
      d.list(d.use(2, Type::U32));
    d.address(d.operand(barrier), 2, Space::Shared, offset);
    if (offset)
      d.fail("expected an mbarrier without an offset, but got ", offset);
    if (multicast) {
      d.list(d.use(barrier + 1, Type::U16));
      d.insn.aux |= Multicast;
    }
    d.insn.handler = copyIn;
  }
  if (hint)
    d.use(d.size() - 1, Type::U64);
  return true;
}
