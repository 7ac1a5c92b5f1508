# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Reads a grid: every run that it asks for, and the settings of each.

"""A grid is YAML:

    output: runs/sweep              # where everything goes; --output overrides it
    config: bert.yaml               # a configuration of sparse-train for all runs
    set: {steps: 300, tokens: t.tok}         # settings of all runs
    models:
      mini:
        step: bert_mini.mlir.gz     # a step, its text, or its text compressed
        rate.peak: 1e-3             # and settings of the model's runs
    methods:                        # settings with a name, beside dense, static
      rigl: {sparsity.method: rigl} # and dynamic
    runs:                           # each a product: one run for each choice
      - {model: mini, method: dense, seed: [0, 1, 2]}
      - {model: mini, method: [static, dynamic], block: [1, 16], seed: [0, 1, 2]}

A setting is a key of sparse-train, or one of

    block    4 or 4x8: the blocks of every marked weight (16)
    density  the share of the blocks that a step is compiled for (0.1)
    match    which weights are marked (layers\\..*_w$)

What stands further right wins: config, set, model, method, run. `dense` stores
every block, `static` never updates a pattern, `dynamic` is what the settings
say. Paths are relative to where sparse-sweep is called.
`plot: {density: 0.1}` keeps other runs out of the plot; of `predictions`
predictions.py has the form.

    program: python3 train.py       # trains the runs in the place of sparse-train
    measures:                       # numbers of the summaries beside the held-out loss
      accuracy: {heading: test accuracy, unit: "%", better: higher}
    whole_seeds: true               # the runs of a seed go together

A program is called as sparse-train is. `--help` lists its keys, a line `  key: what`
for each; `--config FILE --overwrite` trains the run of FILE, JSON in sections, of
which scalars are text: `run` is its folder, where `sparse_opt.Recorder` writes what
a run has. It is told `block`, `density` and `match` by these names, and `compile.cache`,
a folder for what runs share. Models need no step. With `whole_seeds` all runs of the
first seed come first, then those of the next, and tables and claims are of the seeds
of which every run is done.
"""

from __future__ import annotations

import difflib
import gzip
import hashlib
import itertools
import json
import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Labels = dict[str, str]
Settings = dict[str, Any]

SECTIONS = ["output", "config", "set", "models", "methods", "runs", "predictions", "plot",
            "program", "measures", "whole_seeds"]
OWN: Settings = {"block": "16", "density": "0.1", "match": r"layers\..*_w$"}
STATIC: Settings = {"sparsity.method": "static"}
METHODS: dict[str, Settings] = {"dense": STATIC, "static": STATIC, "dynamic": {}}
# What says how much and which blocks of a matrix are stored: all, of a dense one.
STORED = ["sparsity", "sparsity.density", "sparsity.distribution", "sparsity.densities",
          "sparsity.initial_density", "sparsity.init", "sparsity.file"]
# What of a run has a column of its own; other settings do where they differ.
AXES = ["model", "method", "block", "density"]


class GridError(Exception):
    """A sentence about what is wrong with a grid."""


def expect(condition: object, what: str, value: str) -> None:
    if not condition:
        raise GridError(f"expected {what}, but got {value}")


def expect_map(value: Any, what: str) -> dict[str, Any]:
    expect(isinstance(value, dict), f"{what} to map keys to values", repr(value))
    mapping: dict[str, Any] = value
    return mapping


class Loader(yaml.BaseLoader):  # type: ignore[misc]  # has no types
    """Reads every scalar as the text that stands there, and a key once."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        mapping = super().construct_mapping(node, deep)
        if isinstance(node, yaml.MappingNode) and len(mapping) != len(node.value):
            names = [key.value for key, _ in node.value]
            twice = next(name for name in names if names.count(name) > 1)
            raise GridError(f"expected each key once, but got '{twice}' twice "
                            f"in line {node.start_mark.line + 1}")
        return mapping


def read_yaml(path: str, what: str) -> dict[str, Any]:
    """Returns the mapping in a YAML file."""
    try:
        value = yaml.load(Path(path).read_text(), Loader)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise GridError(f"expected {what} '{path}' to be readable, but got: {reason}") from None
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise GridError(f"expected {what} '{path}' to be YAML, but got: {reason}") from None
    return expect_map(value, f"{what} '{path}'")


def number(
    text: Any, what: str, low: float, high: float = math.inf, kind: Callable[[Any], float] = float
) -> float:
    """Returns the number that `text` stands for, low < number <= high."""
    noun = "a whole number" if kind is int else "a number"
    limits = f"above {low:g}" + (f" and at most {high:g}" if high < math.inf else "")
    try:
        value = kind(text)
    except (TypeError, ValueError):
        value = math.nan
    expect(low < value <= high and value < math.inf, f"{what} to be {noun} {limits}", f"'{text}'")
    return value


def block_shape(text: object) -> list[int]:
    """Returns [rows, cols] of a block written as 4 or as 4x8."""
    match = re.fullmatch(r"([1-9]\d*)(?:x([1-9]\d*))?", str(text))
    if not match:
        raise GridError(f"expected 'block' to be a size as 4 or 4x8, but got '{text}'")
    return [int(match[1]), int(match[2] or match[1])]


def flatten(settings: Any, what: str) -> Settings:
    """Returns settings with sections written as dots: {a: {b: 1}} is {a.b: 1}.
    A list of groups of weights, the section sparsity, stays as it is."""
    flat: Settings = {}
    for key, value in expect_map(settings, what).items():
        if isinstance(value, dict):
            flat.update({f"{key}.{inner}": item for inner, item in value.items()})
        else:
            flat[key] = value
    return flat


def merge(*layers: Settings) -> Settings:
    """Returns settings of which later ones win. Groups of weights replace all of
    their section; what comes later is for all groups."""
    merged: Settings = {}
    for layer in layers:
        if "sparsity" in layer:
            merged = {key: value for key, value in merged.items()
                      if not key.startswith("sparsity.")}
        merged.update(layer)
    return merged


def nearest(name: str, names: Iterable[str]) -> str:
    best = max(names, key=lambda other: difflib.SequenceMatcher(None, name, other).ratio())
    return f" (the nearest is '{best}')"


def matches(labels: Labels, settings: Settings) -> bool:
    """Returns whether labels have the values of settings, or one of a list."""
    return all(labels[key] in (value if isinstance(value, list) else [value])
               for key, value in settings.items())


@dataclass(frozen=True)
class Measure:
    """A number that the summary of a run has."""

    heading: str
    unit: str
    is_higher_better: bool

    @classmethod
    def of(cls, name: str, entry: Any) -> Measure:
        entry = expect_map(entry, f"measure '{name}'")
        expect(set(entry) == {"heading", "unit", "better"},
               f"measure '{name}' to have heading, unit and better", repr(entry))
        expect(entry["better"] in ("lower", "higher"),
               f"'better' of measure '{name}' to be lower or higher", f"'{entry['better']}'")
        return cls(entry["heading"], entry["unit"], entry["better"] == "higher")


class Run:
    """One run: its name, and the settings of what trains it."""

    def __init__(self, model: Model, method: str, settings: Settings, program: Sequence[str] = ()) -> None:
        self.model, self.method, self.settings, self.program = model, method, settings, program

    def block(self) -> list[int]:
        return block_shape(self.settings["block"])

    def labels(self) -> Labels:
        """The words for a run, in the order of a table's columns."""
        dense = self.method == "dense"
        block = "x".join(map(str, dict.fromkeys(self.block())))
        return {"model": self.model.name, "method": self.method,
                "block": "" if dense else block,
                "density": self.settings["density"]}

    def options(self) -> Settings:
        """The settings as sparse-train wants them, whose step is the model's, or a program."""
        if self.program:
            return dict(self.settings)
        out = {key: value for key, value in self.settings.items() if key not in OWN}
        rows, cols = self.block()
        mark = (f"--mark=match={self.settings['match']} "
                f"block={rows}x{cols} density={self.settings['density']}")
        out["compile.options"] = [mark, *out.get("compile.options", [])]
        # Groups of weights come first: what comes later is for all of them.
        return dict(sorted(out.items(), key=lambda item: item[0] != "sparsity"))

    def kind(self) -> str:
        """Names what is compiled: runs of one kind share a step and its memory.
        sparse-train compiles one with scores for rigl."""
        if self.program:
            return digest({key: value for key, value in self.options().items() if key != "seed"})
        groups = self.settings.get("sparsity", [])
        methods = [self.settings.get("sparsity.method"), *(
            group.get("method") for group in groups if isinstance(group, dict))]
        return digest([self.model.digest, self.options()["compile.options"], "rigl" in methods])

    def folder(self) -> str:
        """Names the run's folder, by what is easy to read and by everything."""
        words = [*self.labels().values(), f"seed{self.settings['seed']}"]
        words = [re.sub(r"[^\w.]+", "_", word) for word in words if word]
        return "-".join([*words, digest([self.model.digest, self.options()])])


class Model:
    """A step, or what a program makes by its name, and the settings of its runs."""

    def __init__(self, name: str, entry: Any, program: Sequence[str] = ()) -> None:
        what = f"model '{name}'"
        entry = dict(expect_map(entry, what))
        self.name = name
        self.step: Path | None = None
        if program:
            expect("step" not in entry, f"{what} to have no 'step', for the program has its own",
                   f"'{entry.get('step')}'")
            self.settings, self.digest = flatten(entry, what), digest([*program, name])
            return
        expect("step" in entry, f"{what} to have a 'step'", "none")
        self.step = Path(entry.pop("step"))
        self.settings = flatten(entry, what)
        try:
            self.content = self.step.read_bytes()
            if self.step.suffix == ".gz":
                self.content = gzip.decompress(self.content)
        except (OSError, EOFError) as error:
            reason = getattr(error, "strerror", None) or error
            raise GridError(f"expected the step '{self.step}' of {what} to be readable, "
                            f"but got: {reason}") from None
        self.digest = hashlib.sha256(self.content).hexdigest()


def digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


class Grid:
    """The runs of a grid file, in its order, each once."""

    def __init__(self, path: str, keys: Callable[[Sequence[str]], Sequence[str]], overrides: Settings) -> None:
        """`keys` returns those of a program, by default sparse-train; `overrides` are settings
        of all runs."""
        self.path, self.overrides = path, overrides
        grid = read_yaml(path, "grid")
        for section in grid:
            expect(section in SECTIONS,
                   f"a section of a grid{nearest(section, SECTIONS)}", f"'{section}'")
        program = grid.get("program", "")
        expect(isinstance(program, str) and ("program" not in grid or program.strip()),
               "'program' to be a command", repr(program))
        self.program = shlex.split(program)
        self.keys = [*keys(self.program), *OWN, "sparsity"]
        self.output = grid.get("output")
        self.measures = {name: Measure.of(name, entry) for name, entry
                         in expect_map(grid.get("measures", {}), "'measures'").items()}
        self.has_whole_seeds = grid.get("whole_seeds", "false") == "true"
        expect(grid.get("whole_seeds", "false") in ("true", "false"),
               "'whole_seeds' to be true or false", f"'{grid.get('whole_seeds')}'")
        expect(isinstance(grid.get("models"), dict), "the grid to have 'models'", "none")
        expect(isinstance(grid.get("runs"), list) and grid["runs"],
               "the grid to have a list of 'runs'", repr(grid.get("runs", "none")))

        config = read_yaml(grid["config"], "configuration") if "config" in grid else {}
        common = merge(OWN, {"seed": "0"}, flatten(config, "the configuration"),
                       flatten(grid.get("set", {}), "'set'"))
        self.models = {name: Model(name, entry, self.program)
                       for name, entry in grid["models"].items()}
        methods = {name: flatten(entry, f"method '{name}'")
                   for name, entry in {**METHODS, **grid.get("methods", {})}.items()}

        runs: dict[str, Run] = {}
        for entry in grid["runs"]:
            entry = flatten(entry, "each of 'runs'")
            choices = [value if isinstance(value, list) else [value] for value in entry.values()]
            for key, values in zip(entry, choices):
                expect(values, f"'{key}' to have a value", "none")
            for chosen in itertools.product(*choices):
                run = self.make_run(dict(zip(entry, chosen)), common, methods)
                runs[run.folder()] = run
        self.runs = list(runs.values())
        if self.has_whole_seeds:
            seeds = list(dict.fromkeys(run.settings["seed"] for run in self.runs))
            self.runs.sort(key=lambda run: seeds.index(run.settings["seed"]))
        self.varied = self.find_varied()
        self.plot = flatten(grid.get("plot", {}), "'plot'")
        for key in self.plot:
            expect(key in [*AXES, *self.varied],
                   f"'plot' to be about {', '.join([*AXES, *self.varied])}", f"'{key}'")
        self.predictions = grid.get("predictions", [])
        expect(isinstance(self.predictions, list), "'predictions' to be a list",
               repr(self.predictions))

    def whole(self, done: Mapping[Run, Any]) -> list[Run]:
        """Returns the runs that count of those in `done`: with whole seeds, the runs of seeds
        of which every one is done."""
        missing = {run.settings["seed"] for run in self.runs if run not in done}
        return [run for run in self.runs if run in done
                and not (self.has_whole_seeds and run.settings["seed"] in missing)]

    def find_varied(self) -> list[str]:
        """Returns the settings that tell runs apart whose axes and seeds do not."""
        values: dict[tuple[str, ...], Any] = {}
        varied: dict[str, bool] = {}
        for run in self.runs:
            for key, value in run.settings.items():
                if key not in [*AXES, "seed"]:
                    place = (key, run.settings["seed"], *run.labels().values())
                    if values.setdefault(place, value) != value:
                        varied[key] = True
        return list(varied)

    def make_run(self, cell: Settings, common: Settings, methods: dict[str, Settings]) -> Run:
        def take(key: str, known: Mapping[str, Any]) -> str:
            expect(key in cell, f"each of 'runs' to have a '{key}'", repr(cell))
            name: str = cell.pop(key)
            expect(name in known, f"{key} to be one of {', '.join(known)}", f"'{name}'")
            return name

        model = self.models[take("model", self.models)]
        method = take("method", methods)
        settings = merge(common, model.settings, methods[method], cell,
                         self.overrides)
        if method == "dense":  # it has no pattern: runs that differ in one are the same
            settings = {key: value for key, value in settings.items() if key not in STORED}
            settings.update(block=OWN["block"], density="1")
        for key, value in settings.items():
            expect(key in self.keys, f"a setting{nearest(key, self.keys)}", f"'{key}'")
            expect(key not in ("step", "run", "compile.cache"),
                   f"'{key}' to be left to sparse-sweep", f"'{value}'")
        expect(isinstance(settings.get("compile.options", []), list),
               "'compile.options' to be a list", f"'{settings.get('compile.options')}'")
        number(settings["density"], "'density'", 0, 1)
        block_shape(settings["block"])
        expect("steps" in settings, "the runs to have 'steps'", "none")
        number(settings["steps"], "'steps'", 0, kind=int)
        return Run(model, method, settings, self.program)
