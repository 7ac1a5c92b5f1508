#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Installs what the benchmarks compare with: libraries by Debian's packages, Python
# packages into a virtual environment, build/benchmarks/venv.

set -euo pipefail
cd "$(dirname "$0")/.."

packages=(libdnnl-dev libopenblas-openmp-dev libxsmm-dev libeigen3-dev mlir-22-tools python3-venv)
as_root=()
[[ $(id --user) == 0 ]] || as_root=(sudo)
"${as_root[@]}" apt-get update --quiet
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install --yes --quiet --no-install-recommends "${packages[@]}"

venv=build/benchmarks/venv
[[ -x $venv/bin/python ]] || python3 -m venv "$venv"
# The versions of JAX and optax are those of the front end.
"$venv/bin/pip" install --quiet torch mkl './python[jax]'
# Layers of single weights for processors. SparseProp builds with what is there.
"$venv/bin/pip" install --quiet --no-deps sparselab==0.2.2 pybind11 setuptools wheel
"$venv/bin/pip" install --quiet --no-deps --no-build-isolation sparseprop==0.1.14

cmake --preset dev -DBSR_BENCHMARKS=ON
cmake --build --preset dev --target sparse-compile bsr-peers
echo "installed: run $venv/bin/python benchmarks/kernels.py"
