# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Reads the images of Fashion-MNIST.

"""The images of Debian's package dataset-fashion-mnist, as NumPy arrays."""

import gzip
import sys
from pathlib import Path

import numpy as np


def read(packages: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns images `[N, 784]` u8 and their classes, i64; `name` is `train` or `t10k`,
    `packages` where Debian's packages are unpacked. Ends the program without them."""
    folder = packages / "usr/share/datasets/fashion-mnist"
    if not folder.is_dir():
        sys.exit(f"error: expected the images of Debian's package dataset-fashion-mnist in '{folder}', but got none:"
                 " 'apt-get install dataset-fashion-mnist', or --packages with a folder of 'dpkg-deb -x'")
    arrays = []
    for kind, header in (("images-idx3", 16), ("labels-idx1", 8)):
        data = gzip.decompress((folder / f"{name}-{kind}-ubyte.gz").read_bytes())
        arrays.append(np.frombuffer(data, np.uint8, offset=header))
    return arrays[0].reshape(len(arrays[1]), -1), arrays[1].astype(np.int64)


def scale(images: np.ndarray) -> np.ndarray:
    """Returns images as f32, the training images with mean 0 and deviation 1."""
    return (images.astype(np.float32) / 255 - 0.2860) / 0.3530
