"""The mask rule over pools and pairs; bounds and gradients of maps and memories."""

import pytest
import torch
from cases import ORDERED, B, R, S, cases, make, map_input, memory_input, names, pair_inputs, pool_input
from torch.autograd import gradcheck

from foci import masks
from foci.errors import ShapeError

POOL, PAIR, MAP, MEMORY = cases("pool"), names("pair"), cases("map"), cases("memory")
VALID = masks.lengths([4, 0, S], S)
RIGHT = masks.lengths([R, 5, 0], R)


@pytest.mark.parametrize("name", POOL)
def test_pool_a_masked_cell_cannot_change_the_output(name):
    module, value = make(name), pool_input(name)
    before = module(value, VALID)
    after = module(value.masked_fill(~VALID.unsqueeze(-1), 1e4), VALID)
    torch.testing.assert_close(before.output, after.output)
    torch.testing.assert_close(before.weights.dense(), after.weights.dense())
    seen = module(value.masked_fill(VALID.unsqueeze(-1), 2.0), VALID)
    assert not torch.allclose(before.output, seen.output)


@pytest.mark.parametrize("name", POOL)
def test_pool_dead_rows_give_zeros_and_finite_gradients(name):
    module, value = make(name, torch.float64), pool_input(name, dtype=torch.float64).requires_grad_()
    read = module(value, VALID)
    assert (read.output[1] == 0).all()
    assert (read.weights.dense()[1] == 0).all()
    with torch.autograd.detect_anomaly():
        (read.output.square().sum() + read.weights.entropy().sum()).backward()
    assert value.grad.isfinite().all()
    assert (value.grad[~VALID] == 0).all()
    assert all(p.grad.isfinite().all() for p in module.parameters())


@pytest.mark.parametrize("name", POOL)
def test_pool_weights_are_shares(name):
    weights = make(name)(pool_input(name), VALID).weights.dense()
    assert (weights >= 0).all()
    alive = VALID if name == "crf" else VALID.any(dim=-1).view(B, *(1,) * (weights.dim() - 2))
    torch.testing.assert_close(weights.sum(dim=-1), alive.expand(weights.shape[:-1]).float())


@pytest.mark.parametrize("name", sorted(set(POOL) - ORDERED))
def test_pool_permuting_cells_permutes_weights(name):
    module, value, order = make(name), pool_input(name), torch.randperm(S)
    read, shuffled = module(value, VALID), module(value[:, order], VALID[:, order])
    torch.testing.assert_close(read.output, shuffled.output)
    torch.testing.assert_close(read.weights.dense()[..., order], shuffled.weights.dense())


@pytest.mark.parametrize("name", POOL)
def test_pool_alone_equals_padded(name):
    module, value = make(name), pool_input(name)
    batched = module(value, VALID)
    for b, length in enumerate(VALID.sum(-1).tolist()):
        alone = module(value[b : b + 1, :length])
        torch.testing.assert_close(batched.output[b : b + 1], alone.output)
        weights = batched.weights.dense()[b : b + 1]
        weights = weights[:, :length] if name == "crf" else weights[..., :length]
        torch.testing.assert_close(weights, alone.weights.dense())


@pytest.mark.parametrize("name", POOL)
def test_pool_gradients_are_right(name):
    module, value = make(name, torch.float64), pool_input(name, dtype=torch.float64).requires_grad_()

    def run(value, *_):
        read = module(value, VALID)
        return read.output, read.weights.dense()

    assert gradcheck(run, (value, *module.parameters()), fast_mode=True)


@pytest.mark.parametrize("name", POOL)
def test_pool_bad_masks_are_refused(name):
    module, value = make(name), pool_input(name)
    with pytest.raises(ShapeError, match=r"\(3, 8\).*masks.lengths|\(3, 8\).*expected"):
        module(value, torch.ones(B, S + 1, dtype=torch.bool))
    with pytest.raises(ShapeError, match="torch.float32, expected torch.bool"):
        module(value, torch.ones(B, S))


@pytest.mark.slow
@pytest.mark.parametrize("name", POOL)
def test_pool_exports_with_dynamic_batch_and_length(name):
    batch, cells = torch.export.Dim("batch", max=31), torch.export.Dim("cells", max=31)
    if name == "crf":
        cells = None  # a recursion over steps: exported for one length
    shapes = {0: batch} if cells is None else {0: batch, 1: cells}
    program = torch.export.export(make(name), (pool_input(name), VALID), dynamic_shapes=(shapes, shapes))
    size = S if cells is None else 11
    value, valid = pool_input(name, batch=2, keys=size), masks.lengths([0, 6], size)
    exported, eager = program.module()(value, valid), make(name)(value, valid)
    torch.testing.assert_close(exported.output, eager.output)
    torch.testing.assert_close(exported.weights.dense(), eager.weights.dense())


@pytest.mark.parametrize("name", PAIR)
def test_pair_masked_cells_cannot_change_anything(name):
    module, (left, right) = make(name), pair_inputs(name)
    before = module(left, right, VALID, RIGHT)
    after = module(
        left.masked_fill(~VALID.unsqueeze(-1), 1e3), right.masked_fill(~RIGHT.unsqueeze(-1), -1e3), VALID, RIGHT
    )
    torch.testing.assert_close(before.output, after.output)
    torch.testing.assert_close(before.weights.dense(), after.weights.dense())
    weights = before.weights.dense()
    assert weights.shape == (B, R, S)
    readable = VALID.unsqueeze(1) & RIGHT.unsqueeze(2)
    assert (weights[~readable] == 0).all()
    torch.testing.assert_close(weights.sum(-1), readable.any(-1).float())


@pytest.mark.parametrize("name", PAIR)
def test_pair_dead_rows_and_gradients(name):
    module = make(name, torch.float64)
    left, right = (t.requires_grad_() for t in pair_inputs(name, dtype=torch.float64))
    matched = module(left, right, VALID, RIGHT)
    assert (matched.output[1:] == 0).all(), "the second row has no left, the third no right"
    with torch.autograd.detect_anomaly():
        matched.output.square().sum().backward()
    assert left.grad.isfinite().all()
    assert right.grad.isfinite().all()
    assert gradcheck(lambda a, b, *_: module(a, b, VALID, RIGHT).output, (left, right), fast_mode=True)


@pytest.mark.parametrize("name", PAIR)
def test_pair_alone_equals_padded(name):
    module, (left, right) = make(name), pair_inputs(name)
    batched = module(left, right, VALID, RIGHT)
    alone = module(left[:1, :4], right[:1])
    torch.testing.assert_close(batched.output[:1], alone.output)
    torch.testing.assert_close(batched.weights.dense()[:1, :, :4], alone.weights.dense())


@pytest.mark.parametrize("name", MAP)
def test_map_scales_the_features_by_the_weights(name):
    module, features = make(name), map_input(name)
    read = module(features)
    weights = read.weights.dense()
    assert read.output.shape == features.shape
    assert ((weights > 0) & (weights < 1)).all()
    torch.testing.assert_close(read.output, features * weights)


@pytest.mark.parametrize("name", MAP)
def test_map_gradients_are_right(name):
    module, features = make(name, torch.float64), map_input(name, dtype=torch.float64).requires_grad_()
    assert gradcheck(lambda x, *_: module(x).output, (features, *module.parameters()), fast_mode=True)


@pytest.mark.parametrize("name", MEMORY)
def test_memory_weights_are_shares_and_gradients_right(name):
    module, given = make(name, torch.float64), memory_input(name, dtype=torch.float64).requires_grad_()

    def run(given, *_):
        output, state = module(given)
        return module(output @ output.new_ones(output.shape[-1], given.shape[-1]) * 0.1 + given, state)[0]

    _, state = module(given)
    for weights in (state.read_weights, state.write_weights):
        assert (weights >= 0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    assert gradcheck(run, (given, *module.parameters()), fast_mode=True)
