"""A worked example of any mechanism: code to paste, and the numbers it computes.

The numbers are computed by the code that is shown. The code depends on the family only, and the sizes are those of the
catalogue, so that a new row has an example without further work.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from foci.catalog import Card, Family, as_code

_CODE: dict[Family, str] = {
    "attend": """\
import torch, foci

torch.manual_seed(0)
attention = foci.build({build})
query, key = torch.randn(1, 2, {query}), torch.randn(1, 5, {key})  # two queries, five cells
output, weights, state = attention(query, key)

valid = foci.masks.lengths([3], 5)  # now the last two cells are padding
masked = attention(query, key, mask=foci.masks.keys(valid))
""",
    "pool": """\
import torch, foci

torch.manual_seed(0)
pool = foci.build({build})
value = torch.randn(1, 5, {value})  # five steps
output, weights, state = pool(value)

masked = pool(value, foci.masks.lengths([3], 5))  # now the last two steps are padding
""",
    "pair": """\
import torch, foci

torch.manual_seed(0)
match = foci.build({build})
left, right = torch.randn(1, 5, {value}), torch.randn(1, 3, {value})  # five cells and three
output, weights, *shares = match(left, right)

masked = match(left, right, left_mask=foci.masks.lengths([3], 5))  # now the last two cells are padding
""",
    "memory": """\
import torch, foci

torch.manual_seed(0)
memory = foci.build({build})
first = torch.randn(1, {input})
output, state = memory(first)
output, state = memory(torch.randn(1, {input}), state)  # a second step
""",
    "map": """\
import torch, foci

torch.manual_seed(0)
attention = foci.build({build})
features = torch.randn(1, {channels}, 3, 4)  # {channels} channels of 3 × 4 places
output, weights, state = attention(features)
""",
}

_SHOWN: dict[Family, tuple[str, ...]] = {
    "attend": (
        "query",
        "key",
        "weights.dense()",
        "weights.log_prob",
        "output",
        "masked.weights.dense()",
        "masked.output",
    ),
    "pool": ("value", "weights.dense()", "output", "masked.weights.dense()", "masked.output"),
    "pair": ("left", "right", "weights.dense()", "output", "masked.weights.dense()", "masked.output"),
    "memory": ("first", "state.write_weights", "state.read_weights", "output"),
    "map": ("features.mean(dim=(2, 3))", "weights.dense()", "output.mean(dim=(2, 3))"),
}


def code(name: str, card: Card) -> str:
    """Return Python code that builds the mechanism and calls it."""
    sizes = card.example
    build = f"{name!r}, {as_code(sizes)}"
    return _CODE[card.family].format(
        build=build,
        query=sizes.get("query_dim", sizes.get("model_dim")),
        key=sizes.get("key_dim", sizes.get("model_dim")),
        value=sizes.get("value_dim", sizes.get("model_dim", sizes.get("num_tags"))),
        input=sizes.get("input_dim"),
        channels=sizes.get("channels", 3),
    )


def numbers(name: str, card: Card) -> Iterator[tuple[str, Tensor]]:
    """Yield the results of the code: expressions in its variables, and their values."""
    variables: dict[str, Any] = {}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        exec(code(name, card), variables)
        for expression in _SHOWN[card.family]:
            value = eval(expression, variables)
            if value is not None:  # only sampled attention has a log-probability
                yield expression, value


def lines(tensor: Tensor) -> Iterator[str]:
    """Yield the numbers of a tensor in rows, without axes of size 1; of more than two axes, the first matrices."""
    squeezed = tensor.squeeze()
    if squeezed.dim() < 2:
        squeezed = squeezed.reshape(1, -1)
    matrices = squeezed.reshape(-1, *squeezed.shape[-2:])
    for number, matrix in enumerate(islice(matrices, 2)):
        if len(matrices) > 1:
            yield f"[{number}]"
        for row in matrix.tolist():
            yield " ".join(f"{value:6.2f}" for value in row)
    if len(matrices) > 2:
        yield f"… and {len(matrices) - 2} more"
