#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Trains a LLaMA twice, block-sparse with changing patterns and dense, and
# compares the two.

set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
scripts/train-llama.sh [option value]...

  --size tiny|9m|20m|60m   the exported step, examples/llama_<size>.mlir.gz (9m)
  --block RxC              the blocks of every matrix of the layers (16x16)
  --density D              the share of blocks that is stored (0.1)
  --method set|rigl|static how patterns change (set)
  --text PATH              text to train on, a file or a folder (documentation in
                           Debian's packages, where there is any, else LLVM's
                           headers)
  --packages DIR           the folder that packages are unpacked in (/)
  --steps N                training steps of each run (300)
  --rate R                 largest learning rate of the dense run (1e-3); the
                           sparse run's is R exp(1.969 s^2 + 0.2905 s) at
                           sparsity s = 1 - D (Dietrich et al., equation 3)
  --output DIR             where the runs and the plot go (build/llama-<size>)
  --tools DIR              the folder of the tools, if they need not be built

The models are those of GaLore's configurations: the embedding and the head, of
32,000 tokens, stay dense. Installs what is missing,
builds, compiles the step sparse and dense (every block stored, same compiler),
trains both, and prints a table with held-out perplexity and tokens per second.
The sparse run updates its patterns 14 times.
TEXT
}

size=9m block=16x16 density=0.1 method=set text= packages=/ steps=300 rate=1e-3 output= tools=
while (($#)); do
  case $1 in
    --help) usage; exit 0 ;;
    --size | --block | --density | --method | --text | --packages | --steps | --rate | --output | --tools)
      (($# > 1)) || { echo "error: expected a value after $1, but got none" >&2; exit 1; }
      declare "${1#--}=$2"
      shift 2 ;;
    *) echo "error: expected an option of train-llama.sh (see --help), but got '$1'" >&2; exit 1 ;;
  esac
done
case $size in
  tiny) vocabulary=400 ;;
  9m | 20m | 60m) vocabulary=32000 ;;
  *) echo "error: expected --size to be tiny, 9m, 20m or 60m, but got '$size'" >&2; exit 1 ;;
esac
case $method in
  set | rigl | static) ;;
  *) echo "error: expected --method to be set, rigl or static, but got '$method'" >&2; exit 1 ;;
esac
[[ $steps =~ ^[1-9][0-9]*$ ]] || { echo "error: expected --steps to be 1 or more, but got '$steps'" >&2; exit 1; }
output=${output:-build/llama-$size}

if [[ ! $tools ]]; then
  scripts/setup.sh
  cmake --preset dev > /dev/null
  cmake --build --preset dev --target sparse-compile sparse-train
  tools=build/dev/bin
fi
mkdir -p "$output"

# The text, encoded once: prose and code of manuals as they were written.
if [[ $text ]]; then
  source=("$text")
else
  shopt -s nullglob
  source=("$packages"/usr/share/doc/{linux-doc-*,python3*}/html/_sources)
  if ((${#source[@]})); then
    source+=(--suffix .txt)
  else
    echo "note: expected documentation of Debian's linux-doc-6.1 or python3.11-doc in '$packages', but got none: LLVM's headers" \
      "are the text; 'apt-get install linux-doc-6.1 python3.11-doc' installs it, --packages names a folder of 'dpkg-deb -x'"
    source=("$(llvm-config-22 --includedir)" --suffix .h --suffix .td)
  fi
fi
tokens=$output/$(cksum <<<"${source[*]}" | cut -d ' ' -f 1).tokens
[[ -e $tokens ]] ||
  "$tools/sparse-train" tokenize --vocabulary "$vocabulary" --output "$tokens" "${source[@]}"

step=$output/llama_$size.mlir
gzip --decompress --stdout "examples/llama_$size.mlir.gz" > "$step"

train() { # name density method steps-between-updates
  echo "== $1"
  "$tools/sparse-train" --config examples/llama.yaml --overwrite \
    --set step="$step" --set tokens="$tokens" \
    --set run="$output/$1" --set steps="$steps" --set rate.peak="$rate" \
    --set rate.warmup=$((steps / 10)) --set rate.sparsity_rule=dietrich \
    --set sparsity.method="$3" --set sparsity.every="$4" \
    --set held_out.every=$((steps / 4 + 1)) \
    --set compile.cache="$output/compiled" \
    --set "compile.options=['--mark=match=layers\..*_w\$ block=$block density=$2']"
}
every=$((steps / 20 + 1))
[[ $method != static ]] || every=0
train sparse "$density" "$method" "$every"
train dense 1 static 0

echo
"$tools/sparse-report" "$output/sparse" "$output/dense" --output "$output/plot.svg"
"$tools/sparse-report" --html "$output/sparse" "$output/dense"
echo
echo "plot: $output/plot.svg, pages: $output/{sparse,dense}/report.html"
