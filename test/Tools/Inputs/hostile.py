# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Files that ask for more than there is.

"""hostile.py FOLDER: writes files into FOLDER that are small, or sparse, and would
overflow a number, the stack, the memory, or the patience of whoever reads them."""

import json
import sys
from pathlib import Path

import tensor_file

folder = Path(sys.argv[1])
deep = "[" * 200000 + "]" * 200000


def write_header(name, text):
    (folder / name).write_bytes(tensor_file.join(text, b""))


write_header("number.ck", '{"__metadata__":{"x":1e999}}')
write_header("deep.ck", '{"__metadata__":' + deep + "}")
(folder / "number.json").write_text('{"format":"bsr-pattern","version":1e999}')
(folder / "deep.json").write_text('{"format":' + deep + "}")


def pattern(name, rows, cols, block, slots=0, values=("w",)):
    """Writes a checkpoint of a pattern without blocks."""
    matrices = [{"name": "w", "shape": [rows, cols], "block": block, "slots": slots,
                 "values": list(values)}]
    metadata = {key: "0" for key in ("seed", "steps", "pattern_updates", "blocks_pruned",
                                     "blocks_regrown", "manifest", "metadata")}
    metadata = {"checksum": "", "format": "bsr-checkpoint", "version": "1", **metadata,
                "matrices": json.dumps(matrices)}
    sizes = {"w.bsr.row_ptr": rows // block[0] + 1, "w.bsr.col_idx": 0, "w.bsr.slot": 0}
    tensors = {tensor: tensor_file.Tensor("I32", [size], bytes(4 * size)) for tensor, size in sizes.items()}
    tensors |= {tensor: tensor_file.Tensor("F32", [slots, *block], b"") for tensor in values}
    tensor_file.write_checkpoint(folder / name, tensors, metadata)


pattern("matrix.ck", 2**18, 2**18, [2**18, 2**18])
pattern("row.ck", 1, 2**31 - 1, [1, 1])
pattern("slots.ck", 4, 4, [2, 2], 2**31 - 1, values=())

tensor_file.write(folder / "many.st", {f"t{i}": tensor_file.Tensor("F32", [0], b"") for i in range(100000)})
write_header("large.st", '{"w":{"dtype":"F32","shape":[100000000],"data_offsets":[0,400000000]}}')
with open(folder / "large.st", "ab") as file:
    file.truncate(file.tell() + 400000000)

yaml = {
    "itself": "sparsity: &a {update: *a}",
    "list": "compile.options: &a [*a]",
    "laughs": "sparsity:\n  - &x0 {}\n" + "".join(
        f"  - &x{i} {{a: *x{i - 1}, b: *x{i - 1}}}\n" for i in range(1, 40)),
    "expression": 'sparsity: {match: "' + "(" * 200000 + ")" * 200000 + '"}',
    "slow": 'sparsity: {match: "(a*)*(a*)*([a-z.]*)*([a-z.]*)*(.*)*(.*)*Q"}',
    "batches": "held_out: {batches: 9223372036854775807}",
    "steps": "steps: 9223372036854775807",
    "key": "? " + "x" * 5000000 + "\n: 1",
}
for name, text in yaml.items():
    (folder / f"{name}.yaml").write_text(text + "\n")
