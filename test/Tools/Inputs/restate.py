# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# restate.py CHECKPOINT TEXT [KEY]: lets a checkpoint say TEXT of its run, in which
# TOKENS stands for the checksum of the token file; or of KEY, and nothing for "".

import json
import sys

import tensor_file

path, text = sys.argv[1:3]
key = sys.argv[3] if len(sys.argv) > 3 else "metadata"
tensors, metadata = tensor_file.read_checkpoint(path)
if "TOKENS" in text:
    tokens = json.loads(metadata["metadata"])["tokens"]
    text = text.replace("TOKENS", str(tokens))
metadata[key] = text
if key != "metadata" and not text:
    del metadata[key]
tensor_file.write_checkpoint(path, tensors, metadata)
