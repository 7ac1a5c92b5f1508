# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The program that trains a sparse ResNet on Fashion-MNIST, on the images that fashion_mnist.py makes, and its networks.

# RUN: rm -rf %t && mkdir %t
# RUN: %python %S/fashion_mnist.py %t
# RUN: %python %s | FileCheck %s
# RUN: %python %src_root/examples/resnet.py --packages %t --width 16 --epochs 2 --batch 50 --density 0.2 | FileCheck %s --check-prefix=TRAIN
# TRAIN:      epoch 1: {{[0-9.]+}} s, {{[1-9][0-9]*}} blocks replaced, test loss {{[0-9.]+}}, accuracy {{[0-9.]+}}%
# TRAIN-NEXT: epoch 2: {{[0-9.]+}} s, {{[1-9][0-9]*}} blocks replaced, test loss {{[01]\.[0-9]+}}, accuracy {{100.00|[4-9][0-9]\.[0-9]+}}%
# RUN: not %python %src_root/examples/resnet.py --packages %t/none 2>&1 | FileCheck %s --check-prefix=NONE
# NONE: error: expected the images of Debian's package dataset-fashion-mnist in '{{.*}}none/usr/share/datasets/fashion-mnist', but got none: 'apt-get install dataset-fashion-mnist'

"""Networks have the parameters that He et al. 2016's have, and what a mark of theirs finds."""

import re
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "examples"))
import resnet

for name, network in resnet.NETWORKS.items():
    with torch.device("meta"):
        model = resnet.ResNet(*network)
    weights = dict(model.named_parameters())
    marked = [n for n in weights if re.search(resnet.SPARSE, n)]
    print(name, sum(w.numel() for w in weights.values()), len(marked))
# CHECK:      resnet18 11689512 19
# CHECK-NEXT: resnet50 25557032 52
