#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Installs what is missing, builds everything with warnings as errors, and runs
# every test. Arguments go to lit: scripts/check.sh --filter Transforms

set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh
cmake --preset dev
results=$PWD/build/dev/test-results.json
rm -f "$results"
status=0
LIT_OPTS="--output $results $*" cmake --build --preset dev --target check-bsr || status=$?

# The last line: how many tests passed, failed, and were skipped for what is not installed.
python3 - "$results" <<'PYTHON' || status=1
import json, sys
from collections import Counter

try:
    with open(sys.argv[1]) as file:
        codes = Counter(test["code"] for test in json.load(file)["tests"])
except OSError:
    sys.exit("error: expected the tests to run, but got a build that failed")
passed = codes["PASS"] + codes["FLAKYPASS"] + codes["XFAIL"]
skipped = codes["UNSUPPORTED"]
failed = codes.total() - passed - skipped - codes["EXCLUDED"] - codes["SKIPPED"]
print(f"{passed} passed, {failed} failed, {skipped} skipped")
PYTHON
exit $status
