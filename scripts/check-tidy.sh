#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs clang-tidy on the sources of the compiler: on all of them (17 minutes on two
# cores), or on those that changed since REVISION, the last ones first:
#
#     scripts/check-tidy.sh [--seconds N] [REVISION]
#
# With --seconds none begins after N seconds, and a line counts those left out.
# It needs what scripts/check.sh builds.

set -euo pipefail
cd "$(dirname "$0")/.."

export DEADLINE=
if [[ ${1:-} == --seconds ]]; then
  if [[ ! ${2:-} =~ ^[1-9][0-9]{0,5}$ ]]; then
    echo "error: expected a number of seconds after --seconds, but got '${2:-}'" >&2
    exit 1
  fi
  DEADLINE=$((EPOCHSECONDS + $2))
  shift 2
fi
sources=('lib/*.cpp' 'support/*.cpp' 'unittests/*.cpp')
if (($#)); then
  if ! git rev-parse --quiet --verify "$1^{commit}" > /dev/null; then
    echo "error: expected a revision of this repository, but got '$1'" >&2
    exit 1
  fi
  # What is not committed, and the commits from the last one back.
  list() {
    git diff -z --name-only HEAD -- "${sources[@]}"
    git log -z --format= --name-only "$1.." -- "${sources[@]}"
  }
else
  list() { git ls-files -z -- "${sources[@]}"; }
fi

left=$(mktemp)
trap 'rm "$left"' EXIT
export LEFT=$left
list "$@" | awk 'BEGIN { RS = ORS = "\0" } $0 != "" && !seen[$0]++ && system("test -e \"" $0 "\"") == 0' |
  xargs --null --no-run-if-empty --max-procs="$(nproc)" --max-args=4 bash -c '
    if [[ $DEADLINE ]] && ((EPOCHSECONDS >= DEADLINE)); then
      printf "%s\n" "$@" >> "$LEFT"
    else
      exec clang-tidy-22 -p build/dev --quiet "$@"
    fi' tidy
if [[ -s $left ]]; then
  echo "left out for want of time: $(wc -l < "$left") sources"
fi
