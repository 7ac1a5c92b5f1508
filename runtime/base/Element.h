// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element types of buffers, and their conversion from f64.

#ifndef BSR_RUNTIME_BASE_ELEMENT_H
#define BSR_RUNTIME_BASE_ELEMENT_H

#include "bsr/runtime.h"
#include "support/Element.h"
#include "support/ElementType.h"

namespace sparse_opt {

/// The type in files, and back.
inline ElementType elementType(bsr_type type) { return ElementType(type); }
static_assert(BSR_F16 == int(ElementType::F16) &&
                  BSR_I1 == int(ElementType::I1) &&
                  BSR_UI64 == int(ElementType::UI64),
              "the C interface numbers types as files do");

/// Element `index` of `data`, a floating-point number.
double loadElement(bsr_type type, const void *data, int64_t index);

/// Writes `value`, rounded to the nearest `type`, as element `index` of `data`.
void storeElement(bsr_type type, void *data, int64_t index, double value);

} // namespace sparse_opt

#endif // BSR_RUNTIME_BASE_ELEMENT_H
