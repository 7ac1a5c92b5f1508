#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Makes build/aarch64-sysroot, Debian's libraries and headers for AArch64: what a step
# for such a machine is linked with, what the runtime is built with for it (the preset
# aarch64), and where qemu-aarch64 finds the libraries of both. They come from the
# sources of this system's apt, by lists of their own: what is installed stays as it is.

set -euo pipefail
cd "$(dirname "$0")/.."

sysroot=$PWD/build/aarch64-sysroot
packages=(
  libc6 libc6-dev linux-libc-dev libgcc-s1 libgcc-12-dev libstdc++6 libstdc++-12-dev
  libomp-22-dev nlohmann-json3-dev libsentencepiece0 libsentencepiece-dev libxxhash-dev
  libyaml-cpp0.7 libyaml-cpp-dev libgtest-dev
  # An interpreter of Python, for tests.
  python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libffi8 libexpat1 zlib1g
)
if [[ -e $sysroot/packages && $(< "$sysroot/packages") == "${packages[*]}" ]]; then
  exit 0
fi
for needed in apt-get dpkg; do
  if ! command -v $needed > /dev/null; then
    echo "error: expected $needed, as Debian has it, but got none: unpack what these packages of Debian" \
      "hold for arm64 in $sysroot: ${packages[*]}" >&2
    exit 1
  fi
done

state=$(mktemp --directory)
trap 'rm -rf "$state"' EXIT
mkdir -p "$state"/{lists,cache/archives}/partial "$state/debs"
touch "$state/status"
cat > "$state/apt.conf" <<TEXT
Dir::State "$state";
Dir::State::lists "$state/lists";
Dir::State::status "$state/status";
Dir::Cache "$state/cache";
APT::Architecture "arm64";
APT::Architectures "arm64";
APT::Sandbox::User "";
TEXT
export APT_CONFIG=$state/apt.conf
apt-get update --quiet --quiet
# The OpenMP runtime, in the version that the package for development takes.
openmp=$(apt-cache depends libomp-22-dev | sed -nE 's/.*Depends: (libomp5\S*)/\1/p')
(cd "$state/debs" && apt-get download --quiet --quiet "${packages[@]}" $openmp)
rm -rf "$sysroot"
mkdir -p "$sysroot"
for package in "$state"/debs/*.deb; do
  dpkg --extract "$package" "$sysroot"
done
# Links to the root are to this folder.
find "$sysroot" -lname '/*' -printf '%p %l\n' | while read -r link target; do
  ln --symbolic --force --relative "$sysroot$target" "$link"
done
echo "${packages[*]}" > "$sysroot/packages"
echo "$sysroot: $(du -sh "$sysroot" | cut -f1)"
