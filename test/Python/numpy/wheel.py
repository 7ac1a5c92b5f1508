# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The wheel has every module, and needs none of the frameworks.

# REQUIRES: test, numpy
# RUN: rm -rf %t && mkdir %t && cp -r %src_root/python %t/python
# RUN: %python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir %t %t/python
# RUN: env PYTHONPATH=%t/sparse_opt-0.1.0-py3-none-any.whl %python %s %src_root/python | FileCheck %s

import sys
import zipfile
from pathlib import Path

import sparse_opt

wheel = Path(sparse_opt.__file__).parent.parent
source = {str(p.relative_to(sys.argv[1])) for p in Path(sys.argv[1]).rglob("*.py")}
source.add("sparse_opt/py.typed")

# CHECK: sparse_opt-0.1.0-py3-none-any.whl: missing [], imported []
frameworks = [name for name in ("jax", "torch", "safetensors") if name in sys.modules]
missing = sorted(source - set(zipfile.ZipFile(wheel).namelist()))
print(f"{wheel.name}: missing {missing}, imported {frameworks}")
