# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Checkpoints as plain Python reads and writes them: json and struct.

import json
import struct

PRIMES = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
          0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
WORD = 2**64 - 1


def rotate(x, by):
    return (x << by | x >> (64 - by)) & WORD


def mix(lane, data):
    return rotate((lane + data * PRIMES[1]) & WORD, 31) * PRIMES[0] & WORD


def xxh64(data):
    """XXH64 with seed 0."""
    p1, p2, p3, p4, p5 = PRIMES
    value, end = p5, len(data) // 32 * 32
    if end:
        lanes = [(p1 + p2) & WORD, p2, 0, -p1 & WORD]
        for stripe in struct.iter_unpack("<4Q", data[:end]):
            lanes = [mix(lane, word) for lane, word in zip(lanes, stripe)]
        value = sum(rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18))) & WORD
        for lane in lanes:
            value = ((value ^ mix(0, lane)) * p1 + p4) & WORD
    value = (value + len(data)) & WORD
    rest = data[end:]
    while len(rest) >= 8:
        word = struct.unpack_from("<Q", rest)[0]
        value, rest = (rotate(value ^ mix(0, word), 27) * p1 + p4) & WORD, rest[8:]
    if len(rest) >= 4:
        word = struct.unpack_from("<I", rest)[0]
        value, rest = (rotate(value ^ word * p1 & WORD, 23) * p2 + p3) & WORD, rest[4:]
    for byte in rest:
        value = rotate(value ^ byte * p5 & WORD, 11) * p1 & WORD
    for shift, prime in ((33, p2), (29, p3)):
        value = (value ^ value >> shift) * prime & WORD
    return value ^ value >> 32


def parse(path):
    """Returns the header and the data of the safetensors file `path`."""
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        return json.loads(file.read(size)), file.read()


def read(path):
    """Returns them of the checkpoint `path`; its checksum is right."""
    header, data = parse(path)
    with open(path, "rb") as file:
        contents = file.read()
    found = header["__metadata__"]["checksum"]
    blank = contents.replace(b'"checksum":"' + found.encode(), b'"checksum":"' + b"0" * 16, 1)
    assert f"{xxh64(blank):016x}" == found, f"checksum of {path}"
    return header, data


def write(path, header, data):
    """Writes a checkpoint with the right checksum."""
    header["__metadata__"]["checksum"] = "0" * 16
    text = json.dumps(header, separators=(",", ":")).encode()
    contents = struct.pack("<Q", len(text)) + text + data
    checksum = f"{xxh64(contents):016x}".encode()
    with open(path, "wb") as file:
        file.write(contents.replace(b'"checksum":"' + b"0" * 16, b'"checksum":"' + checksum, 1))
