# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Decodes the TensorBoard event files of a run, and compares them with its metrics.

"""events.py RUN: checks the framing of every event file (lengths, masked CRC-32C,
no byte left over), prints a line for each file, and checks that what they say of
the steps, the newest file last, is metrics.jsonl."""

import json
import struct
import sys
from pathlib import Path


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 * (crc & 1))
    return crc ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283  # RFC 3720's polynomial


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(data):
    while data:
        length, check = struct.unpack("<QI", data[:12])
        assert check == masked(data[:8]), "checksum of a length"
        event = data[12:12 + length]
        (check,) = struct.unpack("<I", data[12 + length:16 + length])
        assert check == masked(event), "checksum of an event"
        yield event
        data = data[16 + length:]


def varint(data):
    value = 0
    for i, byte in enumerate(data):
        value |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return value, data[i + 1:]


def fields(message):
    """Yields the number and the value of each field of a protocol buffer."""
    while message:
        key, message = varint(message)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, message = varint(message)
        elif wire == 2:
            length, message = varint(message)
            value, message = message[:length], message[length:]
        else:
            size, code = {1: (8, "<d"), 5: (4, "<f")}[wire]
            (value,), message = struct.unpack(code, message[:size]), message[size:]
        yield number, value


def flatten(name, value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flatten(f"{name}/{key}" if name else key, inner)
    else:
        yield name, value


run = Path(sys.argv[1])
steps = {}
for path in sorted(run.glob("events.out.tfevents.*")):
    log = []
    for event in map(dict, map(fields, records(path.read_bytes()))):
        assert event[1] > 1.6e9, "time"
        if 3 in event:
            log.append(event[3].decode())
        elif 7 in event:
            log.append(f"start {event[2]}")
            assert dict(fields(event[7])) == {1: 1}
            steps = {step: s for step, s in steps.items() if step < event[2]}
        else:
            values = [dict(fields(value)) for number, value in fields(event[5])]
            if any(2 in value for value in values):
                steps[event[2]] = {value[1].decode(): value[2] for value in values}
                log.append(str(event[2]))
    print(*log[:3], "...", log[-1])

for line in (run / "metrics.jsonl").read_text().splitlines():
    metrics = dict(flatten("", json.loads(line)))
    scalars = steps.pop(metrics.pop("step"))
    assert len(scalars) == len(metrics), (list(scalars), list(metrics))
    for tag, (name, value) in zip(scalars, metrics.items()):
        assert tag.split("/", 1)[1] == name.removeprefix("held_out_").removeprefix("weight_").replace("held_out", "loss"), (tag, name)
        assert scalars[tag] == struct.unpack("f", struct.pack("f", value))[0], name
assert not steps, steps
