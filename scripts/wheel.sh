#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Makes a wheel of the Python package with the compiler inside.

set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
scripts/wheel.sh [--build DIR] [--output DIR]

Makes sparse_opt-VERSION-py3-none-manylinux_2_X_x86_64.whl in build/packages: the
package of python/, sparse-opt, sparse-compile, sparse-train and sparse-checkpoint
with LLVM and MLIR linked in, the runtime and LLVM's OpenMP runtime, and the licences
of what they hold of others. The tag says the oldest C library that all of them run with. --build takes a build of the preset
wheel that is there (by default build/wheel is made); --output says where the wheel
goes.
TEXT
}

build= output=build/packages
while (($#)); do
  case $1 in
    --help) usage; exit 0 ;;
    --build) build=${2:?"expected a folder after --build, but got none"}; shift ;;
    --output) output=${2:?"expected a folder after --output, but got none"}; shift ;;
    *) echo "error: expected an option of wheel.sh (see --help), but got '$1'" >&2; exit 1 ;;
  esac
  shift
done

for tool in patchelf objdump strip; do
  if ! command -v $tool > /dev/null; then
    echo "error: expected $tool, but got none: install Debian's packages patchelf and binutils" >&2
    exit 1
  fi
done
if ! /usr/bin/python3 -c 'import setuptools, wheel' 2> /dev/null; then
  echo "error: expected Python's setuptools and wheel, but got none: install Debian's packages python3-setuptools and python3-wheel" >&2
  exit 1
fi
if [[ ! $build ]]; then
  scripts/setup.sh
  build=build/wheel
  cmake --preset wheel > /dev/null
  cmake --build --preset wheel
fi
if [[ ! -e $build/bin/sparse-compile ]]; then
  echo "error: expected a build of the preset wheel in '$build', but got none" >&2
  exit 1
fi

# The package, and the folder that sparse_opt/_tools.py looks for.
staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT
cp -r python/pyproject.toml python/sparse_opt scripts/wheel/setup.py LICENSE README.md "$staging"
find "$staging" -name __pycache__ -prune -exec rm -rf {} +
for tool in sparse-{checkpoint,compile,opt,train}; do
  sed -i "/^\[project.scripts\]$/a $tool = \"sparse_opt._tools:run\"" "$staging/pyproject.toml"
done
bundle=$staging/sparse_opt/bundle
mkdir -p "$bundle"/{bin,lib}
git rev-parse HEAD > "$bundle/commit" 2> /dev/null || true
cp "$build"/bin/sparse-{checkpoint,compile,train} "$bundle/bin" # sparse-compile is sparse-opt too
cp "$build"/lib/libbsr_{runtime,threads}.so.1 "$bundle/lib"

# What these need and not every system has comes along, without a folder of this
# machine in it.
carried='libomp\.so|libyaml-cpp\.so|libsentencepiece'
ldd "$bundle"/bin/* "$bundle"/lib/* /usr/lib/x86_64-linux-gnu/libsentencepiece_train.so.0 |
  sed -nE "s/^\s*(($carried)\S*) => (\S+) .*/\1 \3/p" | sort --unique |
  while read -r name path; do cp --dereference "$path" "$bundle/lib/$name"; done
chmod u+w "$bundle"/*/*
strip --strip-unneeded "$bundle"/bin/* "$bundle"/lib/*
for file in "$bundle"/bin/*; do patchelf --set-rpath '$ORIGIN/../lib' "$file"; done
for file in "$bundle"/lib/*; do patchelf --set-rpath '$ORIGIN' "$file"; done

WHEEL_LICENCES=$staging/licences
export WHEEL_LICENCES
/usr/bin/python3 -B scripts/release/licences.py "$build" "$WHEEL_LICENCES" "$bundle/lib"
WHEEL_PLATFORM=$(/usr/bin/python3 scripts/wheel/platform_tag.py "$bundle")
export WHEEL_PLATFORM
echo "$WHEEL_PLATFORM" > "$bundle/platform"
# The same files make the same bytes.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2> /dev/null || echo 946684800)}
export SOURCE_DATE_EPOCH
find "$staging" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
mkdir -p "$output"
output=$(cd "$output" && pwd)
log=$staging/log
if ! (cd "$staging" && /usr/bin/python3 setup.py --quiet bdist_wheel --dist-dir "$output") > "$log" 2>&1; then
  cat "$log" >&2
  echo "error: expected setuptools to make a wheel, but got the errors above" >&2
  exit 1
fi
wheel=$output/sparse_opt-$(sed -nE 's/^__version__ = "(.*)"/\1/p' python/sparse_opt/__init__.py)-py3-none-$WHEEL_PLATFORM.whl

# It compiles and trains with nothing on the path, and its commands start.
/usr/bin/python3 -m pip --disable-pip-version-check install --quiet --root-user-action=ignore --no-deps --no-index --no-compile --target "$staging/there" "$wheel"
env -i PATH=/nonexistent PYTHONPATH="$staging/there" \
  /usr/bin/python3 test/Install/Inputs/import.py "$staging/there" > /dev/null
env -i PATH=/nonexistent PYTHONPATH="$staging/there" "$staging/there/bin/sparse-sweep" --help > /dev/null
echo "$wheel"
