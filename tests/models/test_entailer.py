"""The entailers against their equations written as loops; padding, empty sentences, and every option."""

import math

import pytest
import torch
from torch import nn

import foci
from foci.errors import ShapeError, UnknownNameError
from foci.models.decomposable import DecomposableEntailer
from foci.models.entailer import ConditionalEntailer
from foci.models.options.words import ConditionalEntailerOptions, DecomposableEntailerOptions
from foci.models.word_inputs import WordInputs, occurs

VOCABULARY, TRAINED, LABELS = 23, 17, 3
PREMISE = torch.tensor([[4, 20, 7, 2, 11], [3, 5, 0, 0, 0]])
HYPOTHESIS = torch.tensor([[7, 2, 19], [5, 0, 0]])
LENGTHS = [(5, 3), (2, 1)]

ATTENTIONS = ("none", "attention", "word_by_word", "two_way")
CONDITIONAL = [{"attention": attention} for attention in ATTENTIONS]
DECOMPOSABLE = [
    {},
    {"null": False},
    {"difference": True, "product": True, "exact_match": True},
    {"encoder": "lstm", "pooling": "mean_max", "exact_match": True},
    {"encoder": "gru", "null": False},
]


def conditional(**options):
    torch.manual_seed(0)
    return ConditionalEntailer(
        VOCABULARY, TRAINED, 0, LABELS, ConditionalEntailerOptions(embedding_dim=5, hidden_dim=7, **options)
    ).eval()


def decomposable(**options):
    torch.manual_seed(0)
    return DecomposableEntailer(
        VOCABULARY, TRAINED, 0, LABELS, DecomposableEntailerOptions(embedding_dim=5, hidden_dim=8, **options)
    ).eval()


def lstm_steps(lstm, inputs, hidden, cell):
    """An LSTM in loops: its outputs and its last cell."""
    outputs = []
    for x in inputs:
        gates = lstm.weight_ih_l0 @ x + lstm.bias_ih_l0 + lstm.weight_hh_l0 @ hidden + lstm.bias_hh_l0
        i, f, g, o = gates.chunk(4)
        cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * cell.tanh()
        outputs.append(hidden)
    return outputs, cell


def encoded(model, row):
    """Both sentences of a row by the equations: annotations of the premise, states of the hypothesis."""
    long, short = LENGTHS[row]
    premise, hypothesis = PREMISE[row : row + 1, :long], HYPOTHESIS[row : row + 1, :short]
    x, y = model.inputs(premise, hypothesis)[0], model.inputs(hypothesis, premise)[0]
    zeros = torch.zeros(7)
    left, cell = lstm_steps(model.premise_encoder.layers, x, zeros, zeros)
    right, _ = lstm_steps(model.hypothesis_encoder.layers, y, zeros, cell)
    return left, right


def test_conditional_encoding_by_the_equations():
    model = conditional(attention="none")
    found = model(PREMISE, HYPOTHESIS)
    assert found.attentions == {}
    for row in range(2):
        _, right = encoded(model, row)
        torch.testing.assert_close(found.logits[row], model.output(right[-1]))


def test_attention_by_the_equations():
    model = conditional(attention="attention")
    found = model(PREMISE, HYPOTHESIS)
    score = model.match.score.score
    for row, (long, _) in enumerate(LENGTHS):
        left, right = encoded(model, row)
        scores = []
        for y in left:
            hidden = score.query_layer.weight @ right[-1] + score.key_layer.weight @ y
            scores.append((score.vector @ hidden.tanh()).item())
        total = sum(math.exp(one) for one in scores)
        weights = [math.exp(one) / total for one in scores]
        read = sum(weight * y for weight, y in zip(weights, left))
        pair = torch.tanh(model.match.from_premise.weight @ read + model.match.from_hypothesis.weight @ right[-1])
        torch.testing.assert_close(found.logits[row], model.output(pair))
        dense = found.attentions["premise"].dense()[row, 0]
        torch.testing.assert_close(dense[:long], torch.tensor(weights))
        assert not dense[long:].any()


def test_two_way_is_word_by_word_in_both_directions_with_one_set_of_weights():
    model = conditional(attention="two_way")
    found = model(PREMISE, HYPOTHESIS)
    for row in range(2):
        left, right = encoded(model, row)
        forward = model.match(torch.stack(left).unsqueeze(0), torch.stack(right).unsqueeze(0)).output
        # The other direction reads the hypothesis first.
        long, short = LENGTHS[row]
        premise, hypothesis = PREMISE[row : row + 1, :long], HYPOTHESIS[row : row + 1, :short]
        x, y = model.inputs(premise, hypothesis)[0], model.inputs(hypothesis, premise)[0]
        zeros = torch.zeros(7)
        first, cell = lstm_steps(model.premise_encoder.layers, y, zeros, zeros)
        second, _ = lstm_steps(model.hypothesis_encoder.layers, x, zeros, cell)
        backward = model.match(torch.stack(first).unsqueeze(0), torch.stack(second).unsqueeze(0)).output
        torch.testing.assert_close(found.logits[row], model.output(torch.cat([forward, backward], dim=-1))[0])
    assert found.attentions["premise"].shape == (2, 3, 5)
    assert found.attentions["hypothesis"].shape == (2, 5, 3)
    assert isinstance(model.match, type(foci.build("word_by_word", model_dim=7)))


@pytest.mark.parametrize("features", [{}, {"difference": True, "product": True, "exact_match": True}])
def test_decomposable_attention_by_the_equations(features):
    model = decomposable(**features)
    found = model(PREMISE, HYPOTHESIS)
    for row, (long, short) in enumerate(LENGTHS):
        words, others = PREMISE[row, :long].tolist(), HYPOTHESIS[row, :short].tolist()
        premise, hypothesis = PREMISE[row : row + 1, :long], HYPOTHESIS[row : row + 1, :short]
        a = [model.null, *model.inputs(premise, hypothesis)[0]]
        b = [model.null, *model.inputs(hypothesis, premise)[0]]
        matched = [[0.0, *(float(word in others) for word in words)], [0.0, *(float(word in words) for word in others)]]
        e = [[(model.attend(x) @ model.attend(y)).item() for y in b] for x in a]

        def aligned(scores, values):
            total = sum(math.exp(one) for one in scores)
            return sum(math.exp(one) / total * value for one, value in zip(scores, values))

        def compared(cells, reads, flags):
            total = torch.zeros(8)
            for cell, read, flag in zip(cells, reads, flags):
                parts = [cell, read]
                if features:
                    parts += [(cell - read).abs(), cell * read, torch.tensor([flag])]
                total = total + model.compare(torch.cat(parts))
            return total

        beta = [aligned(scores, b) for scores in e]
        alpha = [aligned([scores[j] for scores in e], a) for j in range(len(b))]
        pair = torch.cat([compared(a, beta, matched[0]), compared(b, alpha, matched[1])])
        torch.testing.assert_close(found.logits[row], model.output(model.aggregate(pair)))


@pytest.mark.parametrize("options", CONDITIONAL, ids=str)
def test_padding_changes_nothing_in_conditional_encoding(options):
    same_alone(conditional(exact_match=True, **options))


@pytest.mark.parametrize("options", DECOMPOSABLE, ids=str)
def test_padding_changes_nothing_in_decomposable_attention(options):
    same_alone(decomposable(**options))


def same_alone(model):
    together = model(PREMISE, HYPOTHESIS)
    for row, (long, short) in enumerate(LENGTHS):
        alone = model(PREMISE[row : row + 1, :long], HYPOTHESIS[row : row + 1, :short])
        torch.testing.assert_close(together.logits[row], alone.logits[0])
        for name, weights in alone.attentions.items():
            rows, columns = weights.shape[1:]
            dense = together.attentions[name].dense()[row]
            torch.testing.assert_close(dense[:rows, :columns], weights.dense()[0])
            torch.testing.assert_close(dense[:rows].sum(-1), torch.ones(rows))
            assert not dense[:, columns:].any()


@pytest.mark.parametrize("model", [*map(str, ATTENTIONS), "decomposable"])
def test_empty_sentences_give_finite_scores_and_gradients(model):
    entailer = (decomposable() if model == "decomposable" else conditional(attention=model)).train()
    empty = torch.zeros_like(PREMISE)
    for premise, hypothesis in ((empty, HYPOTHESIS), (PREMISE, torch.zeros_like(HYPOTHESIS))):
        entailer.zero_grad()
        logits = entailer(premise, hypothesis).logits
        assert logits.isfinite().all()
        logits.sum().backward()
        assert all(one.grad is None or one.grad.isfinite().all() for one in entailer.parameters())


def test_every_model_overfits_a_batch():
    labels = torch.tensor([0, 2])
    for model in (conditional(attention="two_way"), conditional(attention="attention"), decomposable(product=True)):
        optimizer = torch.optim.Adam(model.train().parameters(), lr=0.02)
        for _ in range(40):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(PREMISE, HYPOTHESIS).logits, labels)
            loss.backward()
            optimizer.step()
        assert float(loss) < 0.1, type(model)


def test_exact_match_needs_the_same_word_not_the_same_vector():
    found = occurs(torch.tensor([[4, 20, 21, 0]]), torch.tensor([[21, 4, 0]]))
    assert found.tolist() == [[True, False, True, False]]
    # 20 and 21 are unknown words: they share a learned vector, but only one of them matches.
    inputs = WordInputs(
        VOCABULARY, TRAINED, 0, DecomposableEntailerOptions(hidden_dim=5, embedding_dim=3, exact_match=True)
    )
    first, second = inputs(torch.tensor([[20, 21]]), torch.tensor([[21]]))[0]
    torch.testing.assert_close(second - first, inputs.project.weight[:, -1])


def test_given_vectors_are_not_trained_and_dropped_words_are_unknown():
    inputs = WordInputs(
        VOCABULARY, TRAINED, 2, DecomposableEntailerOptions(hidden_dim=5, embedding_dim=3, word_dropout=0.5)
    )
    assert not inputs.vectors.weight.requires_grad
    words = torch.full((1, 200), 4)
    torch.manual_seed(1)
    trained = inputs(words, words)
    kept, unknown = inputs.eval()(words, words)[0, 0], inputs(torch.full((1, 1), 22), words)[0, 0]
    close = [[torch.allclose(row, one) for row in trained[0]] for one in (kept, unknown)]
    assert sum(close[0]) + sum(close[1]) == 200
    assert 60 < sum(close[0]) < 140


def test_unknown_names_and_wrong_shapes():
    with pytest.raises(UnknownNameError, match="two_way"):
        conditional(attention="two-way")
    with pytest.raises(UnknownNameError, match="lstm"):
        decomposable(encoder="lsm")
    with pytest.raises(UnknownNameError, match="mean_max"):
        decomposable(pooling="mean")
    with pytest.raises(ShapeError, match=r"words has shape \(5,\)"):
        conditional()(PREMISE[0], HYPOTHESIS)
    with pytest.raises(ShapeError, match="others has shape"):
        decomposable()(PREMISE, HYPOTHESIS[:1])
