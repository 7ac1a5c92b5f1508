# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# From block-sparse layers to a whole step, and back.

"""The layers of a model that is exported.

A whole step has matrices, with marks that say which are in blocks. While a program with
layers is traced, or runs beside its compiled step, the weights of its layers are dense,
with zeros where no block is stored: a layer computes with what it has. The parameters are
the same objects throughout, so that ties, hooks and the optimizer's groups stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from sparse_opt import _description
from sparse_opt._errors import ExportError
from sparse_opt._marks import Mark
from sparse_opt._program import Array, Source
from sparse_opt.torch import _blocks, _linear, _sharded, _updates
from sparse_opt.torch._memory import to_numpy
from sparse_opt.torch._layers import Blocks

if TYPE_CHECKING:
    from sparse_opt.torch._optimizers import Optimizers


class Layers:
    """The weights of a model that lie in blocks, by their names.

    Attributes:
      marks: the marks of each, for the compiler.

    Raises:
      ExportError: a layer has no parameter of its own in this process.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._found = dict(_found(model))
        self._modules = {n: m for n, m in model.named_modules() if isinstance(m, Blocks)}
        self.marks: Mapping[str, Mark] = {
            # As many blocks as there are slots: those of gmp may be empty.
            name: Mark.named(name, layer.block, m.slots / (m.grid[0] * m.grid[1]))
            for name, layer in self._found.items()
            for m in (layer.matrix,)
        }

    def use(self, names: Collection[str]) -> None:
        """Notes which arguments a step has: it has no others in blocks."""
        self.marks = {name: mark for name, mark in self.marks.items() if name in names}

    def require_no_update(self) -> None:
        """Raises `ExportError` if a layer has gradients that wait for an update of patterns:
        behind a step they would be those of other weights."""
        for path, module in self._modules.items():
            if module.kept:
                raise ExportError(
                    f"expected no update of patterns to be due, but got the layer '{path}' with"
                    " gradients kept for one: update the patterns first, or call"
                    " nn.keep_gradients(model, on=False)"
                )

    @property
    def buffers(self) -> set[str]:
        """The names of what says where the blocks of weights lie."""
        names = map(_prefix, self.marks)
        return {prefix + key for prefix in names for key in ("pattern", "num_updates")}

    @contextlib.contextmanager
    def dense(self) -> Iterator[None]:
        """Has the weights of layers dense for a while, and without gradients."""
        held: list[tuple[Any, Tensor, Tensor | None]] = []
        named: list[tuple[Any, str]] = []
        try:
            for layer in self._found.values():
                dense = layer.dense_weight()
                held.append((layer.weight, layer.weight.data, layer.weight.grad))
                _put(layer.weight, dense)
                del dense  # Else it is not the parameter's alone.
            for path, module in self._modules.items():
                named.append((module, module._path))
                module._is_dense, module._path = True, path
            yield
        finally:
            for module, path in named:
                del module._is_dense, module._path
                if path:
                    module._path = path
            for weight, blocks, gradient in held:
                _put(weight, blocks)
                weight.grad = gradient

    def blocks(self) -> Iterator[tuple[str, Array, Array]]:
        """Yields where the blocks of each weight are: `row_ptr` and `col_idx`."""
        for name in self.marks:
            layer = self._found[name]
            row_ptr, col_idx, _ = layer.matrix.rows_of(layer.pattern.numpy())
            yield name, row_ptr, col_idx

    @property
    def updates(self) -> int:
        """How often patterns were updated: a step counts this once for all."""
        layers = (self._found[name] for name in self.marks)
        return max((int(x.num_updates) for x in layers if x.weight.requires_grad), default=0)

    def of_step(self, name: str, dense: Tensor, step: Source) -> Iterator[tuple[str, Tensor]]:
        """Yields the tensors of a layer, and their names, as a step has them."""
        pattern, prefix = self._pattern(name, step), _prefix(name)
        yield name, _blocks.gather(self._found[name].matrix, pattern, dense)
        yield prefix + "pattern", pattern
        if self._found[name].weight.requires_grad:
            yield prefix + "num_updates", torch.tensor(step.counters.pattern_updates)

    def state_of_step(self, name: str, value: Tensor, step: Source) -> Tensor:
        """Returns what an optimizer keeps of a weight, as the layer has it."""
        if name not in self.marks or value.dim() != 2:
            return value
        return _blocks.gather(self._found[name].matrix, self._pattern(name, step), value)

    def _pattern(self, name: str, step: Source) -> Tensor:
        blocks = step._current_blocks(name)
        matrix = self._found[name].matrix
        return torch.from_numpy(matrix.pattern_from(blocks.row_ptr, blocks.col_idx, blocks.slot))

    def of_state(
        self, name: str, state: Mapping[str, Any]
    ) -> tuple[Tensor, tuple[Array, Array]]:
        """Returns the dense weight that a `state_dict` has in blocks, and where these are."""
        layer = self._found[name]
        values, pattern = (
            torch.as_tensor(state[n]).detach() for n in (name, _prefix(name) + "pattern")
        )
        like = to_numpy(layer.weight)
        _description.require(name, like.shape, like.dtype, to_numpy(values))
        _linear.require_own(name, layer.matrix, pattern)
        row_ptr, col_idx, _ = layer.matrix.rows_of(pattern.numpy())
        return _blocks.spread(layer.matrix, pattern, values), (row_ptr, col_idx)


def _prefix(name: str) -> str:
    return name.removesuffix("weight")


def _put(weight: torch.nn.Parameter, values: Tensor) -> None:
    """Gives a parameter memory of another shape. While a graph of it is alive, autograd goes
    on to expect gradients of the old shape, until the type changes."""
    weight.grad = None
    other = torch.float32 if values.dtype == torch.float64 else torch.float64
    weight.data = values.new_empty(0, dtype=other)
    weight.data = values


def _found(model: torch.nn.Module) -> Iterator[tuple[str, Blocks]]:
    """Yields the layers of a model by the names of their weights, each weight once."""
    names = {id(p): name for name, p in model.named_parameters()}
    is_parallel = any(isinstance(module, DistributedDataParallel) for module in model.modules())
    first: dict[str, Blocks] = {}
    for path, module in model.named_modules():
        if not isinstance(module, Blocks):
            continue
        name = names.get(id(module.weight), "")
        known = first.get(name)
        if known is None and name != f"{path}.weight".lstrip("."):
            what = f"that of '{name}'" if name else "a computed one"
            raise ExportError(
                f"expected the weight of the layer '{path}' to be a parameter that layers alone"
                f" have, but got {what}: untie it, or remove its parametrization"
            )
        if known is not None and known.pattern is not module.pattern:
            raise ExportError(
                f"expected layers that share '{name}' to share its pattern, but got '{path}'"
                " with another: give it pattern and num_updates, too"
            )
        if any(not t.is_cpu for t in (module.weight, module.pattern, module.num_updates)):
            raise ExportError(
                f"expected layers on a processor, but got '{path}' on '{module.weight.device}':"
                " move it there"
            )
        if is_parallel or _sharded.is_sharded(module.weight):
            raise ExportError(
                f"expected the layers of one process, but got '{path}' of a model that several"
                " have: export the model without DDP and FSDP, and compile it with comm="
            )
        first[name] = module
        if known is None:
            yield name, module


# Optimizers that see more of a matrix than one entry, whatever the shape of their state.
_OF_MATRICES = ("adafactor", "muon", "shampoo", "soap")


def dense_state(
    model: torch.nn.Module, optimizers: Optimizers, state: dict[str, dict[str, Tensor]]
) -> dict[str, dict[str, Tensor]]:
    """Returns optimizers' state, by the names of parameters, with that of layers which are
    dense now as dense as they are.

    Raises:
      ExportError: it is not one of single entries of the weight.
    """
    owners = optimizers.owners()
    for path, module in model.named_modules():
        name = f"{path}.weight".lstrip(".")
        if not isinstance(module, Blocks) or not module._is_dense or name not in state:
            continue
        owner = owners[id(module.weight)]
        state[name] = {
            key: _dense(name, module, owner, key, value) for key, value in state[name].items()
        }
    return state


def _dense(
    name: str, layer: Blocks, owner: torch.optim.Optimizer, key: str, value: Tensor
) -> Tensor:
    what = f"'{key}'"
    if any(kind in type(owner).__name__.lower() for kind in _OF_MATRICES):
        what = "update"
    elif not value.dim() or value.shape == layer.weight.shape:
        return value
    elif value.dim() == 3 and value.dtype in _linear.TYPES and value.shape[1:] == layer.block:
        matrix = _linear.matrix_of(value, *layer.shape)
        rest = _updates.first_value(owner, layer.weight, key)
        return _blocks.spread(matrix, layer.pattern, value, rest)
    raise ExportError(
        "expected an optimizer that treats the entries of a weight in blocks one by one, as AdamW"
        f" does, but got {type(owner).__name__} for '{name}', whose {what} is of the whole matrix:"
        " give this weight to another one, or densify the model and make a new one"
    )
