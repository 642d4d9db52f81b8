"""The helpers of the mask rule, and the way to and from torch's own masks."""

import pytest
import torch
from torch import nn

import foci
from foci import masks
from foci.errors import ShapeError


def test_lengths_and_keys():
    valid = masks.lengths([2, 0, 3], 3)
    assert valid.tolist() == [[True, True, False], [False] * 3, [True] * 3]
    assert masks.keys(valid).shape == (3, 1, 3)
    assert masks.keys(masks.keys(valid)).shape == (3, 1, 3)
    assert masks.lengths(torch.tensor([], dtype=torch.long), 3).shape == (0, 3)
    assert masks.lengths([0], 0).shape == (1, 0)


def test_causal_is_lower_right_aligned():
    assert masks.causal(2, 4).int().tolist() == [[[1, 1, 1, 0], [1, 1, 1, 1]]]
    assert masks.causal(3).int().tolist() == [[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]
    assert masks.causal(3, 2).int().tolist() == [[[0, 0], [1, 0], [1, 1]]]


def test_window_and_segments():
    assert masks.window(3, 4, 1, 0).int().tolist() == [[[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]]
    assert masks.window(2, 2, None, None).all()
    ids = torch.tensor([[0, 0, 1]])
    assert masks.segments(ids).int().tolist() == [[[1, 1, 0], [1, 1, 0], [0, 0, 1]]]
    assert masks.segments(ids, torch.tensor([[1, 0]])).int().tolist() == [[[0, 1], [0, 1], [1, 0]]]


def test_masks_combine():
    both = masks.causal(3) & masks.keys(masks.lengths([2, 3], 3))
    assert both.shape == (2, 3, 3)
    assert both[0, 2].tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: masks.lengths(torch.ones(2, 3), 5), r"\(2, 3\).*whole numbers of shape \(batch,\)"),
        (lambda: masks.lengths(torch.tensor([True, False]), 5), "valid"),
        (lambda: masks.keys(torch.ones(2, 3)), "torch.float32, expected torch.bool"),
        (lambda: masks.keys(torch.ones(2, 3, 5, dtype=torch.bool)), r"\(2, 3, 5\), expected \(batch, key\)"),
        (lambda: masks.to_torch(torch.ones(2, 3, dtype=torch.bool)), r"\(2, 3\), expected \(batch, query, key\)"),
        (lambda: masks.segments(torch.zeros(3, dtype=torch.long)), r"\(3,\), expected \(batch, position\)"),
        (lambda: masks.from_torch_padding(torch.zeros(2, 3)), "True = may be read"),
    ],
)
def test_wrong_calls_are_explained(call, words):
    with pytest.raises(ShapeError, match=words):
        call()


def test_from_and_to_torch_mean_the_same_to_both():
    theirs = nn.MultiheadAttention(6, 3, batch_first=True).eval()
    ours = foci.mechanisms.heads.MultiHeadAttention.from_torch(theirs)
    x = torch.randn(2, 5, 6)
    padding = torch.tensor([[False] * 5, [False, False, True, True, True]])
    mask = masks.from_torch_padding(padding)
    expected, _ = theirs(x, x, x, key_padding_mask=padding)
    torch.testing.assert_close(ours(x, x, mask=mask).output, expected)
    assert torch.equal(masks.to_torch(mask), padding)
    for other in (masks.causal(5), masks.causal(5) & mask, torch.rand(2, 5, 5) > 0.1):
        expected, _ = theirs(x, x, x, attn_mask=masks.to_torch(other, num_heads=3))
        torch.testing.assert_close(ours(x, x, mask=other).output, expected)


@pytest.mark.parametrize("lengths", [[12], [-1], [3, 12, 0, -1]])
def test_lengths_outside_of_the_positions_are_refused(lengths):
    outside = sum(not 0 <= length <= 11 for length in lengths)
    with pytest.raises(ShapeError, match=rf"{outside} of {len(lengths)} lengths .* expected 0 to 11"):
        masks.lengths(lengths, 11)
    with pytest.raises(ShapeError, match="lengths"):
        masks.lengths(torch.tensor(lengths), 11)
    assert masks.lengths([0, 11], 11).sum(dim=1).tolist() == [0, 11]
