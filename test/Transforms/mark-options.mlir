// RUN: not sparse-opt %s --bsr-mark 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not sparse-opt %s --bsr-mark="match=(" 2>&1 | FileCheck %s --check-prefix=REGEX
// RUN: not sparse-opt %s --bsr-mark="match=w block=16" 2>&1 | FileCheck %s --check-prefix=BLOCK
// RUN: not sparse-opt %s --bsr-mark="match=w block=0x4" 2>&1 | FileCheck %s --check-prefix=EMPTY
// RUN: not sparse-opt %s --bsr-mark="match=w density=low" 2>&1 | FileCheck %s --check-prefix=LOW
// RUN: not sparse-opt %s --bsr-mark="match=w density=0" 2>&1 | FileCheck %s --check-prefix=ZERO
// RUN: not sparse-opt %s --bsr-mark="match=w density=1.5" 2>&1 | FileCheck %s --check-prefix=MORE
// RUN: not sparse-opt %s --bsr-mark="match=w density=nan" 2>&1 | FileCheck %s --check-prefix=NAN

// NONE: error: expected option match to be a regular expression, but got ''
// REGEX: error: expected option match to be a regular expression, but got '(': parentheses not balanced
// BLOCK: error: expected option block to be <rows>x<columns>, but got '16'
// EMPTY: error: expected a block of at least 1x1, but got 0x4
// LOW: error: expected option density to be a number, but got 'low'
// ZERO: error: expected density in (0, 1], but got 0
// MORE: error: expected density in (0, 1], but got 1.5
// NAN: error: expected density in (0, 1], but got nan
func.func @step(%w: tensor<16x16xf32> {bsr.name = "w"}) { return }
