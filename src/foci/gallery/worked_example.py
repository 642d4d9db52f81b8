"""A worked example of any mechanism: code to paste, and the numbers it computes.

The numbers are computed by the code that is shown. The code depends on the family, except for mechanisms that are
called differently from the rest of their family; the sizes are those of the catalog, so that a new row has an example
without further work.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeVar

import torch
from torch import Tensor

from foci.catalog import Card, as_code

Row = TypeVar("Row")

_HEAD = """\
import torch, foci

torch.manual_seed(0)
{variable} = foci.build({build})
"""

_POOLED = """\
value = torch.randn(1, 5, {value})  # five steps%s
output, weights, state = {variable}(value)

masked = {variable}(value, foci.masks.lengths([3], 5))  # now the last two steps are padding
"""

_CODE: dict[str, str] = {
    "attend": """\
query, key = torch.randn(1, 2, {query}), torch.randn(1, 5, {key})  # two queries, five positions
output, weights, state = attention(query, key)

valid = foci.masks.lengths([3], 5)  # now the last two positions are padding
masked = attention(query, key, mask=foci.masks.keys(valid))
""",
    "pool": _POOLED % "",
    "hierarchical": """\
value = torch.randn(1, 2, 3, {value})  # one document of two sentences of three words
output, weights, state = pool(value)

valid = torch.tensor([[[True, True, True], [True, False, False]]])  # now the second sentence has one word
masked = pool(value, valid)
""",
    "crf": _POOLED % ", a score for each of the {value} tags",
    "pair": """\
left, right = torch.randn(1, 5, {value}), torch.randn(1, 3, {value})  # five positions and three
output, weights, *shares = match(left, right)

masked = match(left, right, left_mask=foci.masks.lengths([3], 5))  # now the last two positions are padding
""",
    "memory": """\
first = torch.randn(1, {input})
output, state = memory(first)
output, state = memory(torch.randn(1, {input}), state)  # a second step
""",
    "map": """\
features = torch.randn(1, {channels}, 3, 4)  # {channels} channels of 3 × 4 places
output, weights, state = attention(features)
""",
}
"""What follows `_HEAD`, by the name of a mechanism or by that of its family, as in the tables below."""

_VARIABLES = {
    "attend": "attention",
    "pool": "pool",
    "crf": "tagger",
    "pair": "match",
    "memory": "memory",
    "map": "attention",
}
"""What the code calls the mechanism."""

_SIGNATURES: dict[str, str] = {
    "attend": "query, key, value=None, mask=None, state=None, *, bias=None) -> AttentionOutput(output, weights, state)",
    "conditional": "query, key, value=None, mask=None, state=None, *, bias=None, query_position=None, "
    "key_position=None) -> AttentionOutput(output, weights, state)",
    "deformable": "query, key, value=None, mask=None, state=None, *, reference=None, levels=None) -> AttentionOutput("
    "output, weights, state)",
    "pool": "value, mask=None) -> AttentionOutput(output, weights, state)",
    "pair": "left, right, left_mask=None, right_mask=None) -> PairOutput(output, weights, left, right, reverse)",
    "memory": "input, state=None) -> (output, state)",
    "map": "features) -> AttentionOutput(output, weights, state)",
}

_SHAPES: dict[str, str] = {
    "attend": """
    query (B, L, Dq), key (B, S, Dk), value (B, S, V) or the key, mask and bias (B, L, S)
    output (B, L, V), weights (B, L, S)""",
    "multi_head": """
    query (B, L, D), key (B, S, Dk), value (B, S, Dk) or the key, mask and bias (B, L, S), or with H after B
    output (B, L, D), weights (B, H, L, S)""",
    "conditional": """
    query (B, L, D), key (B, S, Dk), value (B, S, Dk) or the key, mask and bias (B, L, S), or with H after B
    query_position (B, L, P) and key_position (B, S, P), codes of places of which near ones have a large product
    output (B, L, D), weights (B, H, L, S)""",
    "deformable": """
    query (B, L, D), key (B, S, Dk) of all levels, value (B, S, Dk) or the key, mask (B, L, S)
    reference (B, L, 2), x and y from 0 to 1 of where each query looks; of boxes also width and height
    levels [(height, width), …] of N levels
    output (B, L, D), weights (B, H, L, S), weights.of_points (B, H, L, N, P) of P points on each level""",
    "multi_step": """
    query (B, L, Dq), key (B, S, Dk), value (B, S, Dk) or the key, mask and bias (B, L, S)
    output (B, L, Dk), weights (B, L, S)""",
    "pool": """
    value (B, S, D), mask (B, S)
    output (B, D), weights (B, S); with num_queries both have an axis of queries after B""",
    "hierarchical": """
    value (B, N, T, D) of N sentences of T words, mask (B, N, T)
    output (B, D), weights (B, N·T), weights.words (B, N, T), weights.sentences (B, N)""",
    "crf": """
    value (B, T, K), a score for each of K tags at each of T steps, mask (B, T)
    output (B, K), weights (B, T, K)""",
    "pair": """
    left (B, S, D), right (B, R, D), left_mask (B, S), right_mask (B, R)
    output (B, D), weights (B, R, S)""",
    "memory": """
    input (B, D); state holds the memory and what the heads last attended to
    output (B, R·M), what R heads read of slots of size M""",
    "map": "\n    features (B, C, H, W), output (B, C, H, W), weights (B, C, 1, 1)",
    "cbam": "\n    features (B, C, H, W), output (B, C, H, W), weights (B, C, H, W)",
    "spatial": "\n    features (B, C, H, W), output (B, C, H, W), weights (B, 1, H, W)",
}

_MASKED = ("masked.weights.dense()", "masked.output")
_SHOWN: dict[str, tuple[str, ...]] = {
    "attend": ("query", "key", "weights.dense()", "weights.log_prob", "output", *_MASKED),
    "pool": ("value", "weights.dense()", "output", *_MASKED),
    "hierarchical": (
        "value",
        "weights.words.dense()",
        "weights.sentences.dense()",
        "weights.dense()",
        "output",
        *_MASKED,
    ),
    "pair": ("left", "right", "weights.dense()", "output", *_MASKED),
    "memory": ("first", "state.write_weights", "state.read_weights", "output"),
    "map": ("features.mean(dim=(2, 3))", "weights.dense()", "output.mean(dim=(2, 3))"),
}


def call(name: str, card: Card) -> str:
    """How the mechanism is called, and the shapes of what it takes and returns."""
    return f"{_of(_VARIABLES, name, card)}({_of(_SIGNATURES, name, card)}{_of(_SHAPES, name, card)}"


def code(name: str, card: Card) -> str:
    """Return Python code that builds the mechanism and calls it."""
    sizes = card.example
    return (_HEAD + _of(_CODE, name, card)).format(
        variable=_of(_VARIABLES, name, card),
        build=f"{name!r}, {as_code(sizes)}",
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
        for expression in _of(_SHOWN, name, card):
            value = eval(expression, variables)
            if value is not None:  # only sampled attention has a log-probability
                yield expression, value


def _of(table: dict[str, Row], name: str, card: Card) -> Row:
    return table[name if name in table else card.family]


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
