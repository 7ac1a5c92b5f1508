# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Front doors of sparse-opt: whole training steps as `linalg` on tensors.

"""Front doors of `sparse-opt`.

`sparse_opt.jax.export` turns a JAX training step into the text that the
`sparse-opt` tools read. JAX is needed to export, never to compile or to train.
"""

from sparse_opt._errors import ExportError

__all__ = ["ExportError"]
