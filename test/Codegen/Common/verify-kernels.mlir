// RUN: sparse-opt %s --split-input-file --bsr-verify-kernels --verify-diagnostics

// What is accepted: iterations as digits, in two dimensions and in one; lanes
// that go on in the next dimension; a buffer of which each iteration has a part,
// written and read in several nests.
func.func private @digits(%y: memref<48x64xf32>, %flat: memref<3072xf32>, %tail: memref<4x12x1xf32>,
                          %scratch: memref<12x16xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %c12 = arith.constant 12 : index
  %c16 = arith.constant 16 : index
  %c64 = arith.constant 64 : index
  %v = arith.constant dense<0.0> : vector<16xf32>
  %w = arith.constant dense<0.0> : vector<12xf32>
  scf.forall (%i, %j) in (3, 4) {
    %row = arith.muli %i, %c16 : index
    %lane = arith.muli %j, %c16 : index
    %item0 = arith.muli %i, %c4 : index
    %item = arith.addi %item0, %j : index
    scf.for %r = %c0 to %c16 step %c4 {
      %first = arith.addi %row, %r : index
      %second = arith.addi %first, %c1 : index
      vector.store %v, %y[%first, %lane] : memref<48x64xf32>, vector<16xf32>
      vector.store %v, %y[%second, %lane] : memref<48x64xf32>, vector<16xf32>
      %line = arith.muli %first, %c64 : index
      %at = arith.addi %line, %lane : index
      vector.store %v, %scratch[%item, %c0] : memref<12x16xf32>, vector<16xf32>
    }
    %base = arith.muli %item, %c64 : index
    %end = arith.addi %base, %c64 : index
    scf.for %k = %base to %end step %c16 {
      memref.prefetch %flat[%k], write, locality<3>, data : memref<3072xf32>
      %0 = vector.load %scratch[%item, %c0] : memref<12x16xf32>, vector<16xf32>
      vector.store %0, %flat[%k] : memref<3072xf32>, vector<16xf32>
    }
  }
  scf.forall (%i, %one) in (4, 1) {
    vector.store %w, %tail[%i, %c0, %c0] : memref<4x12x1xf32>, vector<12xf32>
  }
  return
}

func.func @launch_digits(%y: tensor<48x64xf32>, %flat: tensor<3072xf32>, %tail: tensor<4x12x1xf32>,
                         %scratch: tensor<12x16xf32>) {
  %0:4 = bsr.launch @digits outs(%y, %flat, %tail, %scratch
      : tensor<48x64xf32>, tensor<3072xf32>, tensor<4x12x1xf32>, tensor<12x16xf32>)
      -> tensor<48x64xf32>, tensor<3072xf32>, tensor<4x12x1xf32>, tensor<12x16xf32>
  return
}

// -----

// Tiles of four of 30 columns, in blocks of three tiles: the last block ends early,
// and so do the lanes of its last tile.
func.func private @blocks(%y: memref<2x30xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c7 = arith.constant 7 : index
  %v = arith.constant dense<0.0> : vector<4xf32>
  scf.forall (%row, %block) in (2, 3) {
    %low = arith.muli %block, %c3 : index
    %next = arith.addi %low, %c3 : index
    %high = arith.minui %next, %c7 : index
    scf.for %tile = %low to %high step %c1 {
      %column = arith.muli %tile, %c4 : index
      vector.store %v, %y[%row, %column] : memref<2x30xf32>, vector<4xf32>
    }
  }
  return
}

func.func @launch_blocks(%y: tensor<2x30xf32>) {
  %0 = bsr.launch @blocks outs(%y : tensor<2x30xf32>) -> tensor<2x30xf32>
  return
}

// -----

// Without that end, a vector goes on in the other row.
func.func private @endless(%y: memref<2x30xf32>) {
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %v = arith.constant dense<0.0> : vector<4xf32>
  // expected-note@+1 {{this is the loop}}
  scf.forall (%row, %block) in (2, 3) {
    %low = arith.muli %block, %c3 : index
    %high = arith.addi %low, %c3 : index
    scf.for %tile = %low to %high step %c1 {
      %column = arith.muli %tile, %c4 : index
      // expected-error@+1 {{expected iterations of a parallel loop to write different elements, but got a store whose indices do not tell them apart}}
      vector.store %v, %y[%row, %column] : memref<2x30xf32>, vector<4xf32>
    }
  }
  return
}

func.func @launch_endless(%y: tensor<2x30xf32>) {
  %0 = bsr.launch @endless outs(%y : tensor<2x30xf32>) -> tensor<2x30xf32>
  return
}

// -----

!pattern = !bsr.pattern<64x32, block = 8x8, slots = 12>

// A part of the lines, as much work as any other part: a loop between what the same
// operations find for an iteration and for the next. A vector of a line ends with it.
func.func private @parts(%ptr: memref<9xi32>, %slot: memref<12xi32>, %y: memref<64xf32>,
                         %v: memref<12x8x8xf32>) {
  %zeros = arith.constant dense<0.0> : vector<8xf32>
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %zero = arith.constant 0.0 : f32
  %total32 = memref.load %ptr[%c8] : memref<9xi32>
  %total = arith.index_cast %total32 : i32 to index
  scf.forall (%part) in (3) {
    %following = arith.addi %part, %c1 : index
    %work0 = arith.muli %total, %part : index
    %work1 = arith.muli %total, %following : index
    %target0 = arith.divui %work0, %c3 : index
    %target1 = arith.divui %work1, %c3 : index
    %first = scf.for %i = %c0 to %c8 step %c1 iter_args(%found = %c0) -> index {
      %at32 = memref.load %ptr[%i] : memref<9xi32>
      %at = arith.index_cast %at32 : i32 to index
      %less = arith.cmpi ult, %at, %target0 : index
      %next = arith.select %less, %i, %found : index
      scf.yield %next : index
    }
    %last = scf.for %i = %c0 to %c8 step %c1 iter_args(%found = %c0) -> index {
      %at32 = memref.load %ptr[%i] : memref<9xi32>
      %at = arith.index_cast %at32 : i32 to index
      %less = arith.cmpi ult, %at, %target1 : index
      %next = arith.select %less, %i, %found : index
      scf.yield %next : index
    }
    scf.for %line = %first to %last step %c1 {
      %low = arith.muli %line, %c8 : index
      vector.store %zeros, %y[%low] : memref<64xf32>, vector<8xf32>
      scf.for %tile = %c0 to %c8 step %c4 {
        %end0 = arith.addi %tile, %c4 : index
        %end = arith.minui %end0, %c8 : index
        scf.for %row = %tile to %end step %c1 {
          %feature = arith.addi %low, %row : index
          memref.store %zero, %y[%feature] : memref<64xf32>
        }
      }
      %next = arith.addi %line, %c1 : index
      %from32 = memref.load %ptr[%line] : memref<9xi32>
      %to32 = memref.load %ptr[%next] : memref<9xi32>
      %from = arith.index_cast %from32 : i32 to index
      %to = arith.index_cast %to32 : i32 to index
      scf.for %k = %from to %to step %c1 {
        %slot32 = memref.load %slot[%k] : memref<12xi32>
        %s = arith.index_cast %slot32 : i32 to index
        memref.store %zero, %v[%s, %c0, %c0] : memref<12x8x8xf32>
      }
    }
  }
  return
}

func.func @launch_parts(%p: !pattern, %y: tensor<64xf32>, %v: tensor<12x8x8xf32>) {
  %ptr, %idx, %slot = bsr.indices %p : !pattern -> tensor<9xi32>, tensor<12xi32>, tensor<12xi32>
  %0:2 = bsr.launch @parts ins(%ptr, %slot : tensor<9xi32>, tensor<12xi32>)
      outs(%y, %v : tensor<64xf32>, tensor<12x8x8xf32>) -> tensor<64xf32>, tensor<12x8x8xf32>
  return
}

// -----

!pattern = !bsr.pattern<64x32, block = 8x8, slots = 12>

// The end depends on the iteration in another way than the beginning.
func.func private @no_parts(%ptr: memref<9xi32>, %y: memref<8xf32>) {
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %zero = arith.constant 0.0 : f32
  // expected-note @below {{this is the loop}}
  scf.forall (%part) in (3) {
    %following = arith.addi %part, %c1 : index
    %square = arith.muli %part, %part : index
    %work0 = arith.muli %square, %part : index
    %work1 = arith.muli %square, %following : index
    %first = arith.divui %work0, %c3 : index
    %last = arith.divui %work1, %c3 : index
    scf.for %line = %first to %last step %c1 {
      // expected-error @below {{but got a store whose indices do not tell them apart}}
      memref.store %zero, %y[%line] : memref<8xf32>
    }
  }
  return
}

func.func @launch_no_parts(%p: !pattern, %y: tensor<8xf32>) {
  %ptr, %idx, %slot = bsr.indices %p : !pattern -> tensor<9xi32>, tensor<12xi32>, tensor<12xi32>
  %0 = bsr.launch @no_parts ins(%ptr : tensor<9xi32>) outs(%y : tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

!pattern = !bsr.pattern<64x32, block = 8x8, slots = 12>

// Positions of one pattern, slots of another.
func.func private @other_slots(%ptr: memref<9xi32>, %slot: memref<12xi32>, %v: memref<12x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  // expected-note @below {{this is the loop}}
  scf.forall (%line) in (8) {
    %next = arith.addi %line, %c1 : index
    %first32 = memref.load %ptr[%line] : memref<9xi32>
    %last32 = memref.load %ptr[%next] : memref<9xi32>
    %first = arith.index_cast %first32 : i32 to index
    %last = arith.index_cast %last32 : i32 to index
    scf.for %k = %first to %last step %c1 {
      %slot32 = memref.load %slot[%k] : memref<12xi32>
      %s = arith.index_cast %slot32 : i32 to index
      // expected-error @below {{but got a store whose indices do not tell them apart}}
      memref.store %zero, %v[%s, %c0, %c0] : memref<12x8x8xf32>
    }
  }
  return
}

func.func @launch_other_slots(%p: !pattern, %q: !pattern, %v: tensor<12x8x8xf32>) {
  %ptr, %idx, %slot = bsr.indices %p : !pattern -> tensor<9xi32>, tensor<12xi32>, tensor<12xi32>
  %ptr1, %idx1, %slot1 = bsr.indices %q : !pattern -> tensor<9xi32>, tensor<12xi32>, tensor<12xi32>
  %0 = bsr.launch @other_slots ins(%ptr, %slot1 : tensor<9xi32>, tensor<12xi32>)
      outs(%v : tensor<12x8x8xf32>) -> tensor<12x8x8xf32>
  return
}

// -----

!pattern = !bsr.pattern<64x32, block = 8x8, slots = 12>

// Positions and slots tell lines apart, groups of lines too.
func.func private @lines(%ptr: memref<9xi32>, %slot: memref<12xi32>, %v: memref<12x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : f32
  scf.forall (%group) in (4) {
    %low = arith.muli %group, %c2 : index
    scf.for %i = %c0 to %c2 step %c1 {
      %line = arith.addi %low, %i : index
      %next = arith.addi %line, %c1 : index
      %first32 = memref.load %ptr[%line] : memref<9xi32>
      %last32 = memref.load %ptr[%next] : memref<9xi32>
      %first = arith.index_cast %first32 : i32 to index
      %last = arith.index_cast %last32 : i32 to index
      scf.for %k = %first to %last step %c1 {
        %slot32 = memref.load %slot[%k] : memref<12xi32>
        %s = arith.index_cast %slot32 : i32 to index
        memref.store %zero, %v[%s, %c0, %c1] : memref<12x8x8xf32>
      }
    }
  }
  return
}

func.func @launch_lines(%p: !pattern, %v: tensor<12x8x8xf32>) {
  %ptr, %idx, %slot = bsr.indices %p : !pattern -> tensor<9xi32>, tensor<12xi32>, tensor<12xi32>
  %0 = bsr.launch @lines ins(%ptr, %slot : tensor<9xi32>, tensor<12xi32>)
      outs(%v : tensor<12x8x8xf32>) -> tensor<12x8x8xf32>
  return
}

// -----

!pattern = !bsr.pattern<64x32, block = 8x8, slots = 12>

// Several positions at a time, no further than the last of the line.
func.func private @last_again(%ptr: memref<9xi32>, %slot: memref<12xi32>, %v: memref<12x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  scf.forall (%line) in (8) {
    %next = arith.addi %line, %c1 : index
    %first32 = memref.load %ptr[%line] : memref<9xi32>
    %end32 = memref.load %ptr[%next] : memref<9xi32>
    %first = arith.index_cast %first32 : i32 to index
    %end = arith.index_cast %end32 : i32 to index
    scf.for %k = %first to %end step %c4 {
      %other = arith.addi %k, %c1 : index
      %last = arith.subi %end, %c1 : index
      %at = arith.minui %other, %last : index
      %slot32 = memref.load %slot[%at] : memref<12xi32>
      %s = arith.index_cast %slot32 : i32 to index
      memref.store %zero, %v[%s, %c0, %c0] : memref<12x8x8xf32>
    }
  }
  return
}

func.func @launch_last_again(%p: !pattern, %v: tensor<12x8x8xf32>) {
  %ptr, %idx, %slot = bsr.indices %p : !pattern -> tensor<9xi32>, tensor<12xi32>, tensor<12xi32>
  %0 = bsr.launch @last_again ins(%ptr, %slot : tensor<9xi32>, tensor<12xi32>)
      outs(%v : tensor<12x8x8xf32>) -> tensor<12x8x8xf32>
  return
}

// -----

!pattern = !bsr.pattern<64x32, block = 8x8, slots = 12>

// The end of a line is the first position of the next.
func.func private @next_line(%ptr: memref<9xi32>, %slot: memref<12xi32>, %v: memref<12x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  // expected-note @below {{this is the loop}}
  scf.forall (%line) in (8) {
    %next = arith.addi %line, %c1 : index
    %first32 = memref.load %ptr[%line] : memref<9xi32>
    %end32 = memref.load %ptr[%next] : memref<9xi32>
    %first = arith.index_cast %first32 : i32 to index
    %end = arith.index_cast %end32 : i32 to index
    scf.for %k = %first to %end step %c4 {
      %other = arith.addi %k, %c1 : index
      %at = arith.minui %other, %end : index
      %slot32 = memref.load %slot[%at] : memref<12xi32>
      %s = arith.index_cast %slot32 : i32 to index
      // expected-error @below {{but got a store whose indices do not tell them apart}}
      memref.store %zero, %v[%s, %c0, %c0] : memref<12x8x8xf32>
    }
  }
  return
}

func.func @launch_next_line(%p: !pattern, %v: tensor<12x8x8xf32>) {
  %ptr, %idx, %slot = bsr.indices %p : !pattern -> tensor<9xi32>, tensor<12xi32>, tensor<12xi32>
  %0 = bsr.launch @next_line ins(%ptr, %slot : tensor<9xi32>, tensor<12xi32>)
      outs(%v : tensor<12x8x8xf32>) -> tensor<12x8x8xf32>
  return
}

// -----

!pattern = !bsr.pattern<64x32, block = 8x8, slots = 12>

// The last of another line.
func.func private @last_of_next(%ptr: memref<9xi32>, %slot: memref<12xi32>, %v: memref<12x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  // expected-note @below {{this is the loop}}
  scf.forall (%line) in (7) {
    %next = arith.addi %line, %c1 : index
    %first32 = memref.load %ptr[%line] : memref<9xi32>
    %end32 = memref.load %ptr[%next] : memref<9xi32>
    %first = arith.index_cast %first32 : i32 to index
    %end = arith.index_cast %end32 : i32 to index
    scf.for %k = %first to %end step %c4 {
      %other = arith.addi %k, %c1 : index
      %line2 = arith.addi %next, %c1 : index
      %end2 = memref.load %ptr[%line2] : memref<9xi32>
      %end3 = arith.index_cast %end2 : i32 to index
      %last = arith.subi %end3, %c1 : index
      %at = arith.minui %other, %last : index
      %slot32 = memref.load %slot[%at] : memref<12xi32>
      %s = arith.index_cast %slot32 : i32 to index
      // expected-error @below {{but got a store whose indices do not tell them apart}}
      memref.store %zero, %v[%s, %c0, %c0] : memref<12x8x8xf32>
    }
  }
  return
}

func.func @launch_last_of_next(%p: !pattern, %v: tensor<12x8x8xf32>) {
  %ptr, %idx, %slot = bsr.indices %p : !pattern -> tensor<9xi32>, tensor<12xi32>, tensor<12xi32>
  %0 = bsr.launch @last_of_next ins(%ptr, %slot : tensor<9xi32>, tensor<12xi32>)
      outs(%v : tensor<12x8x8xf32>) -> tensor<12x8x8xf32>
  return
}

// -----

!pattern = !bsr.pattern<64x32, block = 8x8, slots = 12>

// Columns do not: two lines may have the same.
func.func private @columns(%ptr: memref<9xi32>, %idx: memref<12xi32>, %y: memref<4xf32>) {
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  // expected-note @below {{this is the loop}}
  scf.forall (%line) in (8) {
    %next = arith.addi %line, %c1 : index
    %first32 = memref.load %ptr[%line] : memref<9xi32>
    %last32 = memref.load %ptr[%next] : memref<9xi32>
    %first = arith.index_cast %first32 : i32 to index
    %last = arith.index_cast %last32 : i32 to index
    scf.for %k = %first to %last step %c1 {
      %column32 = memref.load %idx[%k] : memref<12xi32>
      %column = arith.index_cast %column32 : i32 to index
      // expected-error @below {{expected iterations of a parallel loop to write different elements, but got a store whose indices do not tell them apart}}
      memref.store %zero, %y[%column] : memref<4xf32>
    }
  }
  return
}

func.func @launch_columns(%p: !pattern, %y: tensor<4xf32>) {
  %ptr, %idx, %slot = bsr.indices %p : !pattern -> tensor<9xi32>, tensor<12xi32>, tensor<12xi32>
  %0 = bsr.launch @columns ins(%ptr, %idx : tensor<9xi32>, tensor<12xi32>)
      outs(%y : tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

!pattern = !bsr.pattern<64x32, block = 8x8, slots = 12>

// A line more than the iteration's own.
func.func private @two_lines(%ptr: memref<9xi32>, %slot: memref<12xi32>, %v: memref<12x8x8xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : f32
  // expected-note @below {{this is the loop}}
  scf.forall (%line) in (7) {
    %next = arith.addi %line, %c2 : index
    %first32 = memref.load %ptr[%line] : memref<9xi32>
    %last32 = memref.load %ptr[%next] : memref<9xi32>
    %first = arith.index_cast %first32 : i32 to index
    %last = arith.index_cast %last32 : i32 to index
    scf.for %k = %first to %last step %c1 {
      %slot32 = memref.load %slot[%k] : memref<12xi32>
      %s = arith.index_cast %slot32 : i32 to index
      // expected-error @below {{but got a store whose indices do not tell them apart}}
      memref.store %zero, %v[%s, %c0, %c0] : memref<12x8x8xf32>
    }
  }
  return
}

func.func @launch_two_lines(%p: !pattern, %v: tensor<12x8x8xf32>) {
  %ptr, %idx, %slot = bsr.indices %p : !pattern -> tensor<9xi32>, tensor<12xi32>, tensor<12xi32>
  %0 = bsr.launch @two_lines ins(%ptr, %slot : tensor<9xi32>, tensor<12xi32>)
      outs(%v : tensor<12x8x8xf32>) -> tensor<12x8x8xf32>
  return
}

// -----

// A sum over the loop: every iteration writes the one element.
func.func private @sum(%x: memref<8xf32>, %y: memref<f32>) {
  // expected-note @below {{this is the loop}}
  scf.forall (%i) in (8) {
    %0 = memref.load %x[%i] : memref<8xf32>
    %1 = memref.load %y[] : memref<f32>
    %2 = arith.addf %0, %1 : f32
    // expected-error @below {{but got a store whose indices do not tell them apart}}
    memref.store %2, %y[] : memref<f32>
  }
  return
}

func.func @launch_sum(%x: tensor<8xf32>, %y: tensor<f32>) {
  %0 = bsr.launch @sum ins(%x : tensor<8xf32>) outs(%y : tensor<f32>) -> tensor<f32>
  return
}

// -----

// The second of two variables does not occur.
func.func private @one_of_two(%y: memref<8xf32>) {
  %zero = arith.constant 0.0 : f32
  // expected-note @below {{this is the loop}}
  scf.forall (%i, %j) in (8, 2) {
    // expected-error @below {{but got a store whose indices do not tell them apart}}
    memref.store %zero, %y[%i] : memref<8xf32>
  }
  return
}

func.func @launch_one_of_two(%y: tensor<8xf32>) {
  %0 = bsr.launch @one_of_two outs(%y : tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

// Vectors overlap by a lane.
func.func private @overlap(%y: memref<64xf32>) {
  %c15 = arith.constant 15 : index
  %v = arith.constant dense<0.0> : vector<16xf32>
  // expected-note @below {{this is the loop}}
  scf.forall (%i) in (4) {
    %at = arith.muli %i, %c15 : index
    // expected-error @below {{but got a store whose indices do not tell them apart}}
    vector.store %v, %y[%at] : memref<64xf32>, vector<16xf32>
  }
  return
}

func.func @launch_overlap(%y: tensor<64xf32>) {
  %0 = bsr.launch @overlap outs(%y : tensor<64xf32>) -> tensor<64xf32>
  return
}

// -----

// Each store is apart from itself, but the second is the next iteration's first.
func.func private @neighbours(%y: memref<9xf32>) {
  %c1 = arith.constant 1 : index
  %zero = arith.constant 0.0 : f32
  // expected-note @below {{this is the loop}}
  scf.forall (%i) in (8) {
    %next = arith.addi %i, %c1 : index
    // expected-error @below {{but got a store whose indices do not tell them apart}}
    memref.store %zero, %y[%i] : memref<9xf32>
    memref.store %zero, %y[%next] : memref<9xf32>
  }
  return
}

func.func @launch_neighbours(%y: tensor<9xf32>) {
  %0 = bsr.launch @neighbours outs(%y : tensor<9xf32>) -> tensor<9xf32>
  return
}

// -----

// What one iteration writes, the next one reads.
func.func private @read(%y: memref<9xf32>) {
  %c1 = arith.constant 1 : index
  // expected-note @below {{this is the loop}}
  scf.forall (%i) in (8) {
    %next = arith.addi %i, %c1 : index
    %0 = memref.load %y[%i] : memref<9xf32>
    // expected-error @below {{but got a store whose indices do not tell them apart}}
    memref.store %0, %y[%next] : memref<9xf32>
  }
  return
}

func.func @launch_read(%y: tensor<9xf32>) {
  %0 = bsr.launch @read outs(%y : tensor<9xf32>) -> tensor<9xf32>
  return
}

// -----

func.func private @view(%y: memref<8x4xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  // expected-note @below {{this is the loop}}
  scf.forall (%i) in (8) {
    %part = memref.subview %y[%i, 0] [1, 4] [1, 1] : memref<8x4xf32> to memref<4xf32, strided<[1], offset: ?>>
    // expected-error @below {{but got a store whose indices do not tell them apart}}
    memref.store %zero, %part[%c0] : memref<4xf32, strided<[1], offset: ?>>
  }
  return
}

func.func @launch_view(%y: tensor<8x4xf32>) {
  %0 = bsr.launch @view outs(%y : tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

func.func private @copy(%x: memref<8xf32>, %y: memref<8xf32>) {
  scf.forall (%i) in (8) {
    // expected-error @below {{expected a parallel loop to touch memory by loads and stores, but got 'memref.copy'}}
    memref.copy %x, %y : memref<8xf32> to memref<8xf32>
  }
  return
}

func.func @launch_copy(%x: tensor<8xf32>, %y: tensor<8xf32>) {
  %0 = bsr.launch @copy ins(%x : tensor<8xf32>) outs(%y : tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func private @alloc(%y: memref<8xf32>) {
  // expected-error @below {{expected a kernel that allocates no memory, but got 'memref.alloc'}}
  %0 = memref.alloc() : memref<8xf32>
  return
}

func.func @launch_alloc(%y: tensor<8xf32>) {
  %0 = bsr.launch @alloc outs(%y : tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

func.func private @alloca(%n: memref<1xindex>, %y: memref<8xf32>) {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %size = memref.load %n[%c0] : memref<1xindex>
  scf.forall (%i) in (8) {
    // A stack of known size is an iteration's own.
    %own = memref.alloca() : memref<4xf32>
    memref.store %zero, %own[%c0] : memref<4xf32>
  }
  // expected-error @below {{expected a kernel that allocates no memory, but got 'memref.alloca'}}
  %0 = memref.alloca(%size) : memref<?xf32>
  return
}

func.func @launch_alloca(%n: tensor<1xindex>, %y: tensor<8xf32>) {
  %0 = bsr.launch @alloca ins(%n : tensor<1xindex>) outs(%y : tensor<8xf32>) -> tensor<8xf32>
  return
}

// -----

!part = memref<4x8x16xf32, strided<[384, 16, 1], offset: 128>>

// Views of parts of a buffer, each written in a loop of its own; positions in panels,
// as quotient and rest of one number, with lanes that don't go on in the next row.
func.func private @panels(%y: memref<4x24x16xf32>) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c16 = arith.constant 16 : index
  %v = arith.constant dense<0.0> : vector<4xf32>
  %first = memref.reinterpret_cast %y to offset: [0], sizes: [4, 8, 16], strides: [384, 16, 1]
      : memref<4x24x16xf32> to memref<4x8x16xf32, strided<[384, 16, 1]>>
  %second = memref.reinterpret_cast %y to offset: [128], sizes: [4, 8, 16], strides: [384, 16, 1]
      : memref<4x24x16xf32> to !part
  scf.forall (%row, %i) in (8, 16) {
    %at = arith.muli %i, %c4 : index
    %panel = arith.divui %at, %c16 : index
    %lane = arith.remui %at, %c16 : index
    vector.store %v, %first[%panel, %row, %lane] : memref<4x8x16xf32, strided<[384, 16, 1]>>, vector<4xf32>
  }
  scf.forall (%i) in (16) {
    %at = arith.muli %i, %c4 : index
    %panel = arith.divui %at, %c16 : index
    %lane = arith.remui %at, %c16 : index
    vector.store %v, %second[%panel, %c0, %lane] : !part, vector<4xf32>
  }
  return
}

func.func @launch_panels(%y: tensor<4x24x16xf32>) {
  %0 = bsr.launch @panels outs(%y : tensor<4x24x16xf32>) -> tensor<4x24x16xf32>
  return
}

// -----

// Columns in tiles of two, four tiles a panel: the rest of a tile's number is
// scaled, and inside of a tile come lanes. A number whose quotient is divided again,
// and a vector along the last dimension of a view that has more than one element.
func.func private @scaled_digits(%y: memref<8x6x8xf32>, %z: memref<3x4x5x2xf32>, %u: memref<4x32x1xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %c5 = arith.constant 5 : index
  %zero = arith.constant 0.0 : f32
  %v = arith.constant dense<0.0> : vector<2xf32>
  %w = arith.constant dense<0.0> : vector<16xf32>
  %part = memref.reinterpret_cast %u to offset: [16], sizes: [4, 16, 1], strides: [32, 1, 1]
      : memref<4x32x1xf32> to memref<4x16x1xf32, strided<[32, 1, 1], offset: 16>>
  scf.forall (%row, %block) in (6, 16) {
    %low = arith.muli %block, %c2 : index
    %high = arith.addi %low, %c2 : index
    scf.for %tile = %low to %high step %c1 {
      %panel = arith.divui %tile, %c4 : index
      %number = arith.remui %tile, %c4 : index
      %first = arith.muli %number, %c2 : index
      %second = arith.addi %first, %c1 : index
      memref.store %zero, %y[%panel, %row, %first] : memref<8x6x8xf32>
      memref.store %zero, %y[%panel, %row, %second] : memref<8x6x8xf32>
      %0 = vector.load %y[%panel, %row, %first] : memref<8x6x8xf32>, vector<2xf32>
      vector.store %0, %y[%panel, %row, %first] : memref<8x6x8xf32>, vector<2xf32>
    }
  }
  scf.forall (%i) in (60) {
    %outer = arith.divui %i, %c5 : index
    %last = arith.remui %i, %c5 : index
    %outermost = arith.divui %outer, %c4 : index
    %middle = arith.remui %outer, %c4 : index
    vector.store %v, %z[%outermost, %middle, %last, %c0] : memref<3x4x5x2xf32>, vector<2xf32>
  }
  scf.forall (%i) in (4) {
    vector.store %w, %part[%i, %c0, %c0] : memref<4x16x1xf32, strided<[32, 1, 1], offset: 16>>, vector<16xf32>
  }
  return
}

func.func @launch_scaled_digits(%y: tensor<8x6x8xf32>, %z: tensor<3x4x5x2xf32>, %u: tensor<4x32x1xf32>) {
  %0:3 = bsr.launch @scaled_digits outs(%y, %z, %u : tensor<8x6x8xf32>, tensor<3x4x5x2xf32>, tensor<4x32x1xf32>)
      -> tensor<8x6x8xf32>, tensor<3x4x5x2xf32>, tensor<4x32x1xf32>
  return
}

// -----

// A tile more than its columns: they are the next one's.
func.func private @scaled_overlap(%y: memref<8x8xf32>) {
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %v = arith.constant dense<0.0> : vector<4xf32>
  // expected-note@+1 {{this is the loop}}
  scf.forall (%tile) in (31) {
    %panel = arith.divui %tile, %c4 : index
    %number = arith.remui %tile, %c4 : index
    %first = arith.muli %number, %c2 : index
    // expected-error@+1 {{but got a store whose indices do not tell them apart}}
    vector.store %v, %y[%panel, %first] : memref<8x8xf32>, vector<4xf32>
  }
  return
}

func.func @launch_scaled_overlap(%y: tensor<8x8xf32>) {
  %0 = bsr.launch @scaled_overlap outs(%y : tensor<8x8xf32>) -> tensor<8x8xf32>
  return
}

// -----

// The quotient of one number and the rest of another.
func.func private @two_numbers(%y: memref<4x4xf32>) {
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  // expected-note@+1 {{this is the loop}}
  scf.forall (%i) in (12) {
    %next = arith.addi %i, %c1 : index
    %quotient = arith.divui %i, %c4 : index
    %rest = arith.remui %next, %c4 : index
    // expected-error@+1 {{but got a store whose indices do not tell them apart}}
    memref.store %zero, %y[%quotient, %rest] : memref<4x4xf32>
  }
  return
}

func.func @launch_two_numbers(%y: tensor<4x4xf32>) {
  %0 = bsr.launch @two_numbers outs(%y : tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

// The quotient and the rest by two divisors.
func.func private @two_divisors(%y: memref<4x4xf32>) {
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  // expected-note@+1 {{this is the loop}}
  scf.forall (%i) in (16) {
    %quotient = arith.divui %i, %c4 : index
    %rest = arith.remui %i, %c2 : index
    // expected-error@+1 {{but got a store whose indices do not tell them apart}}
    memref.store %zero, %y[%quotient, %rest] : memref<4x4xf32>
  }
  return
}

func.func @launch_two_divisors(%y: tensor<4x4xf32>) {
  %0 = bsr.launch @two_divisors outs(%y : tensor<4x4xf32>) -> tensor<4x4xf32>
  return
}

// -----

// Digits of two numbers of the same form, one from each of two loops inside.
func.func private @two_loops(%y: memref<16x4xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  // expected-note@+1 {{this is the loop}}
  scf.forall (%i) in (32) {
    %low = arith.muli %i, %c2 : index
    scf.for %j = %c0 to %c2 step %c1 {
      scf.for %k = %c0 to %c2 step %c1 {
        %one = arith.addi %low, %j : index
        %two = arith.addi %low, %k : index
        %quotient = arith.divui %one, %c4 : index
        %rest = arith.remui %two, %c4 : index
        // expected-error@+1 {{but got a store whose indices do not tell them apart}}
        memref.store %zero, %y[%quotient, %rest] : memref<16x4xf32>
      }
    }
  }
  return
}

func.func @launch_two_loops(%y: tensor<16x4xf32>) {
  %0 = bsr.launch @two_loops outs(%y : tensor<16x4xf32>) -> tensor<16x4xf32>
  return
}

// -----

// A number that two iterations share.
func.func private @shared_number(%y: memref<8x4xf32>) {
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  // expected-note@+1 {{this is the loop}}
  scf.forall (%i, %j) in (4, 4) {
    %triple = arith.muli %i, %c3 : index
    %number = arith.addi %triple, %j : index
    %quotient = arith.divui %number, %c4 : index
    %rest = arith.remui %number, %c4 : index
    // expected-error@+1 {{but got a store whose indices do not tell them apart}}
    memref.store %zero, %y[%quotient, %rest] : memref<8x4xf32>
  }
  return
}

func.func @launch_shared_number(%y: tensor<8x4xf32>) {
  %0 = bsr.launch @shared_number outs(%y : tensor<8x4xf32>) -> tensor<8x4xf32>
  return
}

// -----

// A vector along a dimension of one element, of a view whose rows are apart.
func.func private @strided_row(%y: memref<4x32xf32>) {
  %c0 = arith.constant 0 : index
  %v = arith.constant dense<0.0> : vector<4xf32>
  %view = memref.reinterpret_cast %y to offset: [0], sizes: [4, 16, 1], strides: [32, 2, 1]
      : memref<4x32xf32> to memref<4x16x1xf32, strided<[32, 2, 1]>>
  // expected-note@+1 {{this is the loop}}
  scf.forall (%i) in (4) {
    // expected-error@+1 {{but got a store whose indices do not tell them apart}}
    vector.store %v, %view[%i, %c0, %c0] : memref<4x16x1xf32, strided<[32, 2, 1]>>, vector<4xf32>
  }
  return
}

func.func @launch_strided_row(%y: tensor<4x32xf32>) {
  %0 = bsr.launch @strided_row outs(%y : tensor<4x32xf32>) -> tensor<4x32xf32>
  return
}

// -----

// A panel, but not the lane in it.
func.func private @quotient(%y: memref<4x16xf32>) {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %zero = arith.constant 0.0 : f32
  // expected-note @below {{this is the loop}}
  scf.forall (%i) in (64) {
    %panel = arith.divui %i, %c16 : index
    // expected-error @below {{but got a store whose indices do not tell them apart}}
    memref.store %zero, %y[%panel, %c0] : memref<4x16xf32>
  }
  return
}

func.func @launch_quotient(%y: tensor<4x16xf32>) {
  %0 = bsr.launch @quotient outs(%y : tensor<4x16xf32>) -> tensor<4x16xf32>
  return
}

// -----

// Lanes that may go on in the next panel.
func.func private @next_panel(%y: memref<9x8xf32>) {
  %c6 = arith.constant 6 : index
  %c8 = arith.constant 8 : index
  %v = arith.constant dense<0.0> : vector<4xf32>
  // expected-note @below {{this is the loop}}
  scf.forall (%i) in (11) {
    %at = arith.muli %i, %c6 : index
    %panel = arith.divui %at, %c8 : index
    %lane = arith.remui %at, %c8 : index
    // expected-error @below {{but got a store whose indices do not tell them apart}}
    vector.store %v, %y[%panel, %lane] : memref<9x8xf32>, vector<4xf32>
  }
  return
}

func.func @launch_next_panel(%y: tensor<9x8xf32>) {
  %0 = bsr.launch @next_panel outs(%y : tensor<9x8xf32>) -> tensor<9x8xf32>
  return
}

// -----

// One buffer, read by one position in panels and written by another.
func.func private @two_positions(%y: memref<80x16xf32>) {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  // expected-note @below {{this is the loop}}
  scf.forall (%i) in (64) {
    %panel = arith.divui %i, %c16 : index
    %lane = arith.remui %i, %c16 : index
    %0 = memref.load %y[%i, %c0] : memref<80x16xf32>
    // expected-error @below {{but got a store whose indices do not tell them apart}}
    memref.store %0, %y[%panel, %lane] : memref<80x16xf32>
  }
  return
}

func.func @launch_two_positions(%y: tensor<80x16xf32>) {
  %0 = bsr.launch @two_positions outs(%y : tensor<80x16xf32>) -> tensor<80x16xf32>
  return
}

// -----

// Two views of one buffer in one loop.
func.func private @two_views(%y: memref<9xf32>) {
  %low = memref.reinterpret_cast %y to offset: [0], sizes: [8], strides: [1] : memref<9xf32> to memref<8xf32, strided<[1]>>
  %high = memref.reinterpret_cast %y to offset: [1], sizes: [8], strides: [1]
      : memref<9xf32> to memref<8xf32, strided<[1], offset: 1>>
  // expected-note @below {{this is the loop}}
  scf.forall (%i) in (8) {
    %0 = memref.load %low[%i] : memref<8xf32, strided<[1]>>
    // expected-error @below {{but got a store whose indices do not tell them apart}}
    memref.store %0, %high[%i] : memref<8xf32, strided<[1], offset: 1>>
  }
  return
}

func.func @launch_two_views(%y: tensor<9xf32>) {
  %0 = bsr.launch @two_views outs(%y : tensor<9xf32>) -> tensor<9xf32>
  return
}

// -----

// A view of which different indices are one element.
func.func private @overlapping(%y: memref<16xf32>) {
  %zero = arith.constant 0.0 : f32
  %view = memref.reinterpret_cast %y to offset: [0], sizes: [8, 8], strides: [1, 1]
      : memref<16xf32> to memref<8x8xf32, strided<[1, 1]>>
  // expected-note @below {{this is the loop}}
  scf.forall (%i, %j) in (8, 8) {
    // expected-error @below {{but got a store whose indices do not tell them apart}}
    memref.store %zero, %view[%i, %j] : memref<8x8xf32, strided<[1, 1]>>
  }
  return
}

func.func @launch_overlapping(%y: tensor<16xf32>) {
  %0 = bsr.launch @overlapping outs(%y : tensor<16xf32>) -> tensor<16xf32>
  return
}

// -----

// A vector that leaves its row of a view.
func.func private @beyond(%y: memref<8x8xf32>) {
  %c1 = arith.constant 1 : index
  %v = arith.constant dense<0.0> : vector<4xf32>
  %view = memref.reinterpret_cast %y to offset: [0], sizes: [8, 4], strides: [8, 1]
      : memref<8x8xf32> to memref<8x4xf32, strided<[8, 1]>>
  // expected-note @below {{this is the loop}}
  scf.forall (%i) in (8) {
    // expected-error @below {{but got a store whose indices do not tell them apart}}
    vector.store %v, %view[%i, %c1] : memref<8x4xf32, strided<[8, 1]>>, vector<4xf32>
  }
  return
}

func.func @launch_beyond(%y: tensor<8x8xf32>) {
  %0 = bsr.launch @beyond outs(%y : tensor<8x8xf32>) -> tensor<8x8xf32>
  return
}

// -----

// The blocks of a launch are iterations, its threads a loop inside: four rows and 16 columns are a block's. Shared
// memory is its own.
func.func private @rows(%x: memref<12x64xf32>, %y: memref<12x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c12 = arith.constant 12 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  gpu.launch blocks(%group, %tile, %bz) in (%gx = %c3, %gy = %c4, %gz = %c1)
      threads(%t, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1)
      workgroup(%part: memref<64xf32, #gpu.address_space<workgroup>>) {
    %zero = arith.constant 0.0 : f32
    memref.store %zero, %part[%t] : memref<64xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    %row0 = arith.muli %group, %gy : index
    %quarter = arith.constant 16 : index
    %row1 = arith.divui %t, %quarter : index
    %row = arith.addi %row0, %row1 : index
    %column0 = arith.muli %tile, %quarter : index
    %column1 = arith.remui %t, %quarter : index
    %column = arith.addi %column0, %column1 : index
    %1 = memref.load %x[%row, %column] : memref<12x64xf32>
    memref.store %1, %y[%row, %column] : memref<12x64xf32>
    gpu.terminator
  }
  return
}

func.func @launch_rows(%x: tensor<12x64xf32>, %y: tensor<12x64xf32>) {
  %0 = bsr.launch @rows ins(%x : tensor<12x64xf32>) outs(%y : tensor<12x64xf32>) -> tensor<12x64xf32>
  return
}

// -----

// A column of threads more than a block has for its own.
func.func private @one_more(%x: memref<12x64xf32>, %y: memref<12x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c12 = arith.constant 12 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  // expected-note @below {{this is the launch}}
  gpu.launch blocks(%group, %tile, %bz) in (%gx = %c3, %gy = %c4, %gz = %c1)
      threads(%t, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1)
      workgroup(%part: memref<64xf32, #gpu.address_space<workgroup>>) {
    %zero = arith.constant 0.0 : f32
    memref.store %zero, %part[%t] : memref<64xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    %row0 = arith.muli %group, %gy : index
    %many = arith.constant 12 : index
    %row1 = arith.divui %t, %many : index
    %row = arith.addi %row0, %row1 : index
    %column0 = arith.muli %tile, %many : index
    %column1 = arith.remui %t, %many : index
    %column = arith.addi %column0, %column1 : index
    // expected-error @below {{expected blocks of a launch to write different elements, but got a store whose indices do not tell them apart}}
    memref.store %zero, %y[%row, %column] : memref<12x64xf32>
    gpu.terminator
  }
  return
}

func.func @launch_one_more(%x: tensor<12x64xf32>, %y: tensor<12x64xf32>) {
  %0 = bsr.launch @one_more ins(%x : tensor<12x64xf32>) outs(%y : tensor<12x64xf32>) -> tensor<12x64xf32>
  return
}

// -----

// Blocks of one group that each write all of its rows.
func.func private @no_tile(%x: memref<12x64xf32>, %y: memref<12x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c12 = arith.constant 12 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  // expected-note @below {{this is the launch}}
  gpu.launch blocks(%group, %tile, %bz) in (%gx = %c3, %gy = %c4, %gz = %c1)
      threads(%t, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1)
      workgroup(%part: memref<64xf32, #gpu.address_space<workgroup>>) {
    %zero = arith.constant 0.0 : f32
    memref.store %zero, %part[%t] : memref<64xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    // expected-error @below {{but got a store whose indices do not tell them apart}}
    memref.store %zero, %y[%group, %t] : memref<12x64xf32>
    gpu.terminator
  }
  return
}

func.func @launch_no_tile(%x: tensor<12x64xf32>, %y: tensor<12x64xf32>) {
  %0 = bsr.launch @no_tile ins(%x : tensor<12x64xf32>) outs(%y : tensor<12x64xf32>) -> tensor<12x64xf32>
  return
}

// -----

// What has the address of a buffer may read all of it, but that of another one.
func.func private @addresses(%x: memref<12x64xf32>, %y: memref<12x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c12 = arith.constant 12 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  gpu.launch blocks(%group, %tile, %bz) in (%gx = %c3, %gy = %c4, %gz = %c1)
      threads(%t, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1)
      workgroup(%part: memref<64xf32, #gpu.address_space<workgroup>>) {
    %zero = arith.constant 0.0 : f32
    memref.store %zero, %part[%t] : memref<64xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    %1 = memref.extract_aligned_pointer_as_index %x : memref<12x64xf32> -> index
    %row = arith.muli %group, %c4 : index
    %2 = arith.addi %row, %tile : index
    memref.store %zero, %y[%2, %t] : memref<12x64xf32>
    gpu.terminator
  }
  return
}

func.func @launch_addresses(%x: tensor<12x64xf32>, %y: tensor<12x64xf32>) {
  %0 = bsr.launch @addresses ins(%x : tensor<12x64xf32>) outs(%y : tensor<12x64xf32>) -> tensor<12x64xf32>
  return
}

// -----

// The same of the buffer that is written.
func.func private @address(%x: memref<12x64xf32>, %y: memref<12x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c12 = arith.constant 12 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  // expected-note @below {{this is the launch}}
  gpu.launch blocks(%group, %tile, %bz) in (%gx = %c3, %gy = %c4, %gz = %c1)
      threads(%t, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1)
      workgroup(%part: memref<64xf32, #gpu.address_space<workgroup>>) {
    %zero = arith.constant 0.0 : f32
    memref.store %zero, %part[%t] : memref<64xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    %1 = memref.extract_aligned_pointer_as_index %y : memref<12x64xf32> -> index
    %row = arith.muli %group, %c4 : index
    %2 = arith.addi %row, %tile : index
    // expected-error @below {{but got a store whose indices do not tell them apart}}
    memref.store %zero, %y[%2, %t] : memref<12x64xf32>
    gpu.terminator
  }
  return
}

func.func @launch_address(%x: tensor<12x64xf32>, %y: tensor<12x64xf32>) {
  %0 = bsr.launch @address ins(%x : tensor<12x64xf32>) outs(%y : tensor<12x64xf32>) -> tensor<12x64xf32>
  return
}

// -----

// An address that a launch only uses.
func.func private @address_outside(%x: memref<12x64xf32>, %y: memref<12x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c12 = arith.constant 12 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  // expected-error @below {{expected a kernel to take the addresses of buffers in launches, but got one outside}}
  %1 = memref.extract_aligned_pointer_as_index %x : memref<12x64xf32> -> index
  gpu.launch blocks(%group, %tile, %bz) in (%gx = %c3, %gy = %c4, %gz = %c1)
      threads(%t, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1)
      workgroup(%part: memref<64xf32, #gpu.address_space<workgroup>>) {
    %zero = arith.constant 0.0 : f32
    memref.store %zero, %part[%t] : memref<64xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    gpu.terminator
  }
  return
}

func.func @launch_address_outside(%x: tensor<12x64xf32>, %y: tensor<12x64xf32>) {
  %0 = bsr.launch @address_outside ins(%x : tensor<12x64xf32>) outs(%y : tensor<12x64xf32>) -> tensor<12x64xf32>
  return
}

// -----

// Copies into shared memory read by an address; anything else that has one may write.
func.func private @copies(%x: memref<12x64xf32>, %y: memref<12x64xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c12 = arith.constant 12 : index
  %c64 = arith.constant 64 : index
  %c256 = arith.constant 256 : index
  gpu.launch blocks(%group, %tile, %bz) in (%gx = %c3, %gy = %c4, %gz = %c1)
      threads(%t, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1)
      workgroup(%part: memref<64xf32, #gpu.address_space<workgroup>>) {
    %zero = arith.constant 0.0 : f32
    memref.store %zero, %part[%t] : memref<64xf32, #gpu.address_space<workgroup>>
    gpu.barrier
    %1 = memref.extract_aligned_pointer_as_index %x : memref<12x64xf32> -> index
    %2 = arith.index_cast %1 : index to i64
    %from = llvm.inttoptr %2 : i64 to !llvm.ptr<1>
    %3 = memref.extract_aligned_pointer_as_index %part : memref<64xf32, #gpu.address_space<workgroup>> -> index
    %4 = arith.index_cast %3 : index to i64
    %to = llvm.inttoptr %4 : i64 to !llvm.ptr<3>
    nvvm.cp.async.shared.global %to, %from, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>
    nvvm.cp.async.commit.group
    nvvm.cp.async.wait.group 0
    // expected-error @below {{expected a launch to touch memory by loads and stores, but got 'nvvm.prefetch'}}
    nvvm.prefetch level = L2, %from : !llvm.ptr<1>
    gpu.terminator
  }
  return
}

func.func @launch_copies(%x: tensor<12x64xf32>, %y: tensor<12x64xf32>) {
  %0 = bsr.launch @copies ins(%x : tensor<12x64xf32>) outs(%y : tensor<12x64xf32>) -> tensor<12x64xf32>
  return
}

// -----

// Thread blocks that share a line have positions of their own.
!pattern = !bsr.pattern<64x96, block = 8x8, slots = 12>

func.func private @parts_of_lines(%ptr: memref<9xi32>, %slot: memref<12xi32>, %y: memref<12xf32>) {
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  gpu.launch blocks(%line, %part, %bz) in (%gx = %c8, %gy = %c3, %gz = %c1)
      threads(%t, %ty, %tz) in (%sx = %c4, %sy = %c1, %sz = %c1) {
    %next = arith.addi %line, %c1 : index
    %start = memref.load %ptr[%line] : memref<9xi32>
    %end = memref.load %ptr[%next] : memref<9xi32>
    %zero = arith.constant 0.0 : f32
    %size = arith.constant 4 : index
    %first = arith.muli %part, %size : index
    %0 = arith.addi %first, %t : index
    %1 = arith.index_cast %0 : index to i32
    %position = arith.addi %start, %1 : i32
    %isInside = arith.cmpi slt, %position, %end : i32
    scf.if %isInside {
      %2 = arith.index_cast %position : i32 to index
      %3 = memref.load %slot[%2] : memref<12xi32>
      %4 = arith.index_cast %3 : i32 to index
      memref.store %zero, %y[%4] : memref<12xf32>
    }
    gpu.terminator
  }
  return
}

func.func @launch_parts_of_lines(%p: !pattern, %y: tensor<12xf32>) {
  %ptr, %idx, %slot = bsr.indices %p : !pattern -> tensor<9xi32>, tensor<12xi32>, tensor<12xi32>
  %0 = bsr.launch @parts_of_lines ins(%ptr, %slot : tensor<9xi32>, tensor<12xi32>) outs(%y : tensor<12xf32>) -> tensor<12xf32>
  return
}

// -----

// The last thread of one has the first position of the next one.
!pattern = !bsr.pattern<64x96, block = 8x8, slots = 12>

func.func private @shared_parts(%ptr: memref<9xi32>, %slot: memref<12xi32>, %y: memref<12xf32>) {
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  // expected-note @below {{this is the launch}}
  gpu.launch blocks(%line, %part, %bz) in (%gx = %c8, %gy = %c3, %gz = %c1)
      threads(%t, %ty, %tz) in (%sx = %c4, %sy = %c1, %sz = %c1) {
    %next = arith.addi %line, %c1 : index
    %start = memref.load %ptr[%line] : memref<9xi32>
    %end = memref.load %ptr[%next] : memref<9xi32>
    %zero = arith.constant 0.0 : f32
    %size = arith.constant 3 : index
    %first = arith.muli %part, %size : index
    %0 = arith.addi %first, %t : index
    %1 = arith.index_cast %0 : index to i32
    %position = arith.addi %start, %1 : i32
    %isInside = arith.cmpi slt, %position, %end : i32
    scf.if %isInside {
      %2 = arith.index_cast %position : i32 to index
      %3 = memref.load %slot[%2] : memref<12xi32>
      %4 = arith.index_cast %3 : i32 to index
      // expected-error @below {{expected blocks of a launch to write different elements}}
      memref.store %zero, %y[%4] : memref<12xf32>
    }
    gpu.terminator
  }
  return
}

func.func @launch_shared_parts(%p: !pattern, %y: tensor<12xf32>) {
  %ptr, %idx, %slot = bsr.indices %p : !pattern -> tensor<9xi32>, tensor<12xi32>, tensor<12xi32>
  %0 = bsr.launch @shared_parts ins(%ptr, %slot : tensor<9xi32>, tensor<12xi32>) outs(%y : tensor<12xf32>) -> tensor<12xf32>
  return
}

// -----

// A pointer is read, and of the memory of the block written.
func.func private @pointers(%x: memref<12x64xi32>, %y: memref<3x64xi32>) {
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %c64 = arith.constant 64 : index
  gpu.launch blocks(%block, %by, %bz) in (%gx = %c3, %gy = %c1, %gz = %c1)
      threads(%t, %ty, %tz) in (%sx = %c64, %sy = %c1, %sz = %c1) {
    %0 = builtin.unrealized_conversion_cast %x
        : memref<12x64xi32> to !llvm.struct<(ptr, ptr, i32, array<2 x i32>, array<2 x i32>)>
    %1 = llvm.extractvalue %0[1] : !llvm.struct<(ptr, ptr, i32, array<2 x i32>, array<2 x i32>)>
    %2 = llvm.load %1 : !llvm.ptr -> i32
    %bytes = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
    %3 = builtin.unrealized_conversion_cast %bytes
        : memref<?xi8, #gpu.address_space<workgroup>> to !llvm.struct<(ptr<3>, ptr<3>, i32, array<1 x i32>, array<1 x i32>)>
    %4 = llvm.extractvalue %3[1] : !llvm.struct<(ptr<3>, ptr<3>, i32, array<1 x i32>, array<1 x i32>)>
    llvm.store %2, %4 : i32, !llvm.ptr<3>
    memref.store %2, %y[%block, %t] : memref<3x64xi32>
    // expected-error @below {{expected a launch to touch memory by loads and stores, but got 'llvm.store'}}
    llvm.store %2, %1 : i32, !llvm.ptr
    gpu.terminator
  }
  return
}

func.func @launch_pointers(%x: tensor<12x64xi32>, %y: tensor<3x64xi32>) {
  %0 = bsr.launch @pointers ins(%x : tensor<12x64xi32>) outs(%y : tensor<3x64xi32>) -> tensor<3x64xi32>
  return
}
