# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Block-sparse layers in place of dense ones, and back.

"""`sparsify` and `densify` of sparse_opt.torch.nn."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.utils import parametrize
from torch.optim.optimizer import register_optimizer_step_pre_hook

from sparse_opt import _given, _library, _marks, _products, _say
from sparse_opt._errors import StepError
from sparse_opt._marks import Mark, Marks
from sparse_opt.torch import _blocks, _convolutions, _fusion, _linear, _updates
from sparse_opt.torch._attention import PROJECTIONS, MultiheadAttention
from sparse_opt.torch._convolutions import Convolution
from sparse_opt.torch._layers import FIRST_PATTERN, Blocks, Embedding, Linear, count_blocks

Pattern = Literal["random", "largest"]


def _largest(weight: Tensor, block: tuple[int, int], density: float) -> Tensor:
    """Returns the mask of the blocks of the largest L1 norms, of equal ones the first."""
    norms = _blocks.tiles(weight.detach(), block).to(torch.float64).abs().sum((2, 3))
    count = count_blocks(density, (norms.shape[0], norms.shape[1]))
    mask = torch.zeros(norms.numel(), dtype=torch.bool)
    mask[torch.from_numpy(_library.choose("highest", norms.flatten().cpu().numpy(), count))] = True
    return mask.reshape(norms.shape)


def _is_dense(module: torch.nn.Module) -> bool:
    """Returns whether a layer of blocks can take a module's place."""
    # What has a parametrization is of a class that is derived from its own.
    kind: Any = type(module).__base__ if parametrize.is_parametrized(module) else type(module)
    linear = (torch.nn.Linear, torch.nn.Embedding)
    return kind in linear or kind in _convolutions.KINDS or _is_conv1d(module)


def _is_conv1d(module: torch.nn.Module) -> bool:
    """Returns whether a module is the linear layer of transformers' GPT-2 and its kin, whose
    weight is [inputs, outputs]."""
    kind = type(module)
    return kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils"


def _sparse(
    dense: Any, block: tuple[int, int], density: float, pattern: Any, fan_in: Any
) -> Blocks:
    """Returns a layer with the stored blocks of a dense one, for `fan_in`, and its bias
    itself; blocks and a mask are those of the weight as it lies there."""
    is_transposed = _is_conv1d(dense)
    weight = dense.weight.detach().flatten(1)
    if is_transposed:
        weight, block = weight.t(), block[::-1]
        pattern = pattern if isinstance(pattern, str) else _given.mask(FIRST_PATTERN, pattern).T
    if isinstance(pattern, str) and pattern == "largest":
        pattern = _largest(weight, block, density)
    layer: Blocks
    if isinstance(dense, torch.nn.Embedding):
        layer = Embedding(
            weight.shape[0], weight.shape[1], dense.padding_idx, block=block, density=density,
            pattern=pattern, dtype=weight.dtype, device=weight.device,
        )  # fmt: skip
    else:
        options: dict[str, Any] = {
            "block": block, "density": density, "pattern": pattern, "fan_in": fan_in,
            "dtype": weight.dtype, "device": weight.device,
        }  # fmt: skip
        if type(dense) in _convolutions.KINDS:
            layer = _convolutions.of_dense(dense, **options)
        else:
            layer = Linear(weight.shape[1], weight.shape[0], dense.bias is not None, **options)
        if dense.bias is not None:
            layer.bias = dense.bias
    layer.is_transposed = is_transposed
    layer.take_dense(weight)
    if isinstance(layer, Linear):
        layer.scale_fan_in()
    layer.weight.requires_grad_(dense.weight.requires_grad)
    return layer.train(dense.training)


def _obstacle(module: torch.nn.Module) -> str:
    """Returns the option of a module that no layer of blocks has, or ''."""
    if isinstance(module, torch.nn.MultiheadAttention):
        return "add_bias_kv" if module.bias_k is not None else "add_zero_attn" * module.add_zero_attn
    if isinstance(module, torch.nn.Embedding):
        if module.max_norm is not None:
            return "max_norm"
        return "scale_grad_by_freq" * module.scale_grad_by_freq or "sparse" * module.sparse
    return _convolutions.obstacle(module) if type(module) in _convolutions.KINDS else ""


# A module, the name that it has a layer by, that, the name of its weight, and its mark.
_Found = tuple[torch.nn.Module, str, Any, str, Mark]


def _find(
    model: torch.nn.Module, rules: Sequence[Mark], pattern: Any, left: list[str]
) -> list[_Found]:
    """Returns what is to be replaced, and adds to `left` what matches and stays dense."""
    used = set()
    found: list[_Found] = []
    for path, module in list(model.named_modules(remove_duplicate=False)):
        for name, child in list(module._modules.items()):
            if not _is_dense(child):
                continue
            weight = _given.name(f"{path}.{name}.weight".lstrip("."))
            rule = _rule_of(rules, weight, module)
            if rule is None:
                continue
            _updates.require_parameter(weight, child)
            shape = child.weight.shape
            reason = _obstacle(child)
            if reason or not rule.fits(shape):
                what = "x".join(map(str, shape))
                if rule.dims and len(rule.dims) != len(shape):
                    what += f", not of dims {','.join(rule.dims)}"
                left.append(f"{weight} ({reason or what})")
                continue
            used.add(rule)
            _require_no_hooks(weight, child, "sparsify")
            found.append((module, name, child, weight, rule))
    _add_others(model, rules, left)
    for rule in rules:
        if rule not in used:
            fitting = (item for item in model.named_modules() if _is_dense(item[1]))
            shapes = {f"{n}.weight": m.weight.shape for n, m in fitting if not _obstacle(m)}
            could = [name for name, shape in shapes.items() if rule.fits(shape)]
            raise StepError(
                f"expected 'match={rule.match}' to match the weight of a layer that"
                f" {_marks.blocks_of(rule)} divide, but got"
                f" {', '.join(left[:3]) or 'no match'} in "
                + (f"{len(shapes)} layers: " if shapes else "a model without dense layers")
                + (f"mark {_marks.named(could, shapes)}" if could else "choose another block" * bool(shapes))
            )
    if not isinstance(pattern, str):
        names = [weight for *_, weight, _ in found]
        if odd := [name for name in pattern if name not in names]:
            raise StepError(
                "expected masks by the names of weights that are replaced, but got"
                f" {_given.shown(odd[0])}: {', '.join(names[:5])}"
            )
    _require_apart(model, [child for _, _, child, *_ in found])
    return found


def _add_others(model: torch.nn.Module, rules: Sequence[Mark], left: list[str]) -> None:
    """Adds to `left` the matrices that match and are of modules that are not replaced."""
    for path, module in model.named_modules():
        if _is_dense(module) or isinstance(module, torch.nn.MultiheadAttention):
            continue
        for name, parameter in module.named_parameters(recurse=False):
            weight = f"{path}.{name}".lstrip(".")
            if parameter.dim() > 1 and any(rule.matches(weight) for rule in rules):
                is_done = isinstance(module, Blocks)
                left.append(f"{weight} ({'blocks already' if is_done else type(module).__name__})")


@_given.options()
def sparsify(
    model: torch.nn.Module,
    marks: Marks,
    pattern: Pattern | Mapping[str, Any] = "random",
    *,
    fan_in: Literal["dense", "rows"] = "dense",
    fuse_activations: bool = False,
) -> torch.nn.Module:
    """Puts block-sparse layers into a model in place of its `torch.nn.Linear`,
    `torch.nn.Embedding`, the `Conv1D` of transformers, and, by marks with
    `dims="row,col,col,col"`, of `torch.nn.Conv2d` and its kin, and returns it. A line says how
    many, and what it left.

    A `torch.nn.MultiheadAttention` becomes one whose projections are layers: a mark that
    matches `in_proj_weight` is of `q_proj.weight`, `k_proj.weight` and `v_proj.weight`.

    Make the optimizer afterwards: it holds the parameters of the layers that are there.

    Args:
      model: whose layers are replaced in place. Layers under two names, and weights under
        two names, stay one.
      marks: `sparse_opt.Mark`s of `match`, `block` and `density`, or the texts and
        dictionaries that those of `sparse_opt.compile` may be, matched against the names of
        weights, as `encoder.0.mlp.weight`; the first that matches counts. What no block
        divides stays dense.
      pattern: `random`, `largest` (the blocks of the largest L1 norms), or masks by the
        names of weights.
      fan_in: whether values stay those of the dense layers, which were drawn for all inputs,
        or become those for the inputs that a block row stores (`rows`; docs/sparsity.md),
        of linear layers whose values were never trained.
      fuse_activations: whether layers compute the activations that are applied to their
        results and to nothing else, as the source of a module's `forward` shows: ReLU, GELU
        and SiLU of PyTorch and of transformers. A module that returns what it is given takes
        the place of each, until `densify`.

    Raises:
      StepError: a mark that is none, or that matches no weight which it fits; a layer with
        hooks or a parametrization, which would be lost. Nothing has changed then.
    """
    _updates.require_model(model)
    if _is_dense(model):
        raise StepError(
            f"expected a model whose layers are replaced, but got the {type(model).__name__} itself:"
            " put it into torch.nn.Sequential, or make a layer of sparse_opt.torch.nn"
        )
    fuse_activations = _given.flag("fuse_activations", fuse_activations)
    rules = [_of_layers(mark) for mark in _marks.listed(marks)]
    if not isinstance(pattern, (str, Mapping)):
        raise _given.refusal(
            "the pattern 'random', 'largest' or masks by the names of weights", pattern
        )
    if _products.is_stored_fan_in(fan_in) and pattern == "largest":
        raise _given.refusal("fan_in 'dense' for the largest blocks of a trained layer", fan_in)
    left: list[str] = []
    before = dict(model.named_parameters())
    split = _split_attention(model, rules, left)
    try:
        found = _find(model, rules, pattern, left)
        if fan_in != "dense":
            _require_linear(found)
    except StepError:
        for module, name, attention in split:
            setattr(module, name, attention)
        raise
    made: dict[int, Blocks] = {}  # by weights
    modules: dict[int, Blocks] = {}
    for module, name, child, weight, rule in found:
        known = modules.get(id(child))
        if known is None:
            first = pattern if isinstance(pattern, str) else pattern.get(weight, "random")
            assert rule.block is not None and rule.density is not None
            try:
                known = _sparse(child, rule.block, rule.density, first, fan_in)
            except StepError as error:
                raise StepError(f"{error}: the weight '{weight}'") from None
            known._path = weight.rpartition(".")[0]
            if twin := made.get(id(child.weight)):
                # One weight of two layers, which have biases of their own.
                known.weight, known.pattern = twin.weight, twin.pattern
                known.num_updates = twin.num_updates
            modules[id(child)] = known
            made.setdefault(id(child.weight), known)
    for module, name, child, *_ in found:
        setattr(module, name, modules[id(child)])
    _note_replaced(before, model)
    _note_ties(model)
    _note_resizing(model)
    fused = _fusion.fuse(model) if fuse_activations else 0
    for module in model.modules():
        # Kernels of their own for inference read dense weights; without these they call
        # their layers.
        if isinstance(module, torch.nn.TransformerEncoderLayer):
            module.activation_relu_or_gelu = 0
        if isinstance(module, torch.nn.TransformerEncoder):
            module.enable_nested_tensor = module.use_nested_tensor = False
    stored = sum(layer.weight.numel() for layer in made.values())
    dense = sum(layer.shape[0] * layer.shape[1] for layer in made.values())
    _say.line(
        (f"{len(made)} layers have" if len(made) > 1 else "1 layer has")
        + f" blocks now, {stored:,} of {dense:,} numbers"
        + f" ({_some([layer._path for layer in made.values()])})"
        + (f", and {fused} activations" if fused else "")
        + (f"; dense as they are: {_some(left)}" if left else "")
    )
    return model


def _some(names: Sequence[str]) -> str:
    """Returns the first of some names, and how many there are more."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


_REPLACED = "_bsr_replaced_as"


def _note_replaced(before: Mapping[str, Tensor], model: torch.nn.Module) -> None:
    """Lets optimizers that were made before `sparsify`, and have parameters that are not the
    model's any more, say so."""
    stay = {id(parameter) for parameter in model.parameters()}
    for name, parameter in before.items():
        if id(parameter) not in stay:
            setattr(parameter, _REPLACED, name)
    _watch_optimizers()


@functools.cache
def _watch_optimizers() -> None:
    register_optimizer_step_pre_hook(_refuse_replaced)


def _refuse_replaced(optimizer: torch.optim.Optimizer, *arguments: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            # With a gradient it is a weight of something else, too.
            if parameter.grad is None and hasattr(parameter, _REPLACED):
                raise StepError(
                    f"expected an optimizer of the model's parameters, but got one with a dense"
                    f" '{getattr(parameter, _REPLACED)}', which sparsify replaced: make it afterwards"
                )


def _require_linear(found: Sequence[_Found]) -> None:
    """Raises `StepError` for a layer whose outputs have no fan-in."""
    for *_, child, weight, _ in found:
        if isinstance(child, torch.nn.Embedding):
            raise StepError(
                f"expected linear layers for fan_in 'rows', but got the embedding '{weight}', whose"
                " rows are looked up: sparsify it by a call of its own"
            )


def _note_ties(model: torch.nn.Module) -> None:
    """Lets `save_pretrained` of transformers, which writes a tied weight under one name, do so
    with the pattern of that weight."""
    for part in model.modules():
        for weight in getattr(part, "all_tied_weights_keys", ()):
            layer = part.get_submodule(weight.rpartition(".")[0])
            if isinstance(layer, Blocks):
                layer._tied_weights_keys = {key: key for key in ("pattern", "num_updates")}


_RESIZE = "resize_token_embeddings"


def _refuse_resizing(*arguments: Any, **options: Any) -> None:
    raise StepError(
        f"expected dense embeddings for {_RESIZE}, but got layers of blocks: call it in front"
        " of sparsify, or of nn.densify(model) and sparsify that again"
    )


def _note_resizing(model: torch.nn.Module) -> None:
    """Lets the method of transformers that replaces embeddings and heads, which takes slots
    for tokens, say what to do for as long as these have blocks."""
    for part in model.modules():
        if not hasattr(type(part), _RESIZE):
            continue
        vars(part).pop(_RESIZE, None)
        try:
            named: Any = part
            own = named.get_input_embeddings(), named.get_output_embeddings()
        except NotImplementedError:
            continue  # It has none.
        if any(isinstance(layer, Blocks) for layer in own):
            vars(part)[_RESIZE] = _refuse_resizing


def _rule_of(
    rules: Sequence[Mark], weight: str, module: torch.nn.Module
) -> Mark | None:
    """Returns the mark of a weight: one that is a part of attention's packed one has that
    one's name, too."""
    names = [weight]
    if isinstance(module, MultiheadAttention):
        path, part, _ = weight.rsplit(".", 2) if weight.count(".") > 1 else ("", *weight.split("."))
        if part in PROJECTIONS:
            packed = (f"{path}.{name}".lstrip(".") for name in ("in_proj_weight", f"{part}_weight"))
            names.extend(packed)
    return next((r for r in rules if any(map(r.matches, names))), None)


def _split_attention(
    model: torch.nn.Module, rules: Sequence[Mark], left: list[str]
) -> list[tuple[torch.nn.Module, str, torch.nn.Module]]:
    """Puts attention whose projections are layers in place of `torch.nn.MultiheadAttention`
    of which a mark matches a weight that it fits, and returns what was where."""
    split: list[tuple[torch.nn.Module, str, torch.nn.Module]] = []
    made: dict[int, MultiheadAttention] = {}
    for path, module in list(model.named_modules(remove_duplicate=False)):
        for name, child in list(module._modules.items()):
            if type(child) is not torch.nn.MultiheadAttention:
                continue
            prefix = f"{path}.{name}.".lstrip(".")
            rule = None
            for weight, tensor in child.named_parameters():
                height = child.embed_dim if weight == "in_proj_weight" else tensor.shape[0]
                if tensor.dim() == 2:
                    matching = (r for r in rules if r.matches(prefix + weight))
                    found = next(matching, None)
                    rule = rule or (found and found.fits((height, tensor.shape[1])) and found)
            if not rule:
                continue
            if reason := _obstacle(child):
                left.append(f"{prefix}in_proj_weight ({reason})")
                continue
            _require_no_hooks(prefix[:-1], child, "sparsify")
            if id(child) not in made:
                made[id(child)] = MultiheadAttention(child)
            split.append((module, name, child))
    for module, name, child in split:
        setattr(module, name, made[id(child)])
    return split


def _require_no_hooks(name: str, layer: Any, call: str) -> None:
    """Raises `StepError` for hooks of a layer or its weight, which would be lost with it."""
    own = [
        held
        for parameter, weight in layer.named_parameters(recurse=False)
        if parameter != "bias"  # which stays what it is
        for held in (weight._backward_hooks, getattr(weight, "_post_accumulate_grad_hooks", None))
    ]
    if _fusion.has_hooks(layer) or any(own):
        raise StepError(
            f"expected a layer without hooks to replace, but got some on that of '{name}':"
            f" register them after {call}"
        )


def _of_layers(mark: Mark) -> Mark:
    """Returns a mark that layers have all of."""
    own = mark.match and Mark(mark.match, block=mark.block, density=mark.density, dims=mark.dims)
    if mark != own:
        raise _given.refusal("a mark of layers, by match, block, density and dims", str(mark))
    return mark


def _require_apart(model: torch.nn.Module, replaced: Sequence[Any]) -> None:
    """Raises `StepError` if a weight to be replaced is one of a module that stays, too."""
    weights, modules = {id(m.weight) for m in replaced}, {id(m) for m in replaced}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in weights and id(module) not in modules:
                shown = _given.shown(f"{path}.{name}".lstrip("."))
                raise StepError(
                    f"expected weights that only marked layers have, but got {shown}, which another"
                    " module has, too: mark that one as well, leave both out, or untie it first"
                )


def marks_of(model: torch.nn.Module) -> list[Mark]:
    """Returns marks of the layers of a model, for a whole step of the dense model. One of the
    model as it is needs none: `sparse_opt.torch.export` takes layers over.

        marks = nn.marks_of(model)
        model = nn.densify(model)
        optimizer = torch.optim.AdamW(model.parameters())
        export = sparse_opt.torch.export(train_step, model, optimizer, batch)
        step = sparse_opt.compile(export, marks, pattern="largest")
    """
    modules = dict(_updates.require_model(model).named_modules())
    # Parts of another mark's weight, and weights that have one.
    done = {
        id(part)
        for module in modules.values()
        if isinstance(module, MultiheadAttention) and module.is_packed
        for part in module.projections
    }
    marks = []
    for name, module in modules.items():
        if isinstance(module, MultiheadAttention) and module.is_packed:
            marks.extend(_packed_mark(_given.name(f"{name}.in_proj_weight".lstrip(".")), module))
        elif isinstance(module, Blocks) and not done & {id(module), id(module.weight)}:
            done.add(id(module.weight))
            # As the weight lies in the dense model.
            rows, cols = module.block[::-1] if module.is_transposed else module.block
            weight = _given.name(f"{name}.weight".lstrip("."))
            parent, _, part = name.rpartition(".")
            if part in PROJECTIONS and isinstance(modules[parent], MultiheadAttention):
                weight = f"{name}_weight"
            dims = module.mark_dims if isinstance(module, Convolution) else None
            marks.append(Mark.named(weight, (rows, cols), module.density, dims))
    return marks


def _packed_mark(weight: str, attention: MultiheadAttention) -> list[Mark]:
    """Returns the mark of the matrix that the projections of attention are in a dense model, if
    they have blocks."""
    parts = attention.projections
    blocks = [part for part in parts if isinstance(part, Blocks)]
    if not blocks:
        return []
    if len(blocks) != len(parts) or len({part.block for part in blocks}) > 1:
        raise StepError(
            f"expected blocks of one size in all of '{weight}', one mark of which says it, but got"
            f" {', '.join(str(part) for part in parts)}: export the model as it is"
        )
    density = sum(part.density for part in blocks) / len(blocks)
    return [Mark.named(weight, blocks[0].block, density)]


def densify(model: torch.nn.Module) -> torch.nn.Module:
    """Puts the dense layers with the same numbers (`torch.nn.Linear`, or the `Conv1D` that
    was there) in place of block-sparse ones, in place, and returns the model; or the dense
    layer, of a layer.

    Raises:
      StepError: a layer with hooks or a parametrization, which would be lost.
    """
    modules = list(_updates.require_model(model).named_modules(remove_duplicate=False))
    for path, module in modules:
        if isinstance(module, Blocks):
            weight = _given.name(f"{path}.weight".lstrip("."))
            _updates.require_parameter(weight, module)
            _require_no_hooks(weight, module, "densify")
    if isinstance(model, Blocks):
        return _dense(model, {})
    if isinstance(model, MultiheadAttention):
        return _whole(model)
    _fusion.part(model)
    weights: dict[int, torch.nn.Parameter] = {}
    made: dict[int, torch.nn.Module] = {}
    for _, module in modules:
        for name, child in list(module._modules.items()):
            if isinstance(child, Blocks):
                if id(child) not in made:
                    made[id(child)] = _dense(child, weights)
                setattr(module, name, made[id(child)])
    for _, module in modules:
        for name, child in list(module._modules.items()):
            if isinstance(child, MultiheadAttention):
                if id(child) not in made:
                    made[id(child)] = _whole(child)
                setattr(module, name, made[id(child)])
    _note_resizing(model)
    return model


def _whole(attention: MultiheadAttention) -> torch.nn.MultiheadAttention:
    layers = {
        name: _dense(layer, {}) if isinstance(layer, Blocks) else layer
        for name, layer in attention.named_children()
    }
    return attention.dense(layers)


class _Activated(torch.nn.Linear):
    """The dense layer of one with an activation."""

    activation: str

    def forward(self, x: Tensor) -> Tensor:
        return _linear.ACTIVATIONS[self.activation](super().forward(x))


def _dense(layer: Blocks, weights: dict[int, torch.nn.Parameter]) -> torch.nn.Module:
    """Returns the dense layer of one, whose weight is that in `weights` of one that it is
    shared with."""
    weight = layer.dense_weight()
    dense: Any
    if isinstance(layer, Embedding):
        # Without memory of its own, which the weight has.
        dense = torch.nn.Embedding(*layer.shape, layer.padding_idx, device="meta", dtype=weight.dtype)
    elif layer.is_transposed:
        from transformers.pytorch_utils import Conv1D

        if getattr(layer, "activation", ""):
            raise StepError(
                "expected the module that a Conv1D's activation was in, too, to densify, but got"
                " its layer alone: densify the model"
            )
        dense, weight = Conv1D(*layer.shape).to(weight.dtype), weight.t().contiguous()
    elif isinstance(layer, Convolution):
        if layer.activation:
            raise StepError(
                f"expected a {type(layer).__name__} without an activation to densify, but got"
                f" {layer.activation}"
            )
        dense = layer.dense()
        weight = weight.view(dense.weight.shape)
    else:
        activation = getattr(layer, "activation", "")
        dense = (_Activated if activation else torch.nn.Linear)(
            layer.shape[1], layer.shape[0], layer.bias is not None, device="meta",
            dtype=weight.dtype,
        )  # fmt: skip
        if activation:
            dense.activation = activation
    made = torch.nn.Parameter(weight, layer.weight.requires_grad)
    dense.weight = weights.setdefault(id(layer.weight), made)
    if isinstance(layer, Linear) and layer.bias is not None:
        dense.bias = layer.bias
    found: torch.nn.Module = dense.train(layer.training)
    return found
