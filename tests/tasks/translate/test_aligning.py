"""Alignments of words from the weights of tokens, by plain loops; and the choice by agreement."""

import numpy as np
import pytest
import torch
from aligned_runs import KINDS, PAIRS, train_runs

import foci
from foci.data import BOS
from foci.errors import ConfigError, UnknownNameError
from foci.metrics.attention import Links, links
from foci.tasks.translate import aligning
from foci.tasks.translate.aligning import AlignmentReader, Reading, most_agreeing
from foci.tasks.translate.config import AlignOptions


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run of each kind, and one of the other direction."""
    return train_runs(tmp_path_factory.mktemp("runs"), *KINDS, "back")


def by_loops(run, pair, reading):
    """The sum over the characters of a source word, the mean over those of a target word, of one pair alone."""
    source, target = (tokenizer.encode(text) for tokenizer, text in zip(run.task.tokenizers(run.assets), pair))
    ids = torch.tensor([source.ids])
    with torch.no_grad():
        weights = run.model(ids, ids >= 0, torch.tensor([[BOS, *target.ids]])).attentions[reading.attention].dense()[0]
    if weights.dim() == 3:
        weights = weights.mean(dim=0) if reading.head is None else weights[reading.head]
    words = [text.split() for text in pair]
    found = np.zeros((len(words[1]), len(words[0])))
    row = 0
    for i, target_word in enumerate(words[1]):
        row += i > 0  # the space
        for _ in target_word:
            column = 0
            for j, source_word in enumerate(words[0]):
                column += j > 0
                for _ in source_word:
                    found[i, j] += float(weights[row + reading.shift, column]) / len(target_word)
                    column += 1
            row += 1
    return found


@pytest.mark.parametrize(
    ("name", "options", "reading"),
    [
        ("recurrent", {}, Reading("decoder.cross")),
        ("recurrent", {"shift": True}, Reading("decoder.cross", None, True)),
        ("transformer", {}, Reading("decoder.1.cross")),
        (
            "transformer",
            {"attention": "decoder.2.cross", "head": 1, "shift": True},
            Reading("decoder.2.cross", 1, True),
        ),
        ("convolutional", {}, Reading("decoder.0.cross")),
        ("local_p", {"batch_tokens": 30}, Reading("decoder.cross")),
    ],
)
def test_words_by_plain_loops(runs, name, options, reading):
    run = foci.load(runs / name)
    for pair, found in zip(PAIRS, run.align(PAIRS, options=options), strict=True):
        expected = by_loops(run, pair, reading)
        np.testing.assert_allclose(found.weights, expected, atol=1e-6)
        assert found.read == reading
        assert found.links == links(found.weights)
    (above,) = run.align(PAIRS[:1], options={**options, "threshold": 0.2})
    assert above.links.all == {(j, i) for i, j in np.argwhere(above.weights > 0.2)}


def token_pairs(run, pairs=PAIRS):
    reader = AlignmentReader(run.task, run.model, run.assets, AlignOptions())
    return list(reader._token_pairs([{"source": a, "target": b} for a, b in pairs]))


@pytest.mark.parametrize("name", ["recurrent", "transformer", "convolutional"])
def test_weights_times_gradient_have_the_form_of_the_weights(runs, name):
    run = foci.load(runs / name)
    products, plain = (aligning.forced_weights(run.model, token_pairs(run), way) for way in ("gradient", "weights"))
    assert {key: one.shape for key, one in products.items()} == {key: one.shape for key, one in plain.items()}
    assert all((one >= 0).all() and one.any() for one in products.values())
    assert all(parameter.grad is None for parameter in run.model.parameters())
    found = run.align(PAIRS, options={"method": "gradient"})
    alone = [run.align([pair], options={"method": "gradient"})[0] for pair in PAIRS]
    for one, other in zip(found, alone):
        np.testing.assert_allclose(one.weights, other.weights, rtol=1e-4, atol=1e-7)


def test_weights_times_gradient_by_differences(runs, monkeypatch):
    """One weight more of a step adds that much of a value to what is read: log P changes by the gradient."""
    run = foci.load(runs / "recurrent")
    run.model.double()
    (pair,) = token_pairs(run, [("a house", "ein")])
    products = aligning.forced_weights(run.model, [pair], "gradient")["decoder.cross"][0, 0]
    weights = aligning.forced_weights(run.model, [pair], "weights")["decoder.cross"][0, 0]
    read, step, more = type(run.model.decoder.attention).read, 1e-5, {}

    def changed(self, query, memory, state=None):
        output, *rest = read(self, query, memory, state)
        more["call"] += 1
        if more["call"] == more["row"]:
            output = output + more["by"] * memory.value[:, more["column"]]
        return output, *rest

    monkeypatch.setattr(type(run.model.decoder.attention), "read", changed)

    def log_probability(row, column, by):
        more.update(call=-1, row=row, column=column, by=by)
        ids = torch.tensor([pair.source.ids])
        with torch.no_grad():
            logits = run.model(ids, ids >= 0, torch.tensor([[BOS, *pair.target[:-1]]])).logits
        return float(logits.log_softmax(-1)[0].gather(1, torch.tensor(pair.target)[:, None]).sum())

    for row in range(len(pair.target)):
        for column in range(len(pair.source.ids)):
            slope = (log_probability(row, column, step) - log_probability(row, column, -step)) / (2 * step)
            assert products[row, column] == pytest.approx(max(0.0, weights[row, column] * slope), abs=1e-8)


def test_a_part_of_the_source_has_no_gradient(runs):
    with pytest.raises(ConfigError, match="Use the method weights"):
        foci.load(runs / "local_p").align(PAIRS, options={"method": "gradient"})


def test_what_cannot_be_read_has_a_reason(runs):
    run = foci.load(runs / "recurrent")
    done = []
    first, empty, last = run.align([PAIRS[0], ("  ", "x"), PAIRS[1]], progress=done.append)
    assert (empty.links.all, empty.note, sum(done)) == (set(), "a side is empty", 3)
    alone = run.align([PAIRS[0]])[0]
    assert first.links == alone.links
    np.testing.assert_allclose(first.weights, alone.weights, atol=1e-6)
    assert last.links == run.align([{"source": "a house", "target": "ein Haus"}])[0].links
    long = foci.load(runs / "convolutional")
    long.model.decoder.max_length = 12
    assert "13 tokens" in long.align([("a", "x" * 12)])[0].note


def test_unknown_attentions_and_heads_are_named(runs):
    run = foci.load(runs / "transformer")
    with pytest.raises(UnknownNameError, match=r"decoder\.0\.cross"):
        run.align(PAIRS, options={"attention": "decoder.0.cros"})
    with pytest.raises(ConfigError, match="has 2"):
        run.align(PAIRS, options={"head": 2})


def test_the_readings_that_agree_most_are_chosen():
    a, b, c = Reading("a"), Reading("a", 1), Reading("c")
    one, other = Links(frozenset({(0, 1), (1, 1)})), Links(frozenset({(0, 0)}))
    forward, backward = [{a: other, b: one}] * 2, [{c: Links(frozenset({(1, 0), (2, 2)}))}] * 2
    assert most_agreeing(forward, backward) == (b, c, 2 * 1 / 4)
    with pytest.raises(ConfigError, match="no pair can be read"):
        most_agreeing([], backward)


def test_both_directions_choose_among_all_heads_layers_and_steps(runs):
    there, back = foci.load(runs / "transformer"), foci.load(runs / "back")
    records = [{"source": a, "target": b} for a, b in PAIRS]
    forward, backward, share = aligning.align_both(there, back, records, AlignOptions(), lambda done: None)
    best = 0.0
    turned = [(b, a) for a, b in PAIRS]
    readings = [
        Reading(f"decoder.{n}.cross", head, shift) for n in range(3) for head in (None, 0, 1) for shift in (False, True)
    ]
    for one in readings:
        ours = [links(by_loops(there, pair, one)).all for pair in PAIRS]
        for other in readings:
            theirs = [{(t, s) for s, t in links(by_loops(back, pair, other)).all} for pair in turned]
            both = sum(len(x & y) for x, y in zip(ours, theirs))
            best = max(best, 2 * both / sum(len(x) + len(y) for x, y in zip(ours, theirs)))
    assert share == pytest.approx(best)
    assert all(one.weights.shape == other.weights.shape for one, other in zip(forward, backward))
    fixed = aligning.align_both(
        there, back, records, AlignOptions(attention="decoder.2.cross", head=0, shift=True), lambda done: None
    )
    assert {one.read for one in (*fixed[0], *fixed[1])} == {Reading("decoder.2.cross", 0, True)}
