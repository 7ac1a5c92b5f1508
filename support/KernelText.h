// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How the texts of kernels are made.

#ifndef BSR_SUPPORT_KERNELTEXT_H
#define BSR_SUPPORT_KERNELTEXT_H

#include <string>
#include <string_view>

namespace bsr {

/// Replaces `from` wherever it stands in `text`.
void replaceAll(std::string &text, std::string_view from,
                const std::string &to);

/// Makes each `AT_field` of UpdateRow and UpdateResult the place of the field.
void replaceFields(std::string &text);

/// The kernels that have a block of threads for each row of the table.
std::string updateKernels();

} // namespace bsr

#endif // BSR_SUPPORT_KERNELTEXT_H
