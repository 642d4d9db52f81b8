"""The hierarchical attention network against its equations in plain loops; padding, empty input, gradients, errors."""

import math

import pytest
import torch
from torch import nn

from foci.errors import ConfigError, ShapeError, UnknownNameError
from foci.models.hierarchical import HierarchicalClassifier
from foci.models.options.words import HIERARCHICAL_PRESETS, HierarchicalClassifierOptions

VOCABULARY, CLASSES = 23, 3
DOCUMENTS = [[[5, 7, 11], [13], [2, 3]], [[17, 19]]]
POOLINGS = ("hierarchical", "attention", "mean", "last")


def make_model(pooling="hierarchical", **options):
    torch.manual_seed(1)
    options = {"embedding_dim": 5, "hidden_dim": 6, "attention_dim": 7, "pooling": pooling, **options}
    model = HierarchicalClassifier(VOCABULARY, CLASSES, HierarchicalClassifierOptions(**options)).double().eval()
    for parameter in model.parameters():  # large enough for every part to matter
        nn.init.normal_(parameter, std=0.7)
    with torch.no_grad():
        model.embedding.weight[0] = 0.0
    return model


def padded(documents, words=None, sentences=None, filler=0):
    """Word ids and sizes of sentences, padded to the given widths."""
    width = words or max(sum(map(len, document)) for document in documents)
    count = sentences or max(map(len, documents))
    rows = [[word for sentence in document for word in sentence] for document in documents]
    ids = torch.tensor([row + [filler] * (width - len(row)) for row in rows])
    sizes = torch.tensor([[len(s) for s in document] + [0] * (count - len(document)) for document in documents])
    return ids, sizes


def gru_one_way(inputs, weights):
    """torch's GRU: r, z, n from W x + b and U h + c; h = (1 − z) n + z h."""
    w, u, b, c = weights
    size = u.shape[1]
    hidden, outputs = torch.zeros(size, dtype=torch.float64), []
    for x in inputs:
        wx, uh = w @ x + b, u @ hidden + c
        r, z = (torch.sigmoid(wx[i * size : (i + 1) * size] + uh[i * size : (i + 1) * size]) for i in (0, 1))
        n = torch.tanh(wx[2 * size :] + r * uh[2 * size :])
        hidden = (1 - z) * n + z * hidden
        outputs.append(hidden)
    return outputs


def gru(inputs, encoder):
    layer = encoder.recurrence.layers
    forward = gru_one_way(
        inputs, [getattr(layer, f"{name}_l0") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
    )
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    backward = gru_one_way(inputs[::-1], [getattr(layer, f"{name}_l0_reverse") for name in names])[::-1]
    return [torch.cat(pair) for pair in zip(forward, backward)], torch.cat([forward[-1], backward[0]])


def pool(vectors, module):
    scores = [float(module.context @ torch.tanh(module.project.weight @ h + module.project.bias)) for h in vectors]
    total = sum(math.exp(score) for score in scores)
    weights = [math.exp(score) / total for score in scores]
    return sum(weight * h for weight, h in zip(weights, vectors)), weights


@torch.no_grad()
def test_the_equations_of_the_paper():
    model = make_model()
    logits, attentions = model(*padded(DOCUMENTS))
    for row, document in enumerate(DOCUMENTS):
        vectors, in_sentence = [], []
        for sentence in document:
            vector, weights = pool(
                gru([model.embedding.weight[word] for word in sentence], model.word_encoder)[0], model.word_pool
            )
            vectors.append(vector)
            in_sentence.append(weights)
        whole, shares = pool(gru(vectors, model.sentence_encoder)[0], model.sentence_pool)
        torch.testing.assert_close(logits[row], model.output.weight @ whole + model.output.bias)
        expected = [share * weight for share, weights in zip(shares, in_sentence) for weight in weights]
        found = attentions["words"].dense()[row]
        torch.testing.assert_close(found[: len(expected)], torch.tensor(expected, dtype=torch.float64))
        assert (found[len(expected) :] == 0).all()
        sentences = attentions["sentences"].dense()[row]
        torch.testing.assert_close(sentences[: len(shares)], torch.tensor(shares, dtype=torch.float64))
        assert (sentences[len(shares) :] == 0).all()


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["attention", "mean", "last"])
def test_what_can_replace_the_hierarchy(pooling):
    model = make_model(pooling)
    logits, attentions = model(*padded(DOCUMENTS))
    for row, document in enumerate(DOCUMENTS):
        words = [model.embedding.weight[word] for sentence in document for word in sentence]
        annotations, last = gru(words, model.word_encoder)
        if pooling == "attention":
            whole, weights = pool(annotations, model.word_pool)
            found = attentions["words"].dense()[row, : len(words)]
            torch.testing.assert_close(found, torch.tensor(weights, dtype=torch.float64))
        else:
            whole = last if pooling == "last" else sum(annotations) / len(words)
        torch.testing.assert_close(logits[row], model.output.weight @ whole + model.output.bias)
    assert set(attentions) == ({"words"} if pooling == "attention" else set())


@torch.no_grad()
@pytest.mark.parametrize("pooling", POOLINGS)
def test_padding_and_other_documents_change_nothing(pooling):
    model = make_model(pooling)
    alone = torch.cat([model(*padded([document])).logits for document in DOCUMENTS])
    torch.testing.assert_close(model(*padded(DOCUMENTS)).logits, alone)
    torch.testing.assert_close(model(*padded(DOCUMENTS, words=29, sentences=13, filler=22)).logits, alone)
    words, sizes = padded(DOCUMENTS)
    gaps = torch.zeros(2, 7, dtype=torch.long)
    gaps[:, [1, 3, 6]] = sizes  # sentences that do not exist may stand anywhere
    torch.testing.assert_close(model(words, gaps).logits, alone)


def test_the_order_of_words_and_where_sentences_end_matter():
    model = make_model()
    words, sizes = padded(DOCUMENTS[:1])
    first = model(words, sizes).logits
    assert not torch.allclose(first, model(words.flip(1), sizes).logits)
    assert not torch.allclose(first, model(words, torch.tensor([[2, 2, 2]])).logits)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_empty_documents_and_batches(pooling):
    model = make_model(pooling).train()
    words, sizes = padded([*DOCUMENTS, []])
    logits, attentions = model(words, sizes)
    torch.testing.assert_close(logits[2], model.output.bias)
    logits.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert all((weights.dense()[2] == 0).all() for weights in attentions.values())
    empty = model(torch.zeros(0, 3, dtype=torch.long), torch.zeros(0, 2, dtype=torch.long))
    assert empty.logits.shape == (0, CLASSES)
    nothing = model(torch.zeros(2, 0, dtype=torch.long), torch.zeros(2, 0, dtype=torch.long))
    torch.testing.assert_close(nothing.logits, model.output.bias.expand(2, -1))


def test_gradients():
    model = make_model(embedding_dim=2, hidden_dim=2, attention_dim=3)
    words, sizes = padded([[[1, 2], [3]], [[2]]])
    names = ["embedding.weight", "word_pool.context", "sentence_pool.project.weight"]
    values = [dict(model.named_parameters())[name].detach()[:4].clone().requires_grad_() for name in names]

    def run(*given):
        table = torch.cat([given[0], model.embedding.weight[4:].detach()])
        logits, attentions = torch.func.functional_call(model, dict(zip(names, (table, *given[1:]))), (words, sizes))
        return logits, attentions["words"].dense()

    assert torch.autograd.gradcheck(run, values)


def test_it_learns_a_batch_by_heart():
    torch.manual_seed(3)
    model = HierarchicalClassifier(VOCABULARY, CLASSES, HierarchicalClassifierOptions(embedding_dim=8, hidden_dim=8))
    words, sizes = padded([*DOCUMENTS, [[1, 5], [7]]])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(60):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(words, sizes).logits, torch.tensor([0, 1, 2]))
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05
    assert (model.embedding.weight[0] == 0).all()


def test_presets_and_other_precisions():
    words, sizes = padded(DOCUMENTS)
    for preset in HIERARCHICAL_PRESETS.values():
        assert HierarchicalClassifier(VOCABULARY, 2, HierarchicalClassifierOptions(**preset))(
            words, sizes
        ).logits.shape == (2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert (
            HierarchicalClassifier(VOCABULARY, 2, HierarchicalClassifierOptions(hidden_dim=4))(words, sizes)
            .logits.isfinite()
            .all()
        )


def test_errors():
    model = make_model()
    words, sizes = padded(DOCUMENTS)
    with pytest.raises(
        ShapeError, match=r"HierarchicalClassifier: words has dtype torch.float32, expected whole numbers"
    ):
        model(words.float(), sizes)
    with pytest.raises(
        ShapeError, match=r"HierarchicalClassifier: sentences has shape \(1, 3\), expected \(2, sentence\)"
    ):
        model(words, sizes[:1])
    with pytest.raises(
        ShapeError, match=r"up to 6 words per document, expected sizes of at least 0 that sum to at most 5"
    ):
        model(words[:, :5], sizes)
    with pytest.raises(ShapeError, match=r"sentences has sizes from -1 on"):
        model(words, sizes - 1)
    with pytest.raises(
        UnknownNameError, match=r"unknown pooling of HierarchicalClassifierOptions 'maen'. Did you mean 'mean'"
    ):
        make_model("maen")
    with pytest.raises(ConfigError, match=r"num_classes is 0, expected a number above 0"):
        HierarchicalClassifier(7, 0, HierarchicalClassifierOptions())
