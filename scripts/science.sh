#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Trains the runs of docs/science.md, and prints its tables.

set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
scripts/science.sh [--small] [--output DIR] [option of sparse-sweep]...

Makes a token file of LLVM's headers and trains the runs of
examples/science.yaml; with --small those of examples/science-small.yaml, in
seconds. Tables, plot and runs go to DIR (build/science); what is done there is
not done again. Uses the sparse-train on the path; without one, installs what is
missing and builds it.
TEXT
}

grid=science folder= output=build/science options=()
while (($#)); do
  case $1 in
    --help) usage; exit 0 ;;
    --small) grid=science-small folder=/llvm/ADT ;;
    --output) output=${2:?"expected a value after --output, but got none"}; shift ;;
    *) options+=("$1") ;;
  esac
  shift
done

if ! command -v sparse-train > /dev/null; then
  scripts/setup.sh
  cmake --preset dev > /dev/null
  cmake --build --preset dev --target sparse-compile sparse-train
  PATH=$PWD/build/dev/bin:$PATH
fi
mkdir -p "$output"
tokens=$output/$grid.tokens
[[ -e $tokens ]] || sparse-train tokenize --vocabulary 512 --output "$tokens" \
  "$(llvm-config-22 --includedir)$folder" --suffix .h --suffix .td
sparse-sweep "examples/$grid.yaml" --output "$output" --set tokens="$tokens" \
  "${options[@]}"
