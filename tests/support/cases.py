"""What the contract suite feeds each catalogue row: inputs by family, sizes that are distinct primes."""

import torch
from torch import Tensor, nn

import foci
from foci.catalog import MECHANISMS

B, L, S, R, V = 3, 5, 7, 11, 13
"""batch, queries, keys, cells of the right side, value size"""

FREE_VALUE = {name for name, row in MECHANISMS.items() if row.family == "attend"} - {"multi_head", "multi_step"}
"""Rows whose value may have any size, and whose output is exactly weights · value."""

ORDERED = {"location", "location_aware", "local_m", "local_p", "sliding_window", "crf"}
"""Rows that care where a cell stands: permuting the keys may change more than the order of the weights."""

CHOOSING = {"hard", "gumbel"}
"""Rows that read one cell: piecewise constant in their scores."""


def names(*families: str) -> list[str]:
    return [name for name, row in MECHANISMS.items() if row.family in families]


def make(name: str, dtype: torch.dtype = torch.float32, train: bool = False) -> nn.Module:
    torch.manual_seed(7)
    module = foci.build(name, **MECHANISMS[name].example)
    for parameter in module.parameters():  # generic parameters: zeros at the start would hide mistakes
        nn.init.normal_(parameter, std=0.7)
    return module.to(dtype).train(train)


def attend_inputs(
    name: str, batch: int = B, queries: int = L, keys: int = S, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor, Tensor]:
    sizes = MECHANISMS[name].example
    query_dim = sizes.get("query_dim", sizes.get("model_dim"))
    value_dim = V if name in FREE_VALUE else sizes["key_dim"]
    torch.manual_seed(11)
    return (
        torch.randn(batch, queries, query_dim, dtype=dtype),
        torch.randn(batch, keys, sizes["key_dim"], dtype=dtype),
        torch.randn(batch, keys, value_dim, dtype=dtype),
    )


def pool_input(name: str, batch: int = B, keys: int = S, dtype: torch.dtype = torch.float32) -> Tensor:
    sizes = MECHANISMS[name].example
    torch.manual_seed(13)
    return torch.randn(batch, keys, sizes.get("value_dim", sizes.get("num_tags")), dtype=dtype)


def pair_inputs(
    name: str, batch: int = B, left: int = S, right: int = R, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, Tensor]:
    sizes = MECHANISMS[name].example
    size = sizes.get("value_dim", sizes.get("model_dim"))
    torch.manual_seed(17)
    return torch.randn(batch, left, size, dtype=dtype), torch.randn(batch, right, size, dtype=dtype)


def map_input(name: str, batch: int = B, dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(19)
    return torch.randn(batch, MECHANISMS[name].example.get("channels", 7), 5, 11, dtype=dtype)


def memory_input(name: str, batch: int = B, dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(23)
    return torch.randn(batch, MECHANISMS[name].example["input_dim"], dtype=dtype)


def any_inputs(name: str, batch: int = B, dtype: torch.dtype = torch.float32) -> tuple[Tensor, ...]:
    """Positional inputs for any row."""
    family = MECHANISMS[name].family
    if family == "attend":
        return attend_inputs(name, batch, dtype=dtype)
    if name == "hierarchical":  # two sentences of S words each
        return (torch.stack([pool_input(name, batch, dtype=dtype), -pool_input(name, batch, dtype=dtype)], dim=1),)
    if family == "pool":
        return (pool_input(name, batch, dtype=dtype),)
    if family == "pair":
        return pair_inputs(name, batch, dtype=dtype)
    if family == "map":
        return (map_input(name, batch, dtype=dtype),)
    return (memory_input(name, batch, dtype=dtype),)


def tensors(result: object) -> list[Tensor]:
    """Every tensor of a result, handles made dense."""
    if isinstance(result, Tensor):
        return [result]
    if isinstance(result, foci.Weights):
        return [result.dense()]
    if isinstance(result, tuple):
        return [tensor for part in result for tensor in tensors(part)]
    return []


def output_of(result: object) -> Tensor:
    return result[0]
