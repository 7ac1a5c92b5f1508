# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The rooms of the compiler, as CMake has them."""

import re


def read_libraries(root):
    """The folder of each library of lib/, relative to it, and the libraries that it links, by name."""
    folders, links = {}, {}
    for cmake in sorted((root / "lib").rglob("CMakeLists.txt")):
        found = re.search(r"^(?:bsr_add|add_mlir)_library\((BSR\w+)(.*?)^\)", cmake.read_text(), re.S | re.M)
        if found:
            folders[found[1]] = cmake.parent.relative_to(root / "lib").as_posix()
            links[found[1]] = re.findall(r"\bBSR\w+", found[2].partition("LINK_LIBS PUBLIC")[2])
    return folders, links
