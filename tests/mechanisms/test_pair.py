"""Attention over attention and word-by-word attention, against their papers' equations as plain loops."""

import math

import pytest
import torch
from torch import Tensor, nn

from foci import masks
from foci.errors import ConfigError, ShapeError
from foci.functional.pointer import sum_occurrences
from foci.mechanisms.pair import AttentionOverAttention, WordByWord

B, S, R, D, K = 5, 7, 3, 2, 11
LEFT_LENGTHS = [7, 2, 0, 4, 0]
RIGHT_LENGTHS = [3, 1, 2, 0, 0]

Vector = list[float]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    left, right = torch.randn(B, S, D, dtype=dtype), torch.randn(B, R, D, dtype=dtype)
    return left, right, masks.lengths(LEFT_LENGTHS, S), masks.lengths(RIGHT_LENGTHS, R)


@pytest.fixture(params=[AttentionOverAttention, WordByWord])
def mechanism(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(1)
    return request.param(D)


def dot(a: Vector, b: Vector) -> float:
    return sum(x * y for x, y in zip(a, b))


def softmax(scores: Vector) -> Vector:
    total = sum(math.exp(score) for score in scores)
    return [math.exp(score) / total for score in scores]


def times(linear: nn.Linear, vector: Vector) -> Vector:
    return [dot(row, vector) for row in linear.weight.tolist()]


def tanh(*vectors: Vector) -> Vector:
    return [math.tanh(sum(entries)) for entries in zip(*vectors)]


def close(actual: Tensor, expected: list[float] | list[Vector]) -> None:
    torch.testing.assert_close(actual, torch.tensor(expected, dtype=actual.dtype))


def test_attention_over_attention_is_the_paper() -> None:
    left, right, *_ = inputs(torch.float64)
    matched = AttentionOverAttention(D)(left, right)
    assert matched.output.shape == (B, D)
    assert matched.weights.shape == (B, R, S)
    assert matched.left is not None
    assert matched.left.shape == (B, S)
    assert matched.right is not None
    assert matched.right.shape == (B, R)
    assert matched.reverse is not None
    for b in range(B):
        document, query = left[b].tolist(), right[b].tolist()
        M = [[dot(d, q) for q in query] for d in document]  # eq. 5
        alpha = [softmax([M[i][j] for i in range(S)]) for j in range(R)]  # eq. 6
        of_each = [softmax(M[i]) for i in range(S)]  # eq. 8
        beta = [sum(of_each[i][j] for i in range(S)) / S for j in range(R)]  # eq. 9
        s = [sum(alpha[j][i] * beta[j] for j in range(R)) for i in range(S)]  # eq. 10
        close(matched.weights.dense()[b], alpha)
        close(matched.reverse.dense()[b], of_each)
        close(matched.right.dense()[b], beta)
        close(matched.left.dense()[b], s)
        close(matched.output[b], [sum(s[i] * document[i][d] for i in range(S)) for d in range(D)])


def test_attention_over_attention_averages_over_real_words_only() -> None:
    left, right, left_mask, right_mask = inputs()
    matched = AttentionOverAttention()(left, right, left_mask, right_mask)
    whole = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0])  # neither side is empty in the first two rows only
    for shares, mask in ((matched.left, left_mask), (matched.right, right_mask)):
        torch.testing.assert_close(shares.dense().sum(-1), whole)
        assert torch.equal(shares.dense() > 0, mask & (whole > 0).unsqueeze(-1))


def test_word_by_word_is_the_paper() -> None:
    match = WordByWord(D).double()
    left, right, left_mask, right_mask = inputs(torch.float64)
    matched = match(left, right, left_mask, right_mask)
    assert matched.output.shape == (B, D)
    assert matched.weights.shape == (B, R, S)
    assert matched.left is matched.right is None
    w = match.vector.tolist()
    for b in (0, 1):
        Y, H = left[b, : LEFT_LENGTHS[b]].tolist(), right[b, : RIGHT_LENGTHS[b]].tolist()
        r, rows = [0.0] * D, []
        for h in H:
            asked = [times(match.score_right, h), times(match.score_memory, r)]
            alpha = softmax([dot(w, tanh(times(match.score_left, y), *asked)) for y in Y])  # eqs. 11, 12
            read = [sum(a * y[d] for a, y in zip(alpha, Y)) for d in range(D)]
            r = [x + kept for x, kept in zip(read, tanh(times(match.carry, r)))]  # eq. 13
            rows.append(alpha + [0.0] * (S - len(Y)))
        rows += [[0.0] * S] * (R - len(H))
        close(matched.weights.dense()[b], rows)
        close(matched.output[b], tanh(times(match.from_memory, r), times(match.from_right, H[-1])))  # eq. 14


def test_word_by_word_skips_padding_wherever_it_stands() -> None:
    match = WordByWord(D)
    left, right = torch.randn(1, S, D), torch.randn(1, 5, D)
    real = torch.tensor([[False, True, False, True, False]])
    matched, alone = match(left, right, right_mask=real), match(left, right[:, [1, 3]])
    torch.testing.assert_close(matched.output, alone.output)
    torch.testing.assert_close(matched.weights.dense()[:, [1, 3]], alone.weights.dense())
    assert torch.equal(matched.weights.dense()[:, [0, 2, 4]], torch.zeros(1, 3, S))


def test_alone_is_padded_in_a_batch(mechanism: nn.Module) -> None:
    left, right, left_mask, right_mask = inputs()
    matched = mechanism(left, right, left_mask, right_mask)
    for b in (0, 1):
        s, r = LEFT_LENGTHS[b], RIGHT_LENGTHS[b]
        alone = mechanism(left[b : b + 1, :s], right[b : b + 1, :r])
        torch.testing.assert_close(matched.output[b], alone.output[0])
        torch.testing.assert_close(matched.weights.dense()[b, :r, :s], alone.weights.dense()[0])
        if alone.left is not None:
            torch.testing.assert_close(matched.left.dense()[b, :s], alone.left.dense()[0])
            torch.testing.assert_close(matched.right.dense()[b, :r], alone.right.dense()[0])


def test_what_padding_holds_does_not_matter(mechanism: nn.Module) -> None:
    left, right, left_mask, right_mask = inputs()
    matched = mechanism(left, right, left_mask, right_mask)
    assert not matched.weights.dense()[~(right_mask.unsqueeze(2) & left_mask.unsqueeze(1))].any()
    torch.testing.assert_close(matched.weights.dense().sum(-1), (right_mask & left_mask.any(-1, keepdim=True)).float())
    left = torch.where(left_mask.unsqueeze(-1), left, 1e4)
    right = torch.where(right_mask.unsqueeze(-1), right, -1e4)
    again = mechanism(left, right, left_mask, right_mask)
    assert torch.equal(again.output, matched.output)
    assert torch.equal(again.weights.dense(), matched.weights.dense())


def test_an_empty_side_gives_zeros_and_finite_gradients(mechanism: nn.Module) -> None:
    left, right, left_mask, right_mask = inputs()
    left.requires_grad_()
    right.requires_grad_()
    matched = mechanism(left, right, left_mask, right_mask)
    assert matched.output[:2].all()
    assert torch.equal(matched.output[2:], torch.zeros(3, D))
    assert torch.equal(matched.weights.dense()[2:], torch.zeros(3, R, S))
    (matched.output.square().sum() + matched.weights.dense().square().sum()).backward()
    for tensor in (left, right, *mechanism.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


@pytest.mark.parametrize(("batch", "s", "r"), [(0, S, R), (B, 0, R), (B, S, 0), (B, 0, 0)])
def test_axes_of_size_zero(mechanism: nn.Module, batch: int, s: int, r: int) -> None:
    matched = mechanism(torch.ones(batch, s, D), torch.ones(batch, r, D))
    assert torch.equal(matched.output, torch.zeros(batch, D))
    assert matched.weights.dense().shape == (batch, r, s)


def test_permuting_the_left_permutes_its_weights(mechanism: nn.Module) -> None:
    left, right, left_mask, right_mask = inputs()
    order = torch.randperm(S)
    matched = mechanism(left, right, left_mask, right_mask)
    moved = mechanism(left[:, order], right, left_mask[:, order], right_mask)
    torch.testing.assert_close(moved.weights.dense(), matched.weights.dense()[..., order])
    torch.testing.assert_close(moved.output, matched.output)


def test_gradcheck(mechanism: nn.Module) -> None:
    left, right = torch.randn(3, 4, D, dtype=torch.float64), torch.randn(3, 3, D, dtype=torch.float64)
    left_mask, right_mask = masks.lengths([4, 2, 0], 4), masks.lengths([2, 3, 3], 3)
    parameters = {name: p.detach().double().requires_grad_() for name, p in mechanism.named_parameters()}

    def call(left: Tensor, right: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        arguments = (left, right, left_mask, right_mask)
        matched = torch.func.functional_call(mechanism, dict(zip(parameters, values)), arguments)
        sides = [side.dense() for side in (matched.left, matched.right) if side is not None]
        return matched.output, matched.weights.dense(), *sides

    assert torch.autograd.gradcheck(call, (left.requires_grad_(), right.requires_grad_(), *parameters.values()))


def test_bf16_and_autocast(mechanism: nn.Module) -> None:
    left, right, left_mask, right_mask = inputs()
    expected = mechanism(left, right, left_mask, right_mask).output
    with torch.autocast("cpu", torch.bfloat16):
        cast = mechanism(left, right, left_mask, right_mask)
    torch.testing.assert_close(cast.output.float(), expected, atol=0.05, rtol=0.05)
    half = mechanism.to(torch.bfloat16)(left.bfloat16(), right.bfloat16(), left_mask, right_mask)
    assert half.output.dtype == half.weights.dense().dtype == torch.bfloat16
    torch.testing.assert_close(half.output.float(), expected, atol=0.05, rtol=0.05)


def test_sum_occurrences_by_counting() -> None:
    weights = torch.rand(B, S, dtype=torch.float64, requires_grad=True)
    tokens, candidates = torch.randint(0, 4, (B, S)), torch.randint(-1, 6, (B, K))
    assert (candidates == -1).any()
    tokens[:, -1] = -1  # padding in the document is not an occurrence of a padded candidate
    summed = sum_occurrences(weights, tokens, candidates)
    for b in range(B):
        for k in range(K):
            wanted = int(candidates[b, k])
            places = [i for i in range(S) if wanted >= 0 and int(tokens[b, i]) == wanted]
            torch.testing.assert_close(summed[b, k], weights[b, places].sum())
    assert torch.autograd.gradcheck(lambda w: sum_occurrences(w, tokens, candidates), (weights,))
    assert sum_occurrences(weights, tokens, candidates[:, :0]).shape == (B, 0)
    assert torch.equal(sum_occurrences(weights[:, :0], tokens[:, :0], candidates), torch.zeros(B, K).double())


def test_every_token_as_candidate_sums_to_the_whole() -> None:
    left, right, left_mask, right_mask = inputs()
    matched = AttentionOverAttention()(left, right, left_mask, right_mask)
    shares, tokens = matched.left.dense(), torch.randint(0, 4, (B, S))
    answers = sum_occurrences(shares, tokens, torch.arange(4).expand(B, 4))
    torch.testing.assert_close(answers.sum(-1), shares.sum(-1))


def test_wrong_pointers_are_named() -> None:
    weights, tokens = torch.rand(B, S), torch.zeros(B, S, dtype=torch.long)
    with pytest.raises(ShapeError, match=r"sum_occurrences: weights has shape \(7,\)"):
        sum_occurrences(weights[0], tokens, tokens)
    with pytest.raises(ShapeError, match=r"tokens has shape \(5, 3\), expected \(5, 7\) to fit .* \(5, 7\)"):
        sum_occurrences(weights, tokens[:, :3], tokens)
    with pytest.raises(ShapeError, match=r"candidates has shape \(4, 7\), expected \(5, candidate\)"):
        sum_occurrences(weights, tokens, tokens[:4])
    with pytest.raises(ShapeError, match=r"candidates is torch\.float32, expected a tensor of whole numbers"):
        sum_occurrences(weights, tokens, tokens.float())
    with pytest.raises(ShapeError, match="tokens is list, expected a tensor of whole numbers"):
        sum_occurrences(weights, tokens.tolist(), tokens)


def test_wrong_shapes_are_named(mechanism: nn.Module) -> None:
    left, right, left_mask, right_mask = inputs()
    name = type(mechanism).__name__
    with pytest.raises(ShapeError, match=rf"{name}: left has shape \(5, 7, 11\), expected \(batch, position, 2\)"):
        mechanism(torch.zeros(B, S, K), right)
    with pytest.raises(ShapeError, match=rf"{name}: left has shape \(7, 2\)"):
        mechanism(left[0], right)
    with pytest.raises(ShapeError, match=rf"{name}: right has shape \(4, 3, 2\), expected \(5, position, 2\)"):
        mechanism(left, right[:4])
    with pytest.raises(ShapeError, match=rf"{name}: right has shape \(5, 3, 11\), .*project one of them"):
        mechanism(left, torch.zeros(B, R, K))
    with pytest.raises(ShapeError, match=rf"{name}: right has dtype torch\.float64, but left has torch\.float32"):
        mechanism(left, right.double())
    with pytest.raises(ShapeError, match=rf"{name}: left_mask has shape \(5, 3\), expected .* = \(5, 7\)"):
        mechanism(left, right, right_mask)
    with pytest.raises(ShapeError, match=rf"{name}: right_mask has shape \(5, 7\), expected .* = \(5, 3\)"):
        mechanism(left, right, left_mask, left_mask)
    with pytest.raises(ShapeError, match=rf"{name}: right_mask has dtype torch\.int64"):
        mechanism(left, right, left_mask, right_mask.long())


def test_sizes_are_checked_when_built() -> None:
    with pytest.raises(ConfigError, match="WordByWord: model_dim is 0"):
        WordByWord(0)
    assert AttentionOverAttention()(torch.ones(1, 2, 3), torch.ones(1, 2, 3)).output.shape == (1, 3)
    assert not list(AttentionOverAttention().parameters())


def test_state_dict_round_trip() -> None:
    left, right, *_ = inputs()
    first, second = WordByWord(D), WordByWord(D)
    assert not torch.equal(first(left, right).output, second(left, right).output)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(left, right).output, second(left, right).output)


@pytest.mark.slow
def test_compiles_to_one_graph_with_the_same_values_and_gradients(mechanism: nn.Module) -> None:
    left, right, left_mask, right_mask = inputs()
    results, gradients = [], []
    # tests/contract/test_compiled_lengths.py compares the gradients of WordByWord by inductor.
    backend = "inductor" if isinstance(mechanism, AttentionOverAttention) else "aot_eager"
    for call in (mechanism, torch.compile(mechanism, fullgraph=True, backend=backend)):
        leaves = [left.clone().requires_grad_(), right.clone().requires_grad_()]
        results.append(call(*leaves, left_mask, right_mask))
        (results[-1].output.square().sum() + results[-1].weights.dense().square().sum()).backward()
        gradients.append([leaf.grad for leaf in leaves])
    plain, compiled = results
    torch.testing.assert_close(compiled.output, plain.output)
    torch.testing.assert_close(compiled.weights.dense(), plain.weights.dense())
    torch.testing.assert_close(*gradients)
    if plain.left is not None:
        torch.testing.assert_close(compiled.left.dense(), plain.left.dense())
        torch.testing.assert_close(compiled.right.dense(), plain.right.dense())


@pytest.mark.slow
def test_attention_over_attention_exports_with_any_batch_and_lengths() -> None:
    left, right, left_mask, right_mask = inputs()
    batch, s, r = torch.export.Dim("batch"), torch.export.Dim("left"), torch.export.Dim("right")
    axes = ({0: batch, 1: s}, {0: batch, 1: r}) * 2
    mechanism = AttentionOverAttention()
    program = torch.export.export(mechanism, (left, right, left_mask, right_mask), dynamic_shapes=axes).module()
    bigger = torch.randn(6, 13, D), torch.randn(6, 4, D), masks.lengths([13, 2, 0] * 2, 13), masks.lengths([4] * 6, 4)
    torch.testing.assert_close(program(*bigger).output, mechanism(*bigger).output)
    torch.testing.assert_close(program(*bigger).left.dense(), mechanism(*bigger).left.dense())


def test_attention_over_attention_keeps_few_matrices_for_its_gradients() -> None:
    """A bench of texts of 4,096 words once ran out of memory: what grows with both lengths must stay small."""
    S, R = 211, 197
    left, right = torch.randn(1, S, 3, requires_grad=True), torch.randn(1, R, 3, requires_grad=True)
    kept = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        AttentionOverAttention()(left, right)
    assert sum(kept.values()) < 4.5 * (4 * S * R)  # both weights, one copy, and masks of a byte each


@pytest.mark.slow
def test_attention_over_attention_of_two_texts_of_4096_words() -> None:
    texts = [torch.randn(1, 4096, 64, requires_grad=True) for _ in range(2)]
    matched = AttentionOverAttention()(*texts)
    matched.output.sum().backward()
    assert matched.left.dense().sum().item() == pytest.approx(1, abs=1e-4)
    assert all(text.grad.isfinite().all() for text in texts)
