// Cuts products in tiles of 2 x 16 x 4, sums of rows in tiles of 8 features and
// look-ups in tiles of 4 tokens, and unrolls the loops over tiles.
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%module: !transform.any_op) {
    %spmm = transform.structured.match ops{["bsr.spmm"]} in %module : (!transform.any_op) -> !transform.any_op
    %products, %p:2 = transform.structured.tile_using_for %spmm tile_sizes [2, 0, 4]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op)
    transform.loop.unroll %p#1 { factor = 2 } : !transform.any_op
    transform.loop.unroll %p#0 { factor = 3 } : !transform.any_op
    %scatter = transform.structured.match ops{["bsr.scatter_add"]} in %module : (!transform.any_op) -> !transform.any_op
    %sums, %s = transform.structured.tile_using_for %scatter tile_sizes [0, 8]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.loop.unroll %s { factor = 2 } : !transform.any_op
    %gather = transform.structured.match ops{["bsr.gather_rows"]} in %module : (!transform.any_op) -> !transform.any_op
    %rows, %r = transform.structured.tile_using_for %gather tile_sizes [0, 0, 4]
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.loop.unroll %r { factor = 2 } : !transform.any_op
    transform.yield
  }
}
