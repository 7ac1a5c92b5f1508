# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the benchmarks share: compiled steps, and times that others don't spoil."""

import hashlib
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The tests run steps from Python already.
sys.path.append(str(ROOT / "test" / "Integration"))

# A sample during which others took more than this share of a processor is taken
# again, as often as this.
FOREIGN_SHARE = 0.1
RETRIES = 5


def note(text):
    print(f"# {text}", flush=True)


def median(values):
    return statistics.median(values)


def set_threads(threads):
    """Makes every library use `threads` threads that don't spin for long after their
    work. To be called before any of them is loaded."""
    for name in ("OMP", "OPENBLAS", "MKL"):
        os.environ[f"{name}_NUM_THREADS"] = str(threads)
    # OpenBLAS's threads otherwise keep their processors for an eighth of a second, and whoever runs
    # next has half of two; 2^20 clocks are about as long as the others take.
    os.environ.update(MKL_THREADING_LAYER="GNU", KMP_BLOCKTIME="1", GOMP_SPINCOUNT="100000",
                      OPENBLAS_THREAD_TIMEOUT="20")
    # OpenBLAS takes slow kernels for a core that it does not know: 20 GF/s on an Emerald Rapids instead of 150.
    with open("/proc/cpuinfo") as file:
        if "avx512bw" in file.read():
            os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")


def busy_seconds():
    """Processor seconds that this machine has spent on anything."""
    with open("/proc/stat") as file:
        fields = [int(field) for field in file.readline().split()[1:9]]
    idle, waiting = fields[3:5]
    return (sum(fields) - idle - waiting) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    times = os.times()
    return times.user + times.system


# Seconds that this program may still wait for a quiet machine; then it takes what
# it gets. A test, of which no number counts, sets it to 0.
patience = 600


class Quiet:
    """Knows whether others used the processors since the last question. The kernel
    counts in steps of 10 ms, so it is asked about 0.1 s and more."""

    def __init__(self):
        self.disturbed = 0
        self.restart()

    def restart(self):
        self.start = time.perf_counter(), busy_seconds(), own_seconds()

    def was_quiet(self, own=None):
        """`own`: processor seconds of this job's processes, this one's by default."""
        then, busy, owned = self.start
        elapsed = time.perf_counter() - then
        foreign = busy_seconds() - busy - (own_seconds() - owned if own is None else own)
        quiet = foreign <= FOREIGN_SHARE * elapsed + 0.02
        self.disturbed += not quiet
        return quiet or patience <= 0


def wait_for_quiet(limit=30):
    """Waits until others leave the machine alone, `limit` seconds at most."""
    global patience
    end = time.perf_counter() + limit
    while time.perf_counter() < end and patience > 0:
        patience -= 0.25
        start = busy_seconds()
        time.sleep(0.25)
        if busy_seconds() - start <= 0.03:
            return


def find_tool(name):
    """A program of this project: on PATH, or of the newest build."""
    found = shutil.which(name)
    if found:
        return found
    builds = sorted(ROOT.glob(f"build/*/bin/{name}"), key=lambda path: path.stat().st_mtime)
    if not builds:
        sys.exit(f"error: expected {name} on PATH or in build/*/bin, but got none; build it first")
    return str(builds[-1])


def cached(name, key, make):
    """The file `name` in the cache, made by `make(path)` if `key` is new."""
    digest = hashlib.sha256(key.encode()).hexdigest()[:16]
    path = ROOT / "build" / "benchmarks" / f"{digest}-{name}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{os.getpid()}-{path.name}")
        make(temporary)
        temporary.rename(path)
    return path


def compile_step(source, *options):
    """A step (step.Step) compiled by this project from MLIR text."""
    import step

    tool = find_tool("sparse-compile")
    key = "\0".join([source, *options, str(os.stat(tool).st_mtime_ns)])

    def make(path):
        subprocess.run([tool, *options, "-", "-o", path], input=source, text=True, check=True)

    return step.Step(cached("step.so", key, make))


def describe_machine(threads):
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "?")
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    note(f"{model}, {os.cpu_count()} processors, {threads} threads; commit {commit or 'unknown'}")
