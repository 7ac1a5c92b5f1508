// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Statements of PTX before they are decoded.

#ifndef PTX_SYNTAX_H
#define PTX_SYNTAX_H

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ptx {

/// A number as it is written.
struct Literal {
  enum Kind : uint8_t {
    Integer, ///< `bits` is its value in two's complement
    Single,  ///< 0f and 8 digits: `bits` of an f32
    Double,  ///< 0d and 16 digits, or a fraction: `bits` of an f64
  };
  Kind kind = Integer;
  uint64_t bits = 0;
};

struct Operand {
  enum Kind : uint8_t {
    Name,    ///< a register, a variable, a label, or `_`
    Number,  ///< a literal
    Vector,  ///< {a, b, c, d}
    Address, ///< [base + offset], or [base, {coordinates}]
  };
  Kind kind = Name;
  bool negated = false; ///< !p
  std::string_view
      name; ///< of Name, and the base of Address; may be empty there
  Literal literal;
  int64_t offset = 0;
  std::vector<Operand> elements; ///< of Vector; the coordinates of Address
  std::string_view second;       ///< q of p|q
};

struct Statement {
  int line = 0;
  std::string text;
  std::string_view guard; ///< p of @p; empty where there is none
  bool guardNegated = false;
  std::string_view opcode;
  std::vector<Operand> operands;
};

} // namespace ptx

#endif // PTX_SYNTAX_H
