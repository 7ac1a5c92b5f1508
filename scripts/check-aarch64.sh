#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds sparse-train with the runtime for AArch64, and runs what is compiled for it by
# QEMU: kernels and steps against float64, and a BERT-tiny that trains. Where QEMU or
# Debian's libraries for AArch64 cannot be installed, that is one line. Arguments go to
# lit.

set -euo pipefail
cd "$(dirname "$0")/.."

if ! reason=$(scripts/setup.sh --aarch64 2>&1); then
  echo "nothing for AArch64: expected scripts/setup.sh --aarch64 to succeed, but got '${reason##*$'\n'}'"
  exit 0
fi
cmake --preset aarch64 > /dev/null
cmake --build --preset aarch64
exec scripts/check.sh --filter aarch64 "$@"
