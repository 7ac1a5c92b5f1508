# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Data sets of arrays, and checks of the batches that runs kept in their checkpoints.

"""arrays.py write FOLDER; arrays.py arrays RUN SEED...; arrays.py text RUN TOKENS"""

import json
import struct
import sys
from pathlib import Path

import numpy as np
import runs
import tensor_file

EXAMPLES = 22


def tensors(run, names):
    """Yields what the checkpoints of a run hold, in their order."""
    for path in runs.checkpoints(Path(run)):
        arrays = tensor_file.read_arrays(path)
        yield [arrays[name] for name in names]


def write(folder):
    folder = Path(folder)
    # What an example is stands in all that it has.
    n = np.arange(EXAMPLES)
    x = np.stack([n, n * 2, n * 3], 1).astype(np.float32)
    sets = {
        "whole": {"x": x, "labels": n.astype(np.int64), "unused": n.astype(np.int32)},
        "apart": {"x": x[:18], "labels": n[:18].astype(np.uint8), "held_out.x": x[18:], "held_out.labels": n[18:].astype(np.uint8)},
        "short": {"x": x, "labels": n[:-1].astype(np.int64)},
        "lacks": {"x": x},
        "lacks_held_out": {"x": x, "labels": n.astype(np.int64), "held_out.x": x},
        "types": {"x": n[:, None].repeat(3, 1).astype(np.int32), "labels": n.astype(np.int64)},
        "shape": {"x": x[:, :2].copy(), "labels": n.astype(np.int64)},
        "number": {"x": np.float32(3).reshape(()), "labels": n.astype(np.int64)},
        "negative": {"x": x, "labels": n.astype(np.int64) - 1},
        "one": {"x": x[:1], "labels": n[:1].astype(np.int64)},
    }
    for name, arrays in sets.items():
        (folder / name).mkdir()
        for key, array in arrays.items():
            np.save(folder / name / f"{key}.npy", array)
        tensor_file.write_arrays(folder / f"{name}.safetensors", arrays)
    for name, change in {
        "fortran": lambda x: np.asfortranarray(x),
        "big": lambda x: x.astype(">f4"),
        "texts": lambda x: x.astype("U3"),
    }.items():
        (folder / name).mkdir()
        np.save(folder / name / "x.npy", change(x))
    good = (folder / "whole" / "x.npy").read_bytes()
    for name, data in {
        "magic": b"\x93NUMPX" + good[6:], "version": good[:6] + b"\x07" + good[7:], "long": good[:8] + b"\xff\xff" + good[10:],
        "cut": good[:-1], "odd": good.replace(b"'shape'", b"'shade'"), "extent": good.replace(b"(22,", b"(-2,"),
    }.items():
        (folder / name).mkdir()
        (folder / name / "x.npy").write_bytes(data)
    (folder / "empty").mkdir()


def check_arrays(run, held_out_from):
    seen = []
    for x, labels in tensors(run, ["state.x", "state.labels"]):
        assert np.array_equal(x, np.stack([labels, labels * 2, labels * 3], 1)), (x, labels)
        seen += labels.tolist()
    epochs = [seen[i:i + held_out_from] for i in range(0, len(seen) - held_out_from + 1, held_out_from)]
    whole = all(sorted(epoch) == list(range(held_out_from)) for epoch in epochs)
    orders = len({tuple(epoch) for epoch in epochs})
    lines = [json.loads(line) for line in open(f"{run}/metrics.jsonl")]
    # The loss is the first example's number: of four batches of 4.
    held_out = [line["held_out"] for line in lines if "held_out" in line]
    count = EXAMPLES - held_out_from
    want = np.mean([held_out_from + 4 * batch % count for batch in range(4)])
    print(f"epochs {len(epochs)}, whole {whole}, orders {orders}, held out {set(held_out) == {want}}")


def check_text(run, path):
    data = Path(path).read_bytes()
    train, held_out = struct.unpack_from("<QQ", data, 40)
    tokens = "".join(map(chr, struct.unpack_from(f"<{train}H", data, 56)))
    places, equal = set(), True
    for ids, labels in tensors(run, ["state.ids", "state.labels"]):
        for row, following in zip(ids, labels):
            text = "".join(map(chr, [*row, following[-1]]))
            equal &= np.array_equal(row[1:], following[:-1]) and text in tokens
            places.add(text)
    print(f"text {equal}, different {len(places)}")


{"write": write, "arrays": lambda run, first: check_arrays(run, int(first)), "text": check_text}[sys.argv[1]](*sys.argv[2:])
