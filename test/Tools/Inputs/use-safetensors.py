# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# use-safetensors.py CHECKPOINT DENSE COPY: reads both with the safetensors library,
# compares them with what plain Python reads, and writes DENSE again with the library.

import sys

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

import tensor_file

*paths, copy = sys.argv[1:]
for path in paths:
    read, own = tensor_file.read(path)
    with safe_open(path, "np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
        metadata = file.metadata()
    assert metadata == own
    assert tensors.keys() == read.keys()
    for name, tensor in tensors.items():
        assert tensor.tobytes() == read[name].data and list(tensor.shape) == read[name].shape, name
    w = tensors["state.w"]
    print(f"{path.split('/')[-1]}: {len(tensors)} tensors, metadata {len(metadata)}, "
          f"state.w {w.shape} {w.dtype}")
save_file({name: np.array(tensor) for name, tensor in tensors.items()}, copy, metadata)
