# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs every command of README.md and of the pages in docs/.

A command is an indented line outside of a fence, with what a backslash or an
open bracket continues. COMMANDS says for each how it runs: as it stands, in a
smaller form, or in which other test; one that the table lacks is an error, and
so is one that no page has any more. The commands of a page run in their order,
in one folder that has the repository's: a temporary one, or one in DIR, where it
stays.

    commands.py [--keep DIR] <source root> <build root> [<extra of python/pyproject.toml>]...
"""

import argparse
import contextlib
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile


@dataclasses.dataclass(frozen=True)
class Run:
    """Runs the command with `replace` applied in turn; needs extras of Python."""

    replace: tuple = ()
    needs: frozenset = frozenset()

    def __init__(self, *replace, needs=()):
        object.__setattr__(self, "replace", replace)
        object.__setattr__(self, "needs", frozenset(needs))


@dataclasses.dataclass(frozen=True)
class Tested:
    """Another test runs the command, smaller."""

    test: str


@dataclasses.dataclass(frozen=True)
class Skip:
    """The command cannot run in a test."""

    reason: str


TEXT = "no command"
TINY = ("bert_base", "bert_tiny")
REFUSED = Run(("^", "! "))
LIST = Run(("^build/benchmarks/venv/bin/python |^", "python3 "), ("$", " --list"))

# By page: how it begins, and the start of each command with how it runs.
PREPARE = {
    "README.md": r"""
        python3 - <<'PYTHON'
import re
open("step.mlir", "w").write(re.search(r"```mlir\n(.*?)```", open("README.md").read(), re.S)[1])
PYTHON
        sparse-compile step.mlir --mark="match=w block=16x16 density=0.1" -o first.so
        gzip --decompress --stdout examples/bert_tiny.mlir.gz > tiny.mlir
        mkdir -p "$HOME/my"; python3 test/Tools/Inputs/write-text.py "$HOME/my/texts" 40
        """,
    "docs/tools.md": r"""
        python3 - <<'PYTHON'
import re
open("step.mlir", "w").write(re.search(r"```mlir\n(.*?)```", open("README.md").read(), re.S)[1])
PYTHON
        python3 - <<'PYTHON'
import re
exec(re.search(r"```python\n(.*?)```", open("docs/tools.md").read(), re.S)[1])
PYTHON
        """,
    "docs/debugging.md": r"""
        python3 - <<'PYTHON'
import re
page = open("docs/debugging.md").read()
open("peaks.mlir", "w").write(re.search(r"```mlir\n(.*?)```", page, re.S)[1])
exec(re.search(r"```python\n(.*?)```", page, re.S)[1])
PYTHON
        sed 's/{bsr.name = "x"}//' peaks.mlir > unnamed.mlir
        gzip --decompress --stdout examples/bert_tiny.mlir.gz > tiny.mlir
        python3 test/Tools/Inputs/write-text.py texts 40
        sparse-train tokenize --vocabulary 400 --output text.tokens texts
        """,
    "docs/pass-by-pass.md": r"""
        python3 - <<'PYTHON'
import re
open("step.mlir", "w").write(re.search(r"```mlir\n(.*?)```", open("README.md").read(), re.S)[1])
PYTHON
        """,
    "docs/benchmarks.md": r"""
        gzip --decompress --stdout examples/bert_tiny.mlir.gz > step.mlir
        python3 test/Tools/Inputs/write-text.py texts 40
        sparse-train tokenize --vocabulary 400 --output text.tokens texts
        """,
    "docs/partition.md": r"""
        gzip --decompress --stdout examples/bert_tiny.mlir.gz > step.mlir
        """,
    "docs/checkpoints.md": r"""
        gzip --decompress --stdout examples/bert_tiny.mlir.gz > tiny.mlir
        sparse-compile tiny.mlir --mark='match=layers.*_w$ block=16x16 density=0.25' -o STEP.so
        python3 test/Tools/Inputs/write-text.py texts 40
        sparse-train tokenize --vocabulary 400 --output text.tokens texts
        sparse-train --set step=STEP.so --set tokens=text.tokens --set run=run --set steps=2 --set held_out.batches=1
        cp run/config.yaml run.yaml
        cp run/checkpoint-000000002.safetensors CHECKPOINT
        """,
    "docs/runs.md": r"""
        gzip --decompress --stdout examples/bert_tiny.mlir.gz > tiny.mlir
        sparse-compile tiny.mlir --mark='match=layers.*_w$ block=16x16 density=0.25' -o step.so
        python3 test/Tools/Inputs/write-text.py texts 40
        sparse-train tokenize --vocabulary 400 --output text.tokens texts
        sparse-train --set step=step.so --set tokens=text.tokens --set run=runs/first --set steps=2 --set held_out.batches=1
        """,
}
COMMANDS = {
    "README.md": {
        "sparse-opt --bsr-mark=": Run(),
        "scripts/train-bert.sh": Tested("Tools/train-bert.test"),
        "scripts/check.sh": Skip("it runs this test"),
        "pip install './python[jax]'": Skip("an index; check-python.sh installs the extras"),
        "python3 -c 'import sparse_opt.jax, mine": Run(
            ("^", "PYTHONPATH=$PYTHONPATH:test/Docs/Inputs "), needs={"jax"}),
        'sparse-compile step.mlir --mark="match=_w$': Run(("step.mlir", "tiny.mlir")),
        "sparse-train tokenize": Run(("$", " --vocabulary 400")),
        "sparse-train --set step=step.so --set tokens=text.tokens --set run=runs/first": Run(
            ("$", " --set steps=3 --set held_out.batches=1")),
        "sparse-sweep": Tested("Tools/sweep.test"),
    },
    "docs/attention.md": {
        "benchmarks/attention.py": Tested("Benchmarks/attention.test"),
        "benchmarks/attention_steps.py": Tested("Benchmarks/attention.test"),
        "benchmarks/steps.py": Tested("Benchmarks/steps.test"),
        'sparse-compile step.mlir --mark="attention=': Tested("Integration/find-attention.test"),
        'sparse-compile step.mlir --mark="match=': Tested("Integration/find-attention.test"),
        "python3 examples/generate.py": Run(("mini", "tiny"), needs={"jax"}),
    },
    "docs/benchmarks.md": {
        "benchmarks/install-peers.sh": Skip("an index, and half an hour"),
        "build/benchmarks/venv/bin/python benchmarks/kernels.py": LIST,
        "benchmarks/kernels.py": LIST,
        "build/benchmarks/venv/bin/python benchmarks/steps.py": Run(
            ("^build/benchmarks/venv/bin/python ", "python3 "), ("--model base", "--model tiny"),
            ("$", " --impl ours --rounds 1 --patience 0")),
        "benchmarks/steps.py": Tested("Benchmarks/steps.test"),
        "benchmarks/compile_time.py": Tested("Benchmarks/compile-time.test"),
        "time sparse-compile bert_4.9b.mlir": Tested("Tools/sparse-compile.test"),
        "benchmarks/busy-machine": Tested("Benchmarks/busy-machine.test"),
        "sparse-compile step.mlir": Run(),
        "sparse-train --set step=step.so ...": Run(
            (r"\.\.\.", "--set tokens=text.tokens --set run=timed --set steps=2 --set held_out.batches=1")),
        "gzip": Run(TINY),
        "sparse-train tokenize": Run(("mlir/IR", "mlir/Dialect/Affine"), ("--vocabulary 4096", "--vocabulary 1024")),
        "sparse-train --config": Run(("$", " --set steps=2")),
        "sparse-compile base.mlir": Run(),
    },
    "docs/checkpoints.md": {
        "sparse-train --resume runs/first": Run(("runs/first", "run"), ("$", " --set step=STEP.so")),
        "sparse-train --config run.yaml --resume": Run(),
        "sparse-checkpoint from-dense": Run(("TENSORS OUTPUT", "OUTPUT OUTPUT-2")),
        "sparse-checkpoint reblock": Run(("OUTPUT", "OUTPUT-3")),
        "sparse-checkpoint": Run(),
        "scripts/check-resume.py": Tested("Tools/kill.test"),
        "scripts/fuzz-files": Skip("a build with sanitizers; Tools/fuzz.test reads its corpora"),
    },
    "docs/debugging.md": {
        "sparse-compile peaks.mlir --mark='match=w block=16x16 density=0.25' --require-sparse": REFUSED,
        "sparse-compile tiny.mlir --mark='match=layers.*_w$ block=16x16 density=0.1' --memory=4MiB": REFUSED,
        "sparse-opt --bsr-to-cpu --mlir-pass-pipeline-crash-reproducer": Run(
            ("peaks.mlir", "unnamed.mlir"), ("^", "! ")),  # what fails leaves a reproducer
        "sparse-opt --run-reproducer": REFUSED,
        "sparse-compile": Run(),
        "sparse-opt": Run(),
        "sparse-reduce": Run(),
        "for file in": Run(),
        "sparse-train --print-config": Run(),
        "sparse-train": Run(("$", " --set steps=3 --set held_out.batches=1")),
        "sparse-checkpoint": Run(),
        "/usr/bin/python3 scripts/fuzz-ir": Tested("Fuzz/fuzz-ir.test"),
        "ptx-run": Run(),
    },
    "docs/experiments.md": {
        "benchmarks/kernels.py": LIST,
        "benchmarks/steps.py": Tested("Benchmarks/steps.test"),
    },
    "docs/gpu.md": {
        "sparse-opt step.mlir": Tested("Pipelines/to-gpu.mlir"),
        "sparse-compile step.mlir": Tested("Tools/sparse-compile-gpu.test"),
        "sparse-train --config": Tested("Integration/device-train.test"),
        "scripts/check-device.sh": Tested("Integration/device-train.test"),
        "scripts/gpu-day.sh": Tested("Benchmarks/gpu.test"),
        "benchmarks/gpu_bounds.py": Tested("Benchmarks/gpu-bounds.test"),
        "benchmarks/gpu_memory.py": Run(needs={"jax", "torch"}),
        "scripts/check-ptxas.sh": Tested("Codegen/GPU/ptxas.test"),
        "python3 test/Codegen/GPU/predict_kernels.py": Tested("Codegen/GPU/predict-kernels.test"),
        "gzip": Run(TINY),
        "sparse-opt base.mlir": Run(),
        "grep": Run(),
    },
    "docs/graphs.md": {
        "PYTHONPATH=python:test/Python/Inputs": Tested("Python/torch/graphs.py"),
        "scripts/programs": Skip("repositories of others"),
    },
    "docs/kernels.md": {
        "benchmarks/kernels.py": LIST,
        "benchmarks/machine_code.py": Tested("Benchmarks/machine-code.test"),
        "benchmarks/accuracy.py": Run(("accuracy.py", "accuracy.py --model tiny --steps 1")),
        "gzip": Run(TINY),
        "sparse-compile step.mlir --mark=": Tested("Tools/tune.test"),
        "sparse-compile": Run(),
    },
    "docs/ptx-interpreter.md": {
        "scripts/check-others": Tested("PTX/Others/corpus.test"),
        "ptx-run test/PTX/Inputs/norm.ptx": Run(),
        "build/dev/bin/ptx-run --help": Run(),
        "PTX_RUN_DEVICE=1 scripts/check.sh": Skip("an NVIDIA GPU"),
        "/usr/bin/python3 test/PTX/kernels.py": Run(),
        "scripts/mutate-ptx test/": Run(("$", " --sample 20")),
        "/usr/bin/python3 test/Codegen/GPU/kernel_cases.py": Tested("Codegen/GPU/mutants.test"),
        "scripts/mutate-ptx sddmm.ptx": Tested("Codegen/GPU/mutants.test"),
    },
    "docs/layers.md": {
        "benchmarks/layers.py": Tested("Benchmarks/layers.test"),
        "PYTHONPATH=python benchmarks/call-overhead": Tested("Python/torch/layers.py"),
    },
    "docs/python.md": {
        "pip install": Skip("an index; check-python.sh installs the extras"),
        "step = ": TEXT,
        "expected a step": TEXT,
        "return loss.item()": TEXT,
        "python3 examples/finetune_bert.py": Tested("Python/huggingface/finetune.py"),
        "PYTHONPATH=python:examples benchmarks/call-overhead": Run(
            ("--framework torch", "--framework numpy --model tiny --calls 3")),
        "PYTHONPATH=python:examples benchmarks/check_cost.py": Tested("Benchmarks/check-cost.test"),
        "PYTHONPATH=python:examples benchmarks/export": Tested("Benchmarks/export.test"),
        "scripts/check-python.sh": Skip("it runs this test"),
        "scripts/check-versions.sh": Skip("installs 2 GB"),
        "venv/bin/pip": Skip("an index"),
        "PATH=$PWD/venv": Skip("it runs this test"),
    },
    "docs/runs.md": {
        "sparse-report": Run(),
        "PYTHONPATH=python python3 -m sparse_opt.experiments.report": Run(("python3", "/usr/bin/python3")),
        "pip install": Skip("an index"),
        "sparse-wandb": Tested("Tools/import-wandb.test"),
        "wandb sync": Skip("a network"),
    },
    "docs/science.md": {
        "scripts/science.sh": Tested("Tools/science.test"),
        "scripts/decide.sh": Tested("Python/torch/fashion_run.py"),
    },
    "docs/sparsity.md": {
        "PYTHONPATH=python:examples benchmarks/methods": Tested("Benchmarks/methods.test"),
        "update-cost 16": Run(("16 700", "64 700")),
        "update-cost 1 ": Skip("gigabytes"),
    },
    "docs/testing.md": {
        "scripts/fuzz-steps --programs": Tested("Integration/fuzz.test"),
        "scripts/fuzz-steps --replay": Skip("a failure"),
        "PATH=$PWD/build/python/bin:$PATH scripts/fuzz-programs": Tested("Python/fuzz.py"),
        "scripts/fuzz-programs --replay": Tested("Python/fuzz.py"),
        "scripts/nightly.sh": Tested("Tools/nightly.test"),
        "scripts/fuzz-ir": Tested("Fuzz/fuzz-ir.test"),
        "BSR_COMPILE=-O1 python3 test/Integration/attention.py": Tested("Integration/attention.test"),
        "scripts/same-code": Tested("Tools/same-code.test"),
        "build/dev/bin/bsr-unittests": Tested("Unit/unittests.test"),
        "build/dev/bin/runtime-check": Tested("Runtime/update.test"),
        "BSR_MPI_MESSAGE_BYTES=1000 mpirun": Tested("Parallel/communicator.test"),
        "mpirun -n 2 python3 test/Parallel/communicator.py": Skip("14 GB"),
        "scripts/check-sanitizers.sh": Skip("builds of its own"),
        "cmake": Skip("a build of its own"),
    },
    "docs/install.md": {
        "scripts/wheel.sh": Tested("Install/wheel.test"),
        "pip install": Skip("an index, and a wheel that takes minutes; scripts/wheel.sh installs it"),
        "scripts/package.sh": Tested("Install/deb.test"),
        "podman": Skip("an engine for containers; Install/container.test reads the steps, scripts/check-container takes them"),
        "cmake --preset release": Skip("a build of its own"),
        "cmake --install": Tested("Install/install.test"),
        "scripts/setup.sh --aarch64": Tested("Tools/setup.test"),
        "cmake --preset aarch64": Skip("a build of its own"),
        "scripts/check-aarch64.sh": Tested("Integration/aarch64-train.test"),
        "sparse-compile step.mlir --target-triple": Tested("Tools/sparse-compile-aarch64.test"),
    },
    "docs/tools.md": {
        "sparse-opt --bsr-mark=": Run(),
        "sparse-run sparse.mlir": Run(),
        "sparse-compile step.mlir --mark=\"match=w block=16x16 density=0.1\" --tune": Tested("Tools/tune.test"),
        "sparse-compile step.mlir --mark=": Tested("Tools/check.test"),
        "mlir-opt step.mlir": Run(),
        "sparse-reduce": Tested("Tools/reduce.test"),
    },
    "docs/parallel.md": {
        "sparse-train tokenize": Run(),
        "gzip --decompress": Run(),
        "mpirun -n 2 sparse-train": Tested("Parallel/ranks.test"),
        "mpirun -n 2 python3 train.py": Tested("Parallel/python_step.test"),
        "sudo --preserve-env=PATH benchmarks/network.py": Skip("needs network namespaces, and a minute"),
    },
    "docs/partition.md": {
        "sparse-partition step.mlir --mark='match=layers.*_w$ block=16x16 density=0.1'": Run(),
        "python3 examples/generate.py": Skip("takes half a minute"),
        "gzip --decompress bert_4.9b.mlir.gz": Skip("as above"),
        "sparse-partition bert_4.9b.mlir --plan-for": Skip("as above; Tools/partition.test plans smaller ones"),
        "sparse-partition bert_4.9b.mlir --mark": Skip("as above; Tools/partition.test plans smaller ones"),
        "sparse-partition step.mlir --mark='match=layers.*_w$ block=16x16 density=0.25'": Run(),
        "benchmarks/popsparse.py": Tested("Tools/partition.test"),
        "mpirun -n 2 sparse-train": Tested("Parallel/pipeline.test"),
        "mpirun -n 4 sparse-train": Tested("Parallel/pipeline.test"),
        "/usr/bin/python3 test/Parallel/micro_batches.py": Tested("Parallel/micro-batches.test"),
    },
    "docs/pass-by-pass.md": {
        "sparse-opt --bsr-mark=": Run(),
    },
    "docs/tutorial-pass.md": {
        "cmake -G Ninja": Tested("Install/install.test"),
        "cmake --build build": Tested("Install/install.test"),
        "build/count-products step.mlir": Tested("Install/install.test"),
    },
    "docs/training.md": {
        "python3 examples/generate.py": Run(needs={"jax"}),
        "scripts/train-llama.sh": Tested("Tools/train-llama.test"),
        "PYTHONPATH=python:examples python3 examples/fashion_mnist.py": Tested("Python/torch/fashion_mnist.py"),
        "PYTHONPATH=python:examples python3 examples/resnet.py": Tested("Python/torch/resnet.py"),
    },
}


def commands(page):
    """Yields the commands of the page's text, without their comments."""
    fenced, command = False, ""
    for line in page.splitlines():
        fenced ^= line.startswith("```")
        if fenced or not line.startswith("    ") or not line.strip():
            continue
        command += line.strip()
        if command.endswith("\\"):
            command = command[:-1]
            continue
        yield command.removeprefix("$ ")
        command = ""


def without_comment(command):
    """`sparse-x --y    # what it does` and `sparse-x Y    what it does`"""
    return re.split(r"\s{3,}", command)[0]


def find(table, command):
    return next((start for start in table if command.startswith(start)), None)


def prepare(root, build, work, page):
    """Returns the folder that the page's commands run in, in `work`."""
    folder = work / re.sub(r"\W", "-", page)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "build").mkdir(parents=True)
    for entry in root.iterdir():
        if entry.name not in ("build", ".git"):
            (folder / entry.name).symlink_to(entry)
    (folder / "build" / "dev").symlink_to(build)
    (folder / "home").mkdir()
    return folder


def run(folder, script):
    path = f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(folder / "home"), "PATH": path}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True)
    return f"{done.stdout[-2000:]}{done.stderr[-2000:]}" if done.returncode else None


def check(root, build, work, extras, page):
    """Yields what is wrong with a page."""
    table = COMMANDS.get(page, {})
    text = list(commands((root / page).read_text()))
    # A prefix that another one begins with comes behind it in the table.
    used = [find(table, command) for command in text]
    for start in table.keys() - set(used):
        yield f"expected a command that begins with '{start}', but got none"
    folder, prepared = None, False
    for start, command in zip(used, text):
        if start is None:
            yield f"expected a line of test/Docs/commands.py, but got none for: {command}"
            continue
        how = table[start]
        if isinstance(how, Tested) and not (root / "test" / how.test).exists():
            yield f"expected test {how.test}, but got none, for: {command}"
        # What needs an extra runs in the test that has it, and nothing else does.
        if not isinstance(how, Run) or bool(how.needs) != bool(extras) or not how.needs <= extras:
            continue
        if not prepared:
            folder, prepared = prepare(root, build, work, page), True
            if message := run(folder, PREPARE.get(page, "")):
                yield f"expected the preparation to run, but got:\n{message}"
                return
        script = without_comment(command)
        for pattern, replacement in how.replace:
            script = re.sub(pattern, lambda _, text=replacement: text, script, count=1)
        if message := run(folder, script):
            yield f"expected this to run: {script}\nbut got:\n{message}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", metavar="DIR", type=pathlib.Path)
    parser.add_argument("root", metavar="source root", type=pathlib.Path)
    parser.add_argument("build", metavar="build root", type=pathlib.Path)
    parser.add_argument("extras", metavar="extra", nargs="*")
    options = parser.parse_args()
    root, build, extras = options.root.resolve(), options.build.resolve(), frozenset(options.extras)
    pages = ["README.md", *sorted(f"docs/{path.name}" for path in (root / "docs").glob("*.md"))]
    with contextlib.nullcontext(options.keep) if options.keep else tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work).resolve()
        errors = [f"{page}: {error}" for page in pages for error in check(root, build, work, extras, page)]
    errors += [f"expected page {page}, but got none" for page in COMMANDS.keys() - set(pages)]
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
