# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# edit-tensors.py FROM TO CHANGE NAME: copies a safetensors file with a tensor less
# ("remove") or more ("add"), as another program would write it.

import json
import struct
import sys

import checkpoint

source, target, change, name = sys.argv[1:]
header, data = checkpoint.parse(source)
header.pop("__metadata__")
tensors = {key: (entry, data[slice(*entry["data_offsets"])]) for key, entry in header.items()}
if change == "remove":
    del tensors[name]
else:
    tensors[name] = {"dtype": "F32", "shape": [1]}, bytes(4)
header, data = {}, b""
for key, (entry, contents) in tensors.items():
    header[key] = {**entry, "data_offsets": [len(data), len(data) + len(contents)]}
    data += contents
text = json.dumps(header).encode()
with open(target, "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data)
