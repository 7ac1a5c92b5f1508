# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Copies a token file with one thing changed.

"""damage.py FROM TO CHANGE

    truncate SIZE     only the first SIZE bytes
    set PLACE VALUE   another byte, or another 32-bit number of the header
    sign PLACE VALUE  the same with a right checksum
    split COUNT       COUNT tokens to train on; if negative, -COUNT held out
    fill PART TOKEN   every token to train on (0), or held out (1), is TOKEN
    widen             tokens of 4 bytes
    vocabulary SIZE   another number of ids
    old               version 1, which says nothing of words
"""

import struct
import sys

HEAD = 56


def sign(data):
    checksum = 0xCBF29CE484222325
    for byte in data[24:]:
        checksum = (checksum ^ byte) * 0x100000001B3 % 2**64
    struct.pack_into("<Q", data, 16, checksum)


source, target, change, *numbers = sys.argv[1:]
numbers = list(map(int, numbers))
with open(source, "rb") as file:
    data = bytearray(file.read())
train, held_out = struct.unpack_from("<QQ", data, 40)
words = data[len(data) - struct.unpack_from("<I", data, 24)[0]:]
if change == "truncate":
    del data[numbers[0]:]
elif change in ("set", "sign"):
    place, value = numbers
    struct.pack_into("<I" if place < HEAD else "<B", data, place, value)
elif change == "split":
    total = train + held_out
    struct.pack_into("<QQ", data, 40, numbers[0] % total, total - numbers[0] % total)
elif change == "fill":
    begin, end = ((0, train), (train, train + held_out))[numbers[0]]
    data[HEAD + 2 * begin:HEAD + 2 * end] = struct.pack("<H", numbers[1]) * (end - begin)
elif change == "widen":
    tokens = struct.unpack_from(f"<{train + held_out}H", data, HEAD)
    data[HEAD:] = struct.pack(f"<{len(tokens)}I", *tokens) + words
    struct.pack_into("<I", data, 12, 4)
elif change == "vocabulary":
    size = numbers[0]
    data[-len(words):] = words[:size] + bytes(size - len(words[:size]))
    struct.pack_into("<I", data, 24, size)
elif change == "old":
    del data[-len(words):]
    struct.pack_into("<I", data, 8, 1)
if change not in ("truncate", "set"):
    sign(data)
with open(target, "wb") as file:
    file.write(data)
