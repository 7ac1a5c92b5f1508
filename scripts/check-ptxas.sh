#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Assembles every kernel for GPUs that the tests make with NVIDIA's ptxas, of PyPI's
# wheels, in an environment under build/ that is made once for these pins (52 MB to
# download; no GPU is needed). Where they cannot be installed within
# SECONDS_TO_INSTALL (300) that is one line, and a ptxas that is installed otherwise is
# taken, or none. Arguments go to lit.

set -euo pipefail
cd "$(dirname "$0")/.."

environment=$PWD/build/ptxas
pins="nvidia-cuda-nvcc==13.5.37 nvidia-cuda-nvdisasm==13.5.37"

install() {
  local -a packages
  read -ra packages <<< "$pins"
  rm -rf "$environment"
  # Neither needs what it names: compilers of CUDA C++.
  python3 -m venv "$environment" &&
    timeout "${SECONDS_TO_INSTALL:-300}" "$environment/bin/pip" install --quiet \
      --disable-pip-version-check --retries 2 --timeout 30 --no-deps "${packages[@]}" &&
    echo "$pins" > "$environment/pins"
}

if [[ $(cat "$environment/pins" 2>/dev/null) != "$pins" ]] && ! reason=$(install 2>&1); then
  echo "no ptxas of PyPI: expected $pins to be installed in time, but got '${reason##*$'\n'}'"
  exec scripts/check.sh --filter Codegen/GPU/ptxas "$@"
fi
tools=("$environment"/lib/python3*/site-packages/nvidia/cu13/bin)
PTXAS=${tools[0]}/ptxas NVDISASM=${tools[0]}/nvdisasm scripts/check.sh --filter Codegen/GPU/ptxas "$@"
