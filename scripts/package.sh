#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds the release, and makes Debian's package of it.

set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
scripts/package.sh [--build DIR] [--output DIR]

Makes sparse-opt_VERSION_amd64.deb in build/packages, for the Debian that it runs
on. --build takes a build that is there (by default build/release is made);
--output says where the package goes.
TEXT
}

build= output=build/packages
while (($#)); do
  case $1 in
    --help) usage; exit 0 ;;
    --build) build=${2:?"expected a folder after --build, but got none"}; shift ;;
    --output) output=${2:?"expected a folder after --output, but got none"}; shift ;;
    *) echo "error: expected an option of package.sh (see --help), but got '$1'" >&2; exit 1 ;;
  esac
  shift
done

for needed in dpkg-shlibdeps/dpkg-dev file/file; do
  if ! command -v ${needed%/*} > /dev/null; then
    echo "error: expected ${needed%/*}, but got none: install Debian's package ${needed#*/}" >&2
    exit 1
  fi
done
if [[ ! $build ]]; then
  scripts/setup.sh
  build=build/release
  cmake --preset release > /dev/null
  cmake --build --preset release
fi
if [[ ! -e $build/CPackConfig.cmake ]]; then
  echo "error: expected a build of the compiler in '$build', but got none" >&2
  exit 1
fi
mkdir -p "$output"
log=$output/cpack.log
if ! cpack --config "$build/CPackConfig.cmake" -B "$output" > "$log" 2>&1; then
  cat "$log" >&2
  echo "error: expected cpack to make a package, but got the errors above" >&2
  exit 1
fi
rm -rf "$output/_CPack_Packages" "$log"
ls "$output"/*.deb
