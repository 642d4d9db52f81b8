"""Attention pooling of one level and of two, against the paper's equations as plain loops."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

import foci
from foci import masks
from foci.errors import ConfigError, ShapeError
from foci.mechanisms.heads import MultiHeadAttention
from foci.mechanisms.pool import AttentionPool, HierarchicalPool, HierarchicalWeights

B, N, T, D, A, D2 = 3, 5, 7, 2, 11, 13
SENTENCE_LENGTHS = torch.tensor([[7, 0, 2, 1, 0], [3, 6, 5, 2, 4], [0, 0, 0, 0, 0]])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def pool_by_loops(cells: list[list[float]], pool: AttentionPool) -> tuple[list[float], list[float]]:
    """Yang 2016, eqs. 5-7, for one sequence without padding: the pooled vector and the weights."""
    weight, bias, context = (p.tolist() for p in (pool.project.weight, pool.project.bias, pool.context))
    scores = []
    for h in cells:
        u = [math.tanh(sum(w * x for w, x in zip(row, h)) + b) for row, b in zip(weight, bias)]
        scores.append(sum(x * c for x, c in zip(u, context)))
    total = sum(math.exp(score) for score in scores)
    weights = [math.exp(score) / total for score in scores]
    return [sum(a * h[d] for a, h in zip(weights, cells)) for d in range(len(cells[0]))], weights


def document_mask() -> Tensor:
    return masks.lengths(SENTENCE_LENGTHS.flatten(), T).unflatten(0, (B, N))


def finite_gradients(module: nn.Module, *inputs: Tensor) -> bool:
    gradients = [p.grad for p in module.parameters()] + [x.grad for x in inputs]
    return all(g is not None and bool(g.isfinite().all()) for g in gradients)


class Encoder(nn.Module):
    """A replacement of the sentence GRU: mixes a sentence with its right neighbor."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(D, D2)

    def forward(self, sentences: Tensor, valid: Tensor) -> Tensor:
        real = sentences * valid.unsqueeze(-1)
        return torch.tanh(self.project(real + 0.5 * real.roll(-1, dims=1)))


def test_pool_is_the_paper() -> None:
    pool = AttentionPool(D, A).double()
    value = torch.randn(B, T, D, dtype=torch.float64)
    output, weights, state = pool(value)
    assert state is None
    assert output.shape == (B, D)
    assert weights.shape == (B, T)
    for b in range(B):
        expected, expected_weights = pool_by_loops(value[b].tolist(), pool)
        torch.testing.assert_close(output[b], torch.tensor(expected, dtype=torch.float64))
        torch.testing.assert_close(weights.dense()[b], torch.tensor(expected_weights, dtype=torch.float64))


def test_each_query_is_a_pool_of_its_own() -> None:
    """Lin 2017, eqs. 6-7: row by row Yang's equations with another learned vector."""
    pool = AttentionPool(D, A, num_queries=4).double()
    value = torch.randn(B, T, D, dtype=torch.float64)
    lengths = [T, 2, 0]
    output, weights, _ = pool(value, masks.lengths(lengths, T))
    assert output.shape == (B, 4, D)
    assert weights.shape == (B, 4, T)
    alone = AttentionPool(D, A).double()
    for query in range(4):
        alone.load_state_dict({**pool.state_dict(), "context": pool.context[query]})
        for b, length in enumerate(lengths[:2]):
            expected, expected_weights = pool_by_loops(value[b, :length].tolist(), alone)
            torch.testing.assert_close(output[b, query], torch.tensor(expected, dtype=torch.float64))
            expected_weights += [0.0] * (T - length)
            torch.testing.assert_close(weights.dense()[b, query], torch.tensor(expected_weights, dtype=torch.float64))
    assert (output[2] == 0).all()


def test_a_learned_query_of_one_head_is_a_pool_without_the_tanh() -> None:
    """As the module's docstring says of the seeds of the Set Transformer: their projection is the learned vector."""
    seeds, value = torch.randn(1, 4, 6, dtype=torch.float64), torch.randn(B, T, D, dtype=torch.float64)
    head = MultiHeadAttention(6, 1, key_dim=D).double()
    nn.init.normal_(head.key_layer.bias)  # changes all scores of a query alike
    vectors = head.query_layer(seeds[0]) @ head.key_layer.weight / math.sqrt(6)
    pooled = (vectors @ value.mT).softmax(dim=-1)
    torch.testing.assert_close(head(seeds, value).weights.dense()[:, 0], pooled)


def test_edits_reach_the_weights_of_every_query() -> None:
    pool, value = AttentionPool(D, A, num_queries=4), torch.randn(B, T, D)
    with foci.record(pool) as tape:
        read = pool(value)
    assert torch.equal(tape["."].dense(), read.weights.dense())
    with foci.edit(pool) as edits:
        edits.block(".", keys=range(2, T))
        closed = pool(value)
    torch.testing.assert_close(closed.output, pool(value[:, :2]).output)
    assert (closed.weights.dense()[..., 2:] == 0).all()


def test_pool_hidden_size_defaults_to_the_value_size() -> None:
    assert AttentionPool(D).context.shape == (D,)
    assert AttentionPool(D, A).project.weight.shape == (A, D)


def test_pool_masks_alone_is_padded_and_dead_rows_are_zero() -> None:
    pool = AttentionPool(D, A)
    lengths = [T, 2, 0]
    value = torch.randn(B, T, D)
    mask = masks.lengths(lengths, T)
    output, weights, _ = pool(value, mask)
    assert torch.equal(weights.dense() > 0, mask)
    torch.testing.assert_close(weights.dense().sum(-1), torch.tensor([1.0, 1.0, 0.0]))
    for b, length in enumerate(lengths[:2]):
        alone = pool(value[b : b + 1, :length])
        torch.testing.assert_close(output[b], alone.output[0])
        torch.testing.assert_close(weights.dense()[b, :length], alone.weights.dense()[0])
    assert torch.equal(output[2], torch.zeros(D))
    other = torch.where(mask.unsqueeze(-1), value, 1e4)
    assert torch.equal(pool(other, mask).output, output)


def test_pool_mask_may_have_holes() -> None:
    pool = AttentionPool(D, A)
    value = torch.randn(1, T, D)
    mask = torch.tensor([[True, False, True, False, False, True, False]])
    torch.testing.assert_close(pool(value, mask).output, pool(value[mask].unsqueeze(0)).output)


def test_permuting_the_cells_permutes_the_weights() -> None:
    value, mask, order = torch.randn(B, T, D), masks.lengths([7, 2, 0], T), torch.randperm(T)
    for pool in (AttentionPool(D, A), HierarchicalPool(D, A)):
        output, weights, _ = pool(value, mask)
        moved_output, moved_weights, _ = pool(value[:, order], mask[:, order])
        torch.testing.assert_close(moved_weights.dense(), weights.dense()[:, order])
        torch.testing.assert_close(moved_output, output)


def test_permuting_sentences_permutes_their_weights() -> None:
    pool, value, mask, order = (
        HierarchicalPool(D, A),
        torch.randn(B, N, T, D),
        document_mask(),
        torch.randperm(N),
    )
    weights = pool(value, mask).weights
    moved = pool(value[:, order], mask[:, order]).weights
    torch.testing.assert_close(moved.sentences.dense(), weights.sentences.dense()[:, order])
    torch.testing.assert_close(moved.words.dense(), weights.words.dense()[:, order])


@pytest.mark.parametrize("with_encoder", [False, True])
def test_hierarchical_is_the_paper(with_encoder: bool) -> None:
    encoder = Encoder() if with_encoder else None
    pool = HierarchicalPool(D, A, sentence_encoder=encoder, sentence_dim=D2 if with_encoder else None).double()
    value, mask = torch.randn(B, N, T, D, dtype=torch.float64), document_mask()
    output, weights, state = pool(value, mask)
    assert state is None
    assert isinstance(weights, HierarchicalWeights)
    assert output.shape == (B, D2 if with_encoder else D)
    assert weights.shape == (B, N * T)
    assert weights.words.shape == (B, N, T)
    assert weights.sentences.shape == (B, N)
    for b in range(B):
        words = torch.zeros(N, T, dtype=torch.float64)
        sentences = torch.zeros(1, N, D, dtype=torch.float64)
        real = [i for i in range(N) if SENTENCE_LENGTHS[b, i] > 0]
        for i in real:
            length = int(SENTENCE_LENGTHS[b, i])
            vector, shares = pool_by_loops(value[b, i, :length].tolist(), pool.word_pool)
            sentences[0, i] = torch.tensor(vector, dtype=torch.float64)
            words[i, :length] = torch.tensor(shares, dtype=torch.float64)
        if encoder is not None:
            sentences = encoder(sentences, mask[b : b + 1].any(-1)).detach()
        of_sentences, document = torch.zeros(N, dtype=torch.float64), torch.zeros_like(output[b])
        if real:
            vector, shares = pool_by_loops(sentences[0, real].tolist(), pool.sentence_pool)
            of_sentences[real] = torch.tensor(shares, dtype=torch.float64)
            document = torch.tensor(vector, dtype=torch.float64)
        torch.testing.assert_close(weights.words.dense()[b], words)
        torch.testing.assert_close(weights.sentences.dense()[b], of_sentences)
        torch.testing.assert_close(weights.dense()[b], (words * of_sentences.unsqueeze(-1)).flatten())
        torch.testing.assert_close(output[b], document)


def test_hierarchical_weights_sum_to_one_or_zero_at_every_level() -> None:
    weights = HierarchicalPool(D, A)(torch.randn(B, N, T, D), document_mask()).weights
    torch.testing.assert_close(weights.dense().sum(-1), torch.tensor([1.0, 1.0, 0.0]))
    torch.testing.assert_close(weights.words.dense().sum(-1), (SENTENCE_LENGTHS > 0).float())
    torch.testing.assert_close(weights.sentences.dense().sum(-1), torch.tensor([1.0, 1.0, 0.0]))
    assert "words=Weights(shape=(3, 5, 7)" in repr(weights)
    torch.testing.assert_close(weights.topk(1)[0].squeeze(-1), weights.dense().amax(-1))


def test_hierarchical_padding_at_both_levels_changes_nothing() -> None:
    pool = HierarchicalPool(D, A, sentence_encoder=lambda sentences, valid: sentences * 2.0)
    value, mask = torch.randn(B, N, T, D), document_mask()
    output, weights, _ = pool(value, mask)
    other = torch.where(mask.unsqueeze(-1), value, 1e4)
    assert torch.equal(pool(other, mask).output, output)
    # The first document alone, with its sentences 0, 2 and 3 only: no empty sentence, no padding of its own.
    alone = pool(value[:1, [0, 2, 3]], mask[:1, [0, 2, 3]])
    torch.testing.assert_close(output[:1], alone.output)
    torch.testing.assert_close(weights.sentences.dense()[:1, [0, 2, 3]], alone.weights.sentences.dense())
    torch.testing.assert_close(weights.words.dense()[:1, [0, 2, 3]], alone.weights.words.dense())
    shorter = pool(value[1:2, :, :6], mask[1:2, :, :6])
    torch.testing.assert_close(output[1:2], shorter.output)


def test_hierarchical_tells_the_encoder_which_sentences_exist() -> None:
    seen = []

    def encode(sentences: Tensor, valid: Tensor) -> Tensor:
        seen.append((sentences, valid))
        return sentences + 1.0  # so that a sentence that does not exist is not zero either

    pool = HierarchicalPool(D, sentence_encoder=encode)
    output = pool(torch.randn(B, N, T, D), document_mask()).output
    ((sentences, valid),) = seen
    assert torch.equal(valid, SENTENCE_LENGTHS > 0)
    assert torch.equal(sentences[~valid], torch.zeros(int((~valid).sum()), D))
    assert torch.equal(output[2], torch.zeros(D))
    assert not torch.equal(output[0], torch.zeros(D))


def test_three_axes_are_a_document_of_one_sentence() -> None:
    pool, value, mask = HierarchicalPool(D, A), torch.randn(B, T, D), masks.lengths([7, 2, 0], T)
    output, weights, _ = pool(value, mask)
    same = pool(value.unsqueeze(1), mask.unsqueeze(1))
    assert torch.equal(output, same.output)
    assert weights.shape == (B, T)
    assert weights.words.shape == (B, 1, T)
    assert torch.equal(weights.sentences.dense(), torch.tensor([[1.0], [1.0], [0.0]]))
    torch.testing.assert_close(output, pool.word_pool(value, mask).output)


def test_without_a_mask_everything_exists() -> None:
    value = torch.randn(B, N, T, D)
    for pool, cells in ((AttentionPool(D), value[:, 0]), (HierarchicalPool(D), value)):
        everything = torch.ones(cells.shape[:-1], dtype=torch.bool)
        torch.testing.assert_close(pool(cells).output, pool(cells, everything).output)


@pytest.mark.parametrize("shape", [(0, T, D), (B, 0, D), (0, N, T, D), (B, 0, T, D), (B, N, 0, D), (0, 0, 0, D)])
def test_empty_axes_give_zeros(shape: tuple[int, ...]) -> None:
    pools = [HierarchicalPool(D), AttentionPool(D)] if len(shape) == 3 else [HierarchicalPool(D)]
    for pool in pools:
        for mask in (None, torch.ones(shape[:-1], dtype=torch.bool)):
            output, weights, _ = pool(torch.zeros(shape), mask)
            assert torch.equal(output, torch.zeros(shape[0], D))
            assert weights.dense().shape == (shape[0], math.prod(shape[1:-1]))


def test_dead_rows_have_finite_gradients() -> None:
    value = torch.randn(B, N, T, D, requires_grad=True)
    for module, cells, mask in (
        (AttentionPool(D), value[:, 0], document_mask()[:, 0]),
        (AttentionPool(D), value[:, 0], torch.zeros(B, T, dtype=torch.bool)),
        (HierarchicalPool(D, sentence_encoder=Encoder(), sentence_dim=D2), value, document_mask()),
        (HierarchicalPool(D), value, torch.zeros(B, N, T, dtype=torch.bool)),
    ):
        value.grad = None
        output, weights, _ = module(cells, mask)
        (output.square().sum() + weights.dense().square().sum()).backward()
        assert finite_gradients(module, value)


def test_gradcheck() -> None:
    value = torch.randn(2, 3, 5, D, dtype=torch.float64, requires_grad=True)
    mask = masks.lengths([5, 0, 2, 0, 0, 0], 5).unflatten(0, (2, 3))
    pool, hierarchical = AttentionPool(D, 3).double(), HierarchicalPool(D, 3).double()
    for module, arguments in ((pool, (value[:, 0], mask[:, 0])), (hierarchical, (value, mask))):
        parameters = dict(module.named_parameters())

        def call(cells: Tensor, *values: Tensor, module=module, mask=arguments[1], names=tuple(parameters)):
            result = torch.func.functional_call(module, dict(zip(names, values)), (cells, mask))
            return result.output, result.weights.dense()

        cells = arguments[0].detach().requires_grad_()
        assert torch.autograd.gradcheck(call, (cells, *parameters.values()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_dtypes(dtype: torch.dtype) -> None:
    value, mask = torch.randn(B, N, T, D), document_mask()
    for pool, arguments in (
        (AttentionPool(D, A), (value[:, 0], mask[:, 0])),
        (HierarchicalPool(D, A), (value, mask)),
    ):
        expected = pool(*arguments).output
        output, weights, _ = pool.to(dtype)(arguments[0].to(dtype), arguments[1])
        assert output.dtype == weights.dense().dtype == dtype
        torch.testing.assert_close(output.float(), expected, atol=0.05, rtol=0.05)


def test_autocast() -> None:
    value, mask = torch.randn(B, N, T, D), document_mask()
    pool = HierarchicalPool(D, A)
    with torch.autocast("cpu", torch.bfloat16):
        output = pool(value, mask).output
    torch.testing.assert_close(output.float(), pool(value, mask).output, atol=0.05, rtol=0.05)


def test_state_dict_round_trip_and_nothing_kept_on_self() -> None:
    value, mask = torch.randn(B, N, T, D), document_mask()
    first, second = HierarchicalPool(D, A), HierarchicalPool(D, A)
    before = set(vars(first)), set(vars(first.word_pool))
    assert not torch.equal(first(value, mask).output, second(value, mask).output)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(value, mask).output, second(value, mask).output)
    assert (set(vars(first)), set(vars(first.word_pool))) == before


def test_wrong_shapes_are_named() -> None:
    pool, value = AttentionPool(D), torch.zeros(B, T, D)
    with pytest.raises(
        ShapeError, match=r"AttentionPool: value has shape \(3, 7, 11\), expected \(batch, position, 2\)"
    ):
        pool(torch.zeros(B, T, A))
    with pytest.raises(ShapeError, match=r"AttentionPool: value has shape \(7, 2\)"):
        pool(value[0])
    with pytest.raises(
        ShapeError, match=r"AttentionPool: mask has shape \(3, 5\), expected .* = \(3, 7\).*masks.lengths"
    ):
        pool(value, torch.ones(B, N, dtype=torch.bool))
    with pytest.raises(ShapeError, match=r"AttentionPool: mask has dtype torch\.float32"):
        pool(value, torch.ones(B, T))
    with pytest.raises(ConfigError, match="AttentionPool: hidden_dim is 0"):
        AttentionPool(D, 0)


def test_wrong_documents_are_named() -> None:
    pool, value = HierarchicalPool(D), torch.zeros(B, N, T, D)
    with pytest.raises(ShapeError, match=r"HierarchicalPool: value has shape \(3, 5, 7, 11\), expected .*word, 2\)"):
        pool(torch.zeros(B, N, T, A))
    with pytest.raises(
        ShapeError, match=r"HierarchicalPool: value has shape \(3, 7, 11\), expected \(batch, word, 2\)"
    ):
        pool(torch.zeros(B, T, A))
    with pytest.raises(ShapeError, match=r"value has shape \(7, 2\), .* one sentence may be \(batch, word, 2\)"):
        pool(value[0, 0])
    with pytest.raises(ShapeError, match=r"mask has shape \(3, 5\), expected .* = \(3, 5, 7\).*masks.lengths"):
        pool(value, torch.ones(B, N, dtype=torch.bool))
    with pytest.raises(ShapeError, match=r"HierarchicalPool: mask has shape \(3, 5\), expected .* = \(3, 7\)"):
        pool(value[:, 0], torch.ones(B, N, dtype=torch.bool))
    with pytest.raises(ShapeError, match=r"HierarchicalPool: mask has dtype torch\.int64"):
        pool(value, torch.ones(B, N, T, dtype=torch.long))
    with pytest.raises(ConfigError, match=r"sentence_dim is 13, .* 2 of their words"):
        HierarchicalPool(D, sentence_dim=D2)
    forgot_the_size = HierarchicalPool(D, sentence_encoder=Encoder())
    with pytest.raises(
        ShapeError, match=r"sentence_encoder gave has shape \(3, 5, 13\), expected \(3, 5, 2\).*sentence_dim"
    ):
        forgot_the_size(value)


@pytest.mark.slow
def test_compiles_to_one_graph_with_the_same_values_and_gradients() -> None:
    value, mask = torch.randn(B, N, T, D), document_mask()
    # Inductor compiles the smaller one, which is all that the larger one consists of.
    for pool, backend, cells, valid in (
        (AttentionPool(D, A), "inductor", value[:, 0], mask[:, 0]),
        (HierarchicalPool(D, A, sentence_encoder=Encoder(), sentence_dim=D2), "aot_eager", value, mask),
    ):
        gradients = []
        results = []
        for call in (pool, torch.compile(pool, fullgraph=True, backend=backend)):
            leaf = cells.detach().clone().requires_grad_()
            results.append(call(leaf, valid))
            (results[-1].output.square().sum() + results[-1].weights.dense().square().sum()).backward()
            gradients.append(leaf.grad)
        plain, compiled = results
        assert type(compiled.weights) is type(plain.weights)
        torch.testing.assert_close(compiled.output, plain.output)
        torch.testing.assert_close(compiled.weights.dense(), plain.weights.dense())
        torch.testing.assert_close(*gradients)
        if isinstance(plain.weights, HierarchicalWeights):
            torch.testing.assert_close(compiled.weights.words.dense(), plain.weights.words.dense())
            torch.testing.assert_close(compiled.weights.sentences.dense(), plain.weights.sentences.dense())


@pytest.mark.slow
def test_exports_with_any_batch_and_lengths() -> None:
    value, mask = torch.randn(B, N, T, D), document_mask()
    batch, sentence, word = Dim("batch"), Dim("sentence"), Dim("word")
    flat, nested = {0: batch, 1: word}, {0: batch, 1: sentence, 2: word}
    bigger, bigger_mask = torch.randn(4, 6, 9, D), masks.lengths([9, 0, 1] * 8, 9).unflatten(0, (4, 6))
    bigger_mask[3] = False
    for pool, first, second, axes in (
        (AttentionPool(D, A), (value[0], mask[0]), (bigger[0], bigger_mask[0]), flat),
        (HierarchicalPool(D, A), (value, mask), (bigger, bigger_mask), nested),
    ):
        program = torch.export.export(pool, first, dynamic_shapes=(axes, axes)).module()
        for arguments in (first, second):
            expected, result = pool(*arguments), program(*arguments)
            torch.testing.assert_close(result.output, expected.output)
            torch.testing.assert_close(result.weights.dense(), expected.weights.dense())
            assert type(result.weights) is type(expected.weights)
            if isinstance(expected.weights, HierarchicalWeights):
                torch.testing.assert_close(result.weights.words.dense(), expected.weights.words.dense())
