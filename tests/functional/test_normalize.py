"""Normalizers: definitions, peers, optimality, and hard attention's gradient by enumeration."""

import itertools
import math

import entmax
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

import foci
from foci import masks
from foci.errors import ConfigError, ShapeError
from foci.functional import normalize as normalize
from foci.functional import sample, sparse
from foci.mechanisms.sampled import probabilities_of

ROWS = st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=9)


@given(ROWS)
@settings(max_examples=50)
def test_softmax_and_sigmoid_by_definition(row):
    scores = torch.tensor([row], dtype=torch.float64)
    top = max(row)
    expected = [math.exp(s - top) for s in row]
    torch.testing.assert_close(normalize.softmax(scores)[0], torch.tensor(expected).double() / sum(expected))
    smooth = [1 / (1 + math.exp(-s)) for s in row]
    torch.testing.assert_close(
        normalize.sigmoid(scores)[0], torch.tensor(smooth).double() / sum(smooth), rtol=1e-6, atol=1e-9
    )


def test_sigmoid_does_not_divide_zero_by_zero():
    weights = normalize.sigmoid(torch.tensor([[-1e4, -1e4 - 1.0]]))
    torch.testing.assert_close(weights, torch.softmax(torch.tensor([[0.0, -1.0]]), dim=-1), atol=1e-3, rtol=1e-3)


@given(ROWS, st.lists(st.booleans(), min_size=9, max_size=9))
@settings(max_examples=100)
def test_sparse_equal_their_peer_on_the_readable_cells(row, readable):
    scores, mask = torch.tensor([row], dtype=torch.float64), torch.tensor([readable[: len(row)]])
    for ours, theirs in ((sparse.sparsemax, entmax.sparsemax), (sparse.entmax15, entmax.entmax15)):
        torch.testing.assert_close(ours(scores), theirs(scores, dim=-1), rtol=1e-6, atol=1e-7)
        masked = ours(scores, mask)
        assert (masked[~mask] == 0).all()
        if mask.any():
            torch.testing.assert_close(masked[mask], theirs(scores[mask], dim=-1), rtol=1e-6, atol=1e-7)


def test_sparsemax_is_the_nearest_point_of_the_simplex():
    torch.manual_seed(5)
    scores = torch.randn(7, dtype=torch.float64) * 2
    best = (sparse.sparsemax(scores.unsqueeze(0))[0] - scores).square().sum()
    others = torch.distributions.Dirichlet(torch.full((7,), 0.3, dtype=torch.float64)).sample((20000,))
    assert ((others - scores).square().sum(-1) >= best).all()


SMOOTH = [normalize.softmax, normalize.sigmoid, sparse.sparsemax, sparse.entmax15]


def scores_and_mask():
    """Wide enough apart that sparse rows have zeros, one row that may read nothing."""
    scores = 1.5 * torch.randn(2, 3, 5, dtype=torch.float64)
    mask = torch.rand(2, 3, 5) > 0.3
    mask[1, 2] = False
    return scores, mask


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("function", SMOOTH)
def test_second_derivatives_are_exact_also_where_a_weight_is_zero(function, masked):
    scores, mask = scores_and_mask()
    if function in (sparse.sparsemax, sparse.entmax15):
        assert (function(scores) == 0).any()
        assert ((function(scores) > 0).sum(dim=-1) > 1).any()

    def run(scores):
        return function(scores, mask if masked else None)

    assert gradcheck(run, scores.requires_grad_(), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(run, scores, check_fwd_over_rev=True)


@pytest.mark.parametrize("function", SMOOTH)
def test_transforms_of_torch_func_equal_autograd(function):
    scores, mask = scores_and_mask()
    target = torch.randn(5, dtype=torch.float64)

    def loss(scores):
        return (function(scores, mask) * target).square().sum()

    leaf = scores.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(leaf), leaf)
    torch.testing.assert_close(torch.func.grad(loss)(scores), gradient)
    jacobian = torch.autograd.functional.jacobian(lambda s: function(s, mask), scores)
    for transform in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(transform(lambda s: function(s, mask))(scores), jacobian)
    torch.testing.assert_close(torch.func.vmap(function)(scores, mask), function(scores, mask))
    each = torch.func.vmap(torch.func.grad(lambda s, m: (function(s, m) * target).square().sum()))(scores, mask)
    torch.testing.assert_close(each, gradient)
    hessian = torch.autograd.functional.hessian(loss, scores)
    assert hessian.isfinite().all()
    for outer in (torch.func.jacrev, torch.func.jacfwd):
        for inner in (torch.func.jacrev, torch.func.jacfwd):
            torch.testing.assert_close(outer(inner(loss))(scores), hessian)


@pytest.mark.parametrize("function", SMOOTH)
def test_a_row_with_nan_gives_nan_unless_the_mask_closes_it(function):
    scores = torch.tensor([[1.0, math.nan, 2.0], [1.0, 2.0, 3.0]], requires_grad=True)
    weights = function(scores)
    assert weights[0].isnan().all()
    torch.testing.assert_close(weights[1], function(scores[1:])[0])
    mask = torch.tensor([[True, False, True]])
    torch.testing.assert_close(function(scores, mask)[0, [0, 2]], function(scores[:1, [0, 2]])[0])


@pytest.mark.parametrize("function", [*SMOOTH, sample.hard])
def test_masks_with_infinite_and_huge_scores(function):
    scores = torch.tensor([[1e30, -1e30, 3.0, -torch.inf]], requires_grad=True)
    weights = function(scores, torch.tensor([[False, True, True, False]]))
    torch.testing.assert_close(weights, torch.tensor([[0.0, 0.0, 1.0, 0.0]]))


def test_hard_is_one_hot_at_the_best_readable_cell():
    scores = torch.tensor([[3.0, 9.0, 4.0], [1.0, 0.0, -1.0]])
    mask = torch.tensor([[True, False, True], [False, False, False]])
    assert sample.hard(scores, mask).tolist() == [[0, 0, 1], [0, 0, 0]]


def test_categorical_samples_with_the_softmax_probabilities():
    scores = torch.tensor([0.0, 1.0, -1.0, 2.0])
    mask = torch.tensor([True, True, True, False])
    chosen, log_prob = sample.categorical(scores.expand(40000, 4), mask.expand(40000, 4))
    expected = normalize.softmax(scores.unsqueeze(0), mask.unsqueeze(0))[0]
    torch.testing.assert_close(chosen.mean(0), expected, atol=0.01, rtol=0)
    torch.testing.assert_close(log_prob, (chosen @ expected).log())


def assert_drawn_from(expected, drawn):
    """The shares of one-hot rows ``(N, S)``, each within 4.5 standard deviations of a binomial (1 in 150,000 fails)."""
    count = drawn.shape[0]
    assert torch.equal(drawn.sum(dim=-1), torch.ones_like(drawn[:, 0]))
    shares = drawn.double().mean(dim=0)
    deviation = (expected * (1.0 - expected) / count).sqrt()
    assert ((shares - expected).abs() <= 4.5 * deviation).all(), (shares, expected, deviation)


HALF = [torch.float16, torch.bfloat16]
DRAWN = {"categorical": lambda scores: sample.categorical(scores)[0], "gumbel": sample.gumbel}


@pytest.mark.parametrize("row", [[20.0, 20.0], [1000.0, 1000.0, 1000.0], [0.0, 1.0, -1.0], [-100.0, -101.0, -99.5]])
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("draw", DRAWN)
def test_samples_in_half_precision_are_unbiased(draw, dtype, row):
    scores = torch.tensor(row, dtype=dtype)
    assert scores.tolist() == row, "the scores themselves are exact"
    drawn = DRAWN[draw](scores.expand(60000, 1, len(row)))
    assert drawn.dtype == dtype
    assert_drawn_from(scores.double().softmax(dim=-1), drawn.squeeze(1).float())


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("normalizer", ["sample", "gumbel"])
def test_samples_under_autocast_are_unbiased(normalizer, dtype):
    attention = foci.Attention(score="dot", normalize=normalizer).train()
    key = torch.tensor([[20.0], [20.0], [19.0]])
    with torch.autocast("cpu", dtype=dtype):
        weights = attention(torch.ones(60000, 1, 1), key.expand(60000, 3, 1)).weights.dense()
    assert_drawn_from(key.squeeze(1).double().softmax(dim=-1), weights.squeeze(1).float())


def test_gumbel_is_hard_forward_and_soft_backward():
    scores = torch.randn(5, 7, requires_grad=True)
    mask = torch.rand(5, 7) > 0.3
    mask[2] = False
    values = torch.randn(7)
    weights = sample.gumbel(scores, mask, temperature=0.5, generator=torch.Generator().manual_seed(1))
    assert set(weights.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(weights.sum(-1), mask.any(-1).float())
    (weights @ values).sum().backward()
    again = scores.detach().clone().requires_grad_()
    uniform = torch.rand(5, 7, generator=torch.Generator().manual_seed(1))
    (normalize.softmax((again - (-uniform.log()).log()) / 0.5, mask) @ values).sum().backward()
    torch.testing.assert_close(scores.grad, again.grad)
    with pytest.raises(ConfigError, match="temperature is 0"):
        sample.gumbel(scores, temperature=0.0)


def test_reinforce_gradient_is_the_exact_one_when_every_choice_is_enumerated():
    """E[surrogate's gradient] over all 3² choices of two steps = the gradient of −E[reward] − λ H, for any baseline."""
    torch.manual_seed(3)
    logits = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)  # two steps, three cells
    rewards = torch.randn(3, 3, dtype=torch.float64)  # of each pair of choices
    probabilities = torch.softmax(logits, dim=-1)
    entropies = -(probabilities * probabilities.log()).sum(-1)
    pairs = list(itertools.product(range(3), repeat=2))
    expected_reward = sum(probabilities[0, i] * probabilities[1, j] * rewards[i, j] for i, j in pairs)
    (exact,) = torch.autograd.grad(-expected_reward - 0.3 * entropies.sum(), logits, retain_graph=True)
    for baseline in (0.0, 1.7):
        estimate = torch.zeros_like(logits)
        for i, j in pairs:
            chosen = torch.nn.functional.one_hot(torch.tensor([i, j]), 3).double()
            log_prob = sample.log_probability(logits, chosen).unsqueeze(0)  # a batch of one row, two steps
            surrogate = sample.reinforce(
                log_prob, rewards[i, j].reshape(1), baseline, entropy=entropies.unsqueeze(0), entropy_weight=0.3
            )
            (gradient,) = torch.autograd.grad(surrogate.loss, logits, retain_graph=True)
            estimate += (probabilities[0, i] * probabilities[1, j]).detach() * gradient
        torch.testing.assert_close(estimate, exact)


def test_reinforce_through_hard_attention_by_sampling_and_its_baseline():
    torch.manual_seed(0)
    attention = foci.Attention(2, 2, score="general", normalize="sample").train()
    query, key = torch.randn(1, 1, 2).expand(20000, 1, 2), torch.randn(1, 3, 2).expand(20000, 3, 2)
    reward_of = torch.tensor([1.0, -2.0, 0.5])
    read = attention(query, key)
    reward = read.weights.dense().squeeze(1) @ reward_of
    surrogate = sample.reinforce(read.weights.log_prob, reward, 0.4, decay=0.8)
    surrogate.loss.backward()
    estimate, attention.score.weight.grad = attention.score.weight.grad, None
    soft = torch.softmax(attention.score(query[:1], key[:1]), dim=-1).squeeze() @ reward_of
    (-soft).backward()
    torch.testing.assert_close(estimate, attention.score.weight.grad, atol=0.05, rtol=0.1)
    torch.testing.assert_close(surrogate.baseline, 0.8 * torch.tensor(0.4) + 0.2 * reward.mean())


def test_no_gradient_passes_to_the_reward_or_the_baseline():
    log_prob, reward = torch.randn(3, 5, requires_grad=True), torch.randn(3, requires_grad=True)
    baseline = torch.tensor(0.5, requires_grad=True)
    surrogate = sample.reinforce(log_prob, reward, baseline)
    found = torch.autograd.grad(surrogate.loss, [log_prob, reward, baseline], allow_unused=True)
    torch.testing.assert_close(found[0], -(reward - baseline).detach().unsqueeze(1).expand(3, 5) / 3)
    assert found[1:] == (None, None)


def test_reinforce_rejects_a_reward_of_another_shape():
    with pytest.raises(ShapeError, match=r"\(3,\).*\(2, 5\)"):
        sample.reinforce(torch.zeros(2, 5), torch.zeros(3))


def test_a_moving_baseline_lowers_the_variance():
    torch.manual_seed(1)
    logits = torch.zeros(5, requires_grad=True)
    reward_of = torch.linspace(9.0, 11.0, 5)  # rewards far from 0: without a baseline their size is all noise
    spread = {}
    for moving in (False, True):
        baseline, gradients = 0.0, []
        for step in range(300):
            chosen, log_prob = sample.categorical(logits.expand(8, 5))
            surrogate = sample.reinforce(log_prob, chosen @ reward_of, baseline if moving else 0.0)
            baseline = surrogate.baseline
            if step >= 100:
                gradients.append(torch.autograd.grad(surrogate.loss, logits)[0])
        spread[moving] = torch.stack(gradients).var(0).sum()
    assert spread[True] < 0.05 * spread[False]


CHANCE = {
    "hard": {"query_dim": 3, "key_dim": 3},
    "gumbel": {"query_dim": 3, "key_dim": 3},
    "location_aware": {"query_dim": 3, "key_dim": 3, "hidden_dim": 5, "normalize": "sample"},
    "location_aware, gumbel": {"query_dim": 3, "key_dim": 3, "hidden_dim": 5, "normalize": "gumbel"},
    "local_m": {"query_dim": 3, "key_dim": 3, "radius": 1, "normalize": "sample"},
}


@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("case", CHANCE)
def test_the_handle_keeps_the_probabilities_behind_the_sample(case, train):
    torch.manual_seed(4)
    name, options = case.partition(",")[0], CHANCE[case]
    sampled = foci.build(name, **options).train(train)
    query, key = torch.randn(2, 1, 3, requires_grad=True), torch.randn(2, 7, 3)
    mask = masks.keys(masks.lengths([7, 4], 7))
    weights = sampled(query, key, None, mask).weights
    soft = foci.build(name, **{**options, "normalize": "softmax"})
    soft.load_state_dict(sampled.state_dict())
    expected = soft(query, key, None, mask).weights.dense()
    assert set(weights.dense().unique().tolist()) == {0.0, 1.0}
    for found in (weights.probabilities.dense(), probabilities_of(weights)):
        torch.testing.assert_close(found, expected)
    entropy = torch.special.entr(expected).sum(-1)
    torch.testing.assert_close(weights.entropy(), entropy)
    (wanted,) = torch.autograd.grad(entropy.sum(), query)
    torch.testing.assert_close(torch.autograd.grad(weights.entropy().sum(), query)[0], wanted)


def test_the_gradient_through_hard_attention_is_that_of_the_sum_over_all_samples():
    """`build("hard")` with `reinforce`: every choice of both queries, weighted by its probability, as in the docs."""
    torch.manual_seed(5)
    attention = foci.build("hard", query_dim=2, key_dim=5).double()
    query, key = 0.3 * torch.randn(1, 2, 2).double(), torch.randn(1, 3, 5).double()
    rewards = torch.randn(3, 3).double()  # of each pair of choices
    seen: dict[tuple[int, int], list[torch.Tensor]] = {}
    for seed in range(400):
        if len(seen) == 9:
            break
        torch.manual_seed(seed)
        weights = attention(query, key).weights
        pair = tuple(weights.argmax()[0].tolist())
        loss = sample.reinforce(
            weights.log_prob, rewards[pair].reshape(1), 0.7, entropy=weights.entropy(), entropy_weight=0.3
        ).loss
        share = weights.log_prob.sum().exp().detach()
        seen[pair] = [share * grad for grad in torch.autograd.grad(loss, list(attention.parameters()))]
    assert len(seen) == 9
    probabilities = torch.softmax(attention.score(query, key) * attention.sharpening, dim=-1)[0]
    reward = (probabilities[0].unsqueeze(1) * probabilities[1] * rewards).sum()
    loss = -reward - 0.3 * torch.special.entr(probabilities).sum()
    for number, wanted in enumerate(torch.autograd.grad(loss, list(attention.parameters()))):
        torch.testing.assert_close(sum(grads[number] for grads in seen.values()), wanted)


def test_a_normalizer_of_ones_own_may_give_the_probabilities_too():
    scores, value = torch.randn(2, 3, 5, requires_grad=True), torch.randn(2, 5, 7)

    def own(scores, mask):
        return sample.Drawn(sample.hard(scores, mask), None, normalize.softmax(scores, mask))

    weights = foci.attend(scores, torch.eye(5).expand(2, 5, 5), value, score="dot", normalize=own).weights
    torch.testing.assert_close(weights.entropy(), torch.special.entr(scores.softmax(-1)).sum(-1))
