# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The program that trains sparse MLPs and ViTs on Fashion-MNIST, on a few images that are made: a class is a bright row.

# RUN: rm -rf %t && mkdir %t
# RUN: %python %s %t
# RUN: env SPARSE_OPT_CACHE=%t/cache %python %src_root/examples/fashion_mnist.py --packages %t --hidden 64 --epochs 4 --method set --density 0.1 | FileCheck %s
# RUN: env SPARSE_OPT_CACHE=%t/cache %python %src_root/examples/fashion_mnist.py --packages %t --hidden 64 --epochs 4 --method rigl --density 0.25 --block 16x16 | FileCheck %s
# RUN: env SPARSE_OPT_CACHE=%t/cache %python %src_root/examples/fashion_mnist.py --packages %t --hidden 64 --epochs 4 --method chts --density 0.1 | FileCheck %s
# CHECK:      epoch 1: {{[0-9.]+}} s, {{[1-9][0-9]*}} blocks replaced, test loss {{[0-9.]+}}, accuracy {{[0-9.]+}}%
# CHECK: epoch 4: {{[0-9.]+}} s, 0 blocks replaced, test loss {{[01]\.[0-9]+}}, accuracy {{100.00|[4-9][0-9]\.[0-9]+}}%
# RUN: %python %src_root/examples/fashion_mnist.py --packages %t --hidden 64 --epochs 4 --method dense | FileCheck %s --check-prefix=DENSE
# DENSE: epoch 4: {{[0-9.]+}} s, 0 blocks replaced, test loss {{[01]\.[0-9]+}}, accuracy {{100.00|[4-9][0-9]\.[0-9]+}}%
# A ViT in blocks and in single weights, and a dense one of about as many operations.

# RUN: env SPARSE_OPT_CACHE=%t/cache %python %src_root/examples/fashion_mnist.py --packages %t --model vit --hidden 64 --depth 1 --epochs 3 --method set --density 0.25 --block 16x16 | FileCheck %s --check-prefix=VIT
# RUN: env SPARSE_OPT_CACHE=%t/cache %python %src_root/examples/fashion_mnist.py --packages %t --model vit --hidden 64 --depth 1 --epochs 3 --method rigl --density 0.25 | FileCheck %s --check-prefix=VIT
# VIT:      {{^}}18,122 parameters stored, 1.7 MFLOP an image
# VIT-NEXT: epoch 1: {{[0-9.]+}} s, {{[1-9][0-9]*}} blocks replaced, test loss {{[0-9.]+}}, accuracy {{[0-9.]+}}%
# VIT:      epoch 3: {{[0-9.]+}} s, 0 blocks replaced, test loss {{[01]\.[0-9]+}}, accuracy {{100.00|[4-9][0-9]\.[0-9]+}}%
# RUN: %python %src_root/examples/fashion_mnist.py --packages %t --model vit --hidden 36 --depth 1 --epochs 3 --method dense | FileCheck %s --check-prefix=VIT-DENSE
# VIT-DENSE: {{^}}18,838 parameters stored, 1.8 MFLOP an image
# VIT-DENSE: epoch 3: {{[0-9.]+}} s, 0 blocks replaced, test loss {{[01]\.[0-9]+}}, accuracy {{100.00|[4-9][0-9]\.[0-9]+}}%
# RUN: not %python %src_root/examples/fashion_mnist.py --packages %t --model vit --hidden 62 2>&1 | FileCheck %s --check-prefix=HEADS
# HEADS: error: expected a width that the 4 heads of the ViT divide, but got 62
# RUN: not %python %src_root/examples/fashion_mnist.py --packages %t/none 2>&1 | FileCheck %s --check-prefix=NONE
# NONE: error: expected the images of Debian's package dataset-fashion-mnist in '{{.*}}none/usr/share/datasets/fashion-mnist', but got none: 'apt-get install dataset-fashion-mnist'

import gzip
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[3] / "examples"))
import fashion_mnist  # noqa: E402
import torch  # noqa: E402

# Patches, and what a ViT computes of one image, in float64, by loops.
torch.manual_seed(0)
model = fashion_mnist.ViT(8, 1).double()
image = torch.randn(28, 28, dtype=torch.float64)
tokens = torch.stack([image[r:r + 7, c:c + 7].reshape(49) for r in range(0, 28, 7) for c in range(0, 28, 7)])
assert torch.equal(fashion_mnist.split(image.reshape(1, 784))[0], tokens)
layer = model.layers[0]
x = model.patches(tokens) + model.positions
q, k, v = layer.qkv(layer.norms[0](x)).split(8, 1)
heads = []
for h in range(0, 8, 2):
    weights = torch.exp(q[:, h:h + 2] @ k[:, h:h + 2].T / 2**0.5)
    heads.append(weights / weights.sum(1, keepdim=True) @ v[:, h:h + 2])
x = x + layer.out(torch.cat(heads, 1))
x = x + layer.down(torch.nn.functional.gelu(layer.up(layer.norms[1](x))))
torch.testing.assert_close(model(image.reshape(1, 784))[0], model.head(model.norm(x).mean(0)))

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
