"""Probes beside loops over every set of tokens, and of models whose attention matters, or does not, by construction."""

import json

import numpy as np
import pytest
import torch
from torch import nn

import foci
from foci.errors import ConfigError, DataError, ShapeError
from foci.probing import Options, Source, Subject, of_module, probe_subjects
from foci.probing.erasure import SHARES, erase
from foci.probing.probe import GRADIENT
from foci.probing.report import CHANCE, MATTERS, UNIFORM, VERDICTS
from foci.probing.subject import Attended, Erasing

VOCABULARY, DIM, WORDS = 13, 5, 11


class Reader(nn.Module):
    """A classifier that reads words by an attention, and answers by what was read, or by the mean of all words."""

    def __init__(self, by_attention=True):
        super().__init__()
        torch.manual_seed(2)
        self.by_attention = by_attention
        self.embedding = nn.Embedding(VOCABULARY, DIM)
        self.attention = foci.build("pool", value_dim=DIM, hidden_dim=7)
        self.output = nn.Linear(DIM, 3)

    def forward(self, words):
        embedded = self.embedding(words)
        read = self.attention(embedded).output
        return self.output(4 * read if self.by_attention else 4 * embedded.mean(dim=1) + 0 * read)


def inputs(seed=0, words=WORDS):
    return [torch.randint(VOCABULARY, (1, words), generator=torch.Generator().manual_seed(seed))]


def by_hand(model, words, gone):
    """The probabilities with some vectors replaced by the mean of all, without hooks."""
    table = model.embedding.weight
    vectors = table[words[0]].clone()
    vectors[list(gone)] = table.mean(dim=0)
    embedded = vectors.unsqueeze(0)
    read = model.attention(embedded).output
    return model.output(4 * read if model.by_attention else 4 * embedded.mean(dim=1)).softmax(dim=-1)[0]


@torch.no_grad()
def test_erased_tokens_change_the_answer_as_by_hand():
    model = Reader().eval()
    (words,) = inputs()
    erasing = Erasing(of_module(model, [words]), "tokens", batch_size=3)
    sets = [(), (0,), (4, 7), tuple(range(WORDS)), (4, 7), (10,), (1, 2, 3)]
    before = by_hand(model, words, ())
    best = int(before.argmax())
    for gone, change in zip(sets, erasing.changes(sets), strict=True):
        after = by_hand(model, words, gone)
        assert change.probability == pytest.approx(float(after[best]), abs=1e-6)
        assert change.distance == pytest.approx(float((after - before).abs().sum() / 2), abs=1e-6)


def test_a_token_may_stand_in_place_of_erased_ones():
    model = Reader().eval()
    (words,) = inputs()
    replaced = words.clone()
    replaced[0, [2, 5]] = 9
    erasing = Erasing(of_module(model, [words], neutral=9), "tokens", batch_size=8)
    expected = model(replaced).softmax(dim=-1)[0].detach()
    (change,) = erasing.changes([(2, 5)])
    assert change.probability == pytest.approx(float(expected[int(erasing.best)]), abs=1e-6)


def test_gradient_times_input_is_that_of_the_vectors():
    model = Reader().eval()
    (words,) = inputs()
    vectors = model.embedding.weight[words[0]].detach().requires_grad_()
    read = model.attention(vectors.unsqueeze(0)).output
    log = model.output(4 * read).log_softmax(dim=-1).max()
    (gradient,) = torch.autograd.grad(log, vectors)
    expected = (gradient * vectors).sum(dim=-1).detach()
    found = Erasing(of_module(model, [words]), "tokens", 1).gradient()
    assert found == pytest.approx(expected.numpy(), rel=1e-4, abs=1e-7)


@torch.no_grad()
def test_comprehensiveness_and_sufficiency_are_means_over_shares():
    model = Reader().eval()
    (words,) = inputs()
    scores = np.random.default_rng(1).permutation(WORDS).astype(float)
    order = np.argsort(-scores)
    erasing = Erasing(of_module(model, [words]), "tokens", 32)
    found, random = erase(erasing, {"given": scores}, trials=4, seed=0)
    before = by_hand(model, words, ())
    best = int(before.argmax())
    counts = [1, 1, 2, 3, 6]  # 1, 5, 10, 20 and 50 % of eleven, rounded up
    assert len(counts) == len(SHARES)
    without = [float(before[best] - by_hand(model, words, order[:count])[best]) for count in counts]
    alone = [float(before[best] - by_hand(model, words, order[count:])[best]) for count in counts]
    assert found["given"].comprehensiveness == pytest.approx(np.mean(without), abs=1e-6)
    assert found["given"].sufficiency == pytest.approx(np.mean(alone), abs=1e-6)
    assert random.shape == (4, 2)
    assert len({*random[:, 0].round(9)}) > 1


def many(model, count=12, **options):
    subjects = [of_module(model, inputs(seed)) for seed in range(count)]
    return probe_subjects(subjects, Options(steps=0, **options))


def sharp(model):
    """Let the attention read the one word whose vector points most in some direction."""
    with torch.no_grad():
        for parameter in model.attention.parameters():
            parameter.mul_(30.0)
    return model


def test_an_attention_that_the_answer_hangs_on_matters():
    found = many(sharp(Reader()).eval())["attention"]
    assert MATTERS in found.verdicts
    assert found.measures["comprehensiveness"].value > 2 * found.chance["comprehensiveness"]
    assert found.measures["uniform"].value > 0.1
    assert UNIFORM not in found.verdicts
    assert found.measures["tau"].value > 0.3


def test_an_attention_that_the_answer_ignores_does_not():
    found = many(sharp(Reader(by_attention=False)).eval())["attention"]
    assert found.verdicts == (CHANCE, UNIFORM)
    assert found.measures["uniform"].value == found.measures["permuted"].value == 0.0
    assert "do not read it as a reason" in found.words("en")
    assert "不要把它当作理由" in found.words("zh")


@torch.no_grad()
def test_uniform_weights_read_the_mean():
    model = sharp(Reader()).eval()
    (words,) = inputs()
    found = probe_subjects([of_module(model, [words])], Options(steps=0))["attention"]
    before = by_hand(model, words, ())
    mean = model.embedding(words).mean(dim=1)
    expected = model.output(4 * mean).softmax(dim=-1)[0]
    assert found.measures["uniform"].value == pytest.approx(float((expected - before).abs().sum() / 2), abs=1e-5)


def test_weights_may_differ_where_all_values_are_equal():
    model = sharp(Reader()).eval()
    with torch.no_grad():
        model.output.weight.zero_()
    found = probe_subjects([of_module(model, inputs())], Options(steps=25, permutations=1))["attention"]
    assert found.measures["adversarial"].value > 0.5 * np.log(2)
    strict = sharp(Reader()).eval()
    with torch.no_grad():
        strict.output.weight.mul_(100.0)
    less = probe_subjects([of_module(strict, inputs())], Options(steps=25, permutations=1))["attention"]
    assert less.measures["adversarial"].value < found.measures["adversarial"].value


def test_heads_are_probed_alone_and_together():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, nhead=2, dim_feedforward=16, batch_first=True)
    model = nn.Sequential(nn.Embedding(VOCABULARY, 8), layer).eval()
    found = foci.probe(model, [inputs(), inputs(1)], steps=0)
    heads = [row.head for row in found.rows if row.name == "1.self_attn"]
    assert heads == [None, 0, 1]
    assert next(row.name for row in found.rows) == GRADIENT
    assert found["1.self_attn", 1].measures["uniform"].value > 0
    alone = foci.probe(model, [inputs(), inputs(1)], steps=0, attentions_only=True)
    assert [row.head for row in alone.rows] == [None, None]
    assert json.loads(json.dumps(found.to_json()))["inputs"] == 2


def test_what_people_marked_is_compared():
    model = sharp(Reader()).eval()
    (words,) = inputs()
    weights = model.attention(model.embedding(words)).weights.dense()[0].detach()
    best = int(weights.argmax())
    labels = [*map(str, words[0].tolist())]
    right = of_module(model, [words], source=Source(0, labels, gold=frozenset({best})))
    wrong = of_module(model, [words], source=Source(0, labels, gold=frozenset({int(weights.argmin())})))
    found = [probe_subjects([one], Options(permutations=0, steps=0))["attention"] for one in (right, wrong)]
    assert [row.measures["auprc"].value for row in found] == [1.0, pytest.approx(1 / WORDS)]
    assert [row.measures["f1"].value for row in found] == [1.0, 0.0]
    assert found[0].chance["auprc"] == pytest.approx(1 / WORDS)


def test_fixed_tokens_are_never_erased():
    model = sharp(Reader()).eval()
    (words,) = inputs()
    source = Source(0, [*map(str, range(WORDS))], fixed=frozenset(range(3, WORDS)))
    subject = of_module(model, [words], source=source)
    erasing = Erasing(subject, "tokens", 4)
    asked = []
    answer = erasing.changes
    erasing.changes = lambda sets: answer([asked.append({*one}) or one for one in sets])
    erase(erasing, {"any": np.arange(WORDS, dtype=float)}, trials=2, seed=0)
    assert set().union(*asked) == {0, 1, 2}


def test_the_same_seed_gives_the_same_probe():
    model = sharp(Reader()).eval()
    assert many(model, 3) == many(model, 3)
    assert many(model, 3) != many(model, 3, seed=1)


def test_answers_of_several_tokens_have_the_mean_over_them():
    model = Reader().eval()
    (words,) = inputs()

    def answer(output):
        return torch.stack([output.softmax(-1), (2 * output).softmax(-1)], dim=1)

    erasing = Erasing(of_module(model, [words], answer=answer), "tokens", 2)
    (change,) = erasing.changes([(3,)])
    before, after = (model.output(4 * model.attention(v).output).detach() for v in _vectors(model, words, 3))
    picked = [(s * after).softmax(-1)[0, int((s * before).argmax())] for s in (1, 2)]
    assert change.probability == pytest.approx(float(sum(picked) / 2), abs=1e-6)


def _vectors(model, words, place):
    whole = model.embedding(words)
    erased = whole.clone()
    erased[0, place] = model.embedding.weight.mean(dim=0)
    return whole, erased


def test_mistakes_are_named():
    model = Reader().eval()
    (words,) = inputs()
    with pytest.raises(ConfigError, match=r"training mode.*model\.eval\(\)"):
        of_module(Reader(), [words])
    with pytest.raises(ConfigError, match="2 inputs are whole numbers, expected one"):
        of_module(model, [words, words])
    with pytest.raises(ConfigError, match=r"an input is of type Tensor.*inputs=\[\[ids\], …\]"):
        of_module(model, words)
    with pytest.raises(ConfigError, match="no argument is a tensor of whole numbers"):
        of_module(model, [words.float()])
    with pytest.raises(ShapeError, match=r"0 has shape \(2, 11\), expected the ids \(1, tokens\)"):
        of_module(model, [words.expand(2, -1)])
    with pytest.raises(ShapeError, match="'tokens' has 1 labels, but 0 has 11 words"):
        Erasing(Subject(model, {0: words}, {"tokens": Source(0, ("a",))}, {}, lambda one: one.softmax(-1)), "tokens", 1)
    with pytest.raises(DataError, match="there are no inputs"):
        probe_subjects([])
    with pytest.raises(ConfigError, match="trials is 0"):
        Options(trials=0)
    with pytest.raises(ConfigError, match="steps needs permutations"):
        Options(permutations=0)
    elsewhere = Subject(
        model, {0: words, "others": words + 1}, {"tokens": Source("others", ("a",) * WORDS)}, {}, lambda one: one
    )
    with pytest.raises(TypeError, match="others"):  # the model's own complaint
        Erasing(elsewhere, "tokens", 1)


def test_tokens_that_no_embedding_reads_are_named():
    class OneHot(nn.Module):
        def forward(self, words):
            return nn.functional.one_hot(words, VOCABULARY).float().mean(dim=1)

    with pytest.raises(ConfigError, match=r"no torch\.nn\.Embedding of OneHot reads the tokens of 0"):
        Erasing(of_module(OneHot().eval(), inputs()), "tokens", 1)


def test_an_input_that_no_attention_reads_is_an_error():
    bare = Subject(
        Reader().eval(), {0: inputs()[0]}, {"tokens": Source(0, ("a",) * WORDS)}, {}, lambda o: o.softmax(-1)
    )
    with pytest.raises(DataError, match="no attention reads what can be erased"):
        probe_subjects([bare])
    short = of_module(Reader().eval(), inputs(words=1))
    with pytest.raises(DataError, match="fewer than two parts"):
        probe_subjects([short])


def test_every_verdict_is_there_in_both_languages():
    assert VERDICTS["en"].keys() == VERDICTS["zh"].keys()


def test_an_attention_without_a_module_is_said_to_be_not_replaced():
    model = Reader().eval()
    subject = of_module(model, inputs())
    made = Subject(
        model,
        subject.inputs,
        subject.sources,
        {"product": Attended("tokens", np.ones((1, WORDS)) / WORDS)},
        subject.probabilities,
    )
    found = probe_subjects([made])
    assert "uniform" not in found["product"].measures
    assert found.notes == ("product: its weights are not replaced: no module is known to compute them",)
