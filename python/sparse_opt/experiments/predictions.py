# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compares what a grid's predictions name, seed by seed.

"""A prediction of a grid says which runs end with the lower loss, or do better by another measure:

    predictions:
      - say: a pattern that changes beats one that stays
        better: {method: dynamic}
        than: {method: static}
        where: {density: 0.1}     # only runs of these settings; may be left out
        claim: beats              # or: no worse
        measure: accuracy         # one of the grid's `measures`; by default the held-out loss
        expected: 0.2 to 0.6      # what was written down before the runs; may be left out

Runs are paired that agree in the seed and in every setting that `better` and
`than` do not name, so that both saw the same batches. A list of values, and each
combination of the settings that they agree in but for the seed, makes rows.

A difference is positive if `better` is better. Behind its mean over the seeds stands the
standard error of that mean; two of them are the least that would have counted, the
column "detectable".
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from sparse_opt.experiments.grid import AXES, Grid, Labels, Measure, Settings, expect, matches
from sparse_opt.experiments.results import Group, layout

Pairs = tuple[tuple[str, str], ...]
BySeed = dict[str, float]
Value = tuple[Labels, str, float]  # of a seed

CLAIMS = ["beats", "no worse"]
KEYS = ["say", "better", "than", "where", "claim", "measure", "expected"]
LOSS = Measure("held-out loss", "nats", is_higher_better=False)
# A difference counts if it is more than this many standard errors.
ERRORS = 2


class Prediction:
    def __init__(self, entry: dict[str, Any], grid: Grid) -> None:
        labels = [*AXES, *grid.varied]
        expect(isinstance(entry, dict) and set(entry) <= set(KEYS)
               and {"say", "better", "than"} <= set(entry),
               "a prediction to have say, better, than, and perhaps where, claim, measure and"
               " expected", repr(entry))
        self.say, self.claim = entry["say"], entry.get("claim", CLAIMS[0])
        expect(self.claim in CLAIMS, f"a claim to be one of {', '.join(CLAIMS)}",
               f"'{self.claim}'")
        self.key = entry.get("measure", "held_out")
        measures = {"held_out": LOSS, **grid.measures}
        expect(self.key in measures, f"a measure to be one of {', '.join(measures)}", f"'{self.key}'")
        self.measure: Measure = measures[self.key]
        self.expected = str(entry.get("expected", ""))
        self.better, self.than = entry["better"], entry["than"]
        self.where = entry.get("where", {})
        for part in (self.better, self.than, self.where):
            expect(isinstance(part, dict), "what a prediction compares to be settings", repr(part))
            for key in part:
                expect(key in labels, f"a prediction to be about {', '.join(labels)}", f"'{key}'")

    def pairs(self, rows: Sequence[Value]) -> Iterator[tuple[Pairs, Pairs, Pairs, list[float]]]:
        """Returns what `better` and `than` agree in, what each is, and by how much `better` is
        better for each seed; `rows` are (labels, seed, value)."""
        sign = -1 if self.measure.is_higher_better else 1
        named = {*self.better, *self.than}

        def select(part: Settings) -> dict[Pairs, dict[Pairs, BySeed]]:
            """Returns values by seed, by what is named, by what is not."""
            chosen: dict[Pairs, dict[Pairs, BySeed]] = {}
            for labels, seed, value in rows:
                if matches(labels, {**self.where, **part}):
                    agreed = tuple(pair for pair in labels.items() if pair[0] not in named)
                    mine = tuple((key, labels[key]) for key in part)
                    chosen.setdefault(agreed, {}).setdefault(mine, {})[seed] = value
            return chosen

        better, than = select(self.better), select(self.than)
        for agreed in than:
            for (mine, best), (other, worst) in itertools.product(
                    better.get(agreed, {}).items(), than[agreed].items()):
                differences = [sign * (worst[seed] - best[seed]) for seed in worst if seed in best]
                if differences:
                    yield agreed, mine, other, differences

    def verdict(self, differences: Sequence[float]) -> tuple[float, float, str]:
        """Returns (mean, standard error, verdict)."""
        mean = statistics.fmean(differences)
        if len(differences) < 2:
            return mean, math.nan, "one seed"
        error = statistics.stdev(differences) / math.sqrt(len(differences))
        if self.claim == "no worse":
            return mean, error, "no" if mean < -ERRORS * error else "yes"
        if abs(mean) <= ERRORS * error:
            return mean, error, "undecided"
        return mean, error, "yes" if mean > 0 else "no"


def words(pairs: Sequence[tuple[str, str]]) -> str:
    """Returns settings in a few words: [("block", "1")] is "block 1"."""
    return ", ".join(f"{key} {value}" for key, value in pairs if value)


def read(grid: Grid) -> list[Prediction]:
    return [Prediction(entry, grid) for entry in grid.predictions]


def rows(grid: Grid, groups: Sequence[Group]) -> Iterator[list[str]]:
    """Returns the rows of the table of a grid's predictions. A seed whose run has no such
    measure, or none that is a number, is left out of a claim."""
    found = []
    for prediction in read(grid):
        values = [(group.labels, seed, measures[prediction.key]) for group in groups
                  for seed, measures in group.runs if math.isfinite(measures[prediction.key])]
        found += [(prediction, *pair) for pair in prediction.pairs(values)]
    for prediction, agreed, better, than, differences in found:
        # Of what two runs agree in, that needs to be said which differs among the
        # rows of a claim.
        siblings = [dict(other[1]) for other in found if other[0].say == prediction.say]
        place = [(key, value) for key, value in agreed
                 if len({sibling.get(key, value) for sibling in siblings}) > 1]
        mean, error, verdict = prediction.verdict(differences)
        wins = sum(difference > 0 for difference in differences)
        is_one = math.isnan(error)
        measure = prediction.measure
        yield [prediction.say, words(better), words(than), words(place),
               f"{measure.heading} ({measure.unit})", prediction.expected,
               f"{mean:+.4f}" + ("" if is_one else f" ± {error:.4f}"),
               "" if is_one else f"{ERRORS * error:.4f}",
               f"{wins} of {len(differences)}", verdict]


HEADINGS = ["claim", "better", "than", "both", "by", "expected", "difference", "detectable",
            "seeds that agree", "holds"]
# Of these, so many are words.
WORDS = 5


def table(grid: Grid, groups: Sequence[Group]) -> str:
    """Returns the table of a grid's predictions, if there is a row; without what was expected
    where nothing was."""
    lines = [HEADINGS, *rows(grid, groups)]
    if not any(line[WORDS] for line in lines[1:]):
        lines = [line[:WORDS] + line[WORDS + 1:] for line in lines]
    return layout(lines, WORDS) if len(lines) > 1 else ""
