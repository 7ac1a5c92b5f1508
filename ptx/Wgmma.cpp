// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of matrices in shared memory by four warps. PTX ISA, "Asynchronous
// Warpgroup Level Matrix Multiply-Accumulate Instructions". With W bytes of a
// swizzle (16 without one), E bytes of an element and T = 16 / E, the
// descriptor with the offsets LBO and SBO puts element (mn, k) at
//
//   K-major   (mn % 8) W + (mn / 8) SBO + k E          with a swizzle
//             (mn % 8) 16 + (mn / 8) SBO + (k % T) E + (k / T) LBO   without
//   MN-major  (mn % (W/E)) E + (mn / (W/E)) LBO + (k % 8) W + (k / 8) SBO
//             (mn % T) E + (mn / T) SBO + (k % 8) 16 + (k / 8) LBO   without
//
// from its start, and the swizzle is that of the address. The layouts are those
// of CUTLASS's mma_traits_sm90_gmma.hpp, "canonical layouts".

#include "Access.h"
#include "Lanes.h"
#include "Products.h"
#include <algorithm>

using namespace ptx;

namespace {
/// Bits of Insn::aux above N, which is in the lower 9.
enum : uint32_t {
  ElementShift = 9,
  TransposeA = 1 << 11,
  TransposeB = 1 << 12,
  NegateA = 1 << 13,
  NegateB = 1 << 14,
  RegistersA = 1 << 15,
};

struct Descriptor {
  uint32_t start, leading, stride;
  Swizzle swizzle;
  uint32_t width;

  explicit Descriptor(uint64_t bits)
      : start(uint32_t(bits & 0x3fff) << 4),
        leading(uint32_t(bits >> 16 & 0x3fff) << 4),
        stride(uint32_t(bits >> 32 & 0x3fff) << 4) {
    static constexpr Swizzle modes[] = {Swizzle::None, Swizzle::Bytes128,
                                        Swizzle::Bytes64, Swizzle::Bytes32};
    swizzle = modes[bits >> 62];
    width = 16u << unsigned(swizzle);
  }

  /// Where element (mn, k) of `size` bytes lies, without swizzle.
  uint32_t place(unsigned mn, unsigned k, unsigned size, bool mnMajor) const {
    unsigned inChunk = 16 / size, inSpan = width / size;
    bool plain = swizzle == Swizzle::None;
    if (!mnMajor)
      return start + mn % 8 * width + mn / 8 * stride +
             (plain ? k % inChunk * size + k / inChunk * leading : k * size);
    if (plain)
      return start + mn % inChunk * size + mn / inChunk * stride + k % 8 * 16 +
             k / 8 * leading;
    return start + mn % inSpan * size + mn / inSpan * leading + k % 8 * width +
           k / 8 * stride;
  }
};
} // namespace

/// Reads `count` rows (of mn) from `first` on, all k of them, 16 bytes at a
/// time. Element (mn, k) goes to into[mn * rowStride + k * stride].
template <Element element>
static void readElements(Warp &warp, const Insn &insn, uint64_t bits,
                         bool mnMajor, unsigned first, unsigned count,
                         double *into, size_t rowStride, size_t stride,
                         WgmmaState::Pending &pending) {
  using Storage =
      std::conditional_t<element == Element::TF32, uint32_t, uint16_t>;
  constexpr unsigned size = sizeof(Storage), depth = 32 / size,
                     inChunk = 16 / size;
  Descriptor descriptor(bits);
  // The pattern of a swizzle repeats every 8 rows of its width, at multiples of
  // that; a start inside of it has to say in which row.
  auto row = unsigned(descriptor.start >> 7 & (descriptor.width / 16 - 1)),
       given = unsigned(bits >> 49 & 7);
  if (row != given)
    warp.fail(insn, 0, "expected the base offset ", row,
              " of a matrix at shared address ", descriptor.start, ", but got ",
              given);
  unsigned stepMn = mnMajor ? inChunk : 1, stepK = mnMajor ? 1 : inChunk;
  size_t step = mnMajor ? rowStride : stride;
  pending.reads.reserve(pending.reads.size() + count * depth / inChunk);
  for (unsigned mn = first; mn < first + count; mn += stepMn)
    for (unsigned k = 0; k < depth; k += stepK) {
      uint64_t address =
          swizzled(descriptor.swizzle, descriptor.place(mn, k, size, mnMajor));
      Block &block = blockOf(warp, insn, 0, address, 16);
      block.shared.beginAsyncRead(warp, insn, anyLane, uint32_t(address), 16);
      pending.reads.push_back({&block, uint32_t(address), 16});
      Storage values[inChunk];
      std::memcpy(values, block.shared.at(uint32_t(address)), 16);
      double *to = into + (mn - first) * rowStride + k * stride;
      for (unsigned i = 0; i < inChunk; ++i)
        to[i * step] = widen(element, values[i]);
    }
}

template <typename... Arguments>
static void readOperand(Element element, Arguments &&...arguments) {
  switch (element) {
  case Element::BFloat:
    return readElements<Element::BFloat>(arguments...);
  case Element::Half:
    return readElements<Element::Half>(arguments...);
  case Element::TF32:
    return readElements<Element::TF32>(arguments...);
  }
}

static void checkAccumulators(Warp &warp, const Insn &insn,
                              const uint32_t *slots, uint32_t count,
                              bool accumulates) {
  WgmmaState &state = warp.wgmma;
  if (!state.fenced)
    warp.fail(insn, 0, "expected wgmma.fence before wgmma, but got none");
  for (uint32_t i = 0; i < count; ++i) {
    if (state.unfenced[slots[i]])
      warp.fail(insn, 0,
                "expected wgmma.fence between a write of a register and wgmma, "
                "but got none");
    if (accumulates && !state.busy[slots[i]] &&
        warp.initialised[slots[i]] != 0xffffffffu)
      warp.fail(insn, 0,
                "expected registers with a value, but got one that was never "
                "written");
  }
}

static uint64_t uniform(Warp &warp, const Insn &insn, uint32_t slot) {
  const uint64_t *lanes = warp.lanes<uint64_t>(slot);
  for (unsigned lane = 1; lane < 32; ++lane)
    if (lanes[lane] != lanes[0])
      warp.fail(insn, lane,
                "expected one descriptor in all lanes, but got two");
  return lanes[0];
}

/// All warps of the group have issued its product of this number.
static bool isIssued(const Warp &warp, uint64_t number) {
  const Warp *first = &warp - warp.index % 4;
  return std::all_of(first, first + 4, [&](const Warp &other) {
    return other.wgmma.issued > number;
  });
}

/// Compares a product with the same one of the other warps of the group.
static void noteIssued(Warp &warp, const Insn &insn) {
  bool registers = insn.aux & RegistersA;
  IssuedWgmma made{&insn, registers ? 0 : uniform(warp, insn, insn.op[0]),
                   uniform(warp, insn, insn.op[1])};
  auto &all = warp.block->wgmma[warp.index / 4];
  size_t number = warp.wgmma.issued++;
  if (isIssued(warp, number))
    ++warp.block->cluster->version; // a wait may go on
  if (number == all.size()) {
    all.push_back(made);
    return;
  }
  const IssuedWgmma &first = all[number];
  if (first.insn != made.insn || first.a != made.a || first.b != made.b)
    warp.fail(insn, 0,
              "expected one wgmma with the same descriptors in the 4 warps of "
              "a group, but got another one");
}

/// The list is the accumulators and, where A is in registers, those.
static void multiply(Warp &warp, const Insn &insn, uint32_t) {
  const uint32_t *slots = warp.list(insn);
  unsigned columns = insn.aux & 511, count = columns / 2;
  Element element = Element(insn.aux >> ElementShift & 3);
  unsigned depth = element == Element::TF32 ? 8 : 16;
  if (warp.index / 4 * 4 + 4 > warp.block->warps.size())
    warp.fail(insn, 0, "expected whole groups of 4 warps, but got ",
              warp.block->warps.size(), " warps");
  noteIssued(warp, insn);
  uint32_t scale = warp.predicate(insn, insn.op[2], 0xffffffffu);
  if (scale != 0 && scale != 0xffffffffu)
    warp.fail(insn, 0, "expected one scale-d in all lanes, but got two");
  checkAccumulators(warp, insn, slots, count, scale != 0);
  WgmmaState::Pending pending;
  pending.group = warp.wgmma.group;
  pending.number = warp.wgmma.issued - 1;
  double a[16 * 16], b[16 * 256], sums[16 * 256] = {};
  if (insn.aux & RegistersA) {
    checkAccumulators(warp, insn, slots + count, insn.count - count, true);
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned r = 0; r < 4; ++r) {
        uint32_t bits = warp.lanes<uint32_t>(slots[count + r])[lane];
        unsigned row = lane / 4 + r % 2 * 8;
        if (depth == 8)
          a[row * depth + lane % 4 + r / 2 * 4] = widen(element, bits);
        else
          for (unsigned j = 0; j < 2; ++j)
            a[row * depth + lane % 4 * 2 + j + r / 2 * 8] =
                widen(element, bits >> (16 * j));
      }
  } else {
    readOperand(element, warp, insn, uniform(warp, insn, insn.op[0]),
                insn.aux & TransposeA, warp.index % 4 * 16, 16, a, depth, 1,
                pending);
  }
  readOperand(element, warp, insn, uniform(warp, insn, insn.op[1]),
              insn.aux & TransposeB, 0, columns, b, 1, columns, pending);
  addProducts(columns, depth, a, b, sums);
  bool negates = bool(insn.aux & NegateA) != bool(insn.aux & NegateB);
  for (unsigned i = 0; i < count; ++i) {
    uint32_t *d = warp.lanes<uint32_t>(slots[i]);
    for (unsigned lane = 0; lane < 32; ++lane) {
      unsigned row = lane / 4 + i / 2 % 2 * 8;
      unsigned col = i / 4 * 8 + lane % 4 * 2 + i % 2;
      double sum = sums[row * columns + col];
      d[lane] =
          roundedSum((scale ? floatOf(d[lane]) : 0) + (negates ? -sum : sum));
    }
    // They may not be read before the wait.
    ++warp.wgmma.busy[slots[i]];
    warp.initialised[slots[i]] = 0;
    pending.accumulators.push_back(slots[i]);
  }
  Counts &counts = warp.block->cluster->counts;
  ++counts.wgmma;
  counts.wgmmaFlops[insn.tensorType] += insn.flops;
  // Rows and columns are 32 bytes. A warp has 16 rows; the four of a warpgroup
  // read the columns together.
  constexpr unsigned bytes = 32, rows = 16, warps = 4;
  counts.wgmmaBytes +=
      bytes * (columns / warps + (insn.aux & RegistersA ? 0 : rows));
  warp.wgmma.pending.push_back(std::move(pending));
}

static void fence(Warp &warp, const Insn &, uint32_t) {
  warp.wgmma.fenced = true;
  warp.wgmma.unfenced.assign(warp.kernel->numSlots, 0);
  warp.wgmma.busy.resize(warp.kernel->numSlots);
}

static void commit(Warp &warp, const Insn &, uint32_t) { ++warp.wgmma.group; }

/// A product is one of four warps: it has read when any of them has waited.
static void endReads(Warp &warp, uint64_t number) {
  Block &block = *warp.block;
  Cluster &cluster = *block.cluster;
  unsigned perBlock = cluster.numGroups / unsigned(cluster.blocks.size());
  unsigned group = block.rank * perBlock + warp.index / 4;
  auto time = uint32_t(number + 1);
  for (Warp *other = &warp - warp.index % 4, *end = other + 4; other != end;
       ++other)
    for (WgmmaState::Pending &product : other->wgmma.pending)
      if (product.number == number) {
        for (const WgmmaState::Use &use : product.reads)
          use.block->shared.endGroupRead(group, use.address, use.bytes, time);
        product.reads.clear();
      }
  uint32_t &seen = warp.clock[cluster.numWarps() + 1 + group];
  seen = std::max(seen, time);
}

static void wait(Warp &warp, const Insn &insn, uint32_t) {
  auto &all = warp.wgmma.pending;
  auto isDue = [&](const WgmmaState::Pending &product) {
    return int64_t(product.group) < int64_t(warp.wgmma.group) - insn.imm;
  };
  for (const WgmmaState::Pending &product : all)
    if (isDue(product) && !isIssued(warp, product.number)) {
      warp.polledNow = warp.staysNow = true;
      return;
    }
  size_t kept = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!isDue(all[i])) {
      if (kept != i)
        all[kept] = std::move(all[i]);
      ++kept;
      continue;
    }
    endReads(warp, all[i].number);
    for (uint32_t slot : all[i].accumulators)
      if (--warp.wgmma.busy[slot] == 0)
        warp.initialised[slot] = 0xffffffffu;
  }
  all.resize(kept);
}

void ptx::checkIssued(Cluster &cluster) {
  for (Block &block : cluster.blocks)
    for (Warp &warp : block.warps) {
      const auto &all = block.wgmma[warp.index / 4];
      if (warp.wgmma.issued < all.size())
        warp.fail(*all[warp.wgmma.issued].insn, 0,
                  "expected every warp of a group to issue wgmma, but got a "
                  "warp that ",
                  warp.status == Status::Done ? "has ended" : "waits");
    }
}

static bool decodeProduct(Decoder &d) {
  unsigned columns = 0;
  std::string_view shape = d.takeAny();
  size_t k = shape.find('k');
  if (shape.substr(0, 4) == "m64n" && k != std::string_view::npos && k < 8)
    for (char c : shape.substr(4, k - 4))
      columns = c >= '0' && c <= '9' ? columns * 10 + unsigned(c - '0') : 999;
  Type result = d.type(), typeA = d.type(), typeB = d.type();
  bool narrow = typeA == Type::BF16 || typeA == Type::F16;
  std::string_view depth = k == std::string_view::npos ? "" : shape.substr(k);
  if (columns < 8 || columns > 256 || columns % 8 || result != Type::F32 ||
      typeA != typeB || !(narrow || typeA == Type::TF32) ||
      depth != (narrow ? "k16" : "k8"))
    d.fail("expected m64nNk16 of bf16 or f16, or m64nNk8 of tf32, with sums in "
           "f32, but got '",
           d.statement.opcode, "'");
  const Operand &sums = d.operand(0), &first = d.operand(1);
  bool registers = first.kind == Operand::Vector;
  size_t numbers = 2 + (narrow ? (registers ? 1 : 2) : 0);
  d.expectOperands(4 + numbers);
  if (sums.elements.size() != columns / 2)
    d.fail("expected ", columns / 2, " accumulators, but got ",
           sums.elements.size());
  // The handler itself says which of these have a value.
  Decoder quiet(d.builder, d.statement);
  auto &marked = d.builder.kernel.accumulators;
  auto mark = [&](uint32_t slot) {
    d.list(slot);
    marked.resize(std::max<size_t>(marked.size(), slot + 1));
    marked[slot] = true;
  };
  for (const Operand &element : sums.elements)
    mark(quiet.define(element, Type::F32));
  Element element = typeA == Type::BF16  ? Element::BFloat
                    : typeA == Type::F16 ? Element::Half
                                         : Element::TF32;
  uint32_t &aux = d.insn.aux;
  aux = columns | uint32_t(element) << ElementShift;
  if (registers) {
    if (first.elements.size() != 4)
      d.fail("expected 4 registers of A, but got ", first.elements.size());
    for (const Operand &part : first.elements)
      mark(quiet.use(part, Type::B32));
    aux |= RegistersA;
  } else {
    d.insn.op[0] = d.use(1, Type::B64);
  }
  d.insn.op[1] = d.use(2, Type::B64);
  d.insn.op[2] = d.predicate(d.operand(3));
  for (size_t i = 4; i < 6; ++i) {
    int64_t scale = d.number(i);
    if (scale != 1 && scale != -1)
      d.fail("expected a scale of 1 or -1, but got ", scale);
    if (scale == -1)
      aux |= i == 4 ? NegateA : NegateB;
  }
  for (size_t i = 6; i < d.size(); ++i) {
    int64_t transposed = d.number(i);
    if (transposed != 0 && transposed != 1)
      d.fail("expected a transposition of 0 or 1, but got ", transposed);
    if (transposed)
      aux |= registers || i == 7 ? TransposeB : TransposeA;
  }
  d.insn.handler = multiply;
  return true;
}

bool ptx::decodeWgmma(Decoder &d) {
  if (d.name != "wgmma")
    return false;
  d.require(90, true);
  int action = d.choose({"mma_async", "fence", "commit_group", "wait_group"});
  d.expect("sync");
  d.expect("aligned");
  d.insn.kind = Class::Matrix;
  d.insn.flags |= Converges;
  if (action == 0)
    return decodeProduct(d);
  d.expectOperands(action == 3 ? 1 : 0);
  if (action == 3 && ((d.insn.imm = d.number(0)) < 0 || d.insn.imm > 7))
    d.fail("expected 0 to 7 groups, but got ", d.insn.imm);
  d.insn.handler = action == 1 ? fence : action == 2 ? commit : wait;
  if (action == 3)
    d.insn.flags |= MayWait;
  if (action < 0)
    d.fail("expected an instruction of wgmma, but got '", d.statement.opcode,
           "'");
  return true;
}
