# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Front ends of sparse-opt: whole training steps in, compiled steps out.

"""Front ends of `sparse-opt`.

`sparse_opt.torch.export` and `sparse_opt.jax.export` turn a training step into
the text that the `sparse-opt` tools read; `sparse_opt.compile` makes a step of
it that runs in the same loop. Neither framework is needed for the other.
"""

from sparse_opt._errors import ExportError, StepError
from sparse_opt._evaluation import Evaluation
from sparse_opt._explain import ExplainedWeight, Explanation, ExportedWeight, Weights, explain
from sparse_opt._marks import Mark
from sparse_opt._method import Method, highest, lowest
from sparse_opt._program import Export
from sparse_opt._description import Blocks, Buffer, Counters, Pattern
from sparse_opt._recorder import Recorder
from sparse_opt._rules import Group
from sparse_opt._sparsity import Sparsity
from sparse_opt._step import Step, compile
from sparse_opt._tools import commit as _commit
from sparse_opt._weight import Weight
from sparse_opt import masks as masks

__version__ = "0.1.0"
__commit__ = _commit()
"""The commit that the compiler in this package was built of, or an empty text."""

__all__ = [
    "Blocks", "Buffer", "Counters", "Evaluation", "ExplainedWeight", "Explanation", "Export",
    "ExportError", "ExportedWeight", "Group", "Mark", "Method", "Pattern", "Recorder", "Sparsity",
    "Step", "StepError", "Weight", "Weights", "compile", "explain", "highest", "lowest",
    "masks",
]  # fmt: skip
