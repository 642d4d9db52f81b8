"""What the heads of a trace do, and which of them says most."""

import numpy as np

from foci.viz.head_roles import head_roles, telling_head
from foci.viz.trace import Axis, Trace

WORDS = ["the", "cat", "saw", "the", "dog", "and", "the", "cat"]


def previous(size=8):
    return np.eye(size, k=-1) * 0.9 + 0.1 / size


def sink(size=8):
    weights = np.full((size, size), 0.1 / size)
    weights[:, 0] += 0.9
    return weights


def duplicates():
    same = np.array([[float(one == other and i != j) for j, other in enumerate(WORDS)] for i, one in enumerate(WORDS)])
    return 0.9 * same / np.maximum(same.sum(1, keepdims=True), 1) + 0.1 / 8


def test_each_head_has_the_role_it_was_made_for():
    weights = [[np.full((8, 8), 1 / 8), previous()], [duplicates(), sink()]]
    trace = Trace.from_arrays(weights, WORDS, name="encoder")
    roles = trace.head_roles()
    assert [(one.name, one.head, one.role) for one in roles] == [
        ("encoder.0", 0, None),
        ("encoder.0", 1, "previous"),
        ("encoder.1", 0, "duplicate"),
        ("encoder.1", 1, "sink"),
    ]
    assert "encoder.1  head 1   sink" in repr(roles)
    assert "position 0" in repr(roles)
    assert "1 head with no clear role" in repr(roles)
    assert [one.head for one in trace.select(heads=[1]).head_roles()] == [1, 1]
    assert roles[0].score is None
    assert roles[1].score.chance == 1 / 8


def test_the_head_that_says_most_is_none_that_reads_by_position():
    weights = np.array([[np.full((8, 8), 1 / 8), previous()], [duplicates(), sink()]])
    trace = Trace.from_arrays(weights, WORDS, name="encoder")
    attention, place, row = telling_head(trace, head_roles(trace))
    assert (attention.name, place) == ("encoder.1", 0)
    assert WORDS[row] == "cat"  # which is there twice
    only = Trace.from_arrays(weights[:1, 1:].repeat(2, axis=1), WORDS, name="encoder")
    attention, place, _ = telling_head(only, head_roles(only))
    assert (attention.name, place) == ("encoder.0", 0)  # there are no others


def test_there_is_none_between_two_sides_or_without_words_or_with_one_head():
    rng = np.random.default_rng(0)
    blunt, sharp = np.full((4, 8), 1 / 8), rng.dirichlet(np.full(8, 0.05), 4)
    cross = Trace.from_arrays([[blunt, sharp]], WORDS, list("abcd"), name="decoder")
    slots = Trace.from_arrays(np.stack([np.eye(8)] * 2), Axis.numbered("slots", 8))
    for trace in (cross, slots, Trace.from_arrays(duplicates(), WORDS)):
        assert telling_head(trace, head_roles(trace)) is None


def test_attentions_of_which_weights_are_missing_are_left_out_and_named():
    rng = np.random.default_rng(0)
    trace = Trace.from_arrays(rng.dirichlet(np.ones(8), (1, 2, 8)), WORDS, name="encoder", budget=20)
    assert not head_roles(trace)
    assert "left out, since not all weights were kept: encoder.0" in repr(head_roles(trace))
