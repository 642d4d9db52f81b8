"""Exported once with dynamic sizes, every mechanism is correct at other sizes, also with more queries than keys."""

import pytest
import torch
from cases import make
from sized_cases import BATCH, CASES, CELLS, MASKED_OR_NOT, NAMES, QUERIES, SHAPES, WORDS
from torch import nn
from torch.export import export

import foci


class Asked(nn.Module):
    """The results of a handle's methods as plain tensors."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        output, weights = self.module(*inputs)[:2]
        return output, weights.dense(), weights.entropy(), weights.argmax(), weights.topk(1)[0]


def check(module, shapes, inputs, others):
    program = export(Asked(module), inputs, dynamic_shapes=(shapes,)).module()
    for other in others:
        for ours, theirs in zip(program(*other), Asked(module)(*other)):
            torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "name", "masked"), MASKED_OR_NOT, ids=NAMES)
def test_every_row(family, name, masked):
    shapes = (WORDS, WORDS) if name == "hierarchical" else SHAPES[family]
    cases = [CASES[family](name, *sizes) for sizes in ((3, 5, 7), (2, 11, 13), (5, 13, 6))]
    kept = [place for place, one in enumerate(cases[0]) if masked or one.dtype != torch.bool]
    inputs, *others = (tuple(case[place] for place in kept) for case in cases)
    check(make(name), tuple(shapes[place] for place in kept), inputs, others)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"causal": True},
        {"keep_weights": True},
        {"causal": True, "keep_weights": True},
        {"window": (2, 1)},
        {"window": (2, None)},
        {"alibi": True},
        {"rotary": True, "causal": True},
        {"num_key_heads": 1},
    ],
    ids=str,
)
def test_options_of_multi_head(options):
    module = foci.build("multi_head", model_dim=8, num_heads=4, **options).eval()
    cases = [
        (torch.randn(batch, queries, 8), torch.randn(batch, keys, 8))
        for batch, queries, keys in ((3, 5, 7), (2, 11, 13), (5, 13, 6))
    ]
    check(module, ({0: BATCH, 1: QUERIES}, CELLS), cases[0], cases[1:])


@pytest.mark.slow
@pytest.mark.parametrize("module", ["multi_head", "general"])
def test_causal_self_attention_has_one_length(module):
    if module == "multi_head":
        module = foci.build("multi_head", model_dim=8, num_heads=2, causal=True).eval()
    else:
        module = foci.Attention(8, 8, score="general", focus="causal").eval()
    cases = [(x, x.clone()) for x in (torch.randn(3, 5, 8), torch.randn(2, 11, 8), torch.randn(5, 13, 8))]
    check(module, ({0: BATCH, 1: QUERIES}, {0: BATCH, 1: QUERIES}), cases[0], cases[1:])


@pytest.mark.slow
def test_the_function_attend():
    class Function(nn.Module):
        def forward(self, query, key):
            return foci.attend(query, key, key, causal=True)

    cases = [
        (torch.randn(batch, queries, 8), torch.randn(batch, keys, 8))
        for batch, queries, keys in ((3, 5, 7), (2, 11, 13), (5, 13, 6))
    ]
    check(Function(), ({0: BATCH, 1: QUERIES}, CELLS), cases[0], cases[1:])
