# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# A compiler that ends without an error is one sentence, not its last remark.

# RUN: %numpy_python %s %t | FileCheck %s --implicit-check-not=remark

import pathlib
import sys

from sparse_opt import StepError, _compiler, _tools

tool = pathlib.Path(sys.argv[1])


def end(script):
    tool.write_text(f"#!/bin/sh\necho 'step.mlir:1:1: remark: masked' >&2\n{script}\n")
    tool.chmod(0o755)
    _tools.find_tool = lambda name: str(tool)
    try:
        _compiler.run("", tool.with_suffix(".so"), [], [])
    except StepError as error:
        print(error)


# CHECK: expected sparse-compile to end by itself, but got 'Killed': where memory is short, the system ends what takes most
end("kill -KILL $$")
# CHECK: expected sparse-compile to end by itself, but got 'Terminated': something else ended it
end("kill -TERM $$")
# CHECK: expected sparse-compile to end by itself, but got 'Aborted': that is a mistake of sparse-opt, report the program
end("kill -ABRT $$")
# CHECK: expected a step, but got none
end("echo 'step.mlir:1:1: error: expected a step, but got none' >&2\nkill -ABRT $$")
# CHECK: expected sparse-compile to succeed, but it did not
end("exit 3")
