// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of small matrices in the registers of a warp, and how they get
// there. PTX ISA, "mma", "ldmatrix", "stmatrix". With g = lane / 4 and t = lane
// % 4, and for values of 16 bits j = 0 and 1 in the halves of a register:
//
//   A[g + 8 (r % 2)][2 t + j + 8 (r / 2)]   register r of A
//   B[2 t + j + 8 r][g]                     register r of B
//   C[g + 8 (r / 2)][2 t + r % 2]           register r of C and D
//
// and of 32 bits A[g + 8 (r % 2)][t + 4 (r / 2)], B[t + 4 r][g].

#include "Access.h"
#include "Lanes.h"
#include "Products.h"

using namespace ptx;

/// D = A B + C. Each sum is in f64, over k in order, and rounded once. The list
/// is D, A, B, C.
template <Element element, unsigned depth>
static void multiply(Warp &warp, const Insn &insn, uint32_t) {
  constexpr bool narrow = element != Element::TF32;
  constexpr unsigned numA = narrow ? depth / 4 : depth / 2, numB = numA / 2;
  const uint32_t *slots = warp.list(insn);
  double a[16][depth], b[depth][8], sums[16][8];
  for (unsigned lane = 0; lane < 32; ++lane) {
    unsigned g = lane / 4, t = lane % 4;
    for (unsigned r = 0; r < numA; ++r) {
      uint32_t bits = warp.lanes<uint32_t>(slots[4 + r])[lane];
      if constexpr (narrow)
        for (unsigned j = 0; j < 2; ++j)
          a[g + 8 * (r % 2)][2 * t + j + 8 * (r / 2)] =
              widen(element, bits >> (16 * j));
      else
        a[g + 8 * (r % 2)][t + 4 * (r / 2)] = widen(element, bits);
    }
    for (unsigned r = 0; r < numB; ++r) {
      uint32_t bits = warp.lanes<uint32_t>(slots[4 + numA + r])[lane];
      if constexpr (narrow)
        for (unsigned j = 0; j < 2; ++j)
          b[2 * t + j + 8 * r][g] = widen(element, bits >> (16 * j));
      else
        b[t + 4 * r][g] = widen(element, bits);
    }
  }
  // Register r of the lane of a row and a column.
  auto forSums = [&](const uint32_t *registers, auto body) {
    for (unsigned r = 0; r < 4; ++r) {
      uint32_t *bits = warp.lanes<uint32_t>(registers[r]);
      for (unsigned lane = 0; lane < 32; ++lane)
        body(bits[lane], sums[lane / 4 + r / 2 * 8][lane % 4 * 2 + r % 2]);
    }
  };
  forSums(slots + 4 + numA + numB,
          [](uint32_t bits, double &sum) { sum = floatOf(bits); });
  addProducts(8, depth, a[0], b[0], sums[0]);
  forSums(slots, [](uint32_t &bits, double sum) { bits = roundedSum(sum); });
  Counts &counts = warp.block->cluster->counts;
  ++counts.mma;
  counts.mmaFlops[insn.tensorType] += insn.flops;
}

/// Lane 8 i + j has the address of row j of matrix i; lane l gets elements 2 (l
/// % 4) and the next of row l / 4, or of that column.
template <bool transposed>
static void loadMatrix(Warp &warp, const Insn &insn, uint32_t) {
  const uint32_t *slots = warp.list(insn);
  const uint8_t *rows[32];
  uint64_t addresses[32];
  unsigned numRows = 8 * insn.count;
  uint32_t used = numRows == 32 ? 0xffffffffu : (1u << numRows) - 1;
  for (unsigned lane = 0; lane < numRows; ++lane) {
    uint64_t address = warp.addressOf(insn, 0, lane) + uint64_t(insn.imm);
    if (address % 16)
      warp.fail(insn, lane,
                "expected an address that is a multiple of 16, but got ",
                address);
    Block &block = blockOf(warp, insn, lane, address, 16);
    block.shared.read(warp, insn, wholeWarp, uint32_t(address), 16);
    rows[lane] = block.shared.at(uint32_t(address));
    addresses[lane] = address;
  }
  for (uint32_t i = 0; i < insn.count; ++i) {
    uint32_t *d = warp.lanes<uint32_t>(slots[i]);
    for (unsigned lane = 0; lane < 32; ++lane) {
      uint16_t pair[2];
      for (unsigned j = 0; j < 2; ++j) {
        unsigned row = lane / 4, col = 2 * (lane % 4) + j;
        if (transposed)
          std::swap(row, col);
        std::memcpy(&pair[j], rows[8 * i + row] + 2 * col, 2);
      }
      d[lane] = pair[0] | uint32_t(pair[1]) << 16;
    }
  }
  Counts &counts = warp.block->cluster->counts;
  ++counts.loadMatrix;
  countShared(counts, addresses, used, 16);
}

template <bool transposed>
static void storeMatrix(Warp &warp, const Insn &insn, uint32_t) {
  const uint32_t *slots = warp.list(insn);
  uint64_t addresses[32];
  unsigned numRows = 8 * insn.count;
  uint32_t used = numRows == 32 ? 0xffffffffu : (1u << numRows) - 1;
  for (unsigned lane = 0; lane < numRows; ++lane) {
    uint64_t address = warp.addressOf(insn, 0, lane) + uint64_t(insn.imm);
    if (address % 16)
      warp.fail(insn, lane,
                "expected an address that is a multiple of 16, but got ",
                address);
    Block &block = blockOf(warp, insn, lane, address, 16);
    addresses[lane] = address;
    uint8_t *to = block.shared.at(uint32_t(address));
    uint32_t i = lane / 8;
    for (unsigned e = 0; e < 8; ++e) {
      unsigned row = lane % 8, col = e;
      if (transposed)
        std::swap(row, col);
      uint32_t bits = warp.lanes<uint32_t>(slots[i])[4 * row + col / 2];
      uint16_t value = uint16_t(bits >> (16 * (col % 2)));
      // Each lane writes its own elements.
      block.shared.write(warp, insn, 4 * row + col / 2,
                         uint32_t(address) + 2 * e, 2,
                         reinterpret_cast<const uint8_t *>(&value));
      std::memcpy(to + 2 * e, &value, 2);
    }
  }
  countShared(warp.block->cluster->counts, addresses, used, 16);
}

static bool decodeMma(Decoder &d) {
  d.expect("sync");
  d.expect("aligned");
  int shape = d.choose({"m16n8k16", "m16n8k8"});
  d.expect("row");
  d.expect("col");
  Type result = d.type(), a = d.type(), b = d.type(), c = d.type();
  bool known = shape >= 0 && result == Type::F32 && c == Type::F32 && a == b;
  unsigned numA = shape == 0 ? 4 : 2;
  Handler *handler = nullptr;
  if (a == Type::BF16)
    handler = shape == 0 ? multiply<Element::BFloat, 16>
                         : multiply<Element::BFloat, 8>;
  else if (a == Type::F16)
    handler =
        shape == 0 ? multiply<Element::Half, 16> : multiply<Element::Half, 8>;
  else if (a == Type::TF32 && shape == 1)
    handler = multiply<Element::TF32, 8>, numA = 4;
  if (!known || !handler)
    d.fail("expected m16n8k16 of bf16 or f16, or m16n8k8 of bf16, f16 or tf32, "
           "with sums in f32, but got '",
           d.statement.opcode, "'");
  d.require(a == Type::F16 && shape == 1 ? 75 : 80);
  d.expectOperands(4);
  unsigned counts[] = {4, numA, numA / 2, 4};
  for (unsigned i = 0; i < 4; ++i) {
    const Operand &operand = d.operand(i);
    if (operand.kind != Operand::Vector || operand.elements.size() != counts[i])
      d.fail("expected ", counts[i], " registers as operand ", i,
             " of mma, but got ", operand.elements.size());
    for (const Operand &element : operand.elements)
      d.list(i ? d.use(element, Type::B32) : d.define(element, Type::B32));
  }
  d.insn.kind = Class::Matrix;
  d.insn.flags |= Converges;
  d.insn.handler = handler;
  return true;
}

static bool decodeMatrixAccess(Decoder &d, bool loads) {
  d.require(loads ? 75 : 90);
  d.expect("sync");
  d.expect("aligned");
  d.expect("m8n8");
  int count = d.choose({"x1", "x2", "x4"});
  bool transposed = d.take("trans");
  if (d.choose({"shared", "shared::cta"}) < 0)
    d.fail("expected modifier '.shared', but got '", d.statement.opcode, "'");
  d.expect("b16");
  if (count < 0)
    d.fail("expected '.x1', '.x2' or '.x4', but got '", d.statement.opcode,
           "'");
  d.expectOperands(2);
  const Operand &registers = d.operand(loads ? 0 : 1);
  if (registers.kind != Operand::Vector ||
      registers.elements.size() != 1u << count)
    d.fail("expected ", 1 << count, " registers in braces, but got ",
           registers.elements.size());
  for (const Operand &element : registers.elements)
    d.list(loads ? d.define(element, Type::B32) : d.use(element, Type::B32));
  d.address(d.operand(loads ? 1 : 0), 0, Space::Shared, d.insn.imm);
  d.insn.kind = Class::Matrix;
  d.insn.flags |= Converges;
  if (loads) {
    d.insn.handler = transposed ? loadMatrix<true> : loadMatrix<false>;
  } else {
    d.storesShared(2);
    d.insn.handler = transposed ? storeMatrix<true> : storeMatrix<false>;
  }
  return true;
}

bool ptx::decodeMatrix(Decoder &d) {
  if (d.name == "mma")
    return decodeMma(d);
  if (d.name == "ldmatrix" || d.name == "stmatrix")
    return decodeMatrixAccess(d, d.name == "ldmatrix");
  return false;
}
