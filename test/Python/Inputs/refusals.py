# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Prints how something is refused.

from typing import Any

import sparse_opt


def refuse(action: Any, *arguments: Any, **options: Any) -> None:
    """Prints the sentence of a refusal, or that there was none."""
    try:
        action(*arguments, **options)
        print("accepted")
    except (sparse_opt.ExportError, sparse_opt.StepError) as error:
        print(error)
