# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# edit-tensors.py FROM TO CHANGE NAME: copies a safetensors file with a tensor less
# ("remove") or more ("add"), as another program would write it; or a checkpoint
# whose tensor lacks its last row ("cut"), which says of itself what it said before.

import sys

import tensor_file

source, target, change, name = sys.argv[1:]
tensors, metadata = tensor_file.read(source)
if change == "remove":
    del tensors[name]
    tensor_file.write(target, tensors)
elif change == "cut":
    dtype, (rows, *rest), data = tensors[name]
    tensors[name] = tensor_file.Tensor(dtype, [rows - 1, *rest], data[:len(data) // rows * (rows - 1)])
    tensor_file.write_checkpoint(target, tensors, metadata)
else:
    tensors[name] = tensor_file.Tensor("F32", [1], bytes(4))
    tensor_file.write(target, tensors)
