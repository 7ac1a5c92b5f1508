#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Trains a BERT twice, block-sparse with changing patterns and dense, and
# compares the two.

set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
scripts/train-bert.sh [option value]...

  --model tiny|mini|base   the exported step, examples/bert_<model>.mlir.gz (mini)
  --block RxC              the blocks of every encoder matrix (16x16)
  --density D              the share of blocks that is stored (0.1)
  --text PATH              text to train on, a file or a folder (LLVM's headers)
  --steps N                training steps of each run (300)
  --rate R                 largest learning rate of the dense run (3e-4); the
                           sparse run's is R exp(1.969 s^2 + 0.2905 s) at
                           sparsity s = 1 - D (Dietrich et al., equation 3)
  --output DIR             where the runs and the plot go (build/bert-<model>)

Installs what is missing, builds, compiles the step sparse and dense (every
block stored, same compiler), trains both, and prints a table. The sparse run
updates its patterns 14 times.
TEXT
}

model=mini block=16x16 density=0.1 text= steps=300 rate=3e-4 output=
while (($#)); do
  case $1 in
    --help) usage; exit 0 ;;
    --model | --block | --density | --text | --steps | --rate | --output)
      (($# > 1)) || { echo "error: expected a value after $1, but got none" >&2; exit 1; }
      declare "${1#--}=$2"
      shift 2 ;;
    *) echo "error: expected an option of train-bert.sh (see --help), but got '$1'" >&2; exit 1 ;;
  esac
done
# The vocabularies of examples/generate.py. A masked language model stays at the
# unigram entropy until it has learnt to look at its neighbours. With 1024 tokens
# that takes less than 200 steps; with 4096, more than a run of minutes has.
case $model in
  tiny | mini) vocabulary=1024 ;;
  base) vocabulary=30522 ;;
  *) echo "error: expected --model to be tiny, mini or base, but got '$model'" >&2; exit 1 ;;
esac
output=${output:-build/bert-$model}

scripts/setup.sh
cmake --preset dev > /dev/null
cmake --build --preset dev --target sparse-compile sparse-train
bin=build/dev/bin
mkdir -p "$output"

# The text, encoded once.
if [[ $text ]]; then
  source=("$text")
else
  source=("$(llvm-config-22 --includedir)" --suffix .h --suffix .td)
fi
tokens=$output/$(cksum <<<"${source[*]}" | cut -d ' ' -f 1).tokens
[[ -e $tokens ]] ||
  "$bin/sparse-train" tokenize --vocabulary "$vocabulary" --output "$tokens" "${source[@]}"

step=$output/bert_$model.mlir
gzip --decompress --stdout "examples/bert_$model.mlir.gz" > "$step"

train() { # name density steps-between-updates
  echo "== $1"
  "$bin/sparse-train" --config examples/bert.yaml --overwrite \
    --set step="$step" --set tokens="$tokens" \
    --set run="$output/$1" --set steps="$steps" --set rate.peak="$rate" \
    --set rate.warmup=$((steps / 10)) --set rate.sparsity_rule=dietrich --set sparsity.every="$3" \
    --set held_out.every=$((steps / 4 + 1)) \
    --set compile.cache="$output/compiled" \
    --set "compile.options=['--mark=match=layers\..*_w\$ block=$block density=$2']"
}
train sparse "$density" $((steps / 20 + 1))
train dense 1 0

echo
"$bin/sparse-report" "$output/sparse" "$output/dense" --output "$output/plot.svg"
"$bin/sparse-report" --html "$output/sparse" "$output/dense"
echo
echo "plot: $output/plot.svg, pages: $output/{sparse,dense}/report.html"
