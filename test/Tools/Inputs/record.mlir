// A step that learns nothing: it copies its batch to its state, so that checkpoints
// show batches. Its loss is the first of the numbers.
func.func @record(%sx: tensor<4x3xf32> {bsr.name = "state.x", bsr.role = "state", bsr.result = 0 : i64},
                  %sl: tensor<4xi32> {bsr.name = "state.labels", bsr.role = "state", bsr.result = 1 : i64},
                  %x: tensor<4x3xf32> {bsr.name = "batch.x", bsr.role = "batch"},
                  %labels: tensor<4xi32> {bsr.name = "batch.labels", bsr.role = "batch"})
    -> (tensor<4x3xf32>, tensor<4xi32>, tensor<f32> {bsr.name = "loss", bsr.role = "loss"}) {
  %first = tensor.extract_slice %x[0, 0] [1, 1] [1, 1] : tensor<4x3xf32> to tensor<f32>
  return %x, %labels, %first : tensor<4x3xf32>, tensor<4xi32>, tensor<f32>
}
