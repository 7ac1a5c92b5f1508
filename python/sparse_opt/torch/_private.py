# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Names of PyTorch, torch-mlir and transformers that promise nothing, in one place.

"""What the front end leans on without a promise.

Nothing else in this package touches a private name of PyTorch, torch-mlir or
transformers.
To move to another version, run the tests, mend this file and widen
`_TESTED` in `__init__.py`.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import logging
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any

import torch
from torch._decomp import decompositions as torch_decompositions
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributions import distribution as torch_distribution
from torch.fx import _lazy_graph_module, _symbolic_trace, proxy
from torch.fx import traceback as fx_traceback
from torch.fx.experimental import proxy_tensor
from torch.fx.experimental.proxy_tensor import (
    disable_autocast_cache,
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
    "DispatchMode",
    "Results",
    "TorchDispatchMode",
    "as_traced",
    "compiling",
    "OPERANDS",
    "give_place",
    "has_lines",
    "has_modes",
    "is_alone",
    "is_profiling",
    "is_query_of_device",
    "is_view",
    "is_without_values",
    "keep_lines_of",
    "know_mapping",
    "masked_calls",
    "operands_of",
    "settings",
    "tensors_of",
    "traced",
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
    proxy._STACK_TRACE_ANCHORS,
    proxy_tensor.dispatch_trace,
    proxy_tensor.proxy_call,
    proxy_tensor._ProxyTensor,
    _lazy_graph_module._LazyGraphModule,
    fake_tensor.in_kernel_invocation_manager,
    python_dispatch.autograd_would_have_decomposed,
    torch._C._DisablePythonDispatcher,
    torch._C._set_throw_on_mutable_data_ptr,
    _symbolic_trace._is_fx_tracing_context,
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


@contextlib.contextmanager
def other_kernel(operation: Any, kernel: Callable[..., Any]) -> Iterator[None]:
    """Has `visible_buffer_writes` call `kernel(own, *args, **kwargs)` for a composite
    operation, whose own kernel is `own`."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    own = functools.partial(operation._op_dk, key)
    operation.py_kernels[key] = functools.partial(kernel, own)
    operation._dispatch_cache.clear()
    try:
        yield
    finally:
        del operation.py_kernels[key]
        operation._dispatch_cache.clear()


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


def has_modes() -> bool:
    """Returns whether modes see what PyTorch computes."""
    return bool(torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack())


def settings() -> tuple[Any, ...]:
    """Returns what PyTorch holds beside its operands that says what operations do."""
    return (
        str(torch.get_default_dtype()),
        str(torch.get_default_device()),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.get_float32_matmul_precision(),
        [
            (device, torch.is_autocast_enabled(device), str(torch.get_autocast_dtype(device)))
            for device in ("cpu", "cuda")
        ],
    )


def is_view(tensor: torch.Tensor) -> bool:
    """Returns whether autograd knows a tensor as a view of another."""
    return tensor._is_view()


def undispatched() -> contextlib.AbstractContextManager[Any]:
    """Lets no mode of dispatch see what is computed."""
    return python_dispatch._disable_current_modes()


def keep_lines_of(function: Callable[..., Any]) -> None:
    """Makes traced nodes remember lines of `function`, not only of modules."""
    proxy._register_stack_trace_anchor(function)


def has_lines(code: CodeType) -> bool:
    """Returns whether traced nodes remember lines of code."""
    return (
        code.co_name == "forward"
        or (code.co_filename, code.co_name) in proxy._STACK_TRACE_ANCHORS
    )


def give_place(place: tuple[str, int] | None) -> None:
    """Has the next nodes of a trace come from a file and a line, or from none."""
    fx_traceback.set_stack_trace(
        [f'File "{place[0]}", line {place[1]}, in step'] if place else []
    )


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode of dispatch that nobody compiles, and that need not say so each time."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def is_without_values(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor is one of a trace, which holds nothing."""
    return isinstance(tensor, fake_tensor.FakeTensor)


def is_query_of_device(func: Any, args: Any) -> bool:
    """Returns whether PyTorch asks for the `fake_device` of a tensor without values, as it
    does as often as all else together."""
    return func is _DEVICE and isinstance(args[0], fake_tensor.FakeTensor)


_DEVICE = torch.ops.prim.device.default


def is_profiling(func: Any) -> bool:
    """Returns whether an operation notes times, and computes nothing."""
    return getattr(func, "namespace", "") == "profiler"


def traced(
    function: Callable[..., Any],
    decompositions: Mapping[Any, Callable[..., Any]] | None,
    tensors: Sequence[torch.Tensor],
    results: Results | None = None,
) -> torch.fx.GraphModule:
    """Returns the graph of what a function does to tensors without values.

    It is what `make_fx` makes, but of what that notes of a node only the value and the
    user's line: the rest takes longer than the operation. The graph has no Python code
    unless somebody runs it.
    """
    own, own_trace = proxy_tensor.proxy_call, proxy_tensor.dispatch_trace
    trace = make_fx(
        function,
        decomposition_table=decompositions,
        tracing_mode="real",
        _disable_torch_fn_metadata_mode=True,
    )
    setattr(proxy_tensor, "proxy_call", _NotingLittle(own, results or Results()))
    setattr(proxy_tensor, "dispatch_trace", _graph_of)
    try:
        with fx_traceback.preserve_node_meta():
            return trace(*tensors)
    finally:
        setattr(proxy_tensor, "proxy_call", own)
        setattr(proxy_tensor, "dispatch_trace", own_trace)


@torch._disable_dynamo  # type: ignore[attr-defined]
def _graph_of(root: Any, tracer: Any, concrete_args: Any = None) -> torch.fx.GraphModule:
    """Traces as `make_fx` does, but looks for no sizes without users: none are symbols."""
    graph = tracer.trace(root, concrete_args)
    return _lazy_graph_module._LazyGraphModule(tracer.root, graph)


class _NotingLittle:
    """Adds operations to a graph; what is no operation on traced tensors alone is left to
    `own`."""

    def __init__(self, own: Callable[..., Any], results: Results) -> None:
        self._own, self._results = own, results
        # Values hold nothing: those of one form are one.
        self._values: dict[Any, torch.Tensor | None] = {}
        self._forms: dict[torch.fx.Node, Any] = {}

    def __call__(
        self, mode: Any, func: Any, pre_dispatch: bool, args: Any, kwargs: Any
    ) -> Any:
        tracer, decomposed = mode.tracer, mode.decomposition_table.get(func)
        if decomposed is not None:
            with mode:
                result = decomposed(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if pre_dispatch or _is_looked_at(func):
            return self._own(mode, func, pre_dispatch, args, kwargs)
        try:
            operands, options = _nodes(args, tracer), _nodes(kwargs, tracer)
        except KeyError:
            return self._own(mode, func, pre_dispatch, args, kwargs)
        first = next((a for a in args if isinstance(a, torch.Tensor)), None)
        if _is_composite(func, None if first is None else first.device):
            with mode:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        node = tracer.graph.create_node(
            "call_function", func, name=func.overloadpacket.__name__
        )
        # A node that is made with operands searches them for symbols.
        node.args = operands
        if options:
            node.kwargs = options
        node.stack_trace = fx_traceback.get_current_meta().get("stack_trace")
        forms = self._key(operands), self._key(options)
        result, _ = self._results.of(func, args, kwargs, forms)
        traced = proxy.Proxy(node, tracer)
        form = _form(result)
        if form is None:
            proxy_tensor.track_tensor_tree(result, traced, constant=None, tracer=tracer)
            return result
        if form not in self._values:
            self._values[form] = proxy_tensor.snapshot_fake(result)
        node.meta["val"] = self._values[form]
        self._forms[node] = form
        tracer.tensor_tracker[result] = proxy_tensor._ProxyTensor(traced, None)
        return result

    def _key(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            if value not in self._forms:
                # One that has no form is like itself alone.
                self._forms[value] = _form(value.meta.get("val")) or id(value)
            return self._forms[value]
        if isinstance(value, (list, tuple)):
            return tuple(map(self._key, value))
        if isinstance(value, dict):
            return tuple((key, self._key(item)) for key, item in value.items())
        return type(value), value


class Results:
    """What operations make of tensors without values: of operands of the same forms, results
    of the same form."""

    def __init__(self) -> None:
        self._forms: dict[Any, Any] = {}

    def of(self, func: Any, args: Any, kwargs: Any, operands: Any) -> tuple[Any, Any]:
        """Returns what an operation returns, and its form; None: it has none.

        Args:
          operands: the forms of tensors among what it takes, none of which is known, and
            the rest with its types; None: it is computed.
        """
        key = func, operands, torch.get_default_dtype()
        if operands is not None and (form := self._forms.get(key)) is not None:
            return made(func, args, form), form
        result = func(*args, **kwargs)
        form = _form_of(func, args, result)
        if operands is not None and form is not None:
            self._forms[key] = form
        return result, form


def operands_of(value: Any) -> Any:
    """Returns the forms of operands, as `Results` takes them; None: it takes none of them."""
    try:
        return _operand_of(value)
    except KeyError:
        return None


def _operand_of(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        form = _form(value)
        if form is None or value.constant is not None:  # type: ignore[attr-defined]
            raise KeyError
        return form
    kind = type(value)
    if kind in (list, tuple):
        return tuple([_operand_of(item) for item in value])
    if kind is dict:
        return tuple([(key, _operand_of(item)) for key, item in value.items()])
    if value is not None and kind not in OPERANDS:
        raise KeyError
    return kind, value


def _form_of(func: Any, args: Any, result: Any) -> Any:
    """Returns what `made` makes the result of an operation of; None: it cannot."""
    form = _form(result) if args and _kind(func) and are_unknown(args) else None
    is_plain = form is not None and not any(form[5:]) and result.constant is None
    return form if is_plain else None


def made(func: Any, args: Any, form: Any) -> Any:
    """Returns the result of an operation on tensors without values that are no constants,
    without what finds out its form."""
    kind = _kind(func)
    if kind == "writes":
        return args[0]
    shape, stride, offset, dtype, device, *_ = form
    mode = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    if kind == "views":
        storage = args[0].untyped_storage()
        with fake_tensor.in_kernel_invocation_manager(mode):
            empty = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
            empty.set_(storage, offset, shape, stride)
    else:
        with torch._C._DisableTorchDispatch(), torch._C._DisablePythonDispatcher():
            empty = torch.empty_strided(shape, stride, dtype=dtype, device="meta")
    return _fake(mode, empty, device)


def _fake(mode: Any, empty: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Returns what `FakeTensor` does, whose attributes are those of each that holds nothing."""
    attributes = mode.__dict__.setdefault("_sparse_opt_attributes", {})
    if device not in attributes:
        first = fake_tensor.FakeTensor(mode, empty, device)
        attributes[device] = dict(vars(first))
        return first
    fake = torch.Tensor._make_subclass(
        fake_tensor.FakeTensor, empty, False, dispatch_device=True, device_for_backend_keys=device
    )
    torch._C._set_throw_on_mutable_data_ptr(fake)
    fake.__dict__.update(attributes[device])
    return fake


def are_unknown(operands: Any) -> bool:
    """Returns whether tensors among operands hold nothing, and no value of them is known."""
    return all(
        is_without_values(operand) and getattr(operand, "constant") is None
        for operand in operands
        if isinstance(operand, torch.Tensor)
    )


def _form(value: Any) -> Any:
    """Returns all that there is of a tensor without values; None: it is of another kind."""
    if not isinstance(value, fake_tensor.FakeTensor) or value.layout is not torch.strided:
        return None
    return (
        value.shape, value.stride(), value.storage_offset(), value.dtype, value.device,
        value.is_conj(), value.is_neg(),
    )  # fmt: skip


def all_forms(value: Any) -> Any:
    """Returns the forms of what an operation returns, whatever that is."""
    if isinstance(value, (list, tuple)):
        return tuple(map(all_forms, value))
    return type(value), _form(value)


@functools.cache
def _kind(func: Any) -> str:
    """Returns whether an operation `makes` a tensor, `writes` into its first one, or `views`
    that, and does nothing else; or ``."""
    arguments, returns = func._schema.arguments, func._schema.returns
    if len(returns) != 1 or str(returns[0].type) != "Tensor" or {
        torch.Tag.dynamic_output_shape, torch.Tag.inplace_view
    } & set(func.tags):  # fmt: skip
        return ""
    aliased = [i for i, a in enumerate(arguments) if a.alias_info is not None]
    if not aliased and returns[0].alias_info is None:
        return "makes"
    if aliased != [0] or returns[0].alias_info is None:
        return ""
    return "writes" if arguments[0].alias_info.is_write else "views"


@functools.cache
def _is_looked_at(func: Any) -> bool:
    """Returns whether a tracer does more than to add an operation to its graph."""
    names = "is_nonzero", "lift_fresh", "size", "stride", "storage_offset"
    return (
        torch.Tag.data_dependent_output in func.tags
        or func.overloadpacket.__name__ in names
    )


@functools.cache
def _is_composite(func: Any, device: torch.device | None) -> bool:
    """Returns whether autograd takes an operation apart, on a device."""
    tensors = [] if device is None else [torch.empty(0, device=device)]
    return python_dispatch.autograd_would_have_decomposed(func, tensors)


def _nodes(value: Any, tracer: Any) -> Any:
    """Returns operands as those of a node; `KeyError`: one has another form."""
    if isinstance(value, torch.Tensor):
        slot = tracer.tensor_tracker[value]
        if slot.constant is not None or not are_unknown([value]):
            raise KeyError
        return slot.proxy.node
    if type(value) in (list, tuple):
        return type(value)([_nodes(item, tracer) for item in value])
    if type(value) is dict:
        return {key: _nodes(item, tracer) for key, item in value.items()}
    if value is None or type(value) in OPERANDS:
        return value
    raise KeyError


OPERANDS = {
    bool, int, float, complex, str, torch.dtype, torch.device, torch.layout,
    torch.memory_format,
}  # fmt: skip


@contextlib.contextmanager
def as_traced() -> Iterator[None]:
    """Runs a step as `make_fx` does, without a graph of it."""
    with disable_autocast_cache(), _symbolic_trace._is_fx_tracing_context(True):
        yield


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


def is_transformed() -> bool:
    """Returns whether a call is in a transform of `torch.func`, or in forward mode."""
    peek = getattr(torch._C._functorch, "peek_interpreter_stack", None)
    is_in_transform = peek is not None and peek() is not None
    return is_in_transform or torch.autograd.forward_ad._current_level >= 0


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


_top_hooks: Any = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)


def has_saved_tensors_hooks() -> bool:
    """Returns whether hooks see what is kept for backward passes, as those of checkpoints do, or
    PyTorch does not tell."""
    return _top_hooks is None or _top_hooks(True) is not None


def is_batch_of_gradients(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor is one of those that `is_grads_batched` gives backward passes,
    all at once."""
    return torch._C._functorch.is_legacy_batchedtensor(tensor)


without_subclasses: Callable[[], Any] = torch._C.DisableTorchFunctionSubclass
"""Lets operations see tensors of subclasses as plain ones."""


def watch_compilations(begun: Callable[[], None], entered: Callable[[Any], bool]) -> None:
    """Calls `begun` whenever `torch.compile` begins to compile, and `entered`, with what
    compiles a function, when such a function is called, which false runs as it is.

    PyTorch tells of calls by no hook; where what this wraps is gone, `entered` is never
    called.
    """
    from torch._dynamo import callback, eval_frame

    callback.callback_handler.register_start_callback(lambda _: begun())
    own = getattr(eval_frame, "_callback_from_stance", None)
    if own is not None:
        setattr(
            eval_frame,
            "_callback_from_stance",
            lambda compiler: own(compiler) if entered(compiler) else None,
        )
