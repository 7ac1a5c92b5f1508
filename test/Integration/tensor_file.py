# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Safetensors files, of which checkpoints are some, as plain Python reads and writes them, for tests.

    arrays = tensor_file.read_arrays(path)
    tensor_file.write_arrays(path, {"w": array})

Arrays are NumPy's, and bf16 is held in uint16; all else needs no NumPy.
"""

import json
import struct
import typing

# The codes of `struct` and of NumPy.
CODES = {"BOOL": "?", "I8": "b", "U8": "B", "I32": "i", "I64": "q", "F16": "e", "BF16": "H", "F32": "f", "F64": "d"}
CHECKSUM, BLANK = b'"checksum":"%s"', "0" * 16

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


class Tensor(typing.NamedTuple):
    """A tensor as a file has it: the name of its type, its shape and its bytes."""

    dtype: str
    shape: list
    data: bytes

    def numbers(self):
        """The elements, flat."""
        return tuple(number for number, in struct.iter_unpack("<" + CODES[self.dtype], self.data))


def split(contents):
    """The header and the data of the contents of a file."""
    (size,) = struct.unpack_from("<Q", contents)
    return json.loads(contents[8:8 + size]), contents[8 + size:]


def join(header, data):
    """The contents of a file of this header, or text of one, and this data."""
    text = header if isinstance(header, str) else json.dumps(header, separators=(",", ":"))
    return struct.pack("<Q", len(text.encode())) + text.encode() + data


def read(path):
    """The tensors of a file by name, and its metadata."""
    with open(path, "rb") as file:
        header, data = split(file.read())
    metadata = header.pop("__metadata__", {})
    return {name: Tensor(entry["dtype"], entry["shape"], data[slice(*entry["data_offsets"])])
            for name, entry in header.items()}, metadata


def make(tensors, metadata=None):
    """The contents of a file of these tensors, one after the other."""
    header, data = {} if metadata is None else {"__metadata__": metadata}, b""
    for name, tensor in tensors.items():
        begin, data = len(data), data + tensor.data
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": [begin, len(data)]}
    return join(header, data)


def write(path, tensors, metadata=None):
    with open(path, "wb") as file:
        file.write(make(tensors, metadata))


def read_arrays(path):
    import numpy as np

    return {name: np.frombuffer(tensor.data, CODES[tensor.dtype]).reshape(tensor.shape)
            for name, tensor in read(path)[0].items()}


def write_arrays(path, arrays):
    import numpy as np

    names = {np.dtype(code): name for name, code in CODES.items()}
    arrays = {name: np.asarray(array) for name, array in arrays.items()}
    write(path, {name: Tensor(names[array.dtype], list(array.shape), array.tobytes()) for name, array in arrays.items()})


def sealed(contents, checksum):
    """The contents of a checkpoint whose checksum is `checksum`, with the right one."""
    blank = contents.replace(CHECKSUM % checksum.encode(), CHECKSUM % BLANK.encode(), 1)
    return blank.replace(CHECKSUM % BLANK.encode(), CHECKSUM % f"{xxh64(blank):016x}".encode(), 1)


def read_checkpoint(path):
    """The tensors and the metadata of a checkpoint, whose checksum is right."""
    tensors, metadata = read(path)
    with open(path, "rb") as file:
        contents = file.read()
    assert sealed(contents, metadata["checksum"]) == contents, f"checksum of {path}"
    return tensors, metadata


def write_checkpoint(path, tensors, metadata):
    """Writes a checkpoint with the right checksum."""
    with open(path, "wb") as file:
        file.write(sealed(make(tensors, {**metadata, "checksum": BLANK}), BLANK))
