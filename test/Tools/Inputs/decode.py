# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Prints the first held-out document of a token file as text.

import struct
import subprocess
import sys

SEPARATOR, NEWLINE = 3, "<0x0A>"

path = sys.argv[1]
with open(path, "rb") as file:
    head = struct.unpack("<8sIIQIIIIQQ", file.read(56))
    body = file.read()
train, held_out = head[-2:]
tokens = struct.unpack_from(f"<{train + held_out}H", body)[train:]
document = tokens[: tokens.index(SEPARATOR)]
done = subprocess.run(["spm_decode", f"--model={path}.model", "--input_format=id"],
                      input=" ".join(map(str, document)), text=True, check=True,
                      capture_output=True)
sys.stdout.write(done.stdout.removesuffix("\n"))
