# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes a step with a chain whose links read the one before twice.

    write-chain.py KIND LINKS

What looks at all ways from one end of a chain to the other takes 2^LINKS steps.
"""

import sys

X, W = "tensor<32x64xf32>", "tensor<64x64xf32>"
ARGUMENTS = (
    f'%w: {W} {{bsr.name = "w", bsr.result = 0 : i64}}, %x: {X} {{bsr.name = "x"}}, %dy: {X} {{bsr.name = "dy"}}'
)
# What one link makes of %a and %b, both of them the last one.
MUL = ["%1 = arith.mulf %a, %b : f32"]
ADD = ["%0 = arith.addf %a, %b : f32", "%1 = arith.mulf %0, %half : f32"]
LOGISTIC = ["%0 = arith.subf %one, %b : f32", "%1 = arith.mulf %a, %0 : f32"]
ROWS = [
    "affine_map<(i, j, k) -> (k, i)>",
    "affine_map<(i, j, k) -> (k, j)>",
    "affine_map<(i, j, k) -> (i, j)>",
]


def generic(name, reads, body, type, maps=None, kinds=None, init=None, element="f32"):
    """The lines of an operation on elements."""
    rank = type.count("x")
    identity = f"affine_map<({', '.join('ijkl'[:rank])}) -> ({', '.join('ijkl'[:rank])})>"
    maps = maps or [identity] * (len(reads) + 1)
    kinds = kinds or ["parallel"] * rank
    arguments = [f"%{'ab'[i]}: {element}" for i in range(len(reads))]
    types = [of for _, of in reads]
    return [
        f"  {name} = linalg.generic {{indexing_maps = [{', '.join(maps)}],",
        f"      iterator_types = [{', '.join(repr(kind) for kind in kinds)}]}}".replace("'", '"'),
        f"      ins({', '.join(read for read, _ in reads)} : {', '.join(types)}) outs({init or '%init'} : {type}) {{",
        f"  ^bb0({', '.join(arguments)}, %o: {element}):",
        *(f"    {line}" for line in body),
        f"    linalg.yield %1 : {element}",
        f"  }} -> {type}",
    ]


def chain(first, links, body, type, prefix="c", **options):
    """A chain of links; the last value."""
    lines, last = [], first
    for i in range(links):
        lines += generic(f"%{prefix}{i}", [(last, type), (last, type)], body, type, **options)
        last = f"%{prefix}{i}"
    return lines, last


def diamonds(first, links, type, init):
    """Two ways from each value to the next; the last value."""
    lines, last = [], first
    for i in range(links):
        lines += generic(f"%p{i}", [(last, type)], ["%1 = arith.mulf %a, %half : f32"], type, init=init)
        lines += generic(f"%q{i}", [(last, type)], ["%1 = arith.subf %one, %a : f32"], type, init=init)
        lines += generic(f"%d{i}", [(f"%p{i}", type), (f"%q{i}", type)], MUL, type, init=init)
        last = f"%d{i}"
    return lines, last


def step(links, forward=None, weight=None, update=None):
    """A product, its gradient and an update; chains before, between and behind."""
    before, w = weight(links) if weight else ([], "%w")
    lines = [*before, f"  %y = linalg.matmul ins(%x, {w} : {X}, {W}) outs(%zeros : {X}) -> {X}"]
    between, y = forward("%y", links) if forward else ([], "%y")
    lines += between
    maps = f"indexing_maps = [{', '.join(ROWS)}] "
    lines.append(f"  %dw = linalg.matmul {maps}ins(%x, {y} : {X}, {X}) outs(%zeros_w : {W}) -> {W}")
    behind, g = update("%dw", links) if update else ([], "%dw")
    lines += behind
    lines += generic("%next", [("%w", W), (g, W)], ["%1 = arith.subf %a, %b : f32"], W, init="%init_w")
    return lines, [("%next", W), (y, X)]


def reduction(links):
    """The sum of a chain, whose gradient is another one."""
    lines, y = chain("%x", links, LOGISTIC, X)
    lines += generic(
        "%sum", [(y, X)], ["%1 = arith.addf %a, %o : f32"], "tensor<f32>", kinds=["reduction", "reduction"],
        maps=["affine_map<(i, j) -> (i, j)>", "affine_map<(i, j) -> ()>"], init="%zero_sum",
    )  # fmt: skip
    more, results = step(links, forward=lambda y, n: chain(y, n, ADD, X, prefix="f"))
    return lines + more, [*results, ("%sum", "tensor<f32>")]


def lookup(links):
    """Rows at indices that are computed from indices."""
    index = ["%r0 = arith.index_cast %a : i32 to index"]
    for i in range(links):
        index.append(f"%t{i} = arith.addi %r{i}, %r{i} : index")
        index.append(f"%r{i + 1} = arith.remui %t{i}, %rows : index")
    lines = [
        '  %looked = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],'
        ' iterator_types = ["parallel", "parallel"]}',
        f"      ins(%given : tensor<32xi32>) outs(%init : {X}) {{",
        "  ^bb0(%a: i32, %o: f32):",
        *(f"    {line}" for line in index),
        "    %j = linalg.index 1 : index", f"    %1 = tensor.extract %x[%r{links}, %j] : {X}",
        "    linalg.yield %1 : f32", f"  }} -> {X}",
    ]  # fmt: skip
    more, results = step(links)
    return lines + more, [*results, ("%looked", X)]


Q, S, H = "tensor<2x16x8xf32>", "tensor<2x16x16xf32>", "tensor<2x16xf32>"
BATCHED = 'affine_map<(b, i, j, k) -> ({})>'


def attention(links, keys=False):
    """Attention whose mask, or whose keys, are at the end of a chain."""
    lines, k = chain("%k", links if keys else 1, MUL, Q, init="%init_q")
    P = "tensor<16x16xi32>"
    flip = ["%0 = arith.muli %a, %b : i32", "%1 = arith.subi %i_one, %0 : i32"]
    lines += [
        '  %causal = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}',
        f"      outs(%init_p : {P}) {{", "  ^bb0(%o: i32):", "    %i = linalg.index 0 : index", "    %j = linalg.index 1 : index",
        "    %0 = arith.cmpi sge, %i, %j : index", "    %1 = arith.extui %0 : i1 to i32", "    linalg.yield %1 : i32", f"  }} -> {P}",
    ]  # fmt: skip
    more, mask = chain("%causal", 1 if keys else links, flip, P, prefix="m", init="%init_p", element="i32")
    lines += more
    M = "tensor<16x16xi1>"
    same = "affine_map<(i, j) -> (i, j)>"
    lines += [
        f'  %mask = linalg.generic {{indexing_maps = [{same}, {same}], iterator_types = ["parallel", "parallel"]}}',
        f"      ins({mask} : {P}) outs(%init_m : {M}) {{", "  ^bb0(%a: i32, %o: i1):", "    %1 = arith.cmpi eq, %a, %i_one : i32",
        "    linalg.yield %1 : i1", f"  }} -> {M}",
    ]  # fmt: skip

    def contract(name, a, b, maps, a_type, b_type, type, init):
        maps = ", ".join(BATCHED.format(m) for m in maps)
        lines.extend([
            f"  {name} = linalg.generic {{indexing_maps = [{maps}],",
            '      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}',
            f"      ins({a}, {b} : {a_type}, {b_type}) outs({init} : {type}) {{", "  ^bb0(%a: f32, %b: f32, %o: f32):",
            "    %0 = arith.mulf %a, %b : f32", "    %1 = arith.addf %o, %0 : f32", "    linalg.yield %1 : f32", f"  }} -> {type}",
        ])  # fmt: skip

    contract("%s", "%q", k, ("b, i, k", "b, j, k", "b, i, j"), Q, Q, S, "%zeros_s")
    cube, row = "affine_map<(i, j, k) -> (i, j, k)>", "affine_map<(i, j, k) -> (i, j)>"
    lines.extend([
        f"  %masked = linalg.generic {{indexing_maps = [affine_map<(i, j, k) -> (j, k)>, {cube}, {cube}],",
        '      iterator_types = ["parallel", "parallel", "parallel"]}',
        f"      ins(%mask, %s : {M}, {S}) outs(%init_s : {S}) {{", "  ^bb0(%m: i1, %a: f32, %o: f32):",
        "    %1 = arith.select %m, %a, %low : f32", "    linalg.yield %1 : f32", f"  }} -> {S}",
    ])  # fmt: skip
    over = ["parallel", "parallel", "reduction"]
    lines += generic("%max", [("%masked", S)], ["%1 = arith.maximumf %a, %o : f32"], H, [cube, row], over, "%lows")
    lines += generic("%e", [("%masked", S), ("%max", H)], ["%0 = arith.subf %a, %b : f32", "%1 = math.exp %0 : f32"], S,
                     [cube, row, cube], init="%init_s")
    lines += generic("%sums", [("%e", S)], ["%1 = arith.addf %a, %o : f32"], H, [cube, row], over, "%zeros_h")
    lines += generic("%p", [("%e", S), ("%sums", H)], ["%1 = arith.divf %a, %b : f32"], S, [cube, row, cube], init="%init_s")
    contract("%mixed", "%p", "%v", ("b, i, k", "b, k, j", "b, i, j"), S, Q, Q, "%zeros_q")
    more, results = step(links)
    return lines + more, [*results, ("%mixed", Q)]


KINDS = {
    "forward": lambda n: step(n, forward=lambda y, n: chain(y, n, MUL, X)),
    "logistic": lambda n: step(n, forward=lambda y, n: chain(y, n, LOGISTIC, X)),
    "diamonds": lambda n: step(n, forward=lambda y, n: diamonds(y, n, X, "%init")),
    "update": lambda n: step(n, update=lambda g, n: chain(g, n, ADD, W, init="%init_w")),
    "update-diamonds": lambda n: step(n, update=lambda g, n: diamonds(g, n, W, "%init_w")),
    "weight": lambda n: step(n, weight=lambda n: chain("%w", n, MUL, W, init="%init_w")),
    "reduction": reduction,
    "lookup": lookup,
    "mask": attention,
    "keys": lambda n: attention(n, keys=True),
}
CONSTANTS = f"""
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %one = arith.constant 1.0 : f32
  %low = arith.constant 0xFF800000 : f32
  %i_one = arith.constant 1 : i32
  %rows = arith.constant 32 : index
  %init = tensor.empty() : {X}
  %init_w = tensor.empty() : {W}
  %init_p = tensor.empty() : tensor<16x16xi32>
  %init_m = tensor.empty() : tensor<16x16xi1>
  %init_q = tensor.empty() : {Q}
  %init_s = tensor.empty() : {S}
  %zeros = arith.constant dense<0.0> : {X}
  %zeros_w = arith.constant dense<0.0> : {W}
  %zeros_q = arith.constant dense<0.0> : {Q}
  %zeros_s = arith.constant dense<0.0> : {S}
  %zeros_h = arith.constant dense<0.0> : {H}
  %lows = arith.constant dense<0xFF800000> : {H}
  %zero_sum = arith.constant dense<0.0> : tensor<f32>
"""


def main():
    kind, links = sys.argv[1], int(sys.argv[2])
    lines, results = KINDS[kind](links)
    arguments = ARGUMENTS
    if kind == "lookup":
        arguments += ', %given: tensor<32xi32> {bsr.name = "given"}'
    if kind in ("mask", "keys"):
        arguments += "".join(f', %{name}: {Q} {{bsr.name = "{name}"}}' for name in "qkv")
    outputs = [W, *(f'{type} {{bsr.name = "out{i}"}}' for i, (_, type) in enumerate(results[1:]))]
    print(f"func.func @step({arguments}) -> ({', '.join(outputs)}) {{{CONSTANTS}")
    print("\n".join(lines))
    print(f"  return {', '.join(v for v, _ in results)} : {', '.join(t for _, t in results)}\n}}")


main()
