"""Parts of attention: objects that fulfil a protocol are used, all else is refused with the protocol's name."""

import pytest
import torch
from torch import nn

import foci
from foci.errors import ConfigError
from foci.mechanisms.attention import Attention
from foci.mechanisms.focus import FOCUSES, SlidingWindow
from foci.mechanisms.normalizers import NORMALIZERS
from foci.mechanisms.parts import Focus, Normalizer, Score, Sizes
from foci.mechanisms.scores import SCORES
from foci.outputs import AttentionOutput

SIZES = Sizes(query_dim=5, key_dim=5, hidden_dim=7, max_length=11, radius=2, window=(1, 2))
QUERY, KEY = torch.randn(2, 3, 5), torch.randn(2, 11, 5)


@pytest.mark.parametrize(
    ("protocol", "built"),
    [
        *((Score, lambda name=name: SCORES[name](SIZES)) for name in SCORES),
        *((Focus, lambda name=name: FOCUSES[name](SIZES)) for name in FOCUSES),
        *((Normalizer, NORMALIZERS[name]) for name in NORMALIZERS),
    ],
)
def test_every_row_fulfils_its_protocol(protocol, built):
    assert isinstance(built(), protocol)


class Sink(nn.Module):
    """A softmax with a learned score of reading nothing."""

    name = None

    def __init__(self):
        super().__init__()
        self.score = nn.Parameter(torch.zeros(()))

    def forward(self, scores, mask, training):
        closed = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        nothing = self.score.expand(*scores.shape[:-1], 1)
        return torch.cat([closed, nothing], dim=-1).softmax(dim=-1)[..., :-1], None


class Gate(nn.Module):
    """A gate on the output, by the query."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, query, attended):
        return attended._replace(output=attended.output * torch.sigmoid(self.layer(query)))


class First:
    """Reads the first position alone."""

    gathers = remembers = takes_steps = False

    def read(self, reading):
        value, batch, queries = reading.memory.value, *reading.query.shape[:2]
        weights = torch.zeros(batch, queries, value.shape[1])
        weights[..., 0] = 1.0
        return AttentionOutput(weights @ value, foci.Weights.from_tensor(weights))


@pytest.mark.parametrize("focus", ["global", "causal", "local_m"])
def test_a_normalizer_with_parameters_is_trained(focus):
    sink = Sink()
    attention = Attention(5, 5, score="general", normalize=sink, focus=focus, radius=2 if focus == "local_m" else None)
    output, weights, _ = attention(QUERY, KEY)
    assert dict(attention.named_parameters())["normalizer.score"] is sink.score
    assert (weights.dense().sum(dim=-1) < 1).all()
    output.square().sum().backward()
    assert sink.score.grad.abs() > 0


def test_a_stage_after_reading_and_a_focus_of_ones_own():
    gate = Gate()
    attention = Attention(5, 5, score="general", focus=First(), after=gate)
    output, weights, state = attention(QUERY, KEY)
    torch.testing.assert_close(output, KEY[:, :1] * torch.sigmoid(gate.layer(QUERY)))
    assert weights.argmax().abs().max() == 0
    assert state is None
    assert {name for name, _ in attention.named_parameters()} == {
        "score.weight",
        "after.layer.weight",
        "after.layer.bias",
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": nn.Linear(5, 5)}, "score is a Linear, expected a name or .* foci.mechanisms.parts.Score"),
        ({"focus": nn.Identity()}, "focus is a Identity, expected a name or .* foci.mechanisms.parts.Focus"),
        ({"normalize": torch.softmax}, "normalizer is a .*, expected a name or .* foci.mechanisms.parts.Normalizer"),
        ({"after": 3}, "after is a int, expected a name or .* foci.mechanisms.parts.Stage"),
        ({"score": "location_aware", "focus": SlidingWindow(1, 1)}, "the score is LocationAware.*SlidingWindow"),
        (
            {"normalize": Sink(), "focus": "median_window", "window": (1, 1)},
            "the normalizer is a Sink, expected one by its",
        ),
    ],
)
def test_what_is_no_part_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        Attention(5, 5, **options)(QUERY, KEY)
