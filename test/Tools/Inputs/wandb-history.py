# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Prints what an offline run of W&B holds, as wandb's own schema reads it.

"""wandb-history.py RUN: prints the run's name, then every line of its history. The
file is a LevelDB log: blocks of 32 KiB, in them chunks (checksum 4, length 2,
type 1; types 1 to 4 are full, first, middle, last), the first block after 7 bytes."""

import json
import struct
import sys
from pathlib import Path

from wandb.proto.wandb_internal_pb2 import Record

(path,) = Path(sys.argv[1], "wandb").glob("offline-run-*/*.wandb")
data, place, whole = path.read_bytes(), 7, b""
assert data.startswith(b":W&B")
while place + 7 <= len(data):
    if 2**15 - place % 2**15 < 7:
        place += -place % 2**15
    length, kind = struct.unpack_from("<HB", data, place + 4)
    whole += data[place + 7:place + 7 + length]
    place += 7 + length
    if kind not in (1, 4):
        continue
    record = Record.FromString(whole)
    whole = b""
    if record.WhichOneof("record_type") == "run":
        print(record.run.display_name)
    if record.WhichOneof("record_type") == "history":
        items = {"/".join([item.key, *item.nested_key]).strip("/"): json.loads(item.value_json)
                 for item in record.history.item}
        print(json.dumps({key: items[key] for key in items if key[0] != "_"}))
