# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Draws measures of training runs over their steps, as SVG.

import math
from xml.sax.saxutils import escape

COLORS = ["#1f5fa8", "#c8641e", "#3c8c46", "#8c3c8c"]
GREY = "#666"


def ticks(low, high, count):
    """Returns about `count` round numbers from `low` to `high`."""
    rough = max(high - low, 1e-9) / count
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * m for m in (1, 2, 5, 10) if unit * m >= rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def log_ticks(low, high):
    """Returns round numbers from `low` to `high` for a logarithmic axis: of each power of ten
    1, 2 and 5, or only as many as there is room for."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for factors in ((1, 2, 5), (1,)):
        values = [m * 10.0 ** p for p in powers for m in factors if low <= m * 10.0 ** p <= high]
        if len(values) <= 8:
            break
    else:
        values = values[::math.ceil(len(values) / 8)]
    return values if len(values) > 1 else ticks(low, high, 5)


def smooth(points, span=10):
    """Returns the running mean over `span` points."""
    return [(x, sum(y for _, y in points[max(0, i + 1 - span):i + 1]) / min(i + 1, span))
            for i, (x, _) in enumerate(points)]


class Drawing:
    """Parts of an SVG, placed in pixels."""

    def __init__(self):
        self.parts = []

    def text(self, x, y, text, anchor="start", color=GREY, extra=""):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
                          f'fill="{color}"{extra}>{escape(text)}</text>')

    def line(self, points, color, width=1.0, extra=""):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" '
                          f'stroke-width="{width}"{extra}/>')


class Panel(Drawing):
    """A pair of axes, the steps of a run and a measure, and what is drawn between.

    It spans `horizontal` and `vertical`, in pixels. With `log`, the axis of the measure is
    logarithmic.
    """

    def __init__(self, horizontal, vertical, steps, low, high, log=False):
        super().__init__()
        self.scale = math.log10 if log else float
        self.log = log
        self.left, self.right = horizontal
        self.top, self.bottom = vertical
        self.steps, self.low, self.high = steps, low, high

    def x(self, step):
        return self.left + (self.right - self.left) * step / self.steps

    def y(self, value):
        low, high = self.scale(self.low), self.scale(self.high)
        share = (self.scale(value) - low) / (high - low)
        return self.bottom - (self.bottom - self.top) * share

    def line(self, points, color, width=1.0, extra=""):
        super().line([(self.x(x), self.y(y)) for x, y in points], color, width, extra)

    def dots(self, points, color):
        self.parts += [f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3" fill="{color}"/>'
                       for x, y in points]

    def hover(self, label, points, count=60):
        """Says of some points what they are to whoever points at them."""
        for x, y in points[::max(1, math.ceil(len(points) / count))]:
            words = f"{label}, step {x:.0f}: {y:.6g}" if label else f"step {x:.0f}: {y:.6g}"
            self.parts.append(f'<g><title>{escape(words)}</title><circle cx="{self.x(x):.1f}" '
                              f'cy="{self.y(y):.1f}" r="6" fill="transparent"/></g>')

    def bars(self, points, color, shift):
        self.parts += [f'<rect x="{self.x(x) + shift:.1f}" y="{self.y(y):.1f}" width="4" '
                       f'height="{self.bottom - self.y(y):.1f}" fill="{color}"/>'
                       for x, y in points]

    def axes(self, label=""):
        for value in log_ticks(self.low, self.high) if self.log else ticks(self.low, self.high, 5):
            self.line([(0, value), (self.steps, value)], "#e4e4e4")
            self.text(self.left - 8, self.y(value) + 4, f"{value:g}", "end")
        for step in ticks(0, self.steps, 8):
            self.text(self.x(step), self.bottom + 18, f"{step:g}", "middle")
        self.line([(0, self.high), (0, self.low), (self.steps, self.low)], GREY)
        middle = (self.top + self.bottom) / 2
        if label:
            self.text(18, middle, label, "middle", extra=f' transform="rotate(-90 18 {middle})"')


def svg(width, height, parts):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">\n'
            f'<rect width="100%" height="100%" fill="white"/>\n{chr(10).join(parts)}\n</svg>\n')
