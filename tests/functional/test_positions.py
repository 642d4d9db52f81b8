"""Rotary positions against RoFormer's equation in loops and the initial rates of transformers; codes of places."""

import math

import pytest
import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.glm.modeling_glm import apply_rotary_pos_emb as interleaved
from transformers.models.phi3.modeling_phi3 import apply_rotary_pos_emb as halves

from foci.errors import ConfigError
from foci.functional.positions import place_code, rotary
from foci.functional.rotary_options import Rotary

BASE, HEAD = 500.0, 14


def by_loops(vectors, how, start):
    """RoFormer, eq. 15: every pair of features turned by itself."""
    turned, dim = vectors.clone(), how.rotated_dim or vectors.shape[-1]
    for place in range(vectors.shape[-2]):
        for pair in range(dim // 2):
            one, other = (pair, pair + dim // 2) if how.layout == "half" else (2 * pair, 2 * pair + 1)
            angle = (start + place) * how.base ** (-2 * pair / dim)
            x, y = vectors[..., place, one], vectors[..., place, other]
            turned[..., place, one] = x * math.cos(angle) - y * math.sin(angle)
            turned[..., place, other] = x * math.sin(angle) + y * math.cos(angle)
    return turned


@pytest.mark.parametrize("dim", [None, 6])
@pytest.mark.parametrize("layout", ["interleaved", "half"])
def test_rotary_by_loops(layout, dim):
    how = Rotary(base=BASE, layout=layout, rotated_dim=dim)
    vectors = torch.randn(2, 3, 5, HEAD, dtype=torch.float64)
    torch.testing.assert_close(rotary(vectors, start=4, how=how), by_loops(vectors, how, 4))
    traced = torch.func.vmap(lambda one: rotary(one, start=4, how=how))(vectors)
    torch.testing.assert_close(traced, by_loops(vectors, how, 4))
    each = rotary(vectors, start=torch.tensor([[4], [7]]), how=how)
    torch.testing.assert_close(each, torch.stack([by_loops(vectors[0], how, 4), by_loops(vectors[1], how, 7)]))


YARN = {"factor": 8.0, "original_max_position_embeddings": 64}
SCALINGS = [
    ({"rope_type": "linear", "factor": 4.0}, {"scaling": "linear", "factor": 4.0}),
    # transformers' form follows the length: at 3 times the original length, factor · 3 − (factor − 1)
    ({"rope_type": "dynamic", "factor": 2.0}, {"scaling": "ntk", "factor": 5.0}),
    ({"rope_type": "yarn", **YARN}, {"scaling": "yarn", "factor": 8.0, "original_length": 64}),
    (
        {"rope_type": "yarn", **YARN, "truncate": False, "beta_fast": 9.0, "beta_slow": 2.0, "attention_factor": 1.3},
        {"scaling": "yarn", "factor": 8.0, "original_length": 64, "truncate": False, "beta_fast": 9.0}
        | {"beta_slow": 2.0, "attention_factor": 1.3},
    ),
    (
        {"rope_type": "llama3", **YARN, "low_freq_factor": 1.5, "high_freq_factor": 4.0},
        {"scaling": "llama3", "factor": 8.0, "original_length": 64, "low_freq_factor": 1.5},
    ),
]


@pytest.mark.parametrize("layout", ["interleaved", "half"])
@pytest.mark.parametrize(("theirs", "ours"), SCALINGS, ids=[f"{ours['scaling']}{len(ours)}" for _, ours in SCALINGS])
def test_scaled_rates_equal_those_of_transformers(theirs, ours, layout):
    config = LlamaConfig(
        hidden_size=40,
        num_attention_heads=2,
        max_position_embeddings=64,
        rope_parameters={"rope_theta": BASE, **theirs},
    )
    rates, magnitude = ROPE_INIT_FUNCTIONS[theirs["rope_type"]](config, seq_len=192)
    how = Rotary(base=BASE, layout=layout, **ours)
    torch.testing.assert_close(torch.tensor(how.rates(20)), rates, atol=1e-7, rtol=1e-5)
    angles = torch.arange(7.0).unsqueeze(1) * torch.cat([rates, rates])
    cos, sin = (part.unsqueeze(0) * magnitude for part in (angles.cos(), angles.sin()))
    query, key = torch.randn(2, 3, 7, 26), torch.randn(2, 3, 7, 26)
    expected = (halves if layout == "half" else interleaved)(query, key, cos, sin)
    for vectors, turned in zip((query, key), expected, strict=True):
        found = rotary(vectors, how=Rotary(base=BASE, layout=layout, rotated_dim=20, **ours))
        torch.testing.assert_close(found, turned, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"factor": 2.0}, "factor is 2.0 with scaling 'none'"),
        ({"scaling": "yarn", "factor": 2.0}, "original_length is None with scaling 'yarn'"),
        ({"scaling": "linear", "factor": 2.0, "truncate": False}, "truncate is False with scaling 'linear'"),
        ({"rotated_dim": 5}, "rotated_dim is 5, expected an even"),
        ({"layout": "halves"}, "Did you mean 'half'"),
    ],
)
def test_options_without_an_effect_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        Rotary(**options)


def test_more_turned_features_than_a_head_has():
    with pytest.raises(ConfigError, match="rotated_dim is 16, expected at most the 14"):
        rotary(torch.zeros(1, 1, HEAD), how=Rotary(rotated_dim=16))


def test_the_code_of_a_place_is_sine_and_cosine_of_each_number():
    place, dim = [0.3, 0.85], 20
    periods = [0.5 * (32 ** (k / 4)) for k in range(5)]  # from 1/2 to 16
    expected = [f(2 * math.pi * n * period) for n in place for f in (math.sin, math.cos) for period in periods]
    torch.testing.assert_close(place_code(torch.tensor(place), dim), torch.tensor(expected), atol=1e-5, rtol=0)
    near, far = (place_code(torch.tensor([[0.5], [0.6]]), 64, fastest=fastest) for fastest in (2.0, 16.0))
    assert near[0] @ near[1] > far[0] @ far[1] + 5  # slower codes of neighbors are more alike
