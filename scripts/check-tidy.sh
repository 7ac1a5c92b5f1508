#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs clang-tidy on the sources of the compiler: on all of them (17 minutes on two
# cores), or on those that changed since REVISION:
#
#     scripts/check-tidy.sh [REVISION]
#
# It needs what scripts/check.sh builds.

set -euo pipefail
cd "$(dirname "$0")/.."

sources=('lib/*.cpp' 'support/*.cpp' 'unittests/*.cpp')
if (($#)); then
  if ! git rev-parse --quiet --verify "$1^{commit}" > /dev/null; then
    echo "error: expected a revision of this repository, but got '$1'" >&2
    exit 1
  fi
  list=(git diff -z --name-only --diff-filter=d "$1" --)
else
  list=(git ls-files -z --)
fi
"${list[@]}" "${sources[@]}" |
  xargs --null --no-run-if-empty --max-procs="$(nproc)" --max-args=4 clang-tidy-22 -p build/dev --quiet
