#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs the tests that need JAX, PyTorch or another extra of python/pyproject.toml,
# in an environment under build/, which is made once for these pins. What cannot
# be installed within SECONDS_TO_INSTALL (600) is one line, and its tests are
# skipped. With --install that is all; else arguments go to lit.

set -euo pipefail
cd "$(dirname "$0")/.."

environment=$PWD/build/python
deadline=$((SECONDS + ${SECONDS_TO_INSTALL:-600}))
extras=(jax test torch huggingface trainer lightning schedulefree equinox flax keras) # small ones first, but what needs PyTorch
gigabytes=12 # while PyTorch's wheels are unpacked; 6 are left in the end

# Prints the requirements of extras.
requirements() {
  python3 - "$@" <<'PYTHON'
import sys, tomllib

with open("python/pyproject.toml", "rb") as file:
    extras = tomllib.load(file)["project"]["optional-dependencies"]
print(*(requirement for name in sys.argv[1:] for requirement in extras[name]))
PYTHON
}

# What is installed is of these pins, by this Python.
pins=$(python3 --version; requirements "${extras[@]}"; cat python/constraints.txt)
if [[ $(cat "$environment/pins" 2>/dev/null) != "$pins" ]]; then
  rm -rf "$environment"
  if ! reason=$(python3 -m venv "$environment" 2>&1); then
    echo "no frameworks: expected 'python3 -m venv' to work, but got '${reason##*$'\n'}'"
  else
    echo "$pins" > "$environment/pins"
  fi
fi
export PATH=$environment/bin:$PATH

install() {
  local extra=$1 free reason status=0
  local -a packages
  [[ ! -e $environment/has-$extra ]] || return 0
  read -ra packages < <(requirements "$extra")
  free=$(df --output=avail --block-size=G "$environment" | tr -dc 0-9)
  if ((free < gigabytes)); then
    echo "no $extra: expected $gigabytes GB of free disk, but got $free"
    return
  fi
  reason=$(timeout $((deadline > SECONDS ? deadline - SECONDS : 1)) \
    pip install --quiet --disable-pip-version-check --retries 2 --timeout 30 \
    --constraint python/constraints.txt "${packages[@]}" 2>&1) || status=$?
  if ((status == 0)); then
    # A gigabyte that only GPUs have a use for.
    pip uninstall --quiet --yes triton 2>/dev/null
    touch "$environment/has-$extra"
    return
  fi
  # Half an extra is none: its tests must see that it is not there.
  pip uninstall --quiet --yes "${packages[@]%%==*}" 2>/dev/null || true
  if ((status == 124)); then
    reason="an index or a disk too slow for that"
  fi
  echo "no $extra: expected ${packages[*]} to be installed in time, but got '${reason##*$'\n'}'"
}

if [[ -e $environment/pins ]]; then
  for extra in "${extras[@]}"; do
    install "$extra"
  done
fi

[[ ${1:-} != --install ]] || exit 0

# Also those elsewhere that need an extra.
scripts/check.sh --show-unsupported \
  --filter 'Python/|Docs/commands-|Integration/(dropout|bert_tiny/golden)|Tools/safetensors|Benchmarks/steps' "$@"
