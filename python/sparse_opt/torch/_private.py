# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Names of PyTorch, torch-mlir and transformers that promise nothing, in one place.

"""What the front door leans on without a promise.

Nothing else in this package touches a private name of PyTorch, torch-mlir or
transformers.
Whoever moves to another version runs the tests, mends this file and widens
`_TESTED` in `__init__.py`.
"""

from __future__ import annotations

import builtins
import contextlib
import logging
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._decomp import decompositions as torch_decompositions
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributions import distribution as torch_distribution
from torch.fx import proxy
from torch.fx.experimental.proxy_tensor import (
    disable_proxy_modes_tracing,
    make_fx,
)
from torch.nn import functional
from torch.nn.modules import batchnorm
from torch.nn.modules import transformer as torch_transformer
from torch.nn.utils import stateless
from torch.optim import _adafactor as torch_adafactor
from torch.utils import _pytree as pytree
from torch.utils import _python_dispatch as python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from sparse_opt.torch import _numbers
from sparse_opt.torch.rewrites import (
    _adafactor,
    _experts,
    _recurrent,
    _tables,
    _unchecked,
)

__all__ = [
    "TorchDispatchMode",
    "compiling",
    "is_alone",
    "keep_lines_of",
    "know_mapping",
    "make_fx",
    "masked_calls",
    "tensors_of",
    "uncompiled",
    "undispatched",
    "untraced",
    "without_values",
    "visible_buffer_writes",
]


# What is replaced or called below, so that a version without it is found here.
_NEEDED = (
    torch.compiler.set_stance,
    torch.compiler._is_compiling_flag,
    torch_adafactor._single_tensor_adafactor,
    torch_transformer._detect_is_causal_mask,
    batchnorm._BatchNorm.forward,
    torch_decompositions._rnn_helper,
    torch_distribution._all_true_or_runtime_assert,
    torch._C._get_mkldnn_enabled,
    torch._C._set_mkldnn_enabled,
    python_dispatch._disable_current_modes,
    stateless._reparametrize_module,
    proxy._register_stack_trace_anchor,
)


@contextlib.contextmanager
def compiling() -> Iterator[None]:
    """Makes optimizers and models take their paths without data-dependence.

    Under it an optimizer keeps its step count a tensor, and Hugging Face's
    models do not look into their padding masks. Adafactor, the masks of
    `nn.Transformer` and mixtures of experts have no such path, an LSTM is one
    operation of oneDNN where its input needs no gradient, and recurrent layers
    drop nothing out.
    """
    # A model that was compiled runs as it was written.
    stance = torch.compiler.set_stance("force_eager")
    before = torch.compiler._is_compiling_flag
    update = torch_adafactor._single_tensor_adafactor
    detect = torch_transformer._detect_is_causal_mask
    network = torch_decompositions._rnn_helper
    torch.compiler._is_compiling_flag = True
    setattr(torch_adafactor, "_single_tensor_adafactor", _adafactor.update)
    setattr(torch_transformer, "_detect_is_causal_mask", _is_said_to_be_causal)
    setattr(torch_decompositions, "_rnn_helper", _recurrent.with_dropout(network))
    has_onednn = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        with stance, _functions_of_tensors(), _experts_on_all_tokens(), _without_checks():
            yield
    finally:
        torch.compiler._is_compiling_flag = before
        setattr(torch_adafactor, "_single_tensor_adafactor", update)
        setattr(torch_transformer, "_detect_is_causal_mask", detect)
        setattr(torch_decompositions, "_rnn_helper", network)
        torch._C._set_mkldnn_enabled(has_onednn)


@contextlib.contextmanager
def _without_checks() -> Iterator[None]:
    """Makes functions that look at values compute what they do behind that."""
    norm = batchnorm._BatchNorm
    replaced: list[tuple[Any, str, Any]] = [
        (torch_distribution, "_all_true_or_runtime_assert", _unchecked.is_all_true),
        (functional, "gaussian_nll_loss", _unchecked.gaussian_nll_loss),
        (functional, "one_hot", _unchecked.with_classes(functional.one_hot)),
        (torch, "embedding", _tables.with_dense_gradient(torch.embedding)),
        (functional, "embedding_bag", _tables.embedding_bag),
        (norm, "forward", _unchecked.with_cumulative_average(norm.forward)),
    ]
    own = [(module, name, getattr(module, name)) for module, name, _ in replaced]
    for module, name, function in replaced:
        setattr(module, name, function)
    try:
        yield
    finally:
        for module, name, function in own:
            setattr(module, name, function)


@contextlib.contextmanager
def _experts_on_all_tokens() -> Iterator[None]:
    """Makes the experts of transformers compute shapes that do not depend on data.

    What the user chose besides the defaults stays.
    """
    module = sys.modules.get("transformers.integrations.moe")
    interface: Any = getattr(module, "ALL_EXPERTS_FUNCTIONS", None)
    if interface is None:
        yield
        return
    own = interface.get_interface

    def get_interface(name: str | None, default: Callable[..., Any]) -> Any:
        return _experts.forward if name in _GROUPING else own(name, default)

    interface.__dict__["get_interface"] = get_interface
    try:
        yield
    finally:
        del interface.__dict__["get_interface"]


# A loop over experts, and a product of groups of tokens.
_GROUPING = (None, "eager", "grouped_mm")


@contextlib.contextmanager
def _functions_of_tensors() -> Iterator[None]:
    """Makes Python's functions of numbers take tensors without dimensions.

    Optimizers call them with what they count, which is a tensor in a trace.
    """
    replaced = [
        (module, name, getattr(module, name), function)
        for module, functions in _FUNCTIONS.items()
        for name, function in functions.items()
    ]
    for module, name, own, function in replaced:
        setattr(module, name, _for_tensors(own, function))
    try:
        yield
    finally:
        for module, name, own, _ in replaced:
            setattr(module, name, own)


def _for_tensors(own: Callable[..., Any], function: Any) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        if options or not any(isinstance(a, torch.Tensor) for a in args):
            return own(*args, **options)
        if len(args) != (2 if function in _OF_TWO else 1) or any(
            isinstance(a, torch.Tensor) and a.dim() for a in args
        ):
            return own(*args)
        # A number takes the type of the tensor beside it.
        dtype = next(a.dtype for a in args if isinstance(a, torch.Tensor))
        dtype = dtype if dtype.is_floating_point else torch.float64
        return function(
            *(a if isinstance(a, torch.Tensor) else _numbers.literal(a, dtype) for a in args)
        )

    return call


_OF_TWO = (torch.maximum, torch.minimum, torch.pow)
_FUNCTIONS: dict[Any, dict[str, Any]] = {
    builtins: {"max": torch.maximum, "min": torch.minimum},
    math: {
        **{name: getattr(torch, name) for name in ("sqrt", "exp", "log", "cos", "sin")},
        "pow": torch.pow,
    },
}


def _is_said_to_be_causal(
    mask: Any, is_causal: bool | None = None, size: Any = None
) -> bool:
    """Leaves a mask a mask, whatever it holds: the values are the same."""
    return is_causal is True


def untraced() -> contextlib.AbstractContextManager[Any]:
    """Lets tensors without values be computed without a trace of it."""
    return disable_proxy_modes_tracing()


def know_mapping(cls: type) -> None:
    """Makes a mapping, such as a `UserDict`, a structure of its values."""

    def flatten(mapping: Any) -> tuple[list[Any], Any]:
        return list(mapping.values()), list(mapping)

    def flatten_with_keys(mapping: Any) -> tuple[list[Any], Any]:
        return [(pytree.MappingKey(k), v) for k, v in mapping.items()], list(mapping)

    pytree.register_pytree_node(
        cls,
        flatten,
        lambda values, keys: cls(dict(zip(keys, values))),
        flatten_with_keys_fn=flatten_with_keys,
    )


def visible_buffer_writes() -> contextlib.AbstractContextManager[Any]:
    """Makes what BatchNorm writes into its buffers visible to a tracer."""
    return enable_python_dispatcher()


def saved_buffers(model: torch.nn.Module) -> set[str]:
    """Returns the names of buffers that go into a `state_dict`, whatever it calls them."""
    return {
        f"{path}.{key}" if path else key
        for path, module in model.named_modules()
        for key in module._buffers
        if key not in module._non_persistent_buffers_set
    }


def tensors_of(
    module: torch.nn.Module, tensors: dict[str, torch.Tensor]
) -> contextlib.AbstractContextManager[Any]:
    """Puts `tensors` in the place of parameters and buffers, ties kept."""
    return stateless._reparametrize_module(module, tensors, tie_weights=True)


@contextlib.contextmanager
def changed_calls(
    module: torch.nn.Module, change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> Iterator[None]:
    """Has `functional_call` put `change(parameter, tensor)` in the place of parameters,
    where that is not the parameter itself."""
    own = stateless._reparametrize_module

    def changed(module: Any, tensors: dict[str, torch.Tensor], **options: Any) -> Any:
        held = dict(module.named_parameters(remove_duplicate=False))
        tensors = {
            name: change(held[name], tensor)
            if name in held and tensor is not held[name]
            else tensor
            for name, tensor in tensors.items()
        }
        return own(module, tensors, **options)

    setattr(stateless, "_reparametrize_module", changed)
    try:
        yield
    finally:
        setattr(stateless, "_reparametrize_module", own)


@contextlib.contextmanager
def uncompiled(is_exact: bool) -> Iterator[None]:
    """Runs what was compiled by PyTorch as it was written; if it `is_exact`, without
    operations of oneDNN, which has none of recurrent layers in float64."""
    stance = torch.compiler.set_stance("force_eager")
    has_onednn = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(has_onednn and not is_exact)
    try:
        with stance:
            yield
    finally:
        torch._C._set_mkldnn_enabled(has_onednn)


def is_alone(tensor: torch.Tensor) -> bool:
    """Returns whether no other tensor lies in a tensor's memory, nor in a part of it."""
    count = getattr(torch._C, "_storage_Use_Count", None)
    if count is None or tensor.device.type != "cpu" or not tensor.is_contiguous():
        return False
    storage, other = tensor.untyped_storage(), torch.empty(1).untyped_storage()
    is_whole = storage.nbytes() == tensor.numel() * tensor.element_size()
    return is_whole and bool(count(storage._cdata) <= count(other._cdata) + 1)


def undispatched() -> contextlib.AbstractContextManager[Any]:
    """Lets no mode of dispatch see what is computed."""
    return python_dispatch._disable_current_modes()


def keep_lines_of(function: Callable[..., Any]) -> None:
    """Makes traced nodes remember lines of `function`, not only of modules."""
    proxy._register_stack_trace_anchor(function)


@contextlib.contextmanager
def without_values(tensors: list[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Yields tensors of the same shapes and types that hold nothing.

    What would need their values is an error at once: they have no symbols.
    Tensors made meanwhile hold nothing either.
    """
    log = logging.getLogger(fake_tensor.__name__)
    before = log.disabled
    log.disabled = True  # An error becomes one sentence, without a page before it.
    try:
        with FakeTensorMode() as mode:
            fakes: list[torch.Tensor] = [mode.from_tensor(t) for t in tensors]
            for fake in fakes:
                # A single element keeps its value, which would become a constant.
                setattr(fake, "constant", None)
                setattr(fake, "item_memo", None)
            yield fakes
    finally:
        log.disabled = before


def differentiating_transform() -> str:
    """Returns the transform of `torch.func` or of forward mode that a call is in, but for
    `vmap`, or ''."""
    if torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode differentiation"
    peek = getattr(torch._C._functorch, "peek_interpreter_stack", None)
    interpreter = peek() if peek is not None else None
    if interpreter is None:
        return ""
    kind = str(interpreter.key()).rpartition(".")[2]
    return "" if kind == "Vmap" else f"torch.func ({kind.lower()})"


_PLAIN = (torch.Tensor, torch.nn.Parameter)


def are_plain(*tensors: torch.Tensor) -> bool:
    """Returns whether nothing but autograd looks at what is done to tensors: no mode, no
    transform, no tracer, no class of their own."""
    for tensor in tensors:
        if type(tensor) not in _PLAIN:
            return False
    return (
        not torch._C._len_torch_dispatch_stack()
        and not torch._C._len_torch_function_stack()
        and torch._C._functorch.peek_interpreter_stack() is None
        and not torch._C._is_tracing()
    )
