# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that the README's figures are those of the tables that commands printed.

docs/benchmarks.md has the tables; what is a quotient of two of their numbers is computed
again. Every time in milliseconds outside of the README's own table has to be one of them.

    check_numbers.py <source root>
"""

import re
import sys
from pathlib import Path

root = Path(sys.argv[1])
readme, benchmarks = ((root / page).read_text() for page in ("README.md", "docs/benchmarks.md"))
errors = []


def expect(place, expected, got):
    if expected != got:
        errors.append(f"expected {expected} {place}, but got {got}")


def table(text, *columns):
    """The rows of the first table of a text whose header has these columns, in parts."""
    lines = iter(text.splitlines())
    for line in lines:
        header = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and set(columns) <= set(header):
            break
    else:
        sys.exit(f"expected a table with the columns {', '.join(columns)}, but got none")
    next(lines)
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append(dict(zip(header, (cell.strip() for cell in line.strip("|").split("|")))))
    return rows


def number(text):
    return float(text.replace(",", "").removesuffix(" x"))


# Steps of each model: milliseconds and peak of ours, and of PyTorch's best.
model = ""
models = {}
for row in table(benchmarks, "model", "ms", "speed-up", "peak MiB"):
    if found := re.search(r"\(`(.*)`\)", row["model"]):
        model = found[1]
    models.setdefault(model, {})[row["implementation"]] = row
for model, rows in models.items():
    torch = [row for name, row in rows.items() if name.startswith("torch")]
    if not torch:
        continue
    best = min(torch, key=lambda row: number(row["ms"]))
    for name, row in rows.items():
        speedup = f"{number(best['ms']) / number(row['ms']):.2f}"
        expect(f"as the speed-up of {name} for {model} in docs/benchmarks.md", speedup, row["speed-up"])
    if model == "base":
        ours = rows["ours"]
        times = {number(ours["ms"]), number(best["ms"])}
        share = f"{number(ours['peak MiB']) / number(best['peak MiB']):.2f}"

found = re.findall(r"([\d,.]*\d) ms\b", readme) + re.findall(r"PyTorch's best (?:dense one )?([\d,.]*\d)", readme)
for text in found:
    if number(text) not in times:
        errors.append(
            "expected the README's times of a step to be"
            f" {' or '.join(map(str, sorted(times)))} ms, as docs/benchmarks.md has them, but got {text}"
        )
if times - set(map(number, found)):
    errors.append(f"expected both {' and '.join(map(str, sorted(times)))} ms in the README, but got {', '.join(found)}")
shares = re.findall(r"\b(\d\.\d+) of (?:the|its)\s+memory", readme)
for text in shares or ["none"]:
    expect("of PyTorch's memory in the README", share, text)

# Kernels: how many times as fast as PyTorch's sparse ones.
quotients = [
    number(row[column])
    for row in table(benchmarks, "op", "torch-csr", "torch-bsr")
    for column in ("torch-csr", "torch-bsr")
    if row[column] != "-"
]
texts = re.findall(r"slower kernels \((\d+ to \d+) times", readme)
for text in texts or ["none"]:
    expect("times by torch.sparse in the README", f"{min(quotients):.0f} to {max(quotients):.0f}", text)

# What train-bert.sh printed: tokens and blocks go with milliseconds and density.
rows = {row[""]: row for row in table(readme, "10 % stored", "dense")}
for column in ("10 % stored", "dense"):
    milliseconds, rate = (number(rows[name][column]) for name in ("step, median (ms)", "tokens per second"))
    if abs(rate * milliseconds / 1024e3 - 1) > 0.01:
        errors.append(f"expected 1,024 tokens in {milliseconds} ms of the README, but got {rate} a second")
    stored, blocks = map(number, rows["blocks stored"][column].split(" of "))
    expect(f"stored ({column}) in the README", int(blocks * (0.1 if column[0] == "1" else 1)), int(stored))

if errors:
    sys.exit("\n".join(errors))
