# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The page of one training run: HTML that needs no other file and no script.

import base64
import json
import math
import struct
import sys
import zlib
from html import escape

from figures import COLORS, Panel, svg

# A figure, in pixels.
WIDTH, HEIGHT = 560, 270
HORIZONTAL, VERTICAL = (62, 545), (34, 236)

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 1180px;
       margin: 0 auto; padding: 24px; }
h1 { font-size: 26px; margin: 0; }
h2 { font-size: 18px; margin: 36px 0 10px; border-bottom: 1px solid #ddd; }
p { color: #666; margin: 2px 0 18px; }
.tiles, .figures { display: grid; gap: 12px; }
.tiles { grid-template-columns: repeat(auto-fit, minmax(112px, 1fr)); }
.tiles div { background: #f4f6f8; border-radius: 6px; padding: 10px 14px; color: #666;
             font-size: 13px; }
.tiles b { display: block; font-size: 22px; font-weight: 600; color: #222; }
.figures { grid-template-columns: repeat(auto-fit, minmax(440px, 1fr)); }
.figures svg { width: 100%; height: auto; }
.scroll { overflow-x: auto; }
.log, #log:checked ~ .figures .linear { display: none; }
#log:checked ~ .figures .log { display: block; }
summary { cursor: pointer; }
.patterns { border-spacing: 14px 10px; margin-left: -14px; }
.patterns td { text-align: center; font-size: 12px; color: #666; padding: 0; }
.patterns img { display: block; image-rendering: pixelated; border: 1px solid #ccc;
                margin: 0 auto 3px; }
.patterns th { text-align: left; font-weight: 500; font-size: 13px; padding: 0; }
.plain { border-collapse: collapse; font-size: 13px; width: 100%; }
.plain td, .plain th { padding: 3px 10px 3px 0; border-bottom: 1px solid #eee;
                       text-align: left; vertical-align: top; overflow-wrap: anywhere; }
.plain th { font-weight: 600; white-space: nowrap; }
.plain .number { text-align: right; font-variant-numeric: tabular-nums; }
.bar { background: #e8ecf1; height: 9px; width: 140px; margin-top: 6px; }
.bar div { background: #1f5fa8; height: 100%; }
.columns { columns: 2 420px; column-gap: 40px; }
"""


def finite(text):
    """Returns the number, or None for one that is not finite, as a run writes it."""
    value = float(text)
    return value if math.isfinite(value) else None


def parse(text):
    """Returns what `text`, JSON, says; members that are null say nothing."""
    def known(members):
        return {key: value for key, value in members.items() if value is not None}

    try:
        return json.loads(text, parse_float=finite, parse_constant=lambda name: None,
                          object_hook=known)
    except RecursionError:
        raise ValueError("values that are nested too deep") from None


def read_lines(path):
    """Returns the objects of a file of JSON lines, but for a last one that is not
    whole: the run may be writing it."""
    lines = [parse(line) for line in path.read_text().split("\n")[:-1]]
    for number, line in enumerate(lines, 1):
        if not isinstance(line, dict) or not isinstance(line.get("step"), int):
            raise ValueError(f"line {number} of {path.name}, which is no object with a step")
    return lines


class NoRun(Exception):
    """A sentence about why a folder holds no run that can be read."""


def read_all(paths, read):
    """Returns what `read` makes of each folder, but for those without a run, such as
    one that failed before it began: a warning says which. Exits if none is left."""
    runs = []
    for path in paths:
        try:
            runs.append(read(path))
        except NoRun as reason:
            if len(paths) == 1:
                sys.exit(f"error: {reason}")
            print(f"warning: {reason}; it is left out", file=sys.stderr)
    if not runs:
        sys.exit(f"error: expected one of {len(paths)} folders to hold a run, but got none")
    return runs


def thin(points, count=300):
    """Returns at most `count` points, means of as many neighbours each."""
    size = max(1, math.ceil(len(points) / count))
    groups = [points[i:i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in group) / len(group), sum(y for _, y in group) / len(group))
            for group in groups]


# Shows the figures that have logarithmic axes with these.
LOG = '<input type="checkbox" id="log"> <label for="log">logarithmic axes</label>'


class Figure:
    """Curves over the steps of a run under a title."""

    def __init__(self, title, steps, legend=True):
        self.title, self.steps, self.legend = title, steps, legend
        self.curves, self.level = [], None

    def curve(self, label, points, color=COLORS[0], dots=False, faint=False):
        if points:
            self.curves.append((label, thin(points), color, dots, faint))
        return self

    def mark(self, label, value):
        """Adds a level to compare with."""
        self.level = (label, value)
        return self

    def both(self, **limits):
        """Returns the figure with axes of both kinds: the page shows one of them."""
        return (f'<div class="linear">{self.draw(**limits)}</div>'
                f'<div class="log">{self.draw(log=True, **limits) or self.draw(**limits)}</div>')

    def draw(self, low=None, high=None, log=False):
        """Returns the SVG, or nothing if there is nothing to draw, or, with `log`, anything
        that is not positive."""
        if not self.curves:
            return ""
        if log and not (low := min(y for _, points, *_ in self.curves for _, y in points)) > 0:
            return ""
        values = [y for _, points, *_ in self.curves for _, y in points]
        values += [self.level[1]] if self.level else []
        bottom = min(values) if low is None else low
        top = max(values) if high is None else high
        margin = 0.06 * (top - bottom) or abs(top) * 0.1 or 1
        if log:
            low, high = bottom / 1.1, top * 1.1
        panel = Panel(HORIZONTAL, VERTICAL, self.steps,
                      bottom - margin if low is None else low,
                      top + margin if high is None else high, log)
        panel.axes()
        panel.text(HORIZONTAL[0], 20, self.title, color="#222", extra=' font-weight="bold"')
        panel.text(HORIZONTAL[1], HEIGHT - 2, "step", "end")
        if self.level:
            label, value = self.level
            panel.line([(0, value), (self.steps, value)], "#222", 1.2, ' stroke-dasharray="6 4"')
        right = HORIZONTAL[1]
        for label, points, color, dots, faint in self.curves:
            points = [(x, min(y, panel.high)) for x, y in points]
            panel.line(points, color, 1 if faint else 1.8, ' stroke-opacity="0.55"' if faint else "")
            if dots:
                panel.dots(points, color)
        for label, points, *_ in self.curves:
            panel.hover(label, [(x, min(y, panel.high)) for x, y in points])
        # What curves are called stands above them, never on them.
        if not self.legend:
            return svg(WIDTH, HEIGHT, panel.parts)
        if self.level:
            words = f"┄ {label_of(self.level)}"
            panel.text(right, 20, words, "end", "#222")
            right -= 16 + 6.6 * len(words)
        for label, _, color, *_ in reversed([c for c in self.curves if c[0]]):
            panel.text(right, 20, f"● {label}", "end", color)
            right -= 26 + 7 * len(label)
        return svg(WIDTH, HEIGHT, panel.parts)


def label_of(level):
    """Returns what a level is called, with its height."""
    return f"{level[0]} {level[1]:.3f}"


def picture(cells):
    """Returns the cells of a pattern, hexadecimal digits, as an image in a URL."""
    rows = b"".join(b"\0" + bytes(255 - int(digit, 16) * 14 for digit in row) for row in cells)

    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))

    head = struct.pack(">IIBBBBB", len(cells[0]), len(cells), 8, 0, 0, 0, 0)
    png = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9))
           + chunk(b"IEND", b""))
    return "data:image/png;base64," + base64.b64encode(png).decode()


def patterns(pictures):
    """Returns the table of the pictures: a row for each weight, a column for each
    moment."""
    names = dict.fromkeys(p["name"] for p in pictures)
    rows = []
    for name in names:
        own = [p for p in pictures if p["name"] == name]
        size, block = ("x".join(map(str, own[0][key])) for key in ("shape", "block"))
        rows.append(f'<tr><th colspan="{len(own)}">{escape(name)}: {size} in {block} blocks'
                    "</th></tr><tr>")
        # As wide as there is room, and as tall as the matrix within limits.
        width = min(1100 // len(own) - 14, 200)
        height = width * min(max(own[0]["shape"][0] / own[0]["shape"][1], 0.15), 1.5)
        for p in own:
            words = f"step {p['step']}"
            rows.append(f'<td><img src="{picture(p["cells"])}" alt="{words} of {escape(name)}" '
                        f'style="width: {width}px; height: {height:.0f}px">{words}</td>')
        rows.append("</tr>")
    return f'<div class="scroll"><table class="patterns">{"".join(rows)}</table></div>'


def newest_patterns(path):
    """Returns the pictures of all patterns of the newest checkpoint, each to be opened."""
    for file in sorted(path.glob("checkpoint-*.safetensors"), reverse=True):
        try:
            return "".join(pictures_of(file))
        except (OSError, ValueError, KeyError, struct.error):
            continue # cut, or of another program
    return ""


def pictures_of(file, most=64):
    """Yields a picture of each pattern of a checkpoint, of at most `most` cells a side."""
    with open(file, "rb") as checkpoint:
        size = struct.unpack("<Q", checkpoint.read(8))[0]
        header = json.loads(checkpoint.read(size))

        def tensor(name):
            begin, end = header[name]["data_offsets"]
            checkpoint.seek(8 + size + begin)
            return struct.unpack(f"<{(end - begin) // 4}i", checkpoint.read(end - begin))

        step = int(header["__metadata__"]["steps"])
        for matrix in json.loads(header["__metadata__"]["matrices"]):
            name = matrix["name"]
            rows, cols = (n // b for n, b in zip(matrix["shape"], matrix["block"]))
            height, width = min(rows, most), min(cols, most)
            row_ptr, col_idx = tensor(f"{name}.bsr.row_ptr"), tensor(f"{name}.bsr.col_idx")
            stored = [[0] * width for _ in range(height)]
            for row in range(rows):
                for col in col_idx[row_ptr[row]:row_ptr[row + 1]]:
                    stored[row * height // rows][col * width // cols] += 1
            every = [[0] * width for _ in range(height)]
            for y in range(height):
                first, last = -(-y * rows // height), -(-(y + 1) * rows // height)
                for x in range(width):
                    begin, end = -(-x * cols // width), -(-(x + 1) * cols // width)
                    every[y][x] = (last - first) * (end - begin)
            cells = ["".join(f"{(n * 15 + a - 1) // a:x}" for n, a in zip(line, whole))
                     for line, whole in zip(stored, every)]
            tall = 240 * min(max(rows / cols, 0.15), 1.5)
            words = f"{escape(name)}, run {step}"
            yield (f'<details><summary>{words}: {len(col_idx)} of {rows * cols} blocks</summary>'
                   f'<div class="patterns"><img src="{picture(cells)}" alt="{words}" '
                   f'style="width: 240px; height: {tall:.0f}px"></div></details>')


def weights(metrics):
    """Returns the table of what the last update left of each weight."""
    latest = {}
    for line in metrics:
        latest.update({key: value for key, value in line.items() if key.startswith("weight_")})
    if not latest:
        return ""
    rows = ["<tr><th>weight</th><th>density</th><th></th><th>ever used</th><th></th>"
            '<th class="number">fullest row / mean</th></tr>']
    for name, density in latest["weight_density"].items():
        used = latest["weight_used"][name]
        cells = [f"<td>{escape(name)}</td>"]
        for share in (density, used):
            cells.append(f'<td class="number">{share:.1%}</td><td><div class="bar">'
                         f'<div style="width: {share:.1%}"></div></div></td>')
        cells.append(f'<td class="number">{latest["weight_imbalance"][name]:.2f}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    return f'<table class="plain">{"".join(rows)}</table>'


def table(pairs):
    """Returns a table of names and values."""
    rows = "".join(f"<tr><th>{escape(str(name))}</th><td>{escape(str(value))}</td></tr>"
                   for name, value in pairs)
    return f'<table class="plain">{rows}</table>'


def read_config(text):
    """Returns the keys and values of a configuration as sparse-train writes it:
    sections, and in them keys, or a list of groups of keys."""
    pairs, section, group = [], "", 0
    for line in text.splitlines():
        name, _, value = line.strip().partition(":")
        if not line.startswith(" "):
            section, group = "", 0
        if name.startswith("- "):
            name, group = name[2:], group + 1
        if value:
            place = f"{section}[{group}]" if group else section
            pairs.append((place + "." * bool(place) + name, value.strip().strip('"')))
        else:
            section = name
    return pairs


def draw_all(metrics, steps, entropy):
    """Returns the figures."""
    def series(key, scale=1):
        return [(m["step"], m[key] * scale) for m in metrics if m.get(key) is not None]

    def figure(title):
        return Figure(title, steps)

    loss = figure("loss (nats per token)").curve("training", series("loss"), faint=True)
    loss.curve("held out", series("held_out"), COLORS[1], dots=True)
    if entropy is not None:
        loss.mark("unigram entropy", entropy)
    times = sorted(value for _, value in series("step_time", 1e3))
    slow = times[int(len(times) * 0.98)] * 1.15 if times else 1 # the first steps may be slower
    time = figure("time of a step (ms)").curve("all", series("step_time", 1e3))
    time.curve("forward and backward", series("forward_backward_time", 1e3), COLORS[2])
    time.curve("optimizer", series("optimizer_time", 1e3), COLORS[1])
    return [
        loss.both(),
        figure("accuracy").curve("training", series("accuracy"), faint=True)
        .curve("held out", series("held_out_accuracy"), COLORS[1], dots=True).draw(low=0),
        figure("learning rate").curve("", series("lr")).draw(low=0),
        time.both(low=0, high=slow),
        figure("time of a pattern update (ms)")
        .curve("", series("update_time", 1e3), dots=True).draw(low=0),
        figure("blocks replaced by an update").curve("pruned", series("pruned"), COLORS[1], dots=True)
        .curve("regrown", series("regrown"), dots=True, faint=True).draw(low=0),
        figure("positions ever used (% of all)").curve("ever used", series("used", 100), dots=True)
        .curve("stored", series("density", 100), COLORS[1]).draw(low=0),
        figure("regrown blocks lost at the next update (%)")
        .curve("", series("lost", 100), dots=True).draw(low=0, high=100),
        figure("blocks of the fullest row / mean of all rows")
        .curve("worst weight", series("imbalance"), dots=True).draw(),
    ]


def tiles(metrics, summary, steps):
    """Returns the few numbers that matter most."""
    def last(key):
        return next((m[key] for m in reversed(metrics) if key in m), None)

    done = metrics[-1]["step"] if metrics else 0
    times = sorted(m["step_time"] for m in metrics if "step_time" in m)
    median = times[len(times) // 2] if times else None
    rates = sorted(m["tokens_per_s"] for m in metrics if "tokens_per_s" in m)
    numbers = [
        ("held-out loss", last("held_out"), "{:.4f}"),
        ("training loss", last("loss"), "{:.4f}"),
        (f"of {steps:,} steps", done, "{:,}"),
        ("ms a step, median", median and median * 1e3, "{:.3g}"),
        ("tokens per second, median", rates[len(rates) // 2] if rates else None, "{:,.0f}"),
        ("MiB of memory, peak", (last("peak_memory") or 0) / 2**20 or None, "{:,.0f}"),
        ("% of the weights stored", last("density") and last("density") * 100, "{:.3g}"),
        ("% of the positions ever used", last("used") and last("used") * 100, "{:.3g}"),
        ("recompilations", summary.get("recompilations", last("recompilations")), "{}"),
    ]
    return "".join(f"<div><b>{form.format(value)}</b>{escape(name)}</div>"
                   for name, value, form in numbers if value is not None)


def page(path):
    """Returns the page of the run in the folder `path`."""
    try:
        config = read_config((path / "config.yaml").read_text())
        metrics = read_lines(path / "metrics.jsonl")
        pictures = read_lines(path / "patterns.jsonl")
        sessions = read_lines(path / "sessions.jsonl")
        summary = path / "summary.json" # only a finished run has one
        summary = parse(summary.read_text()) if summary.exists() else {}
    except (OSError, ValueError) as error:
        sys.exit(f"error: expected '{path}' to hold a run, but got: {error}")
    steps = int(dict(config)["steps"])
    figures = "\n".join(draw_all(metrics, steps, summary.get("unigram_entropy")))
    name = escape(path.resolve().name)
    state = "finished" if summary else "not finished"
    began = f"began {sessions[0]['started']} on {sessions[0]['host']}" if sessions else ""
    parts = [
        f"<h1>{name}</h1><p>{state}, {escape(began)}</p>",
        f'<div class="tiles">{tiles(metrics, summary, steps)}</div>',
        f'<h2>Training</h2>{LOG}<div class="figures">{figures}</div>',
    ]
    if pictures:
        parts.append("<h2>Patterns</h2><p>Dark cells are stored blocks; where a cell stands for "
                     f"several, the darker the more.</p>{patterns(pictures)}")
    if newest := newest_patterns(path):
        parts.append(newest)
    if rows := weights(metrics):
        parts.append(f"<h2>Weights, after the last update</h2>{rows}")
    parts.append(f'<h2>Configuration</h2><div class="columns">{table(config)}</div>')
    if summary:
        parts.append(f'<h2>Summary</h2><div class="columns">{table(summary.items())}</div>')
    parts.append("<h2>Where it ran</h2>")
    parts += [table(session.items()) for session in sessions]
    return (f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f"<title>{name}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
            + "\n".join(parts) + "\n</body>\n</html>\n")
