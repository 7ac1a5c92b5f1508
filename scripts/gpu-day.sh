#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# All that only a GPU can tell, on the first one of this machine, in one go and under
# 20 minutes of its time: kernels against float64, a training run against the
# processor's, NVIDIA's sanitizer where it is installed, kernels and steps beside
# cuBLAS, cuSPARSE and PyTorch where PyTorch has a GPU, predictions beside what was
# measured. Writes REPORT (build/gpu-day.md), with everything that went wrong; fails if
# something did.
#
#   scripts/gpu-day.sh [--rehearse] [REPORT]
#
# --rehearse takes the driver of the tests as the GPU, and small sizes: a check of this
# script, whose times mean nothing.

set -euo pipefail
cd "$(dirname "$0")/.."

rehearse=
if [[ ${1:-} == --rehearse ]]; then
  rehearse=1
  shift
fi
if [[ ${1:-} == -* || $# -gt 1 ]]; then
  echo "error: expected --rehearse and the name of a report, but got '$*'" >&2
  exit 2
fi
report=$(realpath --canonicalize-missing "${1:-build/gpu-day.md}")

cmake --preset dev > /dev/null
cmake --build --preset dev > /dev/null
export PATH=$PWD/build/dev/bin:$PATH
driver=$PWD/build/dev/lib/fake-driver
[[ -z $rehearse ]] || export LD_LIBRARY_PATH=$driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if ! gpu=$(ptx-run --device-name 2>&1); then
  echo "error: expected a GPU, but got '${gpu##*error: }'" >&2
  exit 1
fi
python=python3
[[ -z $(python3 -c 'import numpy' 2>&1) ]] || python=/usr/bin/python3

mkdir -p "$(dirname "$report")"
cat > "$report" <<MARKDOWN
# $gpu

$(date --utc '+%Y-%m-%d %H:%M UTC'), commit $(git rev-parse --short HEAD)${rehearse:+, **a rehearsal: the GPU is the PTX interpreter, and times mean nothing**}.
MARKDOWN

failed=0
# Runs a command for at most so many seconds; what it prints, or its last lines, are a part of the report.
section() { # TITLE SECONDS COMMAND...
  local title=$1 limit=$2 status=0 start=$SECONDS output
  shift 2
  echo "$title" >&2
  output=$(mktemp)
  timeout "$limit" "$@" > "$output" 2>&1 || status=$?
  {
    printf '\n## %s\n\n    %s\n\n' "$title" "$*"
    if ((status == 0)); then
      grep -v '^ok \|^PASS' "$output" | tail -60 | sed 's/^# //' || true
    else
      printf '**Failed**, exit status %s%s:\n\n' "$status" "$( ((status == 124)) && echo ", after $limit s" || true)"
      tail -40 "$output" | sed 's/^/    /'
    fi
    printf '\n%s s.\n' $((SECONDS - start))
  } >> "$report"
  rm "$output"
  ((status == 0)) || failed=$((failed + 1))
}

lit=/usr/lib/llvm-22/bin/lit
if [[ $rehearse ]]; then
  section "Updates of patterns" 60 runtime-check gpu
  section "A step of a small GPT-2" 120 "$python" benchmarks/gpu.py steps --examples gpt2-tiny-bf16 --density 0.3 --repeats 1
  section "Products in bf16" 120 "$python" benchmarks/gpu.py kernels --rows 256 --cols 192 --tokens 128 --blocks 64,16 --density 0.3 --repeats 1
else
  section "Updates of patterns" 60 runtime-check gpu
  section "Kernels against float64" 420 env PTX_RUN_DEVICE=1 "$lit" --verbose --filter 'Integration/gpu-device|Codegen/GPU|Integration/gpu-products' build/dev/test
  section "A run of BERT-Tiny against the processor's" 120 scripts/check-device.sh --gpu
  sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
  if [[ -x $sanitizer ]]; then
    for tool in memcheck racecheck; do
      section "compute-sanitizer, $tool" 120 "$sanitizer" --tool "$tool" --error-exitcode 9 "$python" benchmarks/gpu.py kernels --rows 512 --cols 512 --tokens 512 --repeats 1
    done
  fi
  for type in bf16 f32; do
    section "Products in $type" 120 "$python" benchmarks/gpu.py kernels --type $type
  done
  section "Products in bf16, L2 flushed" 60 "$python" benchmarks/gpu.py kernels --flush --repeats 15
  section "Steps" 240 "$python" benchmarks/gpu.py steps
fi

echo "report: $report"
if ((failed)); then
  echo "error: expected every part to succeed, but $failed failed" >&2
  exit 1
fi
