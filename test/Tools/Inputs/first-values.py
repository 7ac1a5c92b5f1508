# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Writes files of first values that a step does not take.

import sys

import tensor_file

for name, weight, count in (("other", "state.other", 4), ("shape", "state.bias", 3)):
    zeros = tensor_file.Tensor("F32", [count], bytes(4 * count))
    tensor_file.write(f"{sys.argv[1]}/{name}.safetensors", {weight: zeros})
