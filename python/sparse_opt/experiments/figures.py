# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Draws measures of training runs over their steps, as SVG.

"""Figures as SVG, with axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

from sparse_opt.experiments.runs import Points

# A figure, in pixels.
WIDTH, HEIGHT = 560, 270
HORIZONTAL, VERTICAL = (62, 545), (34, 236)
COLORS = ["#1f5fa8", "#c8641e", "#3c8c46", "#8c3c8c"]
GREY = "#666"

Span = tuple[float, float]


def ticks(low: float, high: float, count: int) -> list[float]:
    """Returns about `count` round numbers from `low` to `high`."""
    rough = max(high - low, 1e-9) / count
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Returns round numbers from `low` to `high` for a logarithmic axis: of each power of ten
    1, 2 and 5, or only as many as there is room for."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    choices: list[tuple[int, ...]] = [(1, 2, 5), (1,)]
    for factors in choices:
        values = [m * 10.0 ** p for p in powers for m in factors if low <= m * 10.0 ** p <= high]
        if len(values) <= 8:
            break
    else:
        values = values[::math.ceil(len(values) / 8)]
    return values if len(values) > 1 else ticks(low, high, 5)


def smooth(points: Points, span: int = 10) -> Points:
    """Returns the running mean over `span` points."""
    return [(x, sum(y for _, y in points[max(0, i + 1 - span):i + 1]) / min(i + 1, span))
            for i, (x, _) in enumerate(points)]


class Drawing:
    """Parts of an SVG, placed in pixels."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def text(self, x: float, y: float, text: str, anchor: str = "start", color: str = GREY, extra: str = "") -> None:
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
                          f'fill="{color}"{extra}>{escape(text)}</text>')

    def line(self, points: Points, color: str, width: float = 1.0, extra: str = "") -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" '
                          f'stroke-width="{width}"{extra}/>')


class Panel(Drawing):
    """A pair of axes, the steps of a run and a measure, and what is drawn between.

    It spans `horizontal` and `vertical`, in pixels. With `log`, the axis of the measure is
    logarithmic.
    """

    def __init__(
        self, horizontal: Span, vertical: Span, steps: float, low: float, high: float, log: bool = False
    ) -> None:
        super().__init__()
        self.log = log
        self.left, self.right = horizontal
        self.top, self.bottom = vertical
        self.steps, self.low, self.high = steps, low, high

    def x(self, step: float) -> float:
        return self.left + (self.right - self.left) * step / self.steps

    def y(self, value: float) -> float:
        at, low, high = (math.log10(v) if self.log else v for v in (value, self.low, self.high))
        share = (at - low) / (high - low)
        return self.bottom - (self.bottom - self.top) * share

    def line(self, points: Points, color: str, width: float = 1.0, extra: str = "") -> None:
        super().line([(self.x(x), self.y(y)) for x, y in points], color, width, extra)

    def dots(self, points: Points, color: str) -> None:
        self.parts += [f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3" fill="{color}"/>'
                       for x, y in points]

    def hover(self, label: str, points: Points, count: int = 60) -> None:
        """Says of some points what they are to whoever points at them."""
        for x, y in points[::max(1, math.ceil(len(points) / count))]:
            words = f"{label}, step {x:.0f}: {y:.6g}" if label else f"step {x:.0f}: {y:.6g}"
            self.parts.append(f'<g><title>{escape(words)}</title><circle cx="{self.x(x):.1f}" '
                              f'cy="{self.y(y):.1f}" r="6" fill="transparent"/></g>')

    def bars(self, points: Points, color: str, shift: float) -> None:
        self.parts += [f'<rect x="{self.x(x) + shift:.1f}" y="{self.y(y):.1f}" width="4" '
                       f'height="{self.bottom - self.y(y):.1f}" fill="{color}"/>'
                       for x, y in points]

    def axes(self, label: str = "") -> None:
        for value in log_ticks(self.low, self.high) if self.log else ticks(self.low, self.high, 5):
            self.line([(0, value), (self.steps, value)], "#e4e4e4")
            self.text(self.left - 8, self.y(value) + 4, f"{value:g}", "end")
        for step in ticks(0, self.steps, 8):
            self.text(self.x(step), self.bottom + 18, f"{step:g}", "middle")
        self.line([(0, self.high), (0, self.low), (self.steps, self.low)], GREY)
        middle = (self.top + self.bottom) / 2
        if label:
            self.text(18, middle, label, "middle", extra=f' transform="rotate(-90 18 {middle})"')


def svg(width: float, height: float, parts: Sequence[str]) -> str:
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n{chr(10).join(parts)}\n</svg>\n')


def thin(points: Points, count: int = 300) -> Points:
    """Returns at most `count` points, means of as many neighbours each."""
    size = max(1, math.ceil(len(points) / count))
    groups = [points[i:i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group))
            for group in groups]


# Shows the figures that have logarithmic axes with these.
LOG = '<input type="checkbox" id="log"> <label for="log">logarithmic axes</label>'


class Figure:
    """Curves over the steps of a run under a title."""

    def __init__(self, title: str, steps: int, legend: bool = True) -> None:
        self.title, self.steps, self.legend = title, steps, legend
        self.curves: list[tuple[str, Points, str, bool, bool]] = []
        self.level: tuple[str, float] | None = None

    def curve(
        self, label: str, points: Points, color: str = COLORS[0], dots: bool = False, faint: bool = False
    ) -> Figure:
        if points:
            self.curves.append((label, thin(points), color, dots, faint))
        return self

    def mark(self, label: str, value: float) -> Figure:
        """Adds a level to compare with."""
        self.level = (label, value)
        return self

    def both(self, low: float | None = None, high: float | None = None) -> str:
        """Returns the figure with axes of both kinds: the page shows one of them."""
        linear = self.draw(low, high)
        return (f'<div class="linear">{linear}</div>'
                f'<div class="log">{self.draw(low, high, log=True) or linear}</div>')

    def draw(self, low: float | None = None, high: float | None = None, log: bool = False) -> str:
        """Returns the SVG, or nothing if there is nothing to draw, or, with `log`, anything
        that is not positive."""
        panel = self.make_panel(low, high, log)
        if not panel:
            return ""
        panel.axes()
        panel.text(HORIZONTAL[0], 20, self.title, color="#222", extra=' font-weight="bold"')
        panel.text(HORIZONTAL[1], HEIGHT - 2, "step", "end")
        if self.level:
            _, value = self.level
            panel.line([(0, value), (self.steps, value)], "#222", 1.2, ' stroke-dasharray="6 4"')
        self.draw_curves(panel)
        if self.legend:
            self.draw_legend(panel)
        return svg(WIDTH, HEIGHT, panel.parts)

    def make_panel(self, low: float | None, high: float | None, log: bool) -> Panel | None:
        """Returns axes that hold the curves, and reach from `low` to `high` where these
        are given; none if there is nothing to draw."""
        heights = [y for _, points, *_ in self.curves for _, y in points]
        if not heights or log and min(heights) <= 0:
            return None
        values = heights + ([self.level[1]] if self.level else [])
        top = max(values) if high is None else high
        if log:
            return Panel(HORIZONTAL, VERTICAL, self.steps, min(heights) / 1.1, top * 1.1, log)
        bottom = min(values) if low is None else low
        margin = 0.06 * (top - bottom) or abs(top) * 0.1 or 1
        return Panel(HORIZONTAL, VERTICAL, self.steps,
                     bottom - margin if low is None else low, top + margin if high is None else high)

    def draw_curves(self, panel: Panel) -> None:
        """Draws the curves, cut at the upper end, and above all what is said of their points."""
        cut = [(label, [(x, min(y, panel.high)) for x, y in points], color, dots, faint)
               for label, points, color, dots, faint in self.curves]
        for _, points, color, dots, faint in cut:
            panel.line(points, color, 1 if faint else 1.8, ' stroke-opacity="0.55"' if faint else "")
            if dots:
                panel.dots(points, color)
        for label, points, *_ in cut:
            panel.hover(label, points)

    def draw_legend(self, panel: Panel) -> None:
        """Writes what curves are called above them, never on them."""
        right: float = HORIZONTAL[1]
        if self.level:
            words = f"┄ {label_of(self.level)}"
            panel.text(right, 20, words, "end", "#222")
            right -= 16 + 6.6 * len(words)
        for label, _, color, *_ in reversed([curve for curve in self.curves if curve[0]]):
            panel.text(right, 20, f"● {label}", "end", color)
            right -= 26 + 7 * len(label)


def label_of(level: tuple[str, float]) -> str:
    """Returns what a level is called, with its height."""
    return f"{level[0]} {level[1]:.3f}"
