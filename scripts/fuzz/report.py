# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a run of the fuzzer covered and found."""

import collections
import re
import time


class Report:
    def __init__(self, passing=("ok",)):
        self.passing, self.refusals, self.start = passing, collections.Counter(), time.monotonic()
        self.features, self.kinds, self.failures = collections.Counter(), collections.Counter(), []
        self.programs = self.runs = self.left_dense = self.unstable = self.unsure = self.unchecked = self.scores = 0
        self.ratios = []

    def add(self, result):
        self.runs += 1
        notes = result.get("notes", {})
        if result["variant"] == 0:
            self.programs += 1
            self.features.update(result.get("features", {}).keys())
        self.kinds[result["kind"]] += 1
        self.left_dense += bool(notes.get("left_dense"))
        self.unstable += bool(notes.get("unstable"))
        self.unsure += bool(notes.get("unsure"))
        self.unchecked += bool(notes.get("unchecked"))
        self.scores += notes.get("scores", 0)
        if "worst" in notes and result["kind"] == "ok":
            self.ratios.append(notes["worst"])
        if result["kind"] not in self.passing:
            self.failures.append(result)
        if result["kind"] == "refused":
            # Without what is of this program alone.
            self.refusals[re.sub(r"'[^']*'|\"[^\"]*\"|\d+", "_", result["message"])[:120]] += 1

    def text(self):
        lines = [f"{self.programs} programs, {self.runs} compiled: "
                 + ", ".join(f"{count} {kind}" for kind, count in self.kinds.most_common())]
        if self.ratios:
            ratios = sorted(self.ratios)
            at = lambda share: ratios[min(len(ratios) - 1, int(share * len(ratios)))]
            lines.append(f"largest error of a program, of what is allowed: median {at(0.5):.3f}, 99 % {at(0.99):.3f}, "
                         f"most {ratios[-1]:.3f}")
        lines.append(f"{self.left_dense} left something dense, {self.unstable} depend on roundings, "
                     f"{self.unsure} warned of a gradient, {self.unchecked} ran unchecked, {self.scores} scores of weights compared")
        lines.append(f"{self.runs / max(1e-9, time.monotonic() - self.start):.2f} a second")
        lines += [f"  refused {count}: {text}" for text, count in self.refusals.most_common(12)]
        groups = collections.defaultdict(list)
        for feature, count in sorted(self.features.items()):
            group, _, rest = feature.partition(".")
            groups[group].append(f"{rest or group} {count}")
        lines += [f"  {group}: {', '.join(entries)}" for group, entries in sorted(groups.items())]
        return "\n".join(lines)
