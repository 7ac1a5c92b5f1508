#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs tests under sanitizers (clang's): what reads files and holds memory, the
# runtime, sparse-train, sparse-checkpoint and the PTX interpreter, under those of
# addresses and of undefined behaviour; the threads of the runtime and of the
# interpreter under that of threads. With --quick the part that .ci/run has time
# for: the runtime's checks under all three, and what the tools read from elsewhere
# under the first two. With --compiler also sparse-opt and sparse-compile under the
# first two, every pass and pipeline (built with g++; an hour on two cores). Other
# arguments go to lit.

set -euo pipefail
cd "$(dirname "$0")/.."

part=
if [[ ${1:-} == --compiler || ${1:-} == --quick ]]; then
  part=$1
  shift
fi
export UBSAN_OPTIONS=print_stacktrace=1

build() { # PRESET [TARGET...]
  cmake --preset "$1" >/dev/null
  cmake --build --preset "$1" ${2:+--target "${@:2}"}
}

# Runs the tests whose names match `filter`, and do not match `out`, on the tools of a
# build; their other tools, such as sparse-compile, are those of build/dev.
check() { # PRESET FILTER OUT [ARGUMENT...]
  /usr/lib/llvm-22/bin/lit --verbose --param "tools=$PWD/build/$1/bin" \
    --filter "^bsr :: $2" --filter-out "$3" "${@:4}" build/dev/test
}

scripts/setup.sh
build dev sparse-compile sparse-opt bsr_runtime fake-driver
if [[ $part == --quick ]]; then
  build address runtime-check sparse-checkpoint sparse-train
  check address '(Runtime/|Tools/(bad-text|closed-streams|config|hostile-files|own-input|safetensors|sparse-checkpoint|token-file)\.)' '^$' "$@"
else
  build address
  # Left out: runs of minutes, and programs that take no file from elsewhere.
  check address '(Runtime|Tools|PTX)/' \
    'Tools/(kill|resume-everywhere|schedules|science|setup|sweep|sweep-.*|train-bert|train-llama|wandb|import-wandb)\.' "$@"
fi

# LLVM's OpenMP runtime tells the sanitizer of its barriers through Archer.
build thread runtime-check
LD_LIBRARY_PATH=build/dev/lib/fake-driver OMP_NUM_THREADS=4 OMP_TOOL_LIBRARIES=/usr/lib/llvm-22/lib/libarcher.so \
  TSAN_OPTIONS="ignore_noninstrumented_modules=1 halt_on_error=1" \
  build/thread/bin/runtime-check --gtest_brief=1

[[ $part != --quick ]] || exit 0

build thread ptx-run
check thread 'PTX/(threads|kernels)\.' '^$' "$@"

if [[ $part == --compiler ]]; then
  build sanitize sparse-opt sparse-compile bsr-unittests
  # LLVM's allocators poison memory where they are built with the sanitizer: not
  # in the libraries of LLVM, which hand out what ours has poisoned.
  # Left out: what runs kernels, and two tests of lines that stand in the order in
  # which clang evaluates arguments.
  ASAN_OPTIONS=allow_user_poisoning=0 /usr/lib/llvm-22/bin/lit --verbose \
    --filter '^bsr :: ((Dialect|Codegen|Transforms|Pipelines|Unit)/|Tools/sparse-compile)' \
    --filter-out 'Codegen/GPU/(ptxas.*|mutants|predict-kernels|products|reductions)\.' \
    "$@" build/sanitize/test
fi
