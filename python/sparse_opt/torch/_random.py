# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Random numbers as arithmetic on a seed argument.

"""Dropout without a generator: numbers are a hash of their place and a seed.

Element `i` of the `n`-th random tensor of a step with seed `s` is
`hash(i + hash(s + n * 0x9E3779B9))`, where `hash` is the finalizer of
MurmurHash3 on 32 bits. The upper 24 bits make a number in [0, 1). A normal
one is made of two of them (Box and Muller 1958).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from sparse_opt._errors import ExportError
from sparse_opt.torch import _private
from sparse_opt.torch.rewrites import _orderings

aten = torch.ops.aten

_BITS = 24
_ANGLES = 1 << 31


def decompositions(
    seed: torch.Tensor, sites: Iterator[int]
) -> Mapping[Any, Callable[..., Any]]:
    """Returns what replaces the random operations of one step.

    Each takes its number from `sites`.
    """

    def bits(like: torch.Tensor, site: int | None = None) -> torch.Tensor:
        site = next(sites) if site is None else site
        place = torch.arange(like.numel(), dtype=torch.int32).view(like.shape)
        if not like.is_contiguous():
            # Views of the result are those of what PyTorch's would be.
            place = torch.zeros_like(like, dtype=torch.int32) + place
        start = _hash(seed + _signed(site * 0x9E3779B9))
        return _shifted(_hash(place + start), 32 - _BITS)

    def bernoulli(
        self: torch.Tensor, p: float = 0.5, generator: Any = None
    ) -> torch.Tensor:
        return (bits(self) < round(p * (1 << _BITS))).to(self.dtype)

    def rand_like(self: torch.Tensor, **options: Any) -> torch.Tensor:
        dtype = options.get("dtype") or self.dtype
        return bits(self).to(dtype) * (1.0 / (1 << _BITS))

    def rand(size: list[int], **options: Any) -> torch.Tensor:
        dtype = options.get("dtype") or torch.get_default_dtype()
        return rand_like(torch.empty(size, dtype=dtype))

    def randn_like(self: torch.Tensor, **options: Any) -> torch.Tensor:
        dtype = options.get("dtype") or self.dtype
        site = next(sites)
        unit = 1.0 / (1 << _BITS)
        # Above 0, for the logarithm; the sites of radius and angle are no others'.
        radius = (-2.0 * ((bits(self, site) + 1).float() * unit).log()).sqrt()
        angle = bits(self, site + _ANGLES).float() * (2.0 * math.pi * unit)
        return (radius * angle.cos()).to(dtype)

    def randn(size: list[int], **options: Any) -> torch.Tensor:
        dtype = options.get("dtype") or torch.get_default_dtype()
        return randn_like(torch.empty(size, dtype=dtype))

    def normal(
        self: torch.Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None
    ) -> torch.Tensor:
        return randn_like(self) * std + mean

    def uniform(
        self: torch.Tensor, low: float = 0.0, high: float = 1.0, generator: Any = None
    ) -> torch.Tensor:
        return rand_like(self) * (high - low) + low

    def exponential(
        self: torch.Tensor, rate: float = 1.0, generator: Any = None
    ) -> torch.Tensor:
        # Above 0, for the logarithm.
        number = (bits(self) + 1).float() * (1.0 / (1 << _BITS))
        return (number.log() * (-1.0 / rate)).to(self.dtype)

    def normal_of(mean: Any, std: Any, generator: Any = None) -> Any:
        both = mean + std
        number = randn_like(torch.zeros_like(both))
        return number * std + mean

    def integers(low: int, high: int, like: torch.Tensor, dtype: torch.dtype) -> Any:
        if high - low > 1 << _BITS:
            return NotImplemented
        number = bits(like).to(torch.int64) * (high - low)
        return ((number >> _BITS) + low).to(dtype)

    def randint_low(low: int, high: int, size: list[int], **options: Any) -> Any:
        dtype = options.get("dtype") or torch.int64
        return integers(low, high, torch.empty(size, dtype=torch.int64), dtype)

    def randint(high: int, size: list[int], **options: Any) -> Any:
        return randint_low(0, high, size, **options)

    def randint_like_low(self: torch.Tensor, low: int, high: int, **options: Any) -> Any:
        return integers(low, high, self, options.get("dtype") or self.dtype)

    def randint_like(self: torch.Tensor, high: int, **options: Any) -> Any:
        return randint_like_low(self, 0, high, **options)

    def randperm(count: int, **options: Any) -> Any:
        if count > _orderings.MOST_ORDERED:
            return NotImplemented
        # Equal numbers keep their order.
        keys = bits(torch.empty([count], dtype=torch.int64))
        return keys.sort()[1].to(options.get("dtype") or torch.int64)

    def multinomial(
        self: torch.Tensor, count: int, replacement: bool = False, generator: Any = None
    ) -> Any:
        """The first of clocks that go by the weights."""
        if not replacement and count > 1:
            if count > _orderings.MOST_SEARCHED:
                return NotImplemented
            return (self / exponential(self)).topk(count)[1]
        weights = self.unsqueeze(-2).expand([*self.shape[:-1], count, self.shape[-1]])
        return (weights / exponential(weights.contiguous())).argmax(-1)

    def native_dropout(
        input: torch.Tensor, p: float, train: bool | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if train is False or p == 0.0:
            return input, torch.ones_like(input, dtype=torch.bool)
        kept = bits(input) < round((1.0 - p) * (1 << _BITS))
        scale = 0.0 if p == 1.0 else 1.0 / (1.0 - p)
        return torch.where(kept, input * scale, torch.zeros_like(input)), kept

    return {
        aten.bernoulli.p: bernoulli,
        aten.rand_like.default: rand_like,
        aten.rand.default: rand,
        aten.randn_like.default: randn_like,
        aten.randn.default: randn,
        aten.normal_functional.default: normal,
        aten.native_dropout.default: native_dropout,
        aten.uniform.default: uniform,
        aten.exponential.default: exponential,
        aten.normal.Tensor_Tensor: normal_of,
        aten.normal.Tensor_float: normal_of,
        aten.normal.float_Tensor: normal_of,
        aten.randint.default: randint,
        aten.randint.low: randint_low,
        aten.randint_like.default: randint_like,
        aten.randint_like.low_dtype: randint_like_low,
        aten.randperm.default: randperm,
        aten.multinomial.default: multinomial,
    }


def eager(
    seed: torch.Tensor, sites: Iterator[int]
) -> Mapping[Any, Callable[..., Any]]:
    """Returns what replaces random operations outside of a trace: of any device, and
    those that write into their argument."""
    table = decompositions(seed, sites)

    def on_device(operation: Any) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            device = next((a.device for a in args if isinstance(a, torch.Tensor)), None)
            device = torch.device(options.get("device") or device or "cpu")
            if device.type == "cpu":
                return table[operation](*args, **options)
            held = pytree.tree_map_only(torch.Tensor, torch.Tensor.cpu, args)
            result = table[operation](*held, **options)
            return pytree.tree_map_only(torch.Tensor, lambda t: t.to(device), result)

        return call

    def in_place(operation: Any) -> Callable[..., Any]:
        return lambda self, *args, **options: self.copy_(
            found[operation](self, *args, **options)
        )

    found = {operation: on_device(operation) for operation in table}
    return {**found, **{op: in_place(own) for op, own in _IN_PLACE.items() if own in found}}


# What writes into its first argument, and what a trace makes of it.
_IN_PLACE = {
    aten.bernoulli_.float: aten.bernoulli.p,
    aten.normal_.default: aten.normal_functional.default,
    aten.uniform_.default: aten.uniform.default,
    aten.exponential_.default: aten.exponential.default,
}


def is_random(node: torch.fx.Node) -> bool:
    """Returns whether a node draws from PyTorch's generator."""
    return is_random_operation(node.target)


# Attention that PyTorch takes where nothing is dropped, tagged like its kin.
_DRAWS_NONE = aten._scaled_dot_product_flash_attention_for_cpu.default


@functools.cache
def is_random_operation(operation: Any) -> bool:
    return (
        isinstance(operation, torch._ops.OpOverload)
        and operation is not _DRAWS_NONE
        and torch.Tag.nondeterministic_seeded in operation.tags
    )


class Numbering:
    """Numbers random operations by the state of PyTorch's generator.

    Each operation leaves a new state. Where somebody has put back a state of before,
    as `torch.utils.checkpoint` does to compute again, the operations are those of
    before. Nothing is drawn meanwhile: the seed is the state.
    """

    def __init__(self) -> None:
        self.taken: list[int] = []
        self._known: dict[int, int] = {}
        self._first = torch.initial_seed()

    def take(self) -> int:
        """Returns the number of the next operation."""
        state = torch.initial_seed()
        if state != self._first and not is_of_trace(state):
            raise ExportError(SEEDED)
        number = self._known.setdefault(state, len(self._known) + 1)
        torch.default_generator.manual_seed(_SEED_OF_TRACE + number)
        self.taken.append(number)
        return number


SEEDED = (
    "expected a step that leaves PyTorch's generator alone, but got one that seeds it:"
    " give the compiled step a seed, step(batch, seed=...)"
)
_SEED_OF_TRACE = 0x2545F4914F6CDD1D


def is_of_trace(seed: int) -> bool:
    """Returns whether a random operation of a trace left PyTorch's generator so."""
    return 0 < seed - _SEED_OF_TRACE < 1 << 32


def _signed(value: int) -> int:
    value &= 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def _shifted(x: torch.Tensor, count: int) -> torch.Tensor:
    """Returns `x` shifted to the right, with zeros from the left."""
    return (x >> count) & ((1 << (32 - count)) - 1)


def _hash(x: torch.Tensor) -> torch.Tensor:
    x = x ^ _shifted(x, 16)
    x = x * _signed(0x85EBCA6B)
    x = x ^ _shifted(x, 13)
    x = x * _signed(0xC2B2AE35)
    return x ^ _shifted(x, 16)
