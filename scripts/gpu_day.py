# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The parts of scripts/gpu-day.sh: what each runs, for how long at most, and the report.

    gpu_day.py [--rehearse] [--parts REGEX] [--jobs N] [--head TEXT] REPORT
    gpu_day.py --record [--rehearse]

--rehearse takes small sizes, for the PTX interpreter as the GPU. --record runs what the parts compile, for a bundle: tests in the
interpreter, benchmarks without a run.
"""

import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import types
import typing

sys.path.append("/usr/lib/llvm-22/utils/lit")  # a bundle has its own beside this file
import lit.Test  # noqa: E402: found by the line above
import lit.TestRunner  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
TESTS = ROOT / "test" / "Integration"
BENCHMARK = [sys.executable, "benchmarks/gpu.py"]
# Tests of which a GPU has nothing to say: the interpreter counts instructions in them, or reads what lies between launches.
INTERPRETED = {"gpu-epilogues": "gpu_epilogues.py", "gpu-gradients": "gpu_gradients.py", "gpu-long-groups": "gpu_long_groups.py",
               "gpu-plans": "gpu_plans.py"}


class Part(typing.NamedTuple):
    """Commands of the report. All of them run, side by side if `parallel`; `seconds` are each one's at most."""

    title: str
    seconds: int
    commands: list
    parallel: bool = False
    compiles: bool = True  # has something to be recorded


def read_test(path):
    """The commands of a test's RUN lines, as lit reads them; none of one that requires something."""
    config = types.SimpleNamespace(available_features=set(), limit_to_features=set())
    suite = lit.Test.TestSuite("bsr", str(path.parent), str(path.parent), config)
    script = lit.TestRunner.parseIntegratedTestScript(lit.Test.Test(suite, (path.name,), config))
    if isinstance(script, lit.Test.Result):
        if script.code is lit.Test.UNSUPPORTED:
            return []
        sys.exit(f"error: expected {path} to have commands, but got: {script.output}")
    substitutions = [("%numpy_python", shlex.quote(sys.executable)), ("%src_root", str(ROOT)), ("%S", str(path.parent))]
    commands = lit.TestRunner.applySubstitutions(script, substitutions)
    return [re.sub(r"^%dbg\([^)]*\) *", "", command) for command in commands]  # where lit found it


def find_tests():
    """The commands of the tests of GPUs, without those of the interpreter alone."""
    commands = []
    for path in sorted(TESTS.glob("gpu*.test")):
        for command in read_test(path):
            # What is left of the form %x: files that other commands write, the driver of the tests.
            if not re.search(r"%\w", command) and INTERPRETED.get(path.stem, "none") not in command:
                commands.append(["/usr/bin/env", *shlex.split(command.removeprefix("env "))])
    return commands


def find_parts(options):
    updates = Part("Updates of patterns", 120, [["runtime-check", "--gtest_filter=GPUTest.*"]], compiles=False)
    if options.rehearse:
        sizes = ["--rows", "256", "--cols", "192", "--tokens", "128", "--blocks", "64,16", "--density", "0.3", "--repeats", "1"]
        return [
            updates,
            Part("A step of a small GPT-2", 120, [[*BENCHMARK, "steps", "--examples", "gpt2-tiny-bf16", "--density", "0.3", "--repeats", "1"]]),
            Part("Its launches", 120, [[*BENCHMARK, "launches", "--examples", "gpt2-tiny-bf16", "--density", "0.3", "--repeats", "1"]]),
            Part("Products in bf16", 120, [[*BENCHMARK, "kernels", *sizes]]),
        ]
    small = [*BENCHMARK, "kernels", "--rows", "512", "--cols", "512", "--tokens", "512", "--repeats", "1"]
    sanitizer = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    parts = [
        updates,
        Part("Kernels against float64", 120, find_tests(), parallel=True),
        Part("Runs of BERT-Tiny against the processor's", 200, [["scripts/check-device.sh", "--gpu"]]),
        Part("Products", 90, [[*BENCHMARK, "kernels", "--type", type] for type in ("bf16", "f32")]),
        Part("Products in bf16, L2 flushed", 60, [[*BENCHMARK, "kernels", "--flush", "--repeats", "15"]]),
        Part("Steps", 240, [[*BENCHMARK, "steps"]]),
        Part("Steps with blocks of 64", 120, [[*BENCHMARK, "steps", "--examples", "base-bf16", "--block", "64"]]),
        Part("Launches", 60, [[*BENCHMARK, "launches", "--examples", "base-bf16,gpt2-bf16", "--csv", f"{options.report}.csv"]]),
    ]
    if options.record or os.access(sanitizer, os.X_OK):
        for tool in ("memcheck", "racecheck"):
            parts.append(Part(f"compute-sanitizer, {tool}", 120, [[sanitizer, "--tool", tool, "--error-exitcode", "9", *small]]))
    return parts


def run(command, seconds, environment):
    """The exit status and what was printed; 124 where the time was over."""
    with tempfile.TemporaryFile("w+") as file:
        with subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                              env=environment, start_new_session=True) as process:
            try:
                status = process.wait(seconds)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, 9)
                status = 124
        file.seek(0)
        return status, file.read()


def run_part(part, options, report):
    """The number of commands that failed."""
    start, failed = time.perf_counter(), 0
    print(part.title, end="", file=sys.stderr, flush=True)
    report.write(f"\n## {part.title}\n")
    environment = os.environ | {"PTX_RUN_DEVICE": "0" if options.rehearse else "1"}
    with concurrent.futures.ThreadPoolExecutor(options.jobs if part.parallel else 1) as pool:
        done = list(pool.map(lambda command: run(command, part.seconds, environment), part.commands))
    for command, (status, output) in zip(part.commands, done):
        failed += status != 0
        if status == 0 and len(part.commands) > 4:
            continue
        report.write(f"\n    {shlex.join(command)}\n\n")
        if status:
            report.write(f"**Failed**, exit status {status}{f', after {part.seconds} s' if status == 124 else ''}:\n\n")
            report.write("".join(f"    {line}\n" for line in output.splitlines()[-40:]))
        else:
            lines = [line.removeprefix("# ") for line in output.splitlines() if not line.startswith(("ok ", "PASS"))]
            report.write("\n".join(lines[-80:]) + "\n")
    seconds = time.perf_counter() - start
    report.write(f"\n{len(part.commands) - failed} of {len(part.commands)} commands succeeded, in {seconds:.0f} s.\n")
    report.flush()
    print(f": {f'{failed} failed' if failed else 'ok'}, {seconds:.0f} s", file=sys.stderr, flush=True)
    return failed


def record(options):
    """Runs what the parts compile."""
    commands = []
    for part in find_parts(options):
        for command in part.commands if part.compiles else []:
            if "benchmarks/gpu.py" in command:
                # Whole steps are what a GPU would compile for long.
                start = command.index("benchmarks/gpu.py")
                command = ["/usr/bin/env", "RECORD_CUBINS=1", sys.executable, *command[start:], "--compile-only"]
            commands.append([argument for argument in command if argument != "--gpu"])
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for place, (command, (status, output)) in enumerate(zip(commands, pool.map(
                lambda command: run(command, 1800, dict(os.environ)), commands))):
            print(f"{place + 1} of {len(commands)}: {shlex.join(command)[-100:]}", file=sys.stderr, flush=True)
            if status:
                failed += 1
                print(output[-2000:], file=sys.stderr)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--parts", default="", type=re.compile)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--head", default="")
    parser.add_argument("report", nargs="?", default="gpu-day.md")
    options = parser.parse_args()
    if options.record:
        return record(options)
    path = pathlib.Path(options.report).resolve()
    options.report = str(path.with_suffix(""))
    path.parent.mkdir(parents=True, exist_ok=True)
    failed = []
    with path.open("w") as report:
        report.write(options.head + "\n")
        for part in find_parts(options):
            if options.parts.search(part.title) and run_part(part, options, report):
                failed.append(part.title)
    print(f"report: {path}")
    if failed:
        print(f"error: expected every part to succeed, but {len(failed)} failed: {', '.join(failed)}", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
