"""What the heads of a trace do."""

import numpy as np

from foci.viz.heads.roles import head_roles
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


def test_prompt_and_answer_are_a_text_and_an_image_is_none():
    parts = [Axis.from_tokens(WORDS[:3], "prompt"), Axis.from_tokens(WORDS[3:], "answer")]
    trace = Trace.from_arrays(np.stack([duplicates(), sink()]), Axis.from_parts(parts))
    assert [one.role for one in trace.head_roles()] == ["duplicate", "sink"]
    image = Axis.from_image(np.zeros((2, 8, 3), np.uint8), (1, 4))
    trace = Trace.from_arrays(duplicates(), Axis.from_parts([image, Axis.from_tokens(WORDS[4:])]))
    assert "duplicate" not in trace.head_roles()[0].scores


def test_attentions_of_which_weights_are_missing_are_left_out_and_named():
    rng = np.random.default_rng(0)
    trace = Trace.from_arrays(rng.dirichlet(np.ones(8), (1, 2, 8)), WORDS, name="encoder", budget=20)
    assert not head_roles(trace)
    assert "left out, since not all weights were kept: encoder.0" in repr(head_roles(trace))
