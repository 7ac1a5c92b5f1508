# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Draws the groups of a sweep: loss against FLOPs and against time.

"""The plot of a sweep, as SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence

from sparse_opt.experiments.figures import GREY, Drawing, Span, svg, ticks
from sparse_opt.experiments.results import Group, frontier
from sparse_opt.experiments.runs import Points

Places = dict[Group, float]
Styles = dict[str, str]  # the colour of each method, or the marker of each block

# In pixels: two panels side by side over one vertical axis, a legend above.
WIDTH, HEIGHT, TOP, BOTTOM = 960, 520, 78, 450
PANELS = [("flops", "training FLOPs (10¹²)", 74, 496), ("time", "training time (s)", 520, 942)]
ABREAST = 5  # between runs of equal FLOPs
ASIDE = 24  # of a panel's width at either side, for these
GRID, INK = "#e6e6e6", "#222"
# Colours that remain apart for the colour-blind (Okabe and Ito).
COLORS = {"dense": "#222222", "static": "#0072b2", "dynamic": "#d55e00"}
MORE_COLORS = ["#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
# Outlines around (0, 0), at most 1 from it.
SHAPES: dict[str, Points | None] = {
    "circle": None,
    "triangle": [(0, -1.1), (1, 0.75), (-1, 0.75)],
    "square": [(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)],
    "diamond": [(0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)],
    "star": [(r * math.sin(math.pi * i / 5), -r * math.cos(math.pi * i / 5))
             for i, r in enumerate([1.25, 0.55] * 5)],
}


def log_ticks(low: float, high: float) -> list[float]:
    """Returns round numbers on a logarithmic axis, about four or more."""
    choices: list[list[float]] = [[1], [1, 3], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 7]]
    for digits in choices:
        found = [d * 10.0**e for e in range(math.floor(math.log10(low)),
                                            math.ceil(math.log10(high)) + 1)
                 for d in digits if low <= d * 10.0**e <= high]
        if len(found) >= 4:
            return found
    return ticks(low, high, 4)  # less than a factor of about three: even steps


def span(intervals: Sequence[Span]) -> Span:
    """Returns the ends of an axis that holds the intervals, with a margin."""
    low, high = min(i[0] for i in intervals), max(i[1] for i in intervals)
    margin = max(math.log(high / low) * 0.08, 0.01)
    return low * math.exp(-margin), high * math.exp(margin)


class Axis:
    """A logarithmic axis from pixel `begin` to `end`."""

    def __init__(self, intervals: Sequence[Span], begin: float, end: float) -> None:
        self.low, self.high = span(intervals)
        self.begin, self.end = begin, end

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.begin + (self.end - self.begin) * share

    def ticks(self) -> list[float]:
        return log_ticks(self.low, self.high)


class Picture(Drawing):
    def marker(self, x: float, y: float, shape: str, color: str, size: float = 5.0) -> None:
        style = f'fill="{color}" stroke="white" stroke-width="1"'
        outline = SHAPES[shape]
        if outline is None:
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size}" {style}/>')
            return
        points = " ".join(f"{x + size * a:.1f},{y + size * b:.1f}" for a, b in outline)
        self.parts.append(f'<polygon points="{points}" {style}/>')


def interval(group: Group, name: str) -> Span:
    mean, deviation = group.mean(name), group.deviation(name)
    return max(mean - deviation, mean * 0.01), mean + deviation


def styles(groups: Sequence[Group]) -> tuple[Styles, Styles]:
    """Returns the colour of each method and the marker of each block."""
    methods = dict.fromkeys(group.labels["method"] for group in groups)
    others = [name for name in methods if name not in COLORS]
    colors = {name: COLORS.get(name) or MORE_COLORS[others.index(name) % len(MORE_COLORS)]
              for name in methods}
    blocks = {group.labels["block"] for group in groups if group.labels["block"]}
    ordered = sorted(blocks, key=lambda block: [int(n) for n in block.split("x")])
    shapes = {"": "star", **{block: ["circle", "triangle", "square", "diamond"][i % 4]
                             for i, block in enumerate(ordered)}}
    return colors, shapes


def place(groups: Sequence[Group], name: str, x: Axis) -> Places:
    """Returns where each group stands; those of equal FLOPs, but for the rounding
    of a density to whole blocks, side by side."""
    if name != "flops":
        return {group: x(group.mean(name)) for group in groups}
    places: Places = {}
    row: list[Group] = []
    for group in sorted(groups, key=lambda group: group.mean(name)):
        if row and group.mean(name) > 1.02 * row[0].mean(name):
            row = []
        row.append(group)
        middle = sum(x(member.mean(name)) for member in row) / len(row)
        for i, member in enumerate(row):
            places[member] = middle + (i - (len(row) - 1) / 2) * ABREAST
    return places


class Panel:
    """The loss against one cost: its axes and what is between them."""

    def __init__(self, picture: Picture, name: str, groups: Sequence[Group], horizontal: Span, y: Axis) -> None:
        self.picture, self.name, self.groups, self.y = picture, name, groups, y
        self.left, self.right = horizontal
        self.x = Axis([interval(group, name) for group in groups], self.left + ASIDE, self.right - ASIDE)
        self.places = place(groups, name, self.x)

    def point(self, group: Group) -> Span:
        return self.places[group], self.y(group.mean("held_out"))

    def draw_axes(self, label: str) -> None:
        for value in self.y.ticks():
            self.picture.line([(self.left, self.y(value)), (self.right, self.y(value))], GRID)
        for value in self.x.ticks():
            self.picture.line([(self.x(value), TOP), (self.x(value), BOTTOM)], GRID)
            self.picture.text(self.x(value), BOTTOM + 18, f"{value:g}", "middle")
        self.picture.line([(self.left, TOP), (self.left, BOTTOM), (self.right, BOTTOM)], GREY)
        self.picture.text((self.left + self.right) / 2, BOTTOM + 40, label, "middle", INK)

    def draw_frontier(self) -> None:
        """Draws steps, below and left of which nothing is known."""
        best = frontier(self.groups, self.name)
        steps: Points = [(self.x(best[0].mean(self.name)), TOP)]
        for group in best:
            x = self.x(group.mean(self.name))
            steps += [(x, steps[-1][1]), (x, self.y(group.mean("held_out")))]
        steps.append((self.right, steps[-1][1]))
        self.picture.line(steps, "#b0b0b0", 2.5, ' stroke-linejoin="round" stroke-dasharray="7 4"')

    def draw_series(self, colors: Styles) -> None:
        """Joins what differs in the model alone, by a thin line."""
        series: dict[tuple[str, ...], list[Group]] = {}
        for group in self.groups:
            key = tuple(value for label, value in group.labels.items() if label != "model")
            series.setdefault(key, []).append(group)
        for members in series.values():
            members = sorted(members, key=lambda group: group.mean(self.name))
            self.picture.line([self.point(group) for group in members],
                              colors[members[0].labels["method"]], 1, ' stroke-opacity="0.35"')

    def draw_groups(self, colors: Styles, shapes: Styles) -> None:
        for group in self.groups:
            color = colors[group.labels["method"]]
            x, y = self.point(group)
            low, high = map(self.y, interval(group, "held_out"))
            self.picture.line([(x, low), (x, high)], color, 1.3)
            for end in (low, high):
                self.picture.line([(x - 3, end), (x + 3, end)], color, 1.3)
            self.picture.marker(x, y, shapes[group.labels["block"]], color)


def draw_names(picture: Picture, groups: Sequence[Group], places: Places, y: Axis) -> None:
    """Writes the model and the density under each cloud of points of one; names
    that would meet go below each other."""
    clouds: dict[str, list[Group]] = {}
    for group in groups:
        dense = group.labels["method"] == "dense"
        words = group.labels["model"] + ("" if dense else f" {float(group.labels['density']):g}")
        clouds.setdefault(words, []).append(group)
    taken: list[tuple[float, float, float]] = []
    for words, members in clouds.items() if len(clouds) > 1 else []:
        middle = sum(places[group] for group in members) / len(members)
        under = max(y(interval(group, "held_out")[0]) for group in members) + 16
        reach = 3.2 * len(words)
        while any(abs(under - other) < 12 and abs(middle - at) < reach + width
                  for at, other, width in taken):
            under += 12
        under = min(under, BOTTOM - 4)
        taken.append((middle, under, reach))
        for halo in [' stroke="white" stroke-width="3"', ""]:
            picture.text(middle, under, words, "middle", GREY, ' font-size="11"' + halo)


def draw_legend(picture: Picture, groups: Sequence[Group], colors: Styles, shapes: Styles) -> None:
    x: float = PANELS[0][2]
    for method, color in colors.items():
        picture.marker(x + 5, 25, "star" if method == "dense" else "circle", color)
        picture.text(x + 15, 29, method, color=color, extra=' font-weight="bold"')
        x += 30 + 8.5 * len(method)
    x += 16
    for block, shape in shapes.items():
        if block:
            picture.marker(x + 5, 25, shape, GREY)
            words = f"block {block}" if "x" in block else f"b = {block}"
            picture.text(x + 15, 29, words)
            x += 34 + 7 * len(words)
    x += 8
    picture.line([(x, 25), (x + 28, 25)], "#b0b0b0", 2.5, ' stroke-dasharray="7 4"')
    picture.text(x + 34, 29, "frontier")
    notes = ["all axes logarithmic", "what has equal FLOPs stands side by side"]
    if any(len(group.runs) > 1 for group in groups):
        notes.insert(0, "means over seeds, bars are their standard deviation")
    picture.text(PANELS[0][2], 54, "; ".join(notes), extra=' font-size="12"')


def plot(groups: Sequence[Group]) -> str:
    """Returns the SVG of the groups. FLOPs that are not known have no place."""
    picture = Picture()
    colors, shapes = styles(groups)
    y = Axis([interval(group, "held_out") for group in groups], BOTTOM, TOP)
    draw_legend(picture, groups, colors, shapes)
    for name, label, left, right in PANELS:
        if known := [group for group in groups if not math.isnan(group.mean(name))]:
            panel = Panel(picture, name, known, (left, right), y)
            panel.draw_axes(label)
            panel.draw_frontier()
            panel.draw_series(colors)
            panel.draw_groups(colors, shapes)
            draw_names(picture, known, panel.places, y)
    left = PANELS[0][2]
    for value in y.ticks():
        picture.text(left - 8, y(value) + 4, f"{value:g}", "end")
    middle = (TOP + BOTTOM) / 2
    picture.text(20, middle, "held-out loss (nats)", "middle", INK,
                 f' transform="rotate(-90 20 {middle})"')
    return svg(WIDTH, HEIGHT, picture.parts)
