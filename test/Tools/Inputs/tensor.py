# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Prints a float tensor of a checkpoint.

import json
import struct
import sys

path, name = sys.argv[1:]
with open(path, "rb") as file:
    size = struct.unpack("<Q", file.read(8))[0]
    begin, end = json.loads(file.read(size))[name]["data_offsets"]
    file.seek(8 + size + begin)
    print(*struct.unpack(f"<{(end - begin) // 4}f", file.read(end - begin)))
