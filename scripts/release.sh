#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Makes all that a release has, from a tag.

set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
scripts/release.sh [--twice] [--untagged] [--output DIR] [--build DIR] [--wheel-build DIR]

Makes, of the tag vVERSION that is checked out, in build/release-VERSION:

  sparse-opt-VERSION.tar.gz             the source
  sparse_opt-VERSION-*.whl, *.deb       packages (scripts/wheel.sh, scripts/package.sh)
  *.whl.spdx.json, *.deb.spdx.json      what is in each (SPDX 2.3)
  CHANGES.md                            what changed from tag to tag
  SHA256SUMS                            checksums of all of these

--twice makes all of it again in new builds, and fails where a byte differs.
--untagged takes a commit without a tag, to try it. --build and --wheel-build take
builds of the presets release and wheel that are there; an empty --wheel-build makes
no wheel.
TEXT
}

fail() {
  echo "error: $1" >&2
  exit 1
}

twice= untagged= output= build= wheel_build=none
while (($#)); do
  case $1 in
    --help) usage; exit 0 ;;
    --twice) twice=yes ;;
    --untagged) untagged=--untagged ;;
    --output) output=${2:?"expected a folder after --output, but got none"}; shift ;;
    --build) build=${2:?"expected a folder after --build, but got none"}; shift ;;
    --wheel-build) wheel_build=${2?"expected a folder after --wheel-build, but got none"}; shift ;;
    *) fail "expected an option of release.sh (see --help), but got '$1'" ;;
  esac
  shift
done

# One version, everywhere.
version=$(sed -nE 's/^project\(.*VERSION ([0-9.]+).*/\1/p' CMakeLists.txt)
python=$(sed -nE 's/^__version__ = "(.*)"/\1/p' python/sparse_opt/__init__.py)
[[ $python == "$version" ]] || fail "expected version $version in python/sparse_opt/__init__.py, as in CMakeLists.txt, but got $python"
if [[ ! $untagged ]]; then
  changes=$(git status --porcelain | head -1)
  [[ ! $changes ]] || fail "expected a tree without changes, but got '$changes'"
  git tag --points-at HEAD | grep -Fqx "v$version" || fail "expected the tag v$version on the commit that is checked out, but got none"
  grep -Fqx "## $version" CHANGELOG.md || fail "expected a heading '## $version' in CHANGELOG.md, but got none"
fi
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
export TZ=UTC LC_ALL=C
umask 022

make_all() {
  local output=$1 build=$2 wheel_build=$3 package
  rm -rf "$output"
  mkdir -p "$output"
  git archive --format=tar --prefix="sparse-opt-$version/" HEAD | gzip --no-name --best > "$output/sparse-opt-$version.tar.gz"
  /usr/bin/python3 scripts/release/changes.py . $untagged > "$output/CHANGES.md"
  scripts/package.sh ${build:+--build "$build"} --output "$output" > /dev/null
  package=$(echo "$output"/*.deb)
  /usr/bin/python3 scripts/release/sbom.py "$package" "${build:-build/release}"
  if [[ $wheel_build ]]; then
    [[ $wheel_build != none ]] || wheel_build=
    package=$(scripts/wheel.sh ${wheel_build:+--build "$wheel_build"} --output "$output" | tail -1)
    /usr/bin/python3 scripts/release/sbom.py "$package" "${wheel_build:-build/wheel}"
  fi
  (cd "$output" && sha256sum -- * > .sums && mv .sums SHA256SUMS)
}

output=${output:-build/release-$version}
make_all "$output" "$build" "$wheel_build"
if [[ $twice ]]; then
  first=$(cat "$output/SHA256SUMS")
  [[ $build ]] || rm -rf build/release
  [[ $wheel_build != none ]] || rm -rf build/wheel
  make_all "$output" "$build" "$wheel_build"
  difference=$({ diff <(echo "$first") "$output/SHA256SUMS" || true; } | sed -nE 's/^> \S+ +//p' | paste -sd ' ')
  [[ ! $difference ]] || fail "expected the same bytes twice, but got others in: $difference"
  echo "the same bytes twice"
fi
cat "$output/SHA256SUMS"
