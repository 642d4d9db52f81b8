"""The inputs of the contract suite for each catalog row and variant, by family; sizes are distinct primes.

A case is a row by its name, ``additive``, or one of its variants, ``additive/causal``.
"""

from functools import partial

import torch
from torch import Tensor, nn

import foci
from foci import masks
from foci.catalog import MECHANISMS, Card
from foci.contract.subject import Inputs, Subject, tensors_of

B, L, S, R, V = 3, 5, 7, 11, 13
"""batch, queries, keys, cells of the right side, value size"""


def card(case: str) -> Card:
    return MECHANISMS[case.partition("/")[0]]


def arguments(case: str) -> dict[str, object]:
    return card(case).arguments(case.partition("/")[2] or None)


def option(case: str, name: str, default: object = None) -> object:
    """An option of the case, be it the row's own or the variant's."""
    builder = card(case).builder
    own = builder.keywords if isinstance(builder, partial) else {}
    return {**own, **arguments(case)}.get(name, default)


def names(*families: str) -> list[str]:
    """The rows."""
    return [name for name, row in MECHANISMS.items() if row.family in families]


def cases(*families: str) -> list[str]:
    """The rows and all of their variants."""
    return [case for name in names(*families) for case in (name, *(f"{name}/{v}" for v in MECHANISMS[name].variants))]


EVERY_CASE = cases("attend", "pool", "pair", "memory", "map")
ATTEND_CASES = cases("attend")

_WITH_VALUES = ("multi_head", "multi_step", "conditional", "deformable")
FREE_VALUE = {case for case in ATTEND_CASES if case.partition("/")[0] not in _WITH_VALUES}
"""Cases whose value may have any size, and whose output is exactly weights · value."""

CHOOSING = {case for case in ATTEND_CASES if option(case, "normalize") in ("hard", "sample", "gumbel")}
"""Cases that read one cell: piecewise constant in their scores."""

LOCAL = {"deformable"} | {c for c in ATTEND_CASES if option(c, "focus") in ("local_m", "local_p", "median_window")}
"""Cases whose window or points follow the query or the weights: they may hold no readable cell, and local_p's fade."""

ALIGNED = {
    case
    for case in ATTEND_CASES
    if option(case, "focus") in ("causal", "sliding_window")
    or any(option(case, name) for name in ("causal", "window", "rotary", "alibi", "relative"))
}
"""Cases aligned at the last key: what a query attends to depends on the number of keys."""

SINKS = {case for case in ATTEND_CASES if option(case, "sink")}
"""Cases whose weights may sum to less than 1."""

_BY_PLACE = {c for c in ATTEND_CASES if option(c, "score") in ("location", "location_aware")} | {"conditional"}
ORDERED = ALIGNED | LOCAL | _BY_PLACE | {"crf"}
"""Cases that depend on positions: permuting the keys may change more than the order of the weights."""


def reach(case: str, queries: int = L, keys: int = S) -> Tensor:
    """The mask ``(1, L, S)`` of the cells that causality and windows leave."""
    left, right = None, None
    if option(case, "window") and option(case, "focus") != "median_window":
        left, right = option(case, "window")
    if option(case, "causal") or option(case, "focus") == "causal":
        right = 0
    return masks.window(queries, keys, left, right)


def make(case: str, dtype: torch.dtype = torch.float32, train: bool = False, **options: object) -> nn.Module:
    torch.manual_seed(7)
    module = foci.build(case.partition("/")[0], **{**arguments(case), **options})
    for parameter in module.parameters():  # generic parameters: zeros at the start would hide mistakes
        nn.init.normal_(parameter, std=0.7)
    return module.to(dtype).train(train)


def attend_inputs(
    case: str, batch: int = B, queries: int = L, keys: int = S, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    sizes = arguments(case)
    query_dim = sizes.get("query_dim", sizes.get("model_dim"))
    value_dim = V if case in FREE_VALUE else sizes["key_dim"]
    torch.manual_seed(11)
    return (
        torch.randn(batch, queries, query_dim, dtype=dtype),
        torch.randn(batch, keys, sizes["key_dim"], dtype=dtype),
        torch.randn(batch, keys, value_dim, dtype=dtype),
    )


def pool_input(case: str, batch: int = B, keys: int = S, dtype: torch.dtype = torch.float32) -> Tensor:
    sizes = arguments(case)
    torch.manual_seed(13)
    return torch.randn(batch, keys, sizes.get("value_dim", sizes.get("num_tags")), dtype=dtype)


def pair_inputs(
    case: str, batch: int = B, left: int = S, right: int = R, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    sizes = arguments(case)
    size = sizes.get("value_dim", sizes.get("model_dim"))
    torch.manual_seed(17)
    return torch.randn(batch, left, size, dtype=dtype), torch.randn(batch, right, size, dtype=dtype)


def map_input(case: str, batch: int = B, dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(19)
    return torch.randn(batch, arguments(case).get("channels", 7), 5, 11, dtype=dtype)


def memory_input(case: str, batch: int = B, dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(23)
    return torch.randn(batch, arguments(case)["input_dim"], dtype=dtype)


def any_inputs(case: str, batch: int = B, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Positional inputs for any case."""
    family = card(case).family
    if family == "attend":
        return attend_inputs(case, batch, dtype=dtype)
    if case == "hierarchical":  # two sentences of S words each
        return (torch.stack([pool_input(case, batch, dtype=dtype), -pool_input(case, batch, dtype=dtype)], dim=1),)
    if family == "pool":
        return (pool_input(case, batch, dtype=dtype),)
    if family == "pair":
        return pair_inputs(case, batch, dtype=dtype)
    if family == "map":
        return (map_input(case, batch, dtype=dtype),)
    return (memory_input(case, batch, dtype=dtype),)


class CaseSubject(Subject):
    """A case with its own inputs, for the laws of `foci.contract`."""

    def inputs(self, dtype: torch.dtype = torch.float32, **sizes: int) -> Inputs:
        return Inputs(any_inputs(self.title, dtype=dtype), {}, {})


def subject(case: str) -> Subject:
    return CaseSubject(case, card(case).family, None, make(case), {})


tensors = tensors_of
"""Every tensor of a result, handles made dense."""


def output_of(result: object) -> Tensor:
    return result[0]
