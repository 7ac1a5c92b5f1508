#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Trains BERT-Tiny, in f32 and in bf16, for 20 steps of two sequences with two pattern
# updates, AdamW and gradients clipped to a norm, on the processor and on a GPU, and
# compares losses, patterns and parameters. The GPU is the PTX interpreter behind the
# driver of the tests (minutes), or with --gpu the first one of this machine. With
# --mini BERT-Mini too, not clipped, for 3 steps (three minutes more).

set -euo pipefail
cd "$(dirname "$0")/.."

models=(tiny_clipped tiny-bf16_clipped)
build=$PWD/build/dev
[[ ! -d recorded ]] || build=$PWD # a bundle of gpu-day.sh
driver=$build/lib/fake-driver
for option in "$@"; do
  case $option in
    --gpu) driver= ;;
    --mini) models+=(mini) ;;
    *)
      echo "error: expected --gpu or --mini, but got '$option'" >&2
      exit 2
      ;;
  esac
done

if [[ $build != "$PWD" ]]; then
  cmake --preset dev > /dev/null
  cmake --build --preset dev --target sparse-train sparse-compile fake-driver > /dev/null
fi
folder=$(mktemp --directory)
trap 'rm -rf "$folder"' EXIT
export PATH=$build/bin:$PATH
python=python3
[[ -z $(python3 -c 'import numpy' 2>&1) ]] || python=/usr/bin/python3
python3 test/Tools/Inputs/write-text.py "$folder/text" 40
sparse-train tokenize --vocabulary 400 --output "$folder/text.tok" "$folder/text"

for model in "${models[@]}"; do
  inputs=test/Integration/Inputs steps=20 every=7
  if [[ $model == mini ]]; then
    inputs=examples steps=3 every=1
  fi
  gzip --decompress --stdout "$inputs/bert_$model.mlir.gz" > "$folder/$model.mlir"
  train() { # DEVICE [OPTION OF THE COMPILER]
    sparse-train --config examples/bert.yaml --set step="$folder/$model.mlir" \
      --set tokens="$folder/text.tok" --set compile.cache="$folder/cache" \
      --set compile.options='["--mark=match=layers.*_w$ block=16x16 density=0.25"'"${2:+, \"$2\"}]" \
      --set steps=$steps --set sparsity.every=$every --set rate.peak=0.002 \
      --set held_out.batches=1 --set checkpoint.every=$steps \
      --set run="$folder/$model-$1" --set device="$1"
  }
  train cpu --target-cpu=x86-64-v3 # which a bundle takes to another machine
  LD_LIBRARY_PATH=$driver${LD_LIBRARY_PATH:+${driver:+:}$LD_LIBRARY_PATH} train cuda
  # Sums of other orders round to other bf16.
  tolerances=(1e-4 1e-3)
  if [[ $model == *-bf16* ]]; then
    tolerances=(1e-2 8e-2)
  fi
  "$python" test/Integration/device_train.py "$folder/$model-cpu" "$folder/$model-cuda" "${tolerances[@]}"
done
