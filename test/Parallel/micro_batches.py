# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains layers of products in stages and micro-batches, and compares them with numpy in float64.

    micro_batches.py STAGES MICRO_BATCHES SCHEDULE [BLOCK [ROWS]]

Six layers with momenta, of batches of ROWS, of which the last has the weight of the first, tied; each second one is in
blocks of BLOCK, with random patterns, an empty and a full row. The update is clipped by the norm of all gradients.
Stages run on threads; prints what is live at once in the first stage, in bytes.
"""

import sys
import tempfile
import threading
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "test" / "Integration"), str(ROOT / "test" / "Parallel")]
import step
import subprocess
import team
import numpy as np

ROWS = int(sys.argv[5]) if len(sys.argv) > 5 else 9
SIZE, LAYERS, STEPS = 48, 6, 3
TIED = {LAYERS - 1: 0}
RATE, MOMENTUM, CLIP = 0.05, 0.9, 0.7


class Text:
    """MLIR of operations, line by line."""

    def __init__(self):
        self.lines, self.count = [], 0

    def generic(self, inputs, types, result, maps, loops, body):
        """`body` has %a, %b and so on, and yields %r; %o is what was there."""
        self.count += 1
        zero, value = f"%z{self.count}", f"%v{self.count}"
        names = ", ".join(f"%{'abcd'[i]}: f32" for i in range(len(inputs)))
        self.lines.append(f"""  {zero} = arith.constant dense<0.0> : {result}
  {value} = linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{', '.join(f'"{l}"' for l in loops)}]}}
      ins({', '.join(inputs)} : {', '.join(types)}) outs({zero} : {result}) {{
  ^bb0({names}, %o: f32):
{body}
    linalg.yield %r : f32
  }} -> {result}""")
        return value

    def product(self, a, b, types, result, maps):
        return self.generic([a, b], types, result, [f"affine_map<(i, j, k) -> {m}>" for m in maps],
                            ["parallel", "parallel", "reduction"],
                            "    %p = arith.mulf %a, %b : f32\n    %r = arith.addf %o, %p : f32")

    def entries(self, inputs, result, body):
        maps = [f"affine_map<(i, j) -> {'()' if t == 'tensor<f32>' else '(i, j)'}>" for _, t in inputs]
        maps.append("affine_map<(i, j) -> (i, j)>")
        return self.generic([v for v, _ in inputs], [t for _, t in inputs], result, maps, ["parallel"] * 2, body)

    def squares(self, value, kind):
        return self.generic([value], [kind], "tensor<f32>",
                            ["affine_map<(i, j) -> (i, j)>", "affine_map<(i, j) -> ()>"], ["reduction"] * 2,
                            "    %p = arith.mulf %a, %a : f32\n    %r = arith.addf %o, %p : f32")

    def numbers(self, inputs, body):
        return self.generic(inputs, ["tensor<f32>"] * len(inputs), "tensor<f32>",
                            ["affine_map<() -> ()>"] * (len(inputs) + 1), [], body)


def make_step():
    x, w, s = f"tensor<{ROWS}x{SIZE}xf32>", f"tensor<{SIZE}x{SIZE}xf32>", "tensor<f32>"
    t = Text()
    weights = [i for i in range(LAYERS) if i not in TIED]
    of = lambda i: f"%w{TIED.get(i, i)}"
    forward, inputs, masks = "%x", [], []
    for i in range(LAYERS):
        inputs.append(forward)
        y = t.product(forward, of(i), [x, w], x, ["(i, k)", "(k, j)", "(i, j)"])
        masks.append(y)
        forward = t.entries([(y, x)], x, "    %s = arith.constant 0.0 : f32\n    %r = arith.maximumf %a, %s : f32")
    difference = t.entries([(forward, x), ("%t", x)], x, "    %r = arith.subf %a, %b : f32")
    loss = t.squares(difference, x)
    back = t.entries([(difference, x)], x, "    %s = arith.constant 2.0 : f32\n    %r = arith.mulf %a, %s : f32")
    gradients = {}
    for i in reversed(range(LAYERS)):
        back = t.entries([(masks[i], x), (back, x)], x, "    %s = arith.constant 0.0 : f32\n"
                         "    %c = arith.cmpf ogt, %a, %s : f32\n    %r = arith.select %c, %b, %s : f32")
        g = t.product(inputs[i], back, [x, x], w, ["(k, i)", "(k, j)", "(i, j)"])
        known = gradients.get(TIED.get(i, i))
        gradients[TIED.get(i, i)] = g if not known else t.entries(
            [(known, w), (g, w)], w, "    %r = arith.addf %a, %b : f32")
        if i:
            back = t.product(back, of(i), [x, w], x, ["(i, k)", "(j, k)", "(i, j)"])
    norm = None
    for i in weights:
        square = t.squares(gradients[i], w)
        norm = square if not norm else t.numbers([norm, square], "    %r = arith.addf %a, %b : f32")
    factor = t.numbers([norm], f"    %s = math.sqrt %a : f32\n    %e = arith.constant {CLIP} : f32\n"
                       "    %m = arith.maximumf %s, %e : f32\n    %r = arith.divf %e, %m : f32")
    results, arguments = [], []
    for i in weights:
        m = t.entries([(f"%m{i}", w), (gradients[i], w), (factor, s)], w,
                      f"    %e = arith.constant {MOMENTUM} : f32\n    %p = arith.mulf %a, %e : f32\n"
                      "    %q = arith.mulf %b, %c : f32\n    %r = arith.addf %p, %q : f32")
        n = t.entries([(f"%w{i}", w), (m, w)], w, f"    %e = arith.constant {RATE} : f32\n"
                      "    %p = arith.mulf %b, %e : f32\n    %r = arith.subf %a, %p : f32")
        for name, role, value in (("w", "param", n), ("m", "state", m)):
            arguments.append(f'%{name}{i}: {w} {{bsr.name = "{name}{i}", bsr.role = "{role}", '
                             f'bsr.result = {len(results)} : i64}}')
            results.append(value)
    arguments += [f'%{v}: {x} {{bsr.name = "{v}", bsr.role = "batch"}}' for v in "xt"]
    types = ", ".join([w] * len(results))
    return (f"func.func @step({', '.join(arguments)}) -> ({types}, {s} {{bsr.name = \"loss\", bsr.role = \"loss\"}}) {{\n"
            + "\n".join(t.lines) + f"\n  return {', '.join(results)}, {loss} : {types}, {s}\n}}\n")


def reference(weights, momenta, masks, batches):
    """The same in float64: weights, momenta and the mean loss after a training step."""
    gradients, losses = {i: 0 for i in weights}, 0
    for x, target in batches:
        inputs, sums = [], []
        for i in range(LAYERS):
            inputs.append(x)
            sums.append(x @ weights[TIED.get(i, i)])
            x = np.maximum(sums[-1], 0)
        losses += ((x - target) ** 2).sum() / len(batches)
        back = 2 * (x - target)
        for i in reversed(range(LAYERS)):
            back = back * (sums[i] > 0)
            own = TIED.get(i, i)
            gradients[own] = gradients[own] + inputs[i].T @ back / len(batches)
            back = back @ weights[own].T
    gradients = {i: g * masks.get(i, 1) for i, g in gradients.items()}
    norm = np.sqrt(sum((g ** 2).sum() for g in gradients.values()))
    for i in weights:
        momenta[i] = MOMENTUM * momenta[i] + gradients[i] * CLIP / max(norm, CLIP)
        weights[i] = weights[i] - RATE * momenta[i]
    return losses


def main():
    stages, count, schedule = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    block = int(sys.argv[4]) if len(sys.argv) > 4 else 16
    random = np.random.default_rng(7)
    weights = {i: random.normal(size=(SIZE, SIZE)) * 1.5 / np.sqrt(SIZE) for i in range(LAYERS) if i not in TIED}
    blocks, masks = {}, {}
    for i in weights:
        if i % 2:
            blocks[i] = random.random((SIZE // block, SIZE // block)) < 0.5
            blocks[i][0], blocks[i][-1] = True, False
            masks[i] = np.kron(blocks[i], np.ones((block, block)))
            weights[i] *= masks[i]
    momenta = {i: np.zeros((SIZE, SIZE)) for i in weights}
    data = [[(random.normal(size=(ROWS, SIZE)), random.normal(size=(ROWS, SIZE))) for _ in range(count)]
            for _ in range(STEPS)]
    options = ["-O0", f"--micro-batches={count}", f"--schedule={schedule}"]
    for i in blocks:
        options.append(f"--mark=match=^w{i}$ block={block}x{block} density={blocks[i].mean()}")
    given = {}
    for i in weights:
        values = weights[i].astype(np.float32)
        given[f"w{i}"] = step.to_values(values, blocks[i], (block, block)) if i in blocks else values
        given[f"m{i}"] = np.zeros_like(given[f"w{i}"])
    compiled = []
    with tempfile.TemporaryDirectory() as folder:
        for stage in range(stages):
            own = options + ([f"--stages={stages}", f"--stage={stage}"] if stages > 1 else [])
            path = Path(folder) / f"{stage}.so"
            subprocess.run(["sparse-compile", *own, "-", "-o", path], input=make_step(), text=True, check=True)
            compiled.append(step.Step(path))
    communicators = team.Communicators(stages)
    got, losses, threads = {}, [[] for _ in range(stages)], []

    def run(stage):
        library = compiled[stage]
        arrays = {**given, **{(f"micro{i}." if i else "") + v: np.zeros((ROWS, SIZE)) for i in range(count) for v in "xt"}}
        patterns = {f"w{i}": mask for i, mask in blocks.items()}
        buffers, run_once = library.bind(arrays, patterns)
        names = {(b["name"], b["kind"]): buffer for b, buffer in zip(library.manifest["buffers"], buffers)}
        by_name = {name: buffer for (name, kind), buffer in names.items() if kind not in step.VIEWS}
        context = step.Context()
        context.communicator = communicators.make(stage)
        for number in range(STEPS):
            for i, batch in enumerate(data[number]):
                for v, value in zip("xt", batch):
                    if (name := (f"micro{i}." if i else "") + v) in by_name:
                        by_name[name][...] = value
            assert run_once(context) == 0
            losses[stage].append(float(by_name["loss"]))
        for name, value in by_name.items():
            if name[0] in "wm" and name[1:].isdigit():
                got.setdefault(name, []).append(value)

    for stage in range(stages):
        threads.append(threading.Thread(target=run, args=(stage,), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(2 * team.SECONDS)
    assert not communicators.failures, communicators.failures
    assert all(q.empty() for q in communicators.queues.values()), "a message that nobody receives"
    expected = [reference(weights, momenta, masks, batches) for batches in data]
    for own in losses:
        assert np.allclose(own, expected, rtol=1e-5), (own, expected)
    worst = 0
    for kind, wanted in (("w", weights), ("m", momenta)):
        for i, value in wanted.items():
            for found in got.pop(f"{kind}{i}"):
                dense = step.to_dense(found, blocks[i]) if i in blocks else found
                worst = max(worst, np.abs(dense - value).max() / np.abs(value).max())
    assert not got and worst < 1e-4, (got.keys(), worst)
    print(f"{STEPS} steps agree, live in the first stage: {compiled[0].manifest['live_bytes']}")


main()
