#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Trains the runs of "Sparse MLPs" in docs/science.md, and prints its tables.

set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
scripts/decide.sh [--rates] [--packages DIR] [--output DIR] [option of sparse-sweep]...

Trains the runs of examples/decide.yaml and then of examples/decide-beta2.yaml: MLPs on
Fashion-MNIST, Debian's package dataset-fashion-mnist, which is unpacked in DIR (/).
Tables and runs go to DIR (build/decide); what is done there is not done again. --rates
trains the search of learning rates, examples/decide-rates.yaml; --tables prints the
tables of what is done. Needs sparse-compile and sparse-train (build/dev/bin) and NumPy,
and PyTorch for the first run.
TEXT
}

grids=(decide decide-beta2) output=build/decide options=()
while (($#)); do
  case $1 in
    --help) usage; exit 0 ;;
    --rates) grids=(decide-rates) ;;
    --output) output=${2:?"expected a value after --output, but got none"}; shift ;;
    --packages) options+=(--set packages="${2:?"expected a value after --packages, but got none"}"); shift ;;
    *) options+=("$1") ;;
  esac
  shift
done

PATH=$PATH:$PWD/build/dev/bin
export PATH PYTHONPATH=python:examples${PYTHONPATH:+:$PYTHONPATH}
for grid in "${grids[@]}"; do
  python3 -m sparse_opt.experiments.sweep "examples/$grid.yaml" --output "$output" "${options[@]}"
done
