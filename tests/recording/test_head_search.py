"""Which heads read one word from another, against a loop over all of them."""

import numpy as np
import pytest
import torch
from torch import nn

import foci
from foci.errors import ConfigError, UnknownNameError
from foci.recording import record
from foci.recording.head_search import places
from foci.viz.trace import Trace

WORDS = ["the", "animal", "was", "tired", "and", "it", "slept"]


class Layers(nn.Module):
    """Two layers of self-attention with three heads, of which the last layer's head 2 reads what stands before."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(foci.build("multi_head", model_dim=7, num_heads=3, head_dim=7) for _ in range(2))
        with torch.no_grad():
            last = self.layers[1]
            last.query_layer.weight[14:21] = 60 * torch.eye(7).roll(
                -1, 0
            )  # the query of position i is the key of i − 1
            last.key_layer.weight[14:21] = torch.eye(7)

    def forward(self, x):
        return [layer(x, x) for layer in self.layers]


@pytest.fixture
def tape():
    torch.manual_seed(0)
    model = Layers()
    with record(model) as tape:
        model(torch.eye(7).expand(2, -1, -1))
    return tape


def test_heads_are_ranked_as_by_a_loop(tape):
    found = tape.heads("it", "animal", WORDS, row=1, top=None)
    expected = [
        (float(tape[path].dense().detach()[1, head, 5, 1]), path, head) for path in tape.paths for head in range(3)
    ]
    assert [(one.path, one.head) for one in found] == [one[1:] for one in sorted(expected, reverse=True)]
    assert [one.weight for one in found] == pytest.approx(sorted((one[0] for one in expected), reverse=True))
    assert {(one.query, one.key) for one in found} == {((5,), (1,))}
    assert tape.heads(5, 1, row=1, top=2) == found[:2]
    assert tape.heads(-2, -6, WORDS, row=1, top=2) == found[:2]


def test_the_head_that_was_made_to_read_the_word_before_is_found(tape):
    best = tape.heads("it", "and", WORDS)[0]
    assert (best.path, best.head) == ("layers.1", 2)
    assert best.weight > 0.99
    trace = Trace.from_tape(tape, {"text": WORDS})
    assert trace.heads("it", "and") == tape.heads("it", "and", WORDS)
    roles = trace.head_roles()
    assert [(one.name, one.head) for one in roles if one.role == "previous"] == [("layers.1", 2)]
    assert "layers.1  head 2" in repr(roles)
    assert "5 heads with no clear role" in repr(roles)
    assert repr(tape.heads("it", "and", WORDS, top=1)) == "layers.1  head 2   1.00  5 → 4"


def test_words_of_several_pieces_are_summed_over_what_is_read_and_averaged_over_who_reads():
    torch.manual_seed(0)
    weights = torch.rand(2, 6, 6).numpy()
    pieces = ["▁the", "▁an", "imal", "▁s", "lept", "."]
    (first, second) = sorted(Trace.from_arrays(weights, pieces).heads("slept", "animal"), key=lambda one: one.head)
    for one, of_head in zip((first, second), weights):
        assert one.weight == pytest.approx((of_head[3, 1:3].sum() + of_head[4, 1:3].sum()) / 2, rel=1e-6)
        assert (one.query, one.key) == ((3, 4), (1, 2))


def test_a_repeated_word_counts_where_its_weight_is_largest_or_where_it_is_asked_for():
    weights = np.full((1, 4, 4), 0.1)
    weights[0, 3, 2], weights[0, 1, 0] = 0.7, 0.5
    trace = Trace.from_arrays(weights, ["the", "it", "the", "it"])
    assert [(one.weight, one.query, one.key) for one in trace.heads("it", "the")] == [(pytest.approx(0.7), (3,), (2,))]
    assert trace.heads(("it", 0), ("the", 0))[0].weight == pytest.approx(0.5)
    assert trace.heads(("it", -1), ("the", -2))[0].weight == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("labels", "word", "expected"),
    [
        (["[CLS]", "un", "##happy", "##ily", "happy"], "happy", [(4,)]),
        (["[CLS]", "un", "##happy", "##ily", "happy"], "unhappyily", [(1, 2, 3)]),
        (["[CLS]", "un", "##happy"], "##happy", [(2,)]),
        (["[CLS]", "un", "##happy"], "[CLS]", [(0,)]),
        (["The", "the"], "the", [(1,)]),
        (["The", "cat"], "the", [(0,)]),
        (["ĠIt", "Ġis", "."], "is", [(1,)]),
        (["▁", "a", "▁a"], "a", [(0, 1), (2,)]),
    ],
)
def test_where_a_word_stands(labels, word, expected):
    assert places("x", labels, word) == expected


def test_cross_attention_and_attentions_in_which_a_word_does_not_stand():
    torch.manual_seed(0)
    attention = foci.build("additive", query_dim=3, key_dim=3, hidden_dim=5)
    with record(attention) as tape:
        attention(torch.randn(1, 2, 3), torch.randn(1, 4, 3))
    (one,) = tape.heads("house", "Haus", ["the", "house"], ["das", "alte", "Haus", "."])
    assert one.weight == pytest.approx(float(tape["."].dense()[0, 1, 2]))
    own = {"encoder": foci.Weights.from_tensor(torch.eye(4)[None]), "cross": tape["."]}
    trace = Trace.from_handles(own, {"source": ["das", "alte", "Haus", "."], "target": ["the", "house"]})
    assert [one.path for one in trace.heads("house", "Haus")] == ["cross"]
    assert [one.path for one in trace.heads("alte", "Haus")] == ["encoder"]


def test_mistakes_are_named(tape):
    with pytest.raises(UnknownNameError, match="animal"):
        tape.heads("it", "anmal", WORDS)
    with pytest.raises(ConfigError, match="no tokens were given"):
        tape.heads("it", "animal")
    with pytest.raises(ConfigError, match=r"2 tokens.*\(2, 3, 7, 7\)"):
        tape.heads("it", "it", ["it", "is"])
    with pytest.raises(ConfigError, match="position is 7.*there are 7"):
        tape.heads(7, 0)
    with pytest.raises(ConfigError, match="'it' stands 1 time"):
        tape.heads(("it", 1), "animal", WORDS)
