# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The page of one training run.

"""HTML that needs no other file and no script."""

from __future__ import annotations

import base64
import json
import struct
import sys
import zlib
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import Any

from sparse_opt.experiments.figures import COLORS, LOG, Figure
from sparse_opt.experiments.runs import Line, Points, parse, read_config, read_lines, series

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


def picture(cells: list[str]) -> str:
    """Returns the cells of a pattern, hexadecimal digits, as an image in a URL."""
    rows = b"".join(b"\0" + bytes(255 - int(digit, 16) * 14 for digit in row) for row in cells)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))

    head = struct.pack(">IIBBBBB", len(cells[0]), len(cells), 8, 0, 0, 0, 0)
    png = (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows, 9))
           + chunk(b"IEND", b""))
    return "data:image/png;base64," + base64.b64encode(png).decode()


def patterns(pictures: list[Line]) -> str:
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


def newest_patterns(path: Path) -> str:
    """Returns the pictures of all patterns of the newest checkpoint, each to be opened."""
    for file in sorted(path.glob("checkpoint-*.safetensors"), reverse=True):
        try:
            return "".join(pictures_of(file))
        except (OSError, ValueError, KeyError, struct.error):
            continue  # cut, or of another program
    return ""


class Checkpoint:
    """The patterns of a checkpoint."""

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            self.header = json.loads(file.read(size))
        self.path, self.begin = path, 8 + size
        self.step = int(self.header["__metadata__"]["steps"])
        self.matrices = json.loads(self.header["__metadata__"]["matrices"])

    def integers(self, name: str) -> tuple[int, ...]:
        """Returns a tensor of whole numbers."""
        begin, end = self.header[name]["data_offsets"]
        with self.path.open("rb") as file:
            file.seek(self.begin + begin)
            return struct.unpack(f"<{(end - begin) // 4}i", file.read(end - begin))

    def stored(self, name: str) -> list[tuple[int, int]]:
        """Returns row and column of each stored block of a matrix."""
        row_ptr, col_idx = self.integers(f"{name}.bsr.row_ptr"), self.integers(f"{name}.bsr.col_idx")
        return [(row, col) for row in range(len(row_ptr) - 1) for col in col_idx[row_ptr[row]:row_ptr[row + 1]]]


def scale_down(stored: list[tuple[int, int]], rows: int, cols: int, most: int) -> list[str]:
    """Returns a pattern in at most `most` cells a side, hexadecimal digits: which share of
    its positions is stored."""
    height, width = min(rows, most), min(cols, most)
    counts = [[0] * width for _ in range(height)]
    for row, col in stored:
        counts[row * height // rows][col * width // cols] += 1
    # How many rows fall to a row of cells, and columns to a column.
    tall, wide = ([-(-(i + 1) * n // cells) - -(-i * n // cells) for i in range(cells)]
                  for n, cells in ((rows, height), (cols, width)))
    return ["".join(f"{(n * 15 + h * w - 1) // (h * w):x}" for n, w in zip(line, wide))
            for line, h in zip(counts, tall)]


def pictures_of(file: Path, most: int = 64) -> Iterator[str]:
    """Yields a picture of each pattern of a checkpoint, of at most `most` cells a side."""
    checkpoint = Checkpoint(file)
    for matrix in checkpoint.matrices:
        name = matrix["name"]
        rows, cols = (n // b for n, b in zip(matrix["shape"], matrix["block"]))
        stored = checkpoint.stored(name)
        cells = scale_down(stored, rows, cols, most)
        tall = 240 * min(max(rows / cols, 0.15), 1.5)
        words = f"{escape(name)}, run {checkpoint.step}"
        yield (f'<details><summary>{words}: {len(stored)} of {rows * cols} blocks</summary>'
               f'<div class="patterns"><img src="{picture(cells)}" alt="{words}" '
               f'style="width: 240px; height: {tall:.0f}px"></div></details>')


def weights(metrics: list[Line]) -> str:
    """Returns the table of what the last update left of each weight."""
    latest: Line = {}
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


def table(pairs: Iterable[tuple[str, Any]]) -> str:
    """Returns a table of names and values."""
    rows = "".join(f"<tr><th>{escape(str(name))}</th><td>{escape(str(value))}</td></tr>"
                   for name, value in pairs)
    return f'<table class="plain">{rows}</table>'


def draw_all(metrics: list[Line], steps: int, entropy: float | None) -> list[str]:
    """Returns the figures."""
    def points(key: str, scale: float = 1) -> Points:
        return series(metrics, key, scale)

    def figure(title: str) -> Figure:
        return Figure(title, steps)

    loss = figure("loss (nats per token)").curve("training", points("loss"), faint=True)
    loss.curve("held out", points("held_out"), COLORS[1], dots=True)
    if entropy is not None:
        loss.mark("unigram entropy", entropy)
    times = sorted(value for _, value in points("step_time", 1e3))
    slow = times[int(len(times) * 0.98)] * 1.15 if times else 1  # the first steps may be slower
    time = figure("time of a step (ms)").curve("all", points("step_time", 1e3))
    time.curve("forward and backward", points("forward_backward_time", 1e3), COLORS[2])
    time.curve("optimizer", points("optimizer_time", 1e3), COLORS[1])
    return [
        loss.both(),
        figure("accuracy").curve("training", points("accuracy"), faint=True)
        .curve("held out", points("held_out_accuracy"), COLORS[1], dots=True).draw(low=0),
        figure("learning rate").curve("", points("lr")).draw(low=0),
        time.both(low=0, high=slow),
        figure("time of a pattern update (ms)")
        .curve("", points("update_time", 1e3), dots=True).draw(low=0),
        figure("blocks replaced by an update").curve("pruned", points("pruned"), COLORS[1], dots=True)
        .curve("regrown", points("regrown"), dots=True, faint=True).draw(low=0),
        figure("positions ever used (% of all)").curve("ever used", points("used", 100), dots=True)
        .curve("stored", points("density", 100), COLORS[1]).draw(low=0),
        figure("regrown blocks lost at the next update (%)")
        .curve("", points("lost", 100), dots=True).draw(low=0, high=100),
        figure("blocks of the fullest row / mean of all rows")
        .curve("worst weight", points("imbalance"), dots=True).draw(),
    ]


def tiles(metrics: list[Line], summary: dict[str, Any], steps: int) -> str:
    """Returns the few numbers that matter most."""
    def last(key: str) -> Any:
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


def page(path: Path) -> str:
    """Returns the page of the run in the folder `path`."""
    try:
        config = read_config((path / "config.yaml").read_text())
        metrics = read_lines(path / "metrics.jsonl")
        pictures = read_lines(path / "patterns.jsonl")
        sessions = read_lines(path / "sessions.jsonl")
        end = path / "summary.json"  # only a finished run has one
        summary = parse(end.read_text()) if end.exists() else {}
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
