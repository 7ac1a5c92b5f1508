# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# edit-tensors.py FROM TO CHANGE NAME: copies a safetensors file with a tensor less
# ("remove") or more ("add"), as another program would write it; or a checkpoint
# whose tensor lacks its last row ("cut"), which says of itself what it said before.

import json
import struct
import sys

import checkpoint

source, target, change, name = sys.argv[1:]
header, data = checkpoint.parse(source)
metadata = header.pop("__metadata__")
tensors = {key: (entry, data[slice(*entry["data_offsets"])]) for key, entry in header.items()}
if change == "remove":
    del tensors[name]
elif change == "cut":
    entry, contents = tensors[name]
    rows = entry["shape"][0]
    entry["shape"][0] -= 1
    tensors[name] = entry, contents[:len(contents) // rows * (rows - 1)]
else:
    tensors[name] = {"dtype": "F32", "shape": [1]}, bytes(4)
header, data = {}, b""
for key, (entry, contents) in tensors.items():
    header[key] = {**entry, "data_offsets": [len(data), len(data) + len(contents)]}
    data += contents
if change == "cut":
    checkpoint.write(target, {"__metadata__": metadata, **header}, data)
    sys.exit()
text = json.dumps(header).encode()
with open(target, "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data)
