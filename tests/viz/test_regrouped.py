"""Words joined and positions hidden: against plain loops, with all weights and with the largest of each row."""

import numpy as np
import pytest

from foci.errors import ConfigError, UnknownNameError
from foci.metrics.attention import row_entropy
from foci.viz.axis import Axis, Mark
from foci.viz.kept_weights import TopWeights
from foci.viz.regrouped import sinks_of
from foci.viz.trace import Trace

PIECES = ["<s>", "▁un", "believ", "able", "▁cat", "s", ".", "</s>"]
WORDS = ["<s>", "unbelievable", "cats", ".", "</s>"]
GROUPS = [[0], [1, 2, 3], [4, 5], [6], [7]]


def rows(*shape, seed=3):
    return np.random.default_rng(seed).dirichlet(np.ones(shape[-1]), size=shape[:-1]).astype(np.float32)


def joined_by_loops(weights, row_groups, column_groups):
    made = np.zeros((len(weights), len(row_groups), len(column_groups)))
    for head in range(len(weights)):
        for i, reading in enumerate(row_groups):
            for j, read in enumerate(column_groups):
                made[head, i, j] = sum(weights[head, k, m] for k in reading for m in read) / len(reading)
    return made


def hidden_by_loops(weights, kept_rows, gone):
    made, share = [], []
    for row in kept_rows:
        left = [0.0 if k in gone else w for k, w in enumerate(weights[row])]
        total = sum(left)
        made.append([w / total if total else 0.0 for k, w in enumerate(left) if k not in gone])
        share.append(1 - total)
    return np.array(made), np.array(share)


def test_words_are_joined():
    weights = rows(2, 8, 8)
    trace = Trace.from_arrays(weights, PIECES).join_words()
    assert list(trace.axes["source"].labels) == WORDS
    assert trace.axes["source"].special_tokens == (0, 4)
    np.testing.assert_allclose(
        trace.attention("attention").weights, joined_by_loops(weights, GROUPS, GROUPS), rtol=1e-5
    )
    np.testing.assert_array_equal(trace.join_words().alignment(), trace.alignment())


def test_each_side_has_its_own_words():
    weights = rows(3, 4, 8)
    image = Axis.from_image(np.zeros((2, 2, 3), np.uint8), (2, 2))
    trace = Trace.from_arrays(weights, PIECES, image).join_words()
    assert trace.axes["target"] is image
    single = [[place] for place in range(4)]
    np.testing.assert_allclose(
        trace.attention("attention").weights, joined_by_loops(weights, single, GROUPS), rtol=1e-5
    )


def test_words_of_the_largest_weights():
    weights = rows(2, 8, 8)
    trace = Trace.from_arrays(weights, PIECES, budget=127)
    kept = trace.attention("attention")
    assert isinstance(kept.weights, TopWeights)
    got = trace.join_words().attention("attention")
    for head in range(2):
        want = joined_by_loops(kept.dense(head)[None], GROUPS, GROUPS)[0]
        np.testing.assert_allclose(got.dense(head), want, atol=1e-6)
    total = got.weights.values.sum(-1) + got.weights.rest
    np.testing.assert_allclose(total, 1, atol=1e-5)
    assert np.isnan(got.entropy()).all()


def test_a_document_keeps_its_sentences_and_marks():
    axis = Axis.from_document([["▁a", "b"], ["▁c", "d", "e"], []])
    axis = Axis(axis.kind, axis.labels, sentences=axis.sentences, marks=(Mark(0, 0, "x", 0.2), Mark(1, 1, "y", 0.9)))
    trace = Trace.from_arrays(rows(1, 5), axis, ["class"]).join_words()
    joined = trace.axes["source"]
    assert (joined.labels, joined.sentences, joined.marks) == (("ab", "cde"), (1, 1, 0), (Mark(0, 0, "y", 0.9),))


def test_special_tokens_are_hidden():
    weights = rows(2, 8, 8)
    trace = Trace.from_arrays(weights, PIECES).hide(special=True)
    assert list(trace.axes["source"].labels) == PIECES[1:-1]
    one = trace.attention("attention")
    for head in range(2):
        want, share = hidden_by_loops(weights[head], range(1, 7), {0, 7})
        np.testing.assert_allclose(one.dense(head), want, rtol=1e-5)
        np.testing.assert_allclose(one.hidden[head], share, rtol=1e-4)
    assert trace.metadata["hidden"] == "<s>, </s>"
    assert [word.label for word in trace.axes["source"].joined_words] == WORDS[1:-1]
    twice = trace.hide("▁un").attention("attention")
    want, share = hidden_by_loops(weights[1], range(2, 7), {0, 1, 7})
    np.testing.assert_allclose(twice.dense(1), want, rtol=1e-4)
    np.testing.assert_allclose(twice.hidden[1], share, rtol=1e-4)


def test_hidden_among_the_largest_weights():
    weights = rows(2, 8, 8) * 0.2
    weights[..., 0] += 0.8
    whole = Trace.from_arrays(weights, PIECES).hide("<s>")
    part = Trace.from_arrays(weights, PIECES, budget=127).hide("<s>")
    one, exact = part.attention("attention"), whole.attention("attention").weights
    assert isinstance(one.weights, TopWeights)
    for head in range(2):
        got = one.dense(head)
        np.testing.assert_allclose(got[got > 0], exact[head][got > 0], rtol=1e-5)
        assert ((got > 0).sum(axis=-1) == 2).all()
    np.testing.assert_allclose(one.weights.values.sum(-1) + one.weights.rest, 1, atol=1e-5)
    np.testing.assert_allclose(one.entropy(), row_entropy(exact), rtol=1e-4)
    np.testing.assert_allclose(one.hidden, whole.attention("attention").hidden, rtol=1e-5)


def test_a_row_of_which_nothing_is_left_is_zero():
    trace = Trace.from_arrays([[1.0, 0.0, 0.0], [0.6, 0.4, 0.0], [0.5, 0.25, 0.25]], ["<s>", "a", "b"]).hide("<s>")
    np.testing.assert_allclose(trace.alignment(), [[1, 0], [0.5, 0.5]])
    only = Trace.from_arrays([[1.0, 0.0]], ["<s>", "a"], ["x"]).hide("<s>")
    np.testing.assert_array_equal(only.alignment(), [[0]])
    np.testing.assert_array_equal(only.attention("attention").hidden, [[1]])


def test_regions_stay_in_their_places():
    image = Axis.from_image(np.zeros((2, 2, 3), np.uint8), (2, 2))
    weights = [[0.7, 0.1, 0.1, 0.1], [0.6, 0.2, 0.2, 0.0]]
    trace = Trace.from_arrays(np.array(weights + weights, np.float32), image, ["a", "b", "c", "d"])
    assert sinks_of(trace, "source") == []  # 0.65 is less than three times an even 0.25 … 0.33
    sure = Trace.from_arrays(np.array([[0.94, 0.02, 0.02, 0.02]] * 3, np.float32), image, ["a", "b", "c"]).hide(
        sinks=True
    )
    np.testing.assert_allclose(sure.alignment(), [[0, 1 / 3, 1 / 3, 1 / 3]] * 3, rtol=1e-5)


@pytest.mark.parametrize("length", [4, 23])
def test_sinks(length):
    """The first position, read by all; an even spread has none, however short the text is."""
    even = np.tril(np.ones((length, length))) / np.arange(1, length + 1)[:, None]
    labels = [str(k) for k in range(length)]
    assert sinks_of(Trace.from_arrays(even, labels), "source") == []
    assert sinks_of(Trace.from_arrays(np.eye(length), labels), "source") == []
    sunk = 0.1 * even
    sunk[:, 0] += 0.9
    found = sinks_of(Trace.from_arrays([even * 0.1 + sunk * 0.9, sunk], labels), "source")
    assert found == ([0] if length > 4 else [])


def test_what_cannot_be_hidden():
    trace = Trace.from_arrays(np.eye(2), ["a", "b"])
    with pytest.raises(ConfigError, match="no special tokens or sinks in this trace"):
        trace.hide(special=True, sinks=True)
    with pytest.raises(ConfigError, match="all positions of 'source' would be hidden"):
        trace.hide("a", "b")
    with pytest.raises(UnknownNameError, match="token to hide"):
        trace.hide("c")


def test_the_share_is_said_and_saved(tmp_path, capsys):
    trace = Trace.from_arrays(rows(2, 8, 8), PIECES).hide(special=True).join_words()
    share = trace.attention("attention").hidden.mean()
    trace.print("attention")
    assert f"{share:.0%} of the weight hidden" in capsys.readouterr().out.splitlines()[0]
    assert trace.plot(title="made", name="attention").get_suptitle().splitlines() == [
        "made",
        f"{share:.0%} of the weight hidden",
    ]
    again = Trace.load(trace.save(tmp_path / "t"))
    np.testing.assert_array_equal(again.attention("attention").hidden, trace.attention("attention").hidden)
    assert again.axes["source"].words == trace.axes["source"].words
    assert again.axes["source"].special == ()
    assert again.select(heads=[1]).attention("attention").hidden.shape == (1, 4 - 1)
