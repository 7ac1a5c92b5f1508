# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Checks the batches that a run of record-step.c kept in its checkpoints.

"""check-batches.py RUN TOKENS [words] [pairs]: each sequence, its labels put back, is
text of the token file (of a pair: each sentence is); what is predicted is what the
options ask for. Prints counts."""

import struct
import subprocess
import sys
from pathlib import Path

import tensor_file

run, path, options = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
FIRST, SEPARATOR, MASK, ORDINARY = 2, 3, 4, 5
B, T, P = 4, 32, 8

data = Path(path).read_bytes()
vocabulary, _, _, _, train, held_out = struct.unpack_from("<IIIIQQ", data, 24)
tokens = struct.unpack_from(f"<{train}H", data, 56)
text = "".join(map(chr, tokens)) # a character for a token: substrings are found fast
pieces = subprocess.run(["spm_export_vocab", f"--model={path}.model"], check=True,
                        capture_output=True, text=True).stdout.split("\n")
pieces = [line.partition("\t")[0] for line in pieces[:vocabulary]]


def words(ids):
    """Returns sets of places: runs of letters, digits and underscores, as the text
    that the pieces spell has them."""
    groups, before = [], False
    for place, token in enumerate(ids):
        piece = pieces[token]
        if token < ORDINARY:
            before = False
            continue
        if piece.startswith("<0x") and len(piece) == 6:
            piece = chr(int(piece[3:5], 16))
        is_word = [c.isalnum() or c == "_" or (ord(c) >= 128 and c != "\u2581") for c in piece]
        if before and is_word[0]:
            groups[-1].add(place)
        else:
            groups.append({place})
        before = is_word[-1]
    return groups


count = dict.fromkeys(["sequences", "predicted", "hidden", "kept", "replaced", "long words",
                       "follow"], 0)
splits = set()
for step in range(1, len(list(run.glob("checkpoint-*.safetensors"))) + 1):
    tensors, _ = tensor_file.read(run / f"checkpoint-{step:09}.safetensors")
    batch = {name.removeprefix("state."): tensor.numbers() for name, tensor in tensors.items()}
    for row in range(B):
        ids = list(batch["ids"][row * T:(row + 1) * T])
        places = slice(row * P, (row + 1) * P)
        predictions = [(p, l) for p, l, w in zip(batch["positions"][places], batch["labels"][places],
                                                 batch["weights"][places]) if w]
        chosen = {place for place, _ in predictions}
        assert len(chosen) == len(predictions) <= 5 # 15 % of 32
        assert [place for place, _ in predictions] == sorted(chosen)
        for place, label in predictions:
            assert label >= ORDINARY
            kind = "hidden" if ids[place] == MASK else "kept" if ids[place] == label else "replaced"
            count[kind] += 1
            ids[place] = label
        assert MASK not in ids
        if "words" in options:
            groups = words(ids)
            for group in groups:
                assert group <= chosen or not group & chosen, (ids, group, chosen)
            count["long words"] += sum(len(g) > 1 and g <= chosen for g in groups)
            # Nothing is passed over that would fit.
            room = 5 - len(chosen)
            assert not any(len(g) <= room and not g & chosen for g in groups)
        else:
            assert len(chosen) == 5
        if "pairs" in options:
            segments = batch["segments"][row * T:(row + 1) * T]
            first = segments.index(1) - 2
            assert segments == (0,) * (first + 2) + (1,) * (T - first - 2)
            assert ids[0] == FIRST and ids[first + 1] == ids[-1] == SEPARATOR
            a, b = ids[1:first + 1], ids[first + 2:-1]
            a, b = "".join(map(chr, a)), "".join(map(chr, b))
            assert a in text and b in text
            follows = batch["follows"][row]
            assert (a + b in text) >= follows, (a, b)
            count["follow"] += follows
            splits.add(first)
        else:
            assert "".join(map(chr, ids)) in text
        count["sequences"] += 1
        count["predicted"] += len(predictions)
if splits:
    assert min(splits) == 7 and max(splits) == 22, splits # of 29
print(*(f"{name} {number}" for name, number in count.items()))
