#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# All that only a GPU can tell, on the first one of this machine, in one go and under
# 20 minutes of its time: kernels against float64, training runs against the
# processor's, NVIDIA's sanitizer where it is installed, kernels and steps beside
# cuBLAS, cuSPARSE and PyTorch where PyTorch has a GPU, predictions beside what was
# measured. Writes REPORT (build/gpu-day.md), with everything that went wrong; fails if
# something did.
#
#   scripts/gpu-day.sh [--rehearse] [--parts REGEX] [REPORT]
#   scripts/gpu-day.sh [--rehearse] --bundle DIR
#
# --rehearse takes the driver of the tests as the GPU, and small sizes: a check of this
# script, whose times mean nothing. --parts runs those alone whose titles match.
#
# --bundle makes a folder for a machine that has a GPU, its driver, Python and NumPy, but
# none of this project's tools: what the parts compile is recorded there (8 minutes), and
#
#   DIR/run.sh [--rehearse] [--parts REGEX] [REPORT]
#
# runs them on that machine (29 MB). One that is made with --rehearse has what a rehearsal
# compiles alone.

set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  echo "error: expected --rehearse, --parts with a regular expression, --bundle with a folder, or the name of a report, but got '$*'" >&2
  exit 2
}
rehearse='' bundle='' parts='' report=''
while (($#)); do
  case $1 in
    --rehearse) rehearse=1 ;;
    --parts | --bundle)
      (($# > 1)) || usage "$1"
      declare "${1#--}=$2"
      shift
      ;;
    -*) usage "$1" ;;
    *)
      [[ -z $report ]] || usage "$report $1"
      report=$1
      ;;
  esac
  shift
done

if [[ $bundle && -e $bundle ]]; then
  echo "error: expected a folder that is not there yet, but got '$bundle'" >&2
  exit 2
fi

if [[ -d recorded ]]; then # a bundle
  build=$PWD
else
  build=$PWD/build/dev
  cmake --preset dev > /dev/null
  cmake --build --preset dev > /dev/null
fi
export PATH=$build/bin:$PATH
python=python3
[[ -z $(python3 -c 'import numpy' 2>&1) ]] || python=/usr/bin/python3

if [[ $bundle ]]; then
  mkdir -p "$bundle"/{bin,lib,recorded,test/Tools,benchmarks}
  bundle=$(realpath "$bundle")
  for tool in ptx-run runtime-check sparse-train; do
    strip -o "$bundle/bin/$tool" "$build/bin/$tool"
    # Libraries that other systems may lack or have in other versions; the C library is theirs.
    ldd "$build/bin/$tool" | awk '$2 == "=>" && $1 !~ /^lib(c|m|gcc_s|stdc\+\+)\.so/ {print $3}' |
      xargs --no-run-if-empty cp --dereference --target-directory="$bundle/lib"
  done
  cp -r "$build"/lib/fake-driver "$build"/lib/libbsr_fake_step*.so "$bundle/lib"
  cp scripts/recorded-tool "$bundle/bin/sparse-compile"
  cp scripts/recorded-tool "$bundle/bin/sparse-opt"
  cp -r --parents python/sparse_opt scripts/gpu-day.sh scripts/gpu_day.py scripts/check-device.sh test/Integration test/Tools/Inputs \
    benchmarks/*.py examples/*.gz examples/bert.yaml "$bundle"
  cp -r /usr/lib/llvm-22/utils/lit/lit "$bundle/scripts" # which reads the commands of tests
  git rev-parse --short HEAD > "$bundle/commit"
  cat > "$bundle/run.sh" <<'SHELL'
#!/usr/bin/env bash
cd "$(dirname "$0")"
export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
exec scripts/gpu-day.sh "$@"
SHELL
  chmod +x "$bundle/run.sh"
  export RECORD_TOOLS=$build/bin PATH=$bundle/bin:$PATH
  LD_LIBRARY_PATH=$bundle/lib:$bundle/lib/fake-driver "$python" "$bundle/scripts/gpu_day.py" --record ${rehearse:+--rehearse}
  find "$bundle" -name __pycache__ -exec rm -r {} +
  du --summarize --human-readable "$bundle"
  exit
fi

report=$(realpath --canonicalize-missing "${report:-build/gpu-day.md}")
[[ -z $rehearse ]] || export LD_LIBRARY_PATH=$build/lib/fake-driver${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
if ! gpu=$(ptx-run --device-name 2>&1); then
  echo "error: expected a GPU, but got '${gpu##*error: }'" >&2
  exit 1
fi
commit=$(cat commit 2> /dev/null || git rev-parse --short HEAD)
head="# $gpu

$(date --utc '+%Y-%m-%d %H:%M UTC'), commit $commit${rehearse:+, **a rehearsal: the GPU is the PTX interpreter, and times mean nothing**}."
exec "$python" scripts/gpu_day.py ${rehearse:+--rehearse} --parts "$parts" --head "$head" "$report"
