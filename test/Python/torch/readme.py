# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The README's program with layers prints what the README says.

# RUN: env SPARSE_OPT_CACHE=%t %python %s %src_root/README.md

import contextlib
import io
import re
import sys
from pathlib import Path

code, wanted = re.search(r"## Layers\n\n```python\n(.*?)```\n\n```text\n(.*?)```", Path(sys.argv[1]).read_text(), re.S).groups()
printed = io.StringIO()
with contextlib.redirect_stdout(printed):
    exec(compile(code, "README.md", "exec"))
assert printed.getvalue() == wanted, f"expected the README's output, but got:\n{printed.getvalue()}"
