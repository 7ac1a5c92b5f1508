// RUN: sparse-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{argument #0: expected bsr.kind to be row_ptr, col_idx, slot, col_ptr, row_idx, slot_t, output, flag or arena, but got "pointers"}}
func.func private @kind(memref<3xi32> {bsr.kind = "pointers"})

// -----

// expected-error @below {{argument #0: expected bsr.pattern_number to be an integer, but got "first"}}
func.func private @pattern_number(memref<3xi32> {bsr.pattern_number = "first"})

// -----

// expected-error @below {{argument #0: expected bsr.carried to be a unit attribute, but got true}}
func.func private @carried(memref<3xf32> {bsr.carried = true})

// -----

// expected-error @below {{argument #1: expected a name of its own, but got "w", the name of argument #0}}
func.func private @same_kind(memref<3xi32> {bsr.name = "w", bsr.kind = "slot"},
                             memref<3xi32> {bsr.name = "w", bsr.kind = "slot"})
