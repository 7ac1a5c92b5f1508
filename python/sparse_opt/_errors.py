# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The error of the front doors.


class ExportError(ValueError):
    """A step that cannot be exported, with the reason in one sentence."""
