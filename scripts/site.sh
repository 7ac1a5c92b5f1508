#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Makes a site of README.md, docs/ and the generated pages of the dialect and the passes.

set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
scripts/site.sh [--build DIR]

Writes the site to build/site/html. The pages of the dialect and the passes come from
the target mlir-doc of the build (build/dev). Links are checked; scripts/check-site
without an option looks at the pages in a browser, too. Needs Debian's packages mkdocs and
mkdocs-material.
TEXT
}

build=build/dev
while (($#)); do
  case $1 in
    --help) usage; exit 0 ;;
    --build) build=${2:?"expected a folder after --build, but got none"}; shift ;;
    *) echo "error: expected an option of site.sh (see --help), but got '$1'" >&2; exit 1 ;;
  esac
  shift
done

if ! /usr/bin/python3 -c 'import mkdocs, material' 2> /dev/null; then
  echo "error: expected mkdocs with its theme material, but got none: install Debian's packages mkdocs and mkdocs-material" >&2
  exit 1
fi
if [[ ! -e $build/CMakeCache.txt ]]; then
  echo "error: expected a build of the compiler in '$build', but got none" >&2
  exit 1
fi

cmake --build "$build" --target mlir-doc > /dev/null
rm -rf build/site
/usr/bin/python3 scripts/site/pages.py . "$build" build/site/pages
/usr/bin/python3 -m mkdocs build --strict --quiet
/usr/bin/python3 scripts/check-site --links > /dev/null
echo build/site/html/index.html
