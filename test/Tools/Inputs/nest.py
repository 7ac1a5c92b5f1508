# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Prints a module that nests: nest.py KIND DEPTH."""

import sys

kind, depth = sys.argv[1], int(sys.argv[2])
ARGUMENT = '%x: tensor<4xf32> {bsr.name = "x", bsr.result = 0 : i64}'


def step(body="", attributes=""):
    print(f"func.func @step({ARGUMENT}) -> tensor<4xf32> {attributes} {{\n{body}\n  return %x : tensor<4xf32>\n}}")


if kind == "brackets":
    step(attributes=f"attributes {{some.attribute = {'[' * depth}{']' * depth}}}")
elif kind == "types":
    step(attributes=f"attributes {{some.attribute = {'tuple<' * depth}f32{'>' * depth}}}")
elif kind == "expression":
    step(attributes=f"attributes {{some.attribute = affine_map<(i) -> ({'(' * depth}i{')' * depth})>}}")
elif kind == "terms":
    step(attributes=f"attributes {{some.attribute = affine_map<(i, j) -> ({' + '.join('i j'.split() * (depth // 2))})>}}")
elif kind == "signs":
    step(attributes=f"attributes {{some.attribute = affine_map<(i) -> ({'- ' * depth}i)>}}")
elif kind == "aliases":
    print("#a0 = [0]")
    for number in range(1, depth):
        print(f"#a{number} = [#a{number - 1}]")
    step(attributes=f"attributes {{some.attribute = #a{depth - 1}}}")
elif kind == "regions":
    step(body="  %c = arith.constant true\n" + "  scf.if %c {\n" * depth + "  }\n" * depth)
elif kind == "text":
    # Neither strings nor comments nest, nor do brackets that are closed again.
    step(
        attributes=f"attributes {{some.text = \"{'[' * depth}\", some.list = [{'[], ' * depth}[]]}}",
        body=f"  // {'[' * depth}",
    )
