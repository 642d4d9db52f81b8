"""`attend`: leading axes of every size that broadcast, against a softmax of expanded tensors."""

import random

import pytest
import torch

from foci.errors import ShapeError
from foci.functional import attend as module
from foci.functional.attend import attend

L, S, D, V = 5, 7, 4, 3
NORMALIZERS = {"softmax": "softmax", "function": lambda scores, mask: (module.softmax(scores, mask), None)}


def drawn(generator, leading):
    """Some of the last leading axes, each as it is or 1."""
    kept = leading[generator.randint(0, len(leading)) :]
    return tuple(generator.choice((1, size)) for size in kept)


def by_hand(query, key, value, mask):
    """The output and the weights, of all leading axes."""
    leading = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    scores = (query @ key.mT / D**0.5).expand(*leading, L, S)
    weights = torch.softmax(scores if mask is None else scores.masked_fill(~mask, -torch.inf), dim=-1).nan_to_num(0.0)
    return weights @ value, weights


@pytest.mark.parametrize("path", ["fused", "short"])
@pytest.mark.parametrize("normalize", NORMALIZERS)
@pytest.mark.parametrize("seed", range(30))
def test_leading_axes_broadcast(seed, normalize, path, monkeypatch):
    for limit in ("_SHORT", "_SHORT_ALONE"):
        monkeypatch.setattr(module, limit, 1 << 20 if path == "short" else 0)
    generator = random.Random(seed)
    torch.manual_seed(seed)
    shapes = [drawn(generator, (2, 3, 5)[: seed % 4]) for _ in range(3)]
    inputs = [torch.randn(*leading, *last) for leading, last in zip(shapes, ((L, D), (S, D), (S, V)))]
    inputs = [tensor.double().requires_grad_() for tensor in inputs]
    leading = torch.broadcast_shapes(*shapes)
    mask = torch.rand(*(generator.choice((1, size)) for size in (*leading, L)), S) > 0.4 if seed % 2 else None
    read = attend(*inputs, mask, normalize=NORMALIZERS[normalize])
    output, weights = by_hand(*inputs, mask)
    torch.testing.assert_close(read.output, output)
    torch.testing.assert_close(read.weights.dense(), weights)
    assert read.weights.shape == weights.shape
    direction = torch.randn_like(output)
    ours, plain = (torch.autograd.grad(one, inputs, direction) for one in (read.output, output))
    torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("shapes", [((2, L, D), (3, S, D)), ((2, 3, L, D), (2, 2, S, D)), ((6, L, D), (2, 3, S, D))])
def test_leading_axes_that_do_not_fit_are_refused(shapes):
    query, key = (torch.zeros(shape) for shape in shapes)
    with pytest.raises(ShapeError, match="expected leading axes that are equal or 1"):
        attend(query, key, key)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(2, L, D), (1, L, D), (L, D)])
def test_a_value_with_more_rows_compiles(shape):
    query, key, value = torch.randn(shape), torch.randn(*shape[:-2], S, D), torch.randn(2, S, V)
    compiled = torch.compile(lambda *inputs: attend(*inputs).output, fullgraph=True, backend="eager", dynamic=True)
    torch.testing.assert_close(compiled(query, key, value), attend(query, key, value).output)
