# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A wheel's folder on a system that it is not for is one sentence.

# REQUIRES: numpy
# RUN: rm -rf %t && mkdir %t && cp -r %src_root/python/sparse_opt %t
# RUN: mkdir -p %t/sparse_opt/bundle/bin && cp %bsr_obj_root/bin/sparse-checkpoint %t/sparse_opt/bundle/bin
# RUN: ln -s sparse-checkpoint %t/sparse_opt/bundle/bin/sparse-compile
# RUN: mkdir %t/sparse_opt/bundle/lib && sed s/libomp.so.5/libomq.so.5/ %bsr_obj_root/lib/libbsr_runtime.so.1 > %t/sparse_opt/bundle/lib/libbsr_runtime.so.1
# RUN: env PYTHONPATH=%t %python %s | FileCheck %s

import platform
import sys

import sparse_opt
from sparse_opt import _tools


def find(tag, *libc, machine="x86_64"):
    (_tools.BUNDLE / "platform").write_text(tag)
    platform.libc_ver = lambda: libc
    platform.machine = lambda: machine
    for look in (lambda: _tools.find_tool("sparse-compile"), lambda: _tools.find_library(_tools.RUNTIME)):
        try:
            print("finds", look().rpartition("/")[2])
        except sparse_opt.StepError as error:
            print(error)


# CHECK: finds sparse-compile
# CHECK: finds libbsr_runtime.so.1
find("manylinux_2_35_x86_64\n", "glibc", "2.36")
# CHECK-COUNT-2: expected a system of x86_64 with glibc 2.35 or later, which this wheel is for, but got x86_64 with glibc 2.31: build from source
find("manylinux_2_35_x86_64\n", "glibc", "2.31")
# CHECK-COUNT-2: expected a system of x86_64 with glibc 2.35 or later, which this wheel is for, but got x86_64 with another C library: build from source
find("manylinux_2_35_x86_64\n", "", "")
# CHECK-COUNT-2: expected a system of x86_64 with glibc 2.35 or later, which this wheel is for, but got aarch64 with glibc 2.41: build from source
find("manylinux_2_35_x86_64\n", "glibc", "2.41", machine="aarch64")

# The commands of the wheel say it as the tools say what is wrong.
sys.argv = ["/usr/bin/sparse-opt"]
try:
    _tools.run()
except SystemExit as error:
    # CHECK: error: expected a system of x86_64 with glibc 2.35
    print(error)

# Without LLVM's OpenMP runtime, which the runtime needs (here by a name that is none).
(_tools.BUNDLE / "platform").unlink()
try:
    sparse_opt.Step("none.so")
except sparse_opt.StepError as error:
    # CHECK: expected libbsr_runtime.so.1 beside sparse-compile or on the library path, but got 'libomq.so.5: cannot open shared object file: No such file or directory'
    print(error)
