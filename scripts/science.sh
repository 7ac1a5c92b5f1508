#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Trains the runs of docs/science.md, and prints its tables.

set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
scripts/science.sh [--small] [option of sparse-sweep]...

Installs what is missing, builds, makes a token file of LLVM's headers, and runs
examples/science.yaml; with --small examples/science-small.yaml, in seconds.
Tables and plot go to build/science. What is done is not done again.
TEXT
}

grid=science folder=
for word; do
  case $word in
    --help) usage; exit 0 ;;
    --small) grid=science-small folder=/llvm/ADT; shift ;;
    *) break ;;
  esac
done

scripts/setup.sh
cmake --preset dev > /dev/null
cmake --build --preset dev --target sparse-compile sparse-train
mkdir -p build/science
tokens=build/science/$grid.tokens
[[ -e $tokens ]] || build/dev/bin/sparse-train tokenize --vocabulary 512 --output "$tokens" \
  "$(llvm-config-22 --includedir)$folder" --suffix .h --suffix .td
scripts/sparse-sweep "examples/$grid.yaml" "$@"
