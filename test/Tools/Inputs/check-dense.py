# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# check-dense.py CHECKPOINT DENSE [MATRIX...]: demands, bit for bit, that DENSE holds
# the tensors of CHECKPOINT, values and moments unpacked; or, of a checkpoint that
# was made of DENSE, the blocks that CHECKPOINT stores. Prints the stored blocks.

import json
import sys

import numpy as np

import tensor_file


def unpack(sparse, matrix, name):
    rows, cols = matrix["shape"]
    height, width = matrix["block"]
    dense = np.zeros((rows, cols), sparse[name].dtype)
    row_ptr, col_idx, slot = (sparse[f"{matrix['name']}.bsr.{part}"]
                              for part in ("row_ptr", "col_idx", "slot"))
    for row in range(rows // height):
        for k in range(row_ptr[row], row_ptr[row + 1]):
            dense[row * height:(row + 1) * height,
                  col_idx[k] * width:(col_idx[k] + 1) * width] = sparse[name][slot[k]]
    return dense


def is_same(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def main(sparse_path, dense_path):
    _, metadata = tensor_file.read_checkpoint(sparse_path)
    sparse, dense = map(tensor_file.read_arrays, (sparse_path, dense_path))
    matrices = json.loads(metadata["matrices"])
    values = {name: matrix for matrix in matrices for name in matrix["values"]}
    names = {name for name in sparse if ".bsr." not in name}
    assert names == {name for name in dense if ".bsr." not in name}, names ^ set(dense)
    for name in sorted(names):
        matrix = values.get(name)
        found = unpack(sparse, matrix, name) if matrix else sparse[name]
        expected = dense[name]
        if matrix and not is_same(found, expected):
            # Only some blocks of it: where they are not, there is zero.
            stored = unpack({**sparse, name: np.ones_like(sparse[name])}, matrix, name)
            expected = np.where(stored != 0, expected, 0).astype(expected.dtype)
            print(f"{name}: a part")
        assert is_same(found, expected), name
    for matrix in matrices:
        row_ptr = sparse[matrix["name"] + ".bsr.row_ptr"]
        col_idx = sparse[matrix["name"] + ".bsr.col_idx"].tolist()
        print(matrix["name"], [(row, col) for row in range(len(row_ptr) - 1)
                               for col in col_idx[row_ptr[row]:row_ptr[row + 1]]])
        # Of all blocks those of the largest sums of magnitudes, of equal ones the first.
        weight = dense[matrix["name"]].astype(np.float64)
        (rows, cols), (height, width) = matrix["shape"], matrix["block"]
        sums = np.abs(weight).reshape(rows // height, height, cols // width, width).sum((1, 3))
        order = np.argsort(-sums, axis=None, kind="stable")[:len(col_idx)]
        print("largest", [divmod(int(i), cols // width) for i in sorted(order)])


main(*sys.argv[1:])
