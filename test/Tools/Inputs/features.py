# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# features.py ROOT: demands of the table of scripts/run-tests that it has what tests require, and no more.

import importlib.machinery
import re
import sys
from pathlib import Path

root = Path(sys.argv[1])
sys.dont_write_bytecode = True
table = importlib.machinery.SourceFileLoader("run_tests", str(root / "scripts" / "run-tests")).load_module().FEATURES
required = set()
for path in (root / "test").rglob("*"):
    if path.suffix in (".test", ".mlir", ".py", ".cfg"):
        for line in re.findall(r"^(?:# |// )?REQUIRES: (.*)|^config\.requires = (.*)", path.read_text(), re.M):
            required |= set(re.findall(r"[-\w]+", "".join(line)))
assert required == set(table), (required - set(table), set(table) - required)
print(f"{len(table)} features")
