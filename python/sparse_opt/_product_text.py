# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Programs of products with one block-sparse matrix.

"""What kernels of layers are compiled from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparse_opt import _activations

if TYPE_CHECKING:
    from sparse_opt._products import Matrix, Wanted


class Operands:
    """What activations are to the products of a program: here, as they are given.

    Attributes:
      matrix, tokens: of the program.
      body: its lines so far.
      x, y: the types of activations, and of what is made of them.
      product: the type of what a product makes for y.
      feature_dim: the dimension of what products read that has features.
      given_x: the value that is x.
    """

    feature_dim = 1
    given_x = "%x"

    def __init__(self, matrix: Matrix, tokens: int) -> None:
        self.matrix, self.tokens = matrix, tokens
        self.body: list[str] = []
        self.x = f"tensor<{tokens}x{matrix.cols}x{matrix.type}>"
        self.y = self.product = f"tensor<{tokens}x{matrix.rows}x{matrix.type}>"

    def read_x(self) -> tuple[str, str]:
        """Returns what products read of x, and its type."""
        return self.given_x, self.x

    def made_y(self, product: str) -> str:
        """Returns y by its product."""
        return product

    def read_dy(self, dy: str, for_dx: bool) -> tuple[str, str]:
        """Returns what the product for dx, or else others, read of dy, and its type."""
        return dy, self.y

    def product_dx(self, dy: str) -> str:
        """Returns the type of what a product makes for dx, of what has the type `dy`."""
        return self.x

    def made_dx(self, product: str) -> str:
        """Returns dx by its product."""
        return product


def text_of(
    matrix: Matrix, tokens: int, wanted: Wanted, always_weight: bool = False
) -> str:
    """Returns the program of a kernel for so many tokens, one of a pattern with its weight
    always if the runtime is to load it as a step."""
    kind = matrix.type
    pattern = (
        f"!bsr.pattern<{matrix.rows}x{matrix.cols}, block ="
        f" {matrix.block_rows}x{matrix.block_cols}, slots = {matrix.slots}>"
    )
    operands = matrix.operands(tokens)
    x, y, body = operands.x, operands.y, operands.body
    feature_dim = f"feature_dim = {operands.feature_dim}"
    shape = f"tensor<{matrix.slots}x{matrix.block_rows}x{matrix.block_cols}x"
    # Sums of gradients go over calls.
    total = "f64" if kind == "f64" else "f32"
    w, dw, db = f"{shape}{kind}>", f"{shape}{total}>", f"tensor<{matrix.rows}x{total}>"
    arguments = []
    if not wanted.scores:
        arguments.append(f'%p: {pattern} {{bsr.name = "w", bsr.role = "pattern"}}')
    results: list[tuple[str, str, str]] = []  # value, type, name

    def argument(name: str, type: str, extra: str = "") -> None:
        arguments.append(f'%{name}: {type} {{bsr.name = "{name}"{extra}}}')

    def carried(name: str, type: str, value: str, extra: str = "") -> None:
        argument(name, type, f"{extra}, bsr.result = {len(results)} : i64")
        results.append((value, type, name))

    of_pattern = ", bsr.pattern = 0 : i64"
    if wanted.y or wanted.dx or (always_weight and wanted.dw):
        argument("w", w, of_pattern)
    if wanted.y or wanted.dw or wanted.scores:
        argument("x", x)
        if wanted.of_x:
            body.append(_activations.value(wanted.of_x, "%of_x", "%x", x, kind))
            operands.given_x = "%of_x"
        read, read_type = operands.read_x()
    if wanted.dx or wanted.dw or wanted.scores:
        argument("dy", y)
    if wanted.y:
        bias = b = ""
        if wanted.bias:
            # Sums begin with it: they are rounded once.
            bias, b = " bias %b", f", tensor<{matrix.rows}x{kind}>"
            argument("b", f"tensor<{matrix.rows}x{kind}>")
        body.append(
            f"%z = bsr.spmm %p, %w, {read}{bias} transpose {feature_dim} :"
            f" {pattern}, {w}, {read_type}{b} -> {operands.product}"
        )
        value = z = operands.made_y("%z")
        if wanted.activation:
            value = "%y"
            body.append(_activations.value(wanted.activation, value, z, y, kind))
        results.append((value, y, "y"))
        if wanted.z:
            results.append((z, y, "z"))
    dy = "%dy"
    if wanted.activation and not wanted.y:
        argument("z", y)
        dy = "%dz"
        body.append(_activations.gradient(wanted.activation, dy, "%z", "%dy", y, kind))
    if wanted.dx:
        given, given_type = operands.read_dy(dy, True)
        made_type = operands.product_dx(given_type)
        body.append(
            f"%dx = bsr.spmm %p, %w, {given} {feature_dim} : {pattern}, {w}, {given_type} ->"
            f" {made_type}"
        )
        results.append((operands.made_dx("%dx"), x, "dx"))
    if wanted.dw:
        given, given_type = operands.read_dy(dy, False)
        carried("dw", dw, "%dw_sum", of_pattern)
        body.append(
            f"%g = bsr.sddmm %p, {given}, {read} {feature_dim} : {pattern}, {given_type},"
            f" {read_type} -> {dw}\n"
            f"  %dw_sum = linalg.add ins(%dw, %g : {dw}, {dw}) outs(%g : {dw}) -> {dw}"
        )
        if wanted.bias:
            carried("db", db, "%db_sum")
            body.append(_sum_tokens(given, given_type, operands.feature_dim, db, kind, total))
    if wanted.scores:
        given, given_type = operands.read_dy(dy, False)
        grid = f"tensor<{matrix.grid[0]}x{matrix.grid[1]}xf32>"
        body.append(
            f"%s = bsr.block_scores {wanted.scores} {given}, {read} {feature_dim} :"
            f" {given_type}, {read_type} -> {grid}"
        )
        results.append(("%s", grid, "scores"))
    types = ", ".join(type for _, type, _ in results)
    named = ", ".join(f'{type} {{bsr.name = "{name}"}}' for _, type, name in results)
    lines = "\n  ".join(body)
    return (
        f"func.func @step({', '.join(arguments)}) -> ({named}) {{\n  {lines}\n"
        f"  return {', '.join(value for value, _, _ in results)} : {types}\n}}\n"
    )


def _sum_tokens(dy: str, y: str, feature_dim: int, db: str, kind: str, total: str) -> str:
    value, widened = "%0", ""
    if kind != total:
        value, widened = "%2", f"%2 = arith.extf %0 : {kind} to {total}\n    "
    dims = [f"d{d}" for d in range(y.count("x"))]
    given = f"affine_map<({', '.join(dims)}) -> ("
    kinds = ["parallel" if d == feature_dim else "reduction" for d in range(len(dims))]
    return f"""%db_sum = linalg.generic {{
      indexing_maps = [{given}{', '.join(dims)})>, {given}{dims[feature_dim]})>],
      iterator_types = [{', '.join(f'"{k}"' for k in kinds)}]}} ins({dy} : {y}) outs(%db : {db}) {{
  ^bb0(%0: {kind}, %1: {total}):
    {widened}%3 = arith.addf %1, {value} : {total}
    linalg.yield %3 : {total}
  }} -> {db}"""
