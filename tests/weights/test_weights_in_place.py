"""Without gradients the weights of dot products overwrite their scores: the same values as the plain forms."""

import pytest
import torch
from dot_options import OPTIONS, B, D, H, L, S

import foci
from foci import masks
from foci.functional.attend import attend_dots
from foci.masks import masked_softmax, masked_softmax_
from foci.weights.sources import DotSoftmax, scaled_products


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(11)


def by_head(heads: int, length: int) -> torch.Tensor:
    """As `MultiHeadAttention` makes them: heads are a view of the last axis of a projection."""
    return torch.randn(B, length, heads * D).view(B, length, heads, D).transpose(1, 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("cells", [1, 7, 16, 31, 67, 513, 1031])
def test_the_softmax_in_place_is_the_softmax(cells, dtype):
    scores = (20 * torch.randn(3, 5, cells)).to(dtype)
    scores[0, 0] = 0.0
    expected = torch.softmax(scores, dim=-1)
    assert torch.equal(masked_softmax_(scores), expected)
    assert torch.equal(scores, expected)


@pytest.mark.parametrize("shape", [(B, 1, 1, S), (B, 1, L, S), (B, H, L, S), (1, H, 1, S), (B, 1, L, 1)])
@pytest.mark.parametrize("content", [0.0, torch.inf, torch.nan])
def test_masked_in_place(shape, content):
    mask = torch.rand(shape) < 0.5
    mask[0] = False  # rows that may read nothing
    scores = torch.randn(B, H, L, S)
    scores[~mask.any(dim=-1, keepdim=True).expand_as(scores)] += content  # the contents of such a query have no effect
    expected = masked_softmax(scores.nan_to_num(0.0, 0.0), mask)
    found = masked_softmax_(scores, mask)
    assert found is scores
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-6)
    assert torch.equal(found == 0, expected == 0)


def test_nan_in_place_stays_in_the_cells_that_are_read():
    scores, mask = torch.randn(1, 5), torch.tensor([[True, True, False, True, False]])
    scores[0, 1] = torch.nan
    assert masked_softmax_(scores, mask).isnan().tolist() == mask.tolist()


@pytest.mark.parametrize(
    ("query", "key"),
    [
        ((B, H, L, D), (B, H, S, D)),
        ((B, H, L, D), (1, H, S, D)),
        ((1, H, L, D), (B, H, S, D)),
        ((B, L, D), (B, S, D)),
        ((L, D), (S, D)),
        ((B, H, L, D), (B, 1, S, D)),
        ((B, H, 0, D), (B, H, S, D)),
        ((B, H, L, D), (B, H, 0, D)),
        ((0, H, L, D), (0, H, S, D)),
        ((2, B, H, L, D), (2, B, H, S, D)),
    ],
)
def test_scaled_products_and_their_gradients(query, key):
    query, key = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in (query, key))
    found, expected = scaled_products(query, key, 0.3), (query * 0.3) @ key.mT
    torch.testing.assert_close(found, expected)
    direction = torch.randn_like(expected)
    for ours, plain in zip(
        torch.autograd.grad(found, (query, key), direction), torch.autograd.grad(expected, (query, key), direction)
    ):
        torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("case", list(OPTIONS))
@pytest.mark.parametrize("key_heads", [H, 1])
def test_weights_with_and_without_gradients_agree(case, key_heads):
    query, key, value = by_head(H, L), by_head(key_heads, S), by_head(key_heads, S)
    kept = [tensor.clone() for tensor in (query, key, value)]
    plain = attend_dots(*(t.requires_grad_() for t in kept), scale=0.5, keep_weights=True, **OPTIONS[case])
    output, weights, _ = attend_dots(query, key, value, scale=0.5, keep_weights=True, **OPTIONS[case])
    torch.testing.assert_close(output, plain.output)
    torch.testing.assert_close(weights.dense(), plain.weights.dense())
    for tensor, before in zip((query, key, value), kept):
        assert torch.equal(tensor, before)  # scores are overwritten, inputs are not
    handle = attend_dots(query, key, value, scale=0.5, **OPTIONS[case]).weights
    assert isinstance(handle.source, DotSoftmax)
    torch.testing.assert_close(handle.dense(), plain.weights.dense())
    rows = torch.tensor([3, 0, 3])
    torch.testing.assert_close(handle.rows(rows), plain.weights.dense()[..., rows, :])
    torch.testing.assert_close(handle.rows(slice(1, 4)), plain.weights.dense()[..., 1:4, :])


def test_dense_weights_larger_than_a_piece(monkeypatch):
    query, key = by_head(H, L), by_head(H, S)
    whole = attend_dots(query, key, key, scale=0.5).weights
    expected = torch.softmax(0.5 * query @ key.mT, dim=-1)
    monkeypatch.setattr("foci.weights.handle._CHUNK", 2 * S)
    torch.testing.assert_close(whole.dense(), expected)
    torch.testing.assert_close(whole.mean_heads().dense(), expected.mean(dim=1))


@pytest.mark.parametrize("keep_weights", [False, True])
def test_half_precision_by_autocast_keeps_its_dtype(keep_weights):
    attention = foci.build("multi_head", model_dim=6, num_heads=3, keep_weights=keep_weights).eval()
    x = torch.randn(2, 5, 6)
    with torch.autocast("cpu", torch.bfloat16):
        trained = attention(x, x)
        with torch.no_grad():
            inferred = attention(x, x)
        for one, other in ((trained.output, inferred.output), (trained.weights.dense(), inferred.weights.dense())):
            assert one.dtype == other.dtype
            torch.testing.assert_close(one, other, atol=2e-2, rtol=2e-2)


def test_transforms_see_plain_operations():
    attention = foci.build("multi_head", model_dim=6, num_heads=3, keep_weights=True).eval().requires_grad_(False)
    x = torch.randn(4, 2, 5, 6)

    def weights(one):
        return attention(one, one).weights.dense()

    expected = torch.stack([weights(one) for one in x])
    torch.testing.assert_close(torch.func.vmap(weights)(x), expected)
    _, tangent = torch.func.jvp(weights, (x[0],), (x[1],))
    step = 1e-3
    difference = (weights(x[0] + step * x[1]) - weights(x[0] - step * x[1])) / (2 * step)
    torch.testing.assert_close(tangent, difference, atol=1e-3, rtol=1e-2)
    gradient = torch.func.grad(lambda one: weights(one)[0, 0, 0, 0])(x[0])
    leaf = x[0].clone().requires_grad_()
    torch.testing.assert_close(gradient, torch.autograd.grad(weights(leaf)[0, 0, 0, 0], leaf)[0])


def test_inference_mode():
    attention = foci.build("multi_head", model_dim=6, num_heads=3, keep_weights=True).eval()
    x = torch.randn(2, 5, 6)
    expected = attention(x, x)
    with torch.inference_mode():
        found = attention(x, x)
        torch.testing.assert_close(found.weights.dense(), expected.weights.dense().detach())
    torch.testing.assert_close(found.output, expected.output.detach())


@pytest.mark.slow
@pytest.mark.parametrize("keep_weights", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_compiled_equals_eager(keep_weights, grad):
    attention = foci.build("multi_head", model_dim=6, num_heads=3, keep_weights=keep_weights)

    def read(x, mask):
        output, weights, _ = attention(x, x, mask=mask)
        return output, weights.dense()

    torch._dynamo.reset()
    compiled = torch.compile(read, backend="aot_eager", fullgraph=True)
    mask = masks.keys(masks.lengths([3, 5], 5))
    for given in (None, mask):
        x = torch.randn(2, 5, 6, requires_grad=grad)
        with torch.set_grad_enabled(grad):
            for ours, eager in zip(compiled(x, given), read(x, given)):
                torch.testing.assert_close(ours, eager)
