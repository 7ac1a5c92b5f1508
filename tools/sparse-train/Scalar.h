// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Numbers that a step takes and returns.

#ifndef BSR_TOOLS_SPARSETRAIN_SCALAR_H
#define BSR_TOOLS_SPARSETRAIN_SCALAR_H

#include "Session.h"

namespace sparse_opt::train {

/// The one number of a scalar argument or result, of any type that a front end
/// may choose for it.
class Scalar {
public:
  /// `buffer`, of `session`, may be null, where the step has no such argument.
  Scalar(Session &session, const Buffer *buffer);

  template <typename T>
  void set(T value) const {
    if (buffer)
      visit([&](auto element) {
        element = value;
        session.write(*buffer, &element);
      });
  }

  double get() const {
    double value;
    visit([&](auto element) {
      session.read(*buffer, &element);
      value = element;
    });
    return value;
  }

private:
  /// Calls `access` with an element of the buffer's type.
  template <typename F>
  void visit(F access) const {
    switch (buffer->type) {
    case BSR_F32:
      return access(float());
    case BSR_F64:
      return access(double());
    case BSR_I32:
      return access(int32_t());
    case BSR_UI32:
      return access(uint32_t());
    case BSR_UI64:
      return access(uint64_t());
    case BSR_I1:
      return access(bool());
    default:
      return access(int64_t());
    }
  }

  Session &session;
  const Buffer *buffer;
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_SCALAR_H
