# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The errors of the front ends.


class ExportError(ValueError):
    """A step that cannot be exported, with the reason in one sentence."""


class StepError(ValueError):
    """A step that cannot be compiled, or run on what it was given."""
