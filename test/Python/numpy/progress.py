# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Long jobs say how far they are, on a terminal and elsewhere.

# RUN: env -u SPARSE_OPT_PROGRESS %numpy_python %s %t 2>%t.err | FileCheck %s && FileCheck %s --check-prefix=LINES < %t.err

import logging
import os
import pathlib
import re
import sys
import threading
import time

from sparse_opt import _compiler, _progress, _say, _tools


said = []
aside = _say.aside
_say.aside = lambda text: (said.append(text), aside(text))


def wait_until_said(count):
    """Waits for some lines, which a machine with other work says late."""
    while len(said) < count:
        time.sleep(0.02)


def job(stages, says=True):
    first = len(said)
    with _progress.of("export", stages):
        for number, stage in enumerate(stages, 1):
            _progress.stage(stage)
            wait_until_said(first + says * number)


# What is done within three seconds says nothing.
# LINES-NOT: sparse_opt
# LINES: begin{{$}}
job(("short",), says=False)
print("begin", file=sys.stderr, flush=True)
_progress._QUIET, _progress._LOOK, _progress._PAUSE = 0.1, 0.05, 0.0

# Elsewhere than on a terminal each stage has one line.
# LINES-NEXT: {{^}}sparse_opt: export: trace, 1 of 2, after {{[0-9]+}} s{{$}}
# LINES-NEXT: {{^}}sparse_opt: export: lower, 2 of 2, after {{[0-9]+}} s{{$}}
job(("trace", "lower"))
# A job within another one, and one that fails.
# LINES-NEXT: {{^}}sparse_opt: compile: parse, 1 of 2, after
# LINES-NEXT: {{^}}sparse_opt: export: lower, 2 of 2, after
try:
    with _progress.of("compile", ("parse", "code")):
        wait_until_said(3)
        with _progress.of("export", ("trace", "lower")):
            _progress.stage("lower")
            wait_until_said(4)
            raise KeyError
except KeyError:
    # No thread is left.
    # CHECK: threads 1
    print("threads", threading.active_count())
# Lines stay a while apart.
# LINES-NEXT: {{^}}sparse_opt: export: trace, 1 of 2, after
_progress._PAUSE = 1e9
with _progress.of("export", ("trace", "lower")):
    wait_until_said(5)
    _progress.stage("lower")
    time.sleep(0.5)
_progress._PAUSE = 0.0
# The logger silences them.
logging.getLogger("sparse_opt").setLevel(logging.WARNING)
with _progress.of("export", ("silent",)):
    time.sleep(0.5)
logging.getLogger("sparse_opt").setLevel(logging.INFO)
# And so does the environment.
os.environ["SPARSE_OPT_PROGRESS"] = "0"
with _progress.of("export", ("silent",)):
    time.sleep(0.5)
del os.environ["SPARSE_OPT_PROGRESS"]

# What the compiler says is done is one phase; its report is without these lines.
# LINES-NEXT: {{^}}sparse_opt: compile: optimize, 4 of 7, after
# CHECK: report 'a report\n'
tool = pathlib.Path(sys.argv[1])
tool.write_text("#!/bin/sh\necho '    0.01 s  translate' >&2\necho 'a report' >&2\nsleep 3\necho '    0.01 s  optimize' >&2\n")
tool.chmod(0o755)
_tools.find_tool = lambda name: str(tool)
_progress._QUIET = 0.5
print("report", repr(_compiler.run("", tool.with_suffix(".so"), [], [])))
# They are in it where they were asked for.
# CHECK: timed 2
_progress._QUIET = 60.0
print("timed", _compiler.run("", tool.with_suffix(".so"), [], ["--time"]).count(" s  "))
_progress._QUIET = 0.1

# On a terminal one line is written again and again, and removed in front of other ones.
# LINES-NEXT: end{{$}}
# LINES-NOT: sparse_opt
print("end", file=sys.stderr, flush=True)
reader, writer = os.openpty()
errors, sys.stderr = sys.stderr, os.fdopen(writer, "w")
with _progress.of("export", ("trace", "lower")):
    time.sleep(1)
    _say.line("a line")
    _progress.stage("lower")
    time.sleep(1)
logging.getLogger("sparse_opt").setLevel(logging.WARNING)
with _progress.of("export", ("silent",)):
    time.sleep(0.5)
sys.stderr = errors
text = os.read(reader, 1 << 16).decode()
# CHECK: ['trace, 1 of 2', 'a line', 'lower, 2 of 2'], removed True, silent True
shown = re.findall(r"export: (\w+, \d of \d)|(a line)", text)
order = [next(filter(None, pair)) for pair in shown]
removed = text.endswith("\r\x1b[K") and "\r\x1b[Ksparse_opt: a line" in text
once = [name for i, name in enumerate(order) if order[i - 1 : i] != [name]]
print(f"{once}, removed {removed}, silent {'silent' not in text}")
