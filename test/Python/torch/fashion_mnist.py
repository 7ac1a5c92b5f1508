# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The program that trains sparse MLPs on Fashion-MNIST, on a few images that are made: a class is a bright row.

# RUN: rm -rf %t && mkdir %t
# RUN: %python %s %t
# RUN: env SPARSE_OPT_CACHE=%t/cache %python %src_root/examples/fashion_mnist.py --packages %t --hidden 64 --epochs 4 --method set --density 0.1 | FileCheck %s
# RUN: env SPARSE_OPT_CACHE=%t/cache %python %src_root/examples/fashion_mnist.py --packages %t --hidden 64 --epochs 4 --method rigl --density 0.25 --block 16x16 | FileCheck %s
# RUN: env SPARSE_OPT_CACHE=%t/cache %python %src_root/examples/fashion_mnist.py --packages %t --hidden 64 --epochs 4 --method chts --density 0.1 | FileCheck %s
# CHECK:      epoch 1: {{[0-9.]+}} s, {{[1-9][0-9]*}} blocks replaced, test loss {{[0-9.]+}}, accuracy {{[0-9.]+}}%
# CHECK: epoch 4: {{[0-9.]+}} s, 0 blocks replaced, test loss {{[01]\.[0-9]+}}, accuracy {{100.00|[4-9][0-9]\.[0-9]+}}%
# RUN: %python %src_root/examples/fashion_mnist.py --packages %t --hidden 64 --epochs 4 --method dense | FileCheck %s --check-prefix=DENSE
# DENSE: epoch 4: {{[0-9.]+}} s, 0 blocks replaced, test loss {{[01]\.[0-9]+}}, accuracy {{100.00|[4-9][0-9]\.[0-9]+}}%
# RUN: not %python %src_root/examples/fashion_mnist.py --packages %t/none 2>&1 | FileCheck %s --check-prefix=NONE
# NONE: error: expected the images of Debian's package dataset-fashion-mnist in '{{.*}}none/usr/share/datasets/fashion-mnist', but got none: 'apt-get install dataset-fashion-mnist'

import gzip
import sys
from pathlib import Path

import numpy as np

folder = Path(sys.argv[1]) / "usr/share/datasets/fashion-mnist"
folder.mkdir(parents=True)
random = np.random.default_rng(0)
for name, count in (("train", 3000), ("t10k", 300)):
    labels = random.integers(0, 10, count).astype(np.uint8)
    images = random.integers(0, 40, (count, 28, 28)).astype(np.uint8)
    images[np.arange(count), 2 * labels + 3] += 200
    for kind, numbers, array in (("images-idx3", (2051, count, 28, 28), images), ("labels-idx1", (2049, count), labels)):
        data = np.array(numbers, ">i4").tobytes() + array.tobytes()
        (folder / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(data, 1))
