# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Prints a tensor of a checkpoint.

import sys

import tensor_file

path, name = sys.argv[1:]
print(*tensor_file.read(path)[0][name].numbers())
