// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks that a buffer is one number.

#include "Scalar.h"
#include "support/Error.h"

using namespace sparse_opt;
using namespace sparse_opt::train;

Scalar::Scalar(Session &session, const Buffer *buffer)
    : session(session), buffer(buffer) {
  if (!buffer)
    return;
  bool isNumber = buffer->type == BSR_F32 || buffer->type == BSR_F64 ||
                  buffer->type == BSR_I32 || buffer->type == BSR_I64 ||
                  buffer->type == BSR_UI32 || buffer->type == BSR_UI64 ||
                  buffer->type == BSR_I1;
  if (buffer->elements != 1 || !isNumber)
    fail("expected '", buffer->name, "' (", buffer->role,
         ") to be one f32, f64, i32, i64, ui32, ui64 or i1, but got ",
         buffer->elements, " ", bsr_type_name(buffer->type));
}
