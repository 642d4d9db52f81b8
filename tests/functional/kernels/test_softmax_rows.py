"""The kernel of row reductions against the same in float64, in every case that a row can be."""

import pytest
import torch
from active_kernel import skip_unless_active

from foci.functional.kernels import softmax_rows
from foci.weights.sources import DotSoftmax

INF = float("inf")


@pytest.fixture
def library():
    skip_unless_active(softmax_rows)
    return softmax_rows._KERNEL.library


def exact(scores, k):
    weights = torch.softmax(scores.double(), dim=-1).nan_to_num(0.0)
    return weights, weights.topk(k).values, torch.special.entr(weights).sum(-1, keepdim=True)


@pytest.mark.parametrize("cells", [1, 7, 8, 31, 32, 33, 67, 1031])
@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 300.0])
def test_rows_of_any_length(library, cells, size):
    torch.manual_seed(cells)
    scores = size * torch.randn(3, 5, cells)
    scores[0, 1, ::3] = -INF
    scores[0, 2, 1:] = -INF
    k = min(cells, 5)
    weights, largest, entropy = exact(scores, k)
    found, places = softmax_rows._largest(library, scores, k)
    torch.testing.assert_close(found.double(), largest, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(weights.gather(-1, places), largest, atol=1e-6, rtol=1e-5)
    assert all(len(set(row)) == k for row in places.flatten(0, 1).tolist())
    torch.testing.assert_close(softmax_rows._entropy(library, scores).double(), entropy, atol=3e-6, rtol=3e-6)


def test_equal_scores_come_in_order(library):
    scores = torch.tensor([[2.0, 5.0, 5.0, 2.0, 5.0] * 9])
    assert softmax_rows._largest(library, scores, 3)[1].tolist() == [[1, 2, 4]]


def test_a_row_without_cells(library):
    scores = torch.full((1, 11), -INF)
    weights, cells = softmax_rows._largest(library, scores, 3)
    assert weights.tolist() == [[0.0, 0.0, 0.0]]
    assert cells.tolist() == [[0, 1, 2]]
    assert softmax_rows._entropy(library, scores).item() == 0.0


@pytest.mark.parametrize("place", [0, 3, 9, 17])
def test_nan_is_not_lost(library, place):
    scores = torch.randn(1, 19)
    scores[0, place] = torch.nan
    assert softmax_rows._largest(library, scores, 2)[0].isnan().all()
    assert softmax_rows._entropy(library, scores).isnan().all()


def test_small_entropies_keep_their_digits(library):
    scores = torch.tensor([[1000.0, 985.0, 980.0]])
    torch.testing.assert_close(
        softmax_rows._entropy(library, scores).double(), exact(scores, 1)[2], atol=0.0, rtol=1e-5
    )


def test_the_kernel_is_used_and_left_where_it_does_not_fit(library, monkeypatch):
    used = []
    entropy = softmax_rows._entropy
    monkeypatch.setattr(softmax_rows, "_entropy", lambda *arguments: used.append(1) or entropy(*arguments))
    query, key = torch.randn(2, 3, 5), torch.randn(2, 7, 5)
    for dtype, grad in ((torch.float32, False), (torch.float64, False), (torch.float32, True)):
        q, k = query.to(dtype).requires_grad_(grad), key.to(dtype)
        found = softmax_rows.FusedSoftmax(q, k, 0.5).entropy(slice(None))
        torch.testing.assert_close(found, DotSoftmax(q, k, 0.5).entropy(slice(None)))
    assert len(used) == 1
