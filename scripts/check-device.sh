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
driver=$PWD/build/dev/lib/fake-driver
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

cmake --preset dev > /dev/null
cmake --build --preset dev --target sparse-train sparse-compile fake-driver > /dev/null
folder=$(mktemp --directory)
trap 'rm -rf "$folder"' EXIT
export PATH=$PWD/build/dev/bin:$PATH
python3 test/Tools/Inputs/write-text.py "$folder/text" 40
sparse-train tokenize --vocabulary 400 --output "$folder/text.tok" "$folder/text"

for model in "${models[@]}"; do
  inputs=test/Integration/Inputs steps=20 every=7
  if [[ $model == mini ]]; then
    inputs=examples steps=3 every=1
  fi
  gzip --decompress --stdout "$inputs/bert_$model.mlir.gz" > "$folder/$model.mlir"
  train() { # DEVICE
    sparse-train --config examples/bert.yaml --set step="$folder/$model.mlir" \
      --set tokens="$folder/text.tok" --set compile.cache="$folder/cache" \
      --set compile.options='["--mark=match=layers.*_w$ block=16x16 density=0.25"]' \
      --set steps=$steps --set sparsity.every=$every --set rate.peak=0.002 \
      --set held_out.batches=1 --set checkpoint.every=$steps \
      --set run="$folder/$model-$1" --set device="$1"
  }
  train cpu
  LD_LIBRARY_PATH=$driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} train cuda
  # Sums of other orders round to other bf16.
  tolerance=1e-4
  if [[ $model == *-bf16* ]]; then
    tolerance=1e-2
  fi
  /usr/bin/python3 test/Integration/device_train.py "$folder/$model-cpu" "$folder/$model-cuda" $tolerance
done
