# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Prints a tensor of a checkpoint: f32 or i32.

import json
import struct
import sys

path, name = sys.argv[1:]
with open(path, "rb") as file:
    size = struct.unpack("<Q", file.read(8))[0]
    entry = json.loads(file.read(size))[name]
    begin, end = entry["data_offsets"]
    code = {"F32": "f", "I32": "i"}[entry["dtype"]]
    file.seek(8 + size + begin)
    print(*struct.unpack(f"<{(end - begin) // 4}{code}", file.read(end - begin)))
