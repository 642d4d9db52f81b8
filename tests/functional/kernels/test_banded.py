"""The banded kernel against masked attention: values and gradients, offsets, grouped heads, masks, compile, export."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import foci
from foci import masks
from foci.functional.attend import attend_scores
from foci.functional.kernels.banded import attend_band
from foci.functional.scores import scaled_dot


def by_masking(query, key, value, valid, left, right, scale):
    group = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
    mask = None if valid is None else masks.keys(valid)
    return attend_scores(scaled_dot(query, key, scale), value, mask, window=(left, right)).output


@given(
    st.integers(0, 2), st.integers(1, 2), st.integers(1, 2), st.integers(1, 200), st.integers(1, 200),
    st.integers(0, 90), st.integers(0, 90), st.booleans(),
)  # fmt: skip
@settings(max_examples=60)
def test_values_and_gradients_equal_masking(batch, groups, per_group, L, S, left, right, masked):
    torch.manual_seed(L * S)
    query = torch.randn(batch, groups * per_group, L, 3, dtype=torch.float64, requires_grad=True)
    key = torch.randn(batch, groups, S, 3, dtype=torch.float64, requires_grad=True)
    value = torch.randn(batch, groups, S, 5, dtype=torch.float64, requires_grad=True)
    valid = torch.rand(batch, S) > 0.5 if masked else None
    ours = attend_band(query, key, value, valid, left, right, 0.3)
    theirs = by_masking(query, key, value, valid, left, right, 0.3)
    torch.testing.assert_close(ours, theirs)
    grad = torch.randn_like(ours)
    for one, two in zip(
        torch.autograd.grad(ours, (query, key, value), grad), torch.autograd.grad(theirs, (query, key, value), grad)
    ):
        torch.testing.assert_close(one, two)


def test_it_is_chosen_for_long_sequences_and_gives_the_same():
    x = torch.randn(2, 4, 601, 8)
    mask = masks.keys(masks.lengths([601, 37], 601))
    read = foci.attend(x, x, x, mask, window=(20, 10))
    plain = foci.attend(x, x, x, mask, window=(20, 10), score=scaled_dot)
    torch.testing.assert_close(read.output, plain.output)
    torch.testing.assert_close(read.weights.dense(), plain.weights.dense())
    with torch.profiler.profile() as profile:
        foci.attend(x, x, x, mask, window=(20, 10))
    assert any("attend_band" in event.key for event in profile.key_averages())
    single = foci.Attention(focus="sliding_window", window=(20, 10))(x[:, 0], x[:, 0], mask=mask)
    torch.testing.assert_close(single.output, plain.output[:, 0])


def test_transforms_of_long_sequences():
    x, tangent = torch.randn(2, 3, 520, 5, dtype=torch.float64)
    mask = masks.keys(masks.lengths([520], 520))

    def read(x, window=(5, 3)):
        return foci.attend(x, x, x, mask, window=window).output

    def loss(x):
        return read(x).square().sum()

    each = torch.stack([read(one.unsqueeze(0)).squeeze(0) for one in x])
    torch.testing.assert_close(torch.func.vmap(lambda one: read(one.unsqueeze(0)).squeeze(0))(x), each)
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(loss(leaf), leaf)
    torch.testing.assert_close(torch.func.grad(loss)(x), expected)
    torch.testing.assert_close(torch.func.jvp(loss, (x,), (tangent,))[1], (expected * tangent).sum())


def test_half_precision_stays_finite():
    x = torch.randn(1, 1, 600, 8, dtype=torch.bfloat16)
    exact = foci.attend(x.float(), x.float(), x.float(), window=(5, 0)).output
    torch.testing.assert_close(foci.attend(x, x, x, window=(5, 0)).output.float(), exact, atol=0.05, rtol=0.05)


@pytest.mark.slow
def test_operator_is_registered_rightly():
    query = torch.randn(1, 2, 70, 3, requires_grad=True)
    key, value = torch.randn(1, 1, 70, 3, requires_grad=True), torch.randn(1, 1, 70, 5, requires_grad=True)
    torch.library.opcheck(torch.ops.foci.attend_band.default, (query, key, value, torch.rand(1, 70) > 0.5, 3, 2, 0.5))


@pytest.mark.slow
def test_compiled_and_exported_with_any_length():
    attention = foci.build("sliding_window", query_dim=7, key_dim=7, window=(2, 3))
    x = torch.randn(2, 600, 7)
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, x).output, attention(x, x).output)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    program = torch.export.export(attention, (x, x), dynamic_shapes=({0: batch, 1: length}, {0: batch, 1: length}))
    for size in (3, 100, 1000):
        y = torch.randn(3, size, 7)
        torch.testing.assert_close(program.module()(y, y).output, attention(y, y).output)
