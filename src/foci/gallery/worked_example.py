"""A worked example of any mechanism: code to paste, and the numbers it computes.

The numbers are computed by the code that is shown. The code depends on the family, except for mechanisms that are
called differently from the rest of their family; the sizes are those of the catalog, so that a new row has an example
without further work.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from foci.catalog import Card, as_code

_CODE: dict[str, str] = {
    "attend": """\
import torch, foci

torch.manual_seed(0)
attention = foci.build({build})
query, key = torch.randn(1, 2, {query}), torch.randn(1, 5, {key})  # two queries, five positions
output, weights, state = attention(query, key)

valid = foci.masks.lengths([3], 5)  # now the last two positions are padding
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
    "hierarchical": """\
import torch, foci

torch.manual_seed(0)
pool = foci.build({build})
value = torch.randn(1, 2, 3, {value})  # one document of two sentences of three words
output, weights, state = pool(value)

valid = torch.tensor([[[True, True, True], [True, False, False]]])  # now the second sentence has one word
masked = pool(value, valid)
""",
    "crf": """\
import torch, foci

torch.manual_seed(0)
tagger = foci.build({build})
value = torch.randn(1, 5, {value})  # five steps, a score for each of the {value} tags
output, weights, state = tagger(value)

masked = tagger(value, foci.masks.lengths([3], 5))  # now the last two steps are padding
""",
    "pair": """\
import torch, foci

torch.manual_seed(0)
match = foci.build({build})
left, right = torch.randn(1, 5, {value}), torch.randn(1, 3, {value})  # five positions and three
output, weights, *shares = match(left, right)

masked = match(left, right, left_mask=foci.masks.lengths([3], 5))  # now the last two positions are padding
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

_CALLS: dict[str, str] = {
    "attend": """\
attention(query, key, value=None, mask=None, state=None) -> AttentionOutput(output, weights, state)
    query (B, L, Dq), key (B, S, Dk), value (B, S, V) or the key, mask (B, L, S)
    output (B, L, V), weights (B, L, S)""",
    "multi_head": """\
attention(query, key, value=None, mask=None, state=None) -> AttentionOutput(output, weights, state)
    query (B, L, D), key (B, S, Dk), value (B, S, Dk) or the key, mask (B, L, S)
    output (B, L, D), weights (B, H, L, S)""",
    "multi_step": """\
attention(query, key, value=None, mask=None, state=None) -> AttentionOutput(output, weights, state)
    query (B, L, Dq), key (B, S, Dk), value (B, S, Dk) or the key, mask (B, L, S)
    output (B, L, Dk), weights (B, L, S)""",
    "pool": """\
pool(value, mask=None) -> AttentionOutput(output, weights, state)
    value (B, S, D), mask (B, S)
    output (B, D), weights (B, S)""",
    "hierarchical": """\
pool(value, mask=None) -> AttentionOutput(output, weights, state)
    value (B, N, T, D) of N sentences of T words, mask (B, N, T)
    output (B, D), weights (B, N·T), weights.words (B, N, T), weights.sentences (B, N)""",
    "crf": """\
tagger(value, mask=None) -> AttentionOutput(output, weights, state)
    value (B, T, K), a score for each of K tags at each of T steps, mask (B, T)
    output (B, K), weights (B, T, K)""",
    "pair": """\
match(left, right, left_mask=None, right_mask=None) -> PairOutput(output, weights, left, right, reverse)
    left (B, S, D), right (B, R, D), left_mask (B, S), right_mask (B, R)
    output (B, D), weights (B, R, S)""",
    "memory": """\
memory(input, state=None) -> (output, state)
    input (B, D); state holds the memory and what the heads last attended to
    output (B, R·M), what R heads read of slots of size M""",
    "squeeze_excitation": """\
attention(features) -> AttentionOutput(output, weights, state)
    features (B, C, H, W), output (B, C, H, W), weights (B, C, 1, 1)""",
    "efficient_channel": """\
attention(features) -> AttentionOutput(output, weights, state)
    features (B, C, H, W), output (B, C, H, W), weights (B, C, 1, 1)""",
    "cbam": """\
attention(features) -> AttentionOutput(output, weights, state)
    features (B, C, H, W), output (B, C, H, W), weights (B, C, H, W)""",
    "spatial": """\
attention(features) -> AttentionOutput(output, weights, state)
    features (B, C, H, W), output (B, C, H, W), weights (B, 1, H, W)""",
}
"""How a mechanism is called, by its own name or by that of its family."""

_SHOWN: dict[str, tuple[str, ...]] = {
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
    "hierarchical": (
        "value",
        "weights.words.dense()",
        "weights.sentences.dense()",
        "weights.dense()",
        "output",
        "masked.weights.dense()",
        "masked.output",
    ),
    "pair": ("left", "right", "weights.dense()", "output", "masked.weights.dense()", "masked.output"),
    "memory": ("first", "state.write_weights", "state.read_weights", "output"),
    "map": ("features.mean(dim=(2, 3))", "weights.dense()", "output.mean(dim=(2, 3))"),
}


def call(name: str, card: Card) -> str:
    """How the mechanism is called, and the shapes of what it takes and returns."""
    return _CALLS[name if name in _CALLS else card.family]


def code(name: str, card: Card) -> str:
    """Return Python code that builds the mechanism and calls it."""
    sizes = card.example
    build = f"{name!r}, {as_code(sizes)}"
    return _CODE[name if name in _CODE else card.family].format(
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
        for expression in _SHOWN[name if name in _SHOWN else card.family]:
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
