"""The mask rule and the algebra, over every row that reads keys and values, and every variant of it."""

import pytest
import torch
from cases import (
    ALIGNED,
    ATTEND_CASES,
    CHOOSING,
    FREE_VALUE,
    LOCAL,
    ORDERED,
    SINKS,
    B,
    L,
    S,
    attend_inputs,
    make,
    names,
    option,
    reach,
)
from torch.autograd import gradcheck

from foci import masks
from foci.errors import ShapeError

ATTEND = names("attend")
LENGTHS = torch.tensor([4, 0, S])


def key_mask():
    return masks.keys(masks.lengths(LENGTHS, S))


def per_query_mask():
    torch.manual_seed(29)
    mask = torch.rand(B, L, S) > 0.4
    mask[0, 2] = False  # one query of the row may read nothing
    return mask & key_mask()


MASKS = {"keys": key_mask, "per query": per_query_mask}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("name", ATTEND_CASES)
def test_a_masked_key_cannot_change_the_output(name, kind):
    module, (query, key, value), mask = make(name), attend_inputs(name), MASKS[kind]()
    hidden = ~mask.any(dim=1).expand(B, S)
    assert hidden.any()
    before = module(query, key, value, mask)
    after = module(
        query, key.masked_fill(hidden.unsqueeze(-1), 1e4), value.masked_fill(hidden.unsqueeze(-1), -1e4), mask
    )
    torch.testing.assert_close(before.output, after.output, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(before.weights.dense(), after.weights.dense(), atol=1e-6, rtol=1e-6)
    weights = before.weights.dense()
    closed = ~(mask & reach(name))
    closed = closed.unsqueeze(1) if weights.dim() == 4 else closed
    assert (weights.masked_select(closed.expand(weights.shape)) == 0).all()


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("name", ATTEND_CASES)
def test_an_unmasked_key_does_change_the_output(name, kind):
    module, (query, key, value), mask = make(name), attend_inputs(name), MASKS[kind]()
    read = module(query, key, value, mask)
    changed = module(query, key, value + mask.any(dim=1).unsqueeze(-1), mask)
    assert not torch.allclose(read.output, changed.output)


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("name", ATTEND_CASES)
def test_dead_rows_give_zeros_and_finite_gradients(name, kind):
    module, mask = make(name, torch.float64, train=True), MASKS[kind]()
    inputs = [t.requires_grad_() for t in attend_inputs(name, dtype=torch.float64)]
    read = module(*inputs, mask)
    dead = ~(mask & reach(name)).any(dim=-1).expand(B, L)
    assert dead.any()
    assert (read.output[dead] == 0).all()
    weights = read.weights.dense()
    by_row = weights.transpose(1, 2)[dead] if weights.dim() == 4 else weights[dead]
    assert (by_row == 0).all()
    loss = read.output.square().sum() + weights.square().sum() + read.weights.entropy().sum()
    if read.weights.log_prob is not None:
        assert (read.weights.log_prob[dead] == 0).all()
        loss = loss + read.weights.log_prob.sum()
    with torch.autograd.detect_anomaly():  # no NaN on the way either, not even one that is cleared later
        loss.backward()
    for tensor in [*inputs, *module.parameters()]:
        assert tensor.grad is None or tensor.grad.isfinite().all()
    assert (inputs[2].grad[1] == 0).all(), "nobody may read the second row"


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", ATTEND_CASES)
def test_weights_are_shares(name, train):
    module, mask = make(name, train=train), per_query_mask()
    weights = module(*attend_inputs(name), mask).weights.dense()
    assert (weights >= 0).all()
    total = weights.sum(dim=-1)
    assert (total <= 1 + 1e-5).all()
    if name not in LOCAL | SINKS:
        alive = (mask & reach(name)).any(dim=-1)
        alive = alive.unsqueeze(1).expand(total.shape) if total.dim() == 3 else alive
        torch.testing.assert_close(total, alive.to(total.dtype))


@pytest.mark.parametrize("name", [name for name in ATTEND_CASES if name not in ORDERED])
def test_permuting_keys_permutes_weights(name):
    module, (query, key, value), mask = make(name), attend_inputs(name), per_query_mask()
    order = torch.randperm(S)
    read = module(query, key, value, mask)
    shuffled = module(query, key[:, order], value[:, order], mask[:, :, order])
    torch.testing.assert_close(read.output, shuffled.output)
    torch.testing.assert_close(read.weights.dense()[..., order], shuffled.weights.dense())


@pytest.mark.parametrize("name", ATTEND_CASES)
def test_alone_equals_padded_in_a_batch(name):
    module, (query, key, value) = make(name), attend_inputs(name)
    batched = module(query, key, value, key_mask())
    for b, length in enumerate(LENGTHS.tolist()):
        # Where the last query stands at the last key, queries are left out along with keys: no distance changes.
        queries = max(0, L - (S - length)) if name in ALIGNED else L
        alone = module(query[b : b + 1, :queries], key[b : b + 1, :length], value[b : b + 1, :length])
        torch.testing.assert_close(batched.output[b : b + 1, :queries], alone.output, atol=1e-6, rtol=1e-5)
        weights = batched.weights.dense()[b : b + 1, ..., :queries, :length]
        torch.testing.assert_close(weights, alone.weights.dense(), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(FREE_VALUE))
def test_output_is_weights_times_value(name):
    module, (query, key, value), mask = make(name, torch.float64), attend_inputs(name, dtype=torch.float64), key_mask()
    read = module(query, key, value, mask)
    torch.testing.assert_close(read.output, read.weights.dense() @ value)


@pytest.mark.parametrize("name", ATTEND_CASES)
def test_value_defaults_to_key(name):
    module, (query, key, _) = make(name), attend_inputs(name)
    explicit = module(query, key, None if name.startswith("multi_step") else key)
    assert torch.equal(module(query, key).output, explicit.output)


@pytest.mark.parametrize("name", [name for name in ATTEND_CASES if name not in ALIGNED])
def test_reading_step_by_step_equals_reading_at_once(name):
    module, (query, key, value) = make(name), attend_inputs(name)
    whole = module(query, key, value, key_mask())
    memory, state, outputs, weights = module.prepare(key, value, key_mask()), None, [], []
    for t in range(L):
        step = module.read(query[:, t : t + 1], memory, state)
        state = step.state
        outputs.append(step.output)
        weights.append(step.weights.dense())
    torch.testing.assert_close(torch.cat(outputs, dim=1), whole.output, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.cat(weights, dim=-2), whole.weights.dense(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("steps", [(1, 1, 1, 1, 1), (2, 3), (0, 4, 1)])
@pytest.mark.parametrize("name", [name for name in ATTEND_CASES if option(name, "causal")])
def test_decoding_with_a_cache_equals_reading_at_once(name, steps):
    module, (query, key, value) = make(name), attend_inputs(name, keys=L)
    mask = masks.keys(masks.lengths([4, 0, L], L))
    whole = module(query, key, value, mask)
    state, begin = module.empty_cache(B), 0
    for count in steps:
        new, seen = slice(begin, begin + count), slice(begin + count)
        step = module(query[:, new], key[:, new], value[:, new], mask[..., seen], state)
        state, begin = step.state, begin + count
        torch.testing.assert_close(step.output, whole.output[:, new], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(step.weights.dense(), whole.weights.dense()[:, :, new, seen], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", [name for name in ATTEND_CASES if name not in CHOOSING])
def test_gradients_are_right(name):
    module, mask = make(name, torch.float64), per_query_mask()
    inputs = [t.requires_grad_() for t in attend_inputs(name, dtype=torch.float64)]
    parameters = list(module.parameters())

    def run(query, key, value, *_):
        read = module(query, key, value, mask)
        return read.output, read.weights.dense()

    assert gradcheck(run, (*inputs, *parameters), fast_mode=True)


@pytest.mark.parametrize("name", ATTEND_CASES)
@pytest.mark.parametrize(("queries", "keys"), [(L, 0), (0, S), (L, 1), (1, 1)])
def test_degenerate_sizes(name, queries, keys):
    module = make(name)
    query, key, value = attend_inputs(name, queries=queries, keys=keys)
    read = module(query, key, value)
    assert read.output.shape[:2] == (B, queries)
    assert read.weights.shape[-2:] == (queries, keys)
    assert read.output.isfinite().all()
    masked = module(query, key, value, torch.zeros(B, 1, keys, dtype=torch.bool))
    assert (masked.output == 0).all()
    assert masked.weights.entropy().shape == masked.weights.shape[:-1]


@pytest.mark.parametrize("name", ATTEND_CASES)
def test_bad_masks_are_refused_with_the_helper_to_use(name):
    module, inputs = make(name), attend_inputs(name)
    with pytest.raises(ShapeError, match=r"\(3, 7\), expected \(batch, query, key\) = \(3, 5, 7\).*masks.keys"):
        module(*inputs, torch.ones(B, S, dtype=torch.bool))
    with pytest.raises(ShapeError, match=r"\(5, 7\).*masks.causal"):
        module(*inputs, torch.ones(L, S, dtype=torch.bool))
    with pytest.raises(ShapeError, match=r"torch.float32, expected torch.bool .*bias"):
        module(*inputs, torch.zeros(B, L, S))
    with pytest.raises(ShapeError, match=r"\(3, 5, 8\)"):
        module(*inputs, torch.ones(B, L, S + 1, dtype=torch.bool))
    with pytest.raises(ShapeError, match="on meta"):
        module(*inputs, torch.ones(B, L, S, dtype=torch.bool, device="meta"))


@pytest.mark.parametrize("name", ATTEND)
def test_bad_inputs_are_named(name):
    module, (query, key, value) = make(name), attend_inputs(name)
    with pytest.raises(ShapeError, match=r"value has shape \(3, 6, .*expected \(batch, 7, "):
        module(query, key, value[:, 1:])
    with pytest.raises(ShapeError, match="torch.float64"):
        module(query, key, value.double())
    with pytest.raises(ShapeError, match="meta"):
        module(query.to("meta"), key, value)
    with pytest.raises(ShapeError, match=r"batch|shape"):
        module(query[:2], key, value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTEND)
def test_exports_with_dynamic_batch_and_lengths(name):
    batch, queries, keys = (torch.export.Dim(size, max=31) for size in ("batch", "queries", "keys"))
    inputs = (*attend_inputs(name, queries=1 if name == "location_aware" else L), key_mask())
    shapes = ({0: batch, 1: queries}, {0: batch, 1: keys}, {0: batch, 1: keys}, {0: batch, 2: keys})
    if name == "location_aware":  # its steps depend on each other: exported one step at a time
        shapes = ({0: batch}, *shapes[1:])
    program = torch.export.export(make(name), inputs, dynamic_shapes=shapes)
    others = attend_inputs(name, batch=2, queries=1 if name == "location_aware" else 6, keys=11)
    mask = masks.keys(masks.lengths([0, 9], 11))
    exported, eager = program.module()(*others, mask), make(name)(*others, mask)
    torch.testing.assert_close(exported.output, eager.output)
    torch.testing.assert_close(exported.weights.dense(), eager.weights.dense())


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTEND)
def test_compiled_masks_and_gradients_agree(name):
    torch._dynamo.reset()
    module, mask = make(name, train=name not in CHOOSING), per_query_mask()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    gradients = []
    for run in (module, compiled):
        inputs = [t.requires_grad_() for t in attend_inputs(name)]
        read = run(*inputs, mask)
        read.output.square().sum().backward()
        gradients.append([read.output, read.weights.dense()])
        gradients[-1] += [torch.zeros_like(t) if t.grad is None else t.grad for t in inputs]
    for ours, theirs in zip(*gradients):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
