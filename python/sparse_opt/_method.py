# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Methods of sparse training that are written in Python.

"""Which blocks go in an update of a pattern, and which come.

A method sees a weight as it lies in memory, and answers with numbers of blocks;
the runtime checks them and moves the blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from sparse_opt import _library
from sparse_opt._errors import StepError
from sparse_opt._description import Array, Pattern
from sparse_opt._weight import Weight

if TYPE_CHECKING:
    from sparse_opt._step import Step


def lowest(numbers: Array, count: int) -> Array:
    """Returns the places of the `count` lowest numbers, rising; of equal ones the first.

    They may be of any real type of at most 64 bits, and in an array of NumPy's or of
    others that NumPy reads, such as PyTorch's on the processor. Takes time in proportion
    to their number.

    Raises:
      StepError: there are fewer, one of them is NaN, or they are of another type.
    """
    return _library.choose("lowest", numbers, count)


def highest(numbers: Array, count: int) -> Array:
    """Returns the places of the `count` highest numbers, rising; of equal ones the first."""
    return _library.choose("highest", numbers, count)


class Method:
    """A method of sparse training, to be derived from.

    An update of a weight with n stored blocks drops `count` of them, those of the lowest
    `score`, and grows as many. As it stands it is SET: scores are norms, and
    random blocks come. Blocks that come are zeros, and so are their moments.

        class Magnitude(Method):
            def score(self, weight):
                return weight.norms("l2")

    Attributes:
      needs_scores: whether an update reads `weight.scores`.
      score_steps: of a method that needs them, of how many steps: an update follows the last
        of these, and `see` is called after each. Of layers only 1.
    """

    needs_scores = False
    score_steps = 1

    def see(self, weight: Weight) -> None:
        """Takes note of `weight.scores` after one of `score_steps` steps, if these are more
        than one, the last of which `update` follows."""

    def count(self, weight: Weight, share: float) -> int:
        """Returns how many blocks to replace, of a share of those stored: half ones round
        up, and no more than are absent."""
        stored = len(weight.stored)
        return min(int(share * stored + 0.5), weight.grid[0] * weight.grid[1] - stored)

    def score(self, weight: Weight) -> Array:
        """Returns a number for each stored block, row by row: the lowest go."""
        return weight.norms("l1")

    def drop(self, weight: Weight, count: int) -> Array:
        """Returns the numbers of blocks to drop, all of them stored."""
        scores = np.asarray(self.score(weight))
        if scores.shape != weight.stored.shape:
            raise StepError(
                f"expected {len(weight.stored)} scores, one for each stored block of"
                f" '{weight.name}', but got shape {list(scores.shape)}"
            )
        try:
            return weight.stored[lowest(scores, count)]
        except StepError:
            odd = np.flatnonzero(np.isnan(scores))
            if not len(odd):
                raise
            row, col = divmod(int(weight.stored[odd[0]]), weight.grid[1])
            raise StepError(
                f"expected a number as the score of block ({row}, {col}) of"
                f" '{weight.name}', but got NaN ({_name(self)})"
            ) from None

    def grow(self, weight: Weight, count: int) -> Array:
        """Returns the numbers of blocks to grow, all of them absent; any number for which
        there are slots."""
        return weight.random(count)

    def update(self, weight: Weight, share: float) -> tuple[Array, Array]:
        """Returns the numbers of the blocks that go and of those that come."""
        dropped = self.drop(weight, self.count(weight, share))
        return dropped, self.grow(weight, len(dropped))

    def update_all(
        self, weights: Sequence[Weight], shares: Sequence[float]
    ) -> Sequence[tuple[Array, Array]]:
        """Returns the same of all weights that this method updates now, in the order of the
        step: of each what `update` says. A method that compares blocks of several weights
        overrides it; each weight may have as many blocks as it has slots."""
        return [self.update(weight, share) for weight, share in zip(weights, shares)]

    def state_dict(self) -> dict[str, Any]:
        """Returns what the method must know to go on: numbers, texts, arrays, lists and
        dictionaries of them."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes what `state_dict` returned."""
        if state:
            raise StepError(
                f"expected no state of {type(self).__name__}, which has no"
                f" load_state_dict(), but got {', '.join(state)}"
            )


def apply(step: Step, updates: Sequence[tuple[Pattern, Method, float]]) -> None:
    """Updates patterns by methods, each with a share of the blocks, all or none."""
    replacements = []
    counters = step._session.counters()
    alike: dict[int, list[tuple[Pattern, Method, float]]] = {}
    for update in updates:
        alike.setdefault(id(update[1]), []).append(update)
    for members in alike.values():
        method = members[0][1]
        weights = [Weight(step, pattern, counters) for pattern, _, _ in members]
        answers = method.update_all(weights, [share for _, _, share in members])
        if not isinstance(answers, (list, tuple)) or len(answers) != len(weights):
            raise StepError(
                f"expected {_name(method)}.update_all() to return blocks to drop and to grow of"
                f" each of {len(weights)} weights, but got"
                f" {f'{len(answers)} of them' if isinstance(answers, (list, tuple)) else f'a {type(answers).__name__}'}"
            )
        for (pattern, _, _), weight, both in zip(members, weights, answers):
            if not isinstance(both, tuple) or len(both) != 2:
                raise StepError(
                    f"expected {_name(method)}.update() to return blocks to drop and to grow,"
                    f" but got a {type(both).__name__}"
                )
            dropped, grown = (_numbers(method, weight, blocks) for blocks in both)
            replacements.append((pattern.index, dropped, grown))
    if replacements:
        try:
            step._session.replace(replacements)
        except StepError as error:
            names = " or ".join(dict.fromkeys(_name(method) for _, method, _ in updates))
            raise StepError(f"{error} ({names})") from error


def compares_weights(method: Method) -> bool:
    """Returns whether a method sees all of its weights together."""
    return type(method).update_all is not Method.update_all


def _name(method: Method) -> str:
    return type(method).__name__


def _numbers(method: Method, weight: Weight, blocks: Any) -> Array:
    """Returns numbers of blocks as the runtime takes them: rising."""
    array = np.asarray(blocks)
    if array.ndim != 1 or (array.size and not np.issubdtype(array.dtype, np.integer)):
        raise StepError(
            f"expected numbers of blocks of '{weight.name}' from {_name(method)}, but got"
            f" {array.dtype} of shape {list(array.shape)}"
        )
    return np.sort(array.astype(np.int64))
