# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that docs/manifest.md has the keys that support/ManifestSchema.cpp has.

    check_manifest.py <source root>

A table of the page stands under a heading, and is that of the code named here.
"""

import re
import sys
from pathlib import Path

TABLES = {
    "Step": "step", "Buffer": "buffer", "Origin": "origin", "Pattern": "pattern", "Buffers of a pattern": "view",
    "Mask": "mask", "Floating-point operations": "flops", "Kernels": "kernels", "Timer": "timer", "Launch": "launch", "Argument": "argument", "Map": "map",
}

root = Path(sys.argv[1])
code = {
    name: {key + ("?" if need == ", Optional" else "") for key, need in
           re.findall(r'^ *{"(\w+)", Holds::\w+(, \w+)?', keys, re.M)}
    for name, keys in re.findall(r"^static constexpr Key (\w+)Keys\[\] = {\n(.*?)^};",
                                 (root / "support/ManifestSchema.cpp").read_text(), re.S | re.M)
}
page = {
    heading: set(re.findall(r"^\| `(\w+\??)` \|", text, re.M))
    for heading, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", (root / "docs/manifest.md").read_text(), re.S | re.M)
}
if set(code) != set(TABLES.values()):
    sys.exit(f"expected tables {sorted(TABLES.values())} in support/ManifestSchema.cpp, but got {sorted(code)}")
errors = [
    f"expected '{heading}' of docs/manifest.md to have the keys of support/ManifestSchema.cpp, but got others: "
    f"{sorted(page.get(heading, set()) ^ code[name])}"
    for heading, name in TABLES.items() if page.get(heading) != code[name]
]
sys.exit("\n".join(errors) or 0)
