#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Installs what is missing, builds everything with warnings as errors, and runs
# every test (scripts/run-tests). Arguments go to lit: scripts/check.sh --filter Transforms

set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
cmake --preset dev
cmake --build --preset dev --target bsr-test-depends
exec scripts/run-tests build/dev/test "$@"
