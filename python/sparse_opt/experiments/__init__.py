# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Many runs of sparse-train, and what came of them.

"""Commands: `sparse-sweep`, `sparse-report` and `sparse-wandb`.

Nothing here loads the runtime or a framework. Without the commands:
`python3 -m sparse_opt.experiments.report`, and so on.
"""
