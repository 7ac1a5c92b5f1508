// RUN: not sparse-opt %s --bsr-mark 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not sparse-opt %s --bsr-mark="match=(" 2>&1 | FileCheck %s --check-prefix=REGEX
// RUN: not sparse-opt %s --bsr-mark='match=layer\.\d' 2>&1 | FileCheck %s --check-prefix=CLASS
// RUN: not sparse-opt %s --bsr-mark="match=w block=16" 2>&1 | FileCheck %s --check-prefix=BLOCK
// RUN: not sparse-opt %s --bsr-mark="match=w block=0x4" 2>&1 | FileCheck %s --check-prefix=EMPTY
// RUN: not sparse-opt %s --bsr-mark="match=w density=low" 2>&1 | FileCheck %s --check-prefix=LOW
// RUN: not sparse-opt %s --bsr-mark="match=w density=0" 2>&1 | FileCheck %s --check-prefix=ZERO
// RUN: not sparse-opt %s --bsr-mark="match=w density=1.5" 2>&1 | FileCheck %s --check-prefix=MORE
// RUN: not sparse-opt %s --bsr-mark="match=w density=nan" 2>&1 | FileCheck %s --check-prefix=NAN
// RUN: not sparse-opt %s --bsr-mark="match=w dims=rows,col" 2>&1 | FileCheck %s --check-prefix=NAME
// RUN: not sparse-opt %s --bsr-mark="match=w dims=row,stack,col" 2>&1 | FileCheck %s --check-prefix=ORDER
// RUN: not sparse-opt %s --bsr-mark="match=w dims=stack,row" 2>&1 | FileCheck %s --check-prefix=COLS
// RUN: not sparse-opt %s --bsr-mark="match=w dims=stack,row,col" 2>&1 | FileCheck %s --check-prefix=COUNT

// NONE: error: expected option match to be a regular expression, but got ''
// REGEX: error: expected option match to be a regular expression, but got '(': parentheses not balanced
// CLASS: error: expected option match to be an extended regular expression of POSIX, but got '\d': write a set like [0-9] or [a-z_]
// BLOCK: error: expected option block to be <rows>x<columns>, but got '16'
// EMPTY: error: expected a block of at least 1x1, but got 0x4
// LOW: error: expected option density to be a number, but got 'low'
// ZERO: error: expected density in (0, 1], but got 0
// MORE: error: expected density in (0, 1], but got 1.5
// NAN: error: expected density in (0, 1], but got nan
// NAME: error: expected option dims to list stack, row or col for each dimension, but got 'rows,col'
// ORDER: error: expected dims to be stacks, then at least one row, then at least one col, but got row,stack,col: stack weights along their first dimension
// COLS: error: expected dims to be stacks, then at least one row, then at least one col, but got stack,row{{$}}
// COUNT: error: argument "w": expected dims for each of the 2 dimensions of 'tensor<16x16xf32>', but got 3
func.func @step(%w: tensor<16x16xf32> {bsr.name = "w"}) { return }
