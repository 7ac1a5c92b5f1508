# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Compares what a grid's predictions name, seed by seed.

"""A prediction of a grid says which runs end with the lower loss:

    predictions:
      - say: a pattern that changes beats one that stays
        better: {method: dynamic}
        than: {method: static}
        where: {density: 0.1}     # only runs of these settings; may be left out
        claim: beats              # or: no worse

Runs are paired that agree in the seed and in every setting that `better` and
`than` do not name, so that both saw the same batches. Each combination of the
settings that they agree in, but for the seed, is a row.
"""

import itertools
import math
import statistics

from sweep.grid import AXES, expect

CLAIMS = ["beats", "no worse"]
KEYS = ["say", "better", "than", "where", "claim"]
# A difference counts if it is more than this many standard errors.
ERRORS = 2


class Prediction:
    def __init__(self, entry, varied):
        """`varied` names what runs of the grid differ in beside the axes."""
        labels = [*AXES, *varied]
        expect(isinstance(entry, dict) and set(entry) <= set(KEYS)
               and {"say", "better", "than"} <= set(entry),
               "a prediction to have say, better, than, and perhaps where and claim", repr(entry))
        self.say, self.claim = entry["say"], entry.get("claim", CLAIMS[0])
        expect(self.claim in CLAIMS, f"a claim to be one of {', '.join(CLAIMS)}",
               f"'{self.claim}'")
        self.better, self.than = entry["better"], entry["than"]
        self.where = entry.get("where", {})
        for part in (self.better, self.than, self.where):
            expect(isinstance(part, dict), "what a prediction compares to be settings", repr(part))
            for key in part:
                expect(key in labels, f"a prediction to be about {', '.join(labels)}", f"'{key}'")

    def pairs(self, rows):
        """Returns the loss of `than` less that of `better` for each seed, by
        what both agree in; `rows` are (labels, seed, loss)."""
        named = {*self.better, *self.than}

        def select(part):
            chosen = {}
            for labels, seed, loss in rows:
                if all(labels[key] in as_list(value)
                       for key, value in {**self.where, **part}.items()):
                    # A list in `than` makes a row for each of its values.
                    agreed = tuple((key, value) for key, value in labels.items()
                                   if key not in named)
                    other = tuple((key, labels[key]) for key in part
                                  if isinstance(part[key], list))
                    chosen.setdefault(agreed, {}).setdefault(other, {})[seed] = loss
            return chosen

        better, than = select(self.better), select(self.than)
        for agreed in than:
            for other, losses in than[agreed].items():
                for mine, best in better.get(agreed, {}).items():
                    differences = [losses[seed] - best[seed] for seed in losses if seed in best]
                    if differences:
                        yield agreed, mine, other, differences

    def verdict(self, differences):
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


def as_list(value):
    return value if isinstance(value, list) else [value]


def words(pairs):
    """Returns settings in a few words: [("block", "1")] is "block 1"."""
    return ", ".join(f"{key} {value}" for key, value in pairs if value)


def read(grid):
    return [Prediction(entry, grid.varied) for entry in grid.predictions]


def rows(grid, groups):
    """Returns the rows of the table of a grid's predictions."""
    losses = [(group.labels, seed, measures["held_out"])
              for group in groups for seed, measures in group.runs]
    for prediction in read(grid):
        for agreed, mine, other, differences in prediction.pairs(losses):
            # What is the same in all rows need not be said.
            place = [pair for pair in agreed
                     if len({labels[pair[0]] for labels, _, _ in losses}) > 1]
            mean, error, verdict = prediction.verdict(differences)
            wins = sum(difference > 0 for difference in differences)
            yield [prediction.say, words(itertools.chain(mine, other, place)),
                   f"{mean:+.4f}" + ("" if math.isnan(error) else f" ± {error:.4f}"),
                   f"{wins} of {len(differences)}", verdict]


HEADINGS = ["prediction", "where", "loss gained (nats)", "seeds that agree", "holds"]
