#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs tests of exports with the oldest versions of frameworks that sparse_opt
# says are tested; the newest are those of scripts/check-python.sh, which makes the
# environment that this one borrows. PyTorch's takes 2 GB. Arguments: jax, torch.

set -euo pipefail
cd "$(dirname "$0")/.."

environment=$PWD/build/python
[[ -x $environment/bin/python ]] || { echo "error: expected build/python, but got none: run scripts/check-python.sh first" >&2; exit 1; }
export PATH=$environment/bin:$PWD/build/dev/bin:$PATH

check() {
  local framework=$1 packages=$2 folder=$PWD/build/versions/$1
  shift 2
  if [[ ! -e $folder/has ]]; then
    # shellcheck disable=SC2086 # packages are words
    pip install --quiet --disable-pip-version-check --no-deps --target "$folder" $packages
    # Libraries for GPUs, which the import of PyTorch wants, are those of the newest.
    [[ $framework != torch ]] || ln -sfn "$("$environment/bin/python" -c 'import nvidia; print(nvidia.__path__[0])')" "$folder/nvidia"
    touch "$folder/has"
  fi
  for file in "$@"; do
    echo "$packages: $file"
    PYTHONPATH=$folder:$PWD/python:$PWD/test/Python/Inputs:$PWD/test/Integration:$PWD/examples \
      python "test/Python/$file" | FileCheck-22 "test/Python/$file"
  done
}

(($#)) || set -- jax torch
for framework; do
  case $framework in
    jax) check jax "jax==0.9.0 jaxlib==0.9.0" jax_evaluate.py jax_step.py loops.py masks.py jax/check.py ;;
    torch) check torch torch==2.14.0 torch/accumulate.py torch/invalid.py torch/masks.py torch/evaluate.py ;;
    *) echo "error: expected jax or torch, but got '$framework'" >&2; exit 1 ;;
  esac
done
