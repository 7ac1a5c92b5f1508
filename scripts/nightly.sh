#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs all fuzzers of programs within a given time, with seeds of the day.

set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'TEXT'
scripts/nightly.sh [--minutes M] [--seed S] [--jobs N] [--output DIR] [--dry-run]

Runs scripts/fuzz-steps, scripts/fuzz-programs for each framework that the
python on the path has, and scripts/fuzz-ir, M minutes in all (120). Seeds begin
at S, by default a million for each day. Logs and failures go to DIR
(build/nightly); the last lines say what each found. --dry-run prints the commands
alone. The tools are those on the path, or those of build/dev.
TEXT
}

minutes=120 jobs=$(nproc) output=build/nightly run=
seed=$(($(date +%s) / 86400 % 4000 * 1000000))
while (($#)); do
  case $1 in
    --help) usage; exit 0 ;;
    --dry-run) run=echo; shift; continue ;;
    --minutes | --seed | --jobs | --output) ;;
    *) echo "nightly.sh: expected an option that --help lists, but got '$1'" >&2; exit 2 ;;
  esac
  value=${2:?"expected a value after $1, but got none"}
  if [[ $1 != --output && ! $value =~ ^[0-9]{1,12}$ ]]; then
    echo "nightly.sh: expected a whole number after $1, but got '$value'" >&2
    exit 2
  fi
  declare "${1#--}=$value"
  shift 2
done

[[ $PATH == *"$PWD/build/dev/bin"* ]] || PATH=$PATH:$PWD/build/dev/bin
frameworks=()
for framework in jax torch; do
  if python3 -c "import $framework" 2> /dev/null; then
    frameworks+=("$framework")
  else
    echo "no $framework: its programs are not run"
  fi
done

failed=0
# fuzz NAME COMMAND...: runs a fuzzer, and says what it found.
fuzz() {
  local name=$1 status=0
  shift
  echo "== $name: $*"
  if [[ $run ]]; then
    return
  fi
  "$@" > "$output/$name.log" 2>&1 || status=$?
  grep -E '^seed|^[0-9]+ programs|a second$|^every case|^  [0-9]+ x ' "$output/$name.log" | tail -n 40 || true
  if ((status)); then
    echo "$name: failures, in $output/$name.log"
    failed=1
  fi
}

part() { # of the time, in minutes or seconds
  python3 -c "print(f'{$minutes * $1 / 100 * $2:.1f}')"
}

[[ $run ]] || mkdir -p "$output"
many=(--programs 1000000 --seed "$seed" --jobs "$jobs" --output "$output")
left=$((100 - 20 * ${#frameworks[@]} - 10))
fuzz steps-small scripts/fuzz-steps "${many[@]}" --no-shrink --small --minutes "$(part $((left / 2)) 1)"
fuzz steps scripts/fuzz-steps "${many[@]}" --no-shrink --minutes "$(part $((left - left / 2)) 1)"
for framework in "${frameworks[@]}"; do
  fuzz "$framework" scripts/fuzz-programs --framework "$framework" "${many[@]}" --minutes "$(part 20 1)"
done
fuzz ir scripts/fuzz-ir --seed "$seed" --jobs "$jobs" --seconds "$(part 10 60)" --output "$output/ir"
exit $failed
