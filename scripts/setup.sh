#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Installs the Debian packages that are missing; does nothing where none is. With --mpi
# those of Open MPI and MPICH, too; with --aarch64 what emulates such a processor, and
# libraries for it in a folder of this tree (aarch64-sysroot.sh). Nothing that is
# installed is removed for them, unless --replace says so: of LLVM's OpenMP runtime a
# system has one version.

set -euo pipefail

packages=(
  # The compiler, and what it is built with.
  clang-22 lld-22 liblld-22-dev llvm-22-dev llvm-22-tools libmlir-22-dev mlir-22-tools
  cmake ninja-build ccache libstdc++-12-dev
  # The runtime and sparse-train.
  libomp-22-dev nlohmann-json3-dev libsentencepiece-dev libxxhash-dev libyaml-cpp-dev
  # The sanitizers.
  libclang-rt-22-dev
  # The tests and scripts.
  libgtest-dev python3 python3-numpy libopenblas0-pthread python3-yaml sentencepiece clang-format-14 clang-tidy-22
)

replace= aarch64=
while (($#)); do
  case $1 in
    # Runs of several processes take an MPI, which nothing else needs (docs/parallel.md).
    --mpi) packages+=(openmpi-bin libopenmpi-dev mpich libmpich-dev python3-mpi4py) ;;
    # Steps and the runtime for AArch64 (docs/install.md).
    --aarch64) packages+=(qemu-user); aarch64=yes ;;
    --replace) replace=yes ;;
    *) echo "error: expected --mpi, --aarch64, --replace or nothing, but got '$1'" >&2; exit 2 ;;
  esac
  shift
done

for needed in dpkg-query apt-get; do
  if ! command -v $needed > /dev/null; then
    echo "error: expected $needed, as Debian has it, but got none: install what these packages" \
      "of Debian hold by your system's own means: ${packages[*]}" >&2
    exit 1
  fi
done

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
finish() {
  [[ ! $aarch64 ]] || "$(dirname "$0")"/aarch64-sysroot.sh
  exit
}
((${#missing[@]})) || finish

install=(apt-get install --yes --no-install-recommends)
[[ $replace ]] || install+=(--no-remove)
install+=("${missing[@]}")
if [[ $(id --user) == 0 ]]; then
  as_root=(env DEBIAN_FRONTEND=noninteractive)
elif sudo --non-interactive true 2>/dev/null; then
  as_root=(sudo env DEBIAN_FRONTEND=noninteractive)
else
  echo "error: expected the packages below to be installed, but got a user who may not; run:" >&2
  echo "  sudo ${install[*]}" >&2
  exit 1
fi
echo "install ${missing[*]}"
"${as_root[@]}" apt-get update --quiet
if [[ ! $replace ]]; then
  removed=$(apt-get --simulate install --no-install-recommends "${missing[@]}" | sed -n 's/^Remv \([^ ]*\).*/\1/p')
  if [[ $removed ]]; then
    echo "error: expected packages that go with those that are installed, but got some that take the place" \
      "of ${removed//$'\n'/, }: scripts/setup.sh --replace removes these" >&2
    exit 1
  fi
fi
"${as_root[@]}" "${install[@]}" --quiet
finish
