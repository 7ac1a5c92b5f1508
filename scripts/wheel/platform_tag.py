# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints the platform tag that is true of programs and libraries.

    platform_tag.py <folder>

Reads what each of them needs. PEP 600 says what a manylinux tag promises: the C
library's version, and which libraries every such system has.
"""

import pathlib
import re
import subprocess
import sys

# What PEP 600's policies let a wheel expect of the system, of what is needed here.
SYSTEM = re.compile(r"(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|ld-linux-x86-64)\.so\.\d+")
# By C library, the newest symbols of the C++ library (manylinux's policies).
CXX = {34: (3, 4, 29), 35: (3, 4, 30), 36: (3, 4, 30)}


def needs(path):
    """Returns the libraries and the versions of symbols that a file needs."""
    text = subprocess.run(["objdump", "-p", path], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"NEEDED\s+(\S+)", text)), set(re.findall(r"0x\S+ 0x\S+ \d+ (\S+)", text))


def main(folder):
    files = [path for path in sorted(pathlib.Path(folder).rglob("*"))
             if path.is_file() and path.read_bytes()[:4] == b"\x7fELF"]
    if not files:
        sys.exit(f"error: expected programs and libraries in '{folder}', but got none")
    inside = {path.name for path in files}
    c, cxx = (2, 28), (3, 4, 25)
    for path in files:
        libraries, versions = needs(path)
        for library in sorted(libraries - inside):
            if not SYSTEM.fullmatch(library):
                sys.exit(f"error: expected '{path.name}' to need what it comes with or every"
                         f" system has, but got '{library}'")
        for version in versions:
            name, _, number = version.partition("_")
            if re.fullmatch(r"[\d.]+", number):
                number = tuple(map(int, number.split(".")))
                if name == "GLIBC":
                    c = max(c, number)
                elif name == "GLIBCXX":
                    cxx = max(cxx, number)
    minor = c[1]
    while minor in CXX and CXX[minor] < cxx:
        minor += 1
    print(f"manylinux_2_{minor}_x86_64")


if __name__ == "__main__":
    main(*sys.argv[1:])
