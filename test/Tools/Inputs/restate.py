# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# restate.py CHECKPOINT TEXT: lets a checkpoint say TEXT of its run, in which TOKENS
# stands for the checksum of the token file.

import json
import sys

import checkpoint

path, text = sys.argv[1:]
header, data = checkpoint.read(path)
metadata = header["__metadata__"]
if "TOKENS" in text:
    tokens = json.loads(metadata["metadata"])["tokens"]
    text = text.replace("TOKENS", str(tokens))
metadata["metadata"] = text
checkpoint.write(path, header, data)
