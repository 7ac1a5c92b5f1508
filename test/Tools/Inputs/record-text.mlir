// A step that learns nothing: it copies its text and the next tokens to its state.
func.func @record(%si: tensor<4x8xi32> {bsr.name = "state.ids", bsr.role = "state", bsr.result = 0 : i64},
                  %sl: tensor<4x8xi32> {bsr.name = "state.labels", bsr.role = "state", bsr.result = 1 : i64},
                  %table: tensor<512x4xf32> {bsr.name = "table", bsr.role = "param", bsr.init = "zeros"},
                  %ids: tensor<4x8xi32> {bsr.name = "batch.ids", bsr.role = "batch"},
                  %labels: tensor<4x8xi32> {bsr.name = "batch.labels", bsr.role = "batch"})
    -> (tensor<4x8xi32>, tensor<4x8xi32>, tensor<f32> {bsr.name = "loss", bsr.role = "loss"}) {
  %first = tensor.extract_slice %table[0, 0] [1, 1] [1, 1] : tensor<512x4xf32> to tensor<f32>
  return %ids, %labels, %first : tensor<4x8xi32>, tensor<4x8xi32>, tensor<f32>
}
