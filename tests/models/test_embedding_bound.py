"""The scale of new embeddings: an option of the recurrent and of the attention-based model."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from flat_models import abs_summarizer, recurrent_seq2seq
from torch import nn

from foci.errors import ConfigError

SIZES = {"embedding_dim": 7, "hidden_dim": 6}
MODELS: dict[str, Callable[..., nn.Module]] = {
    "rnn": lambda **options: recurrent_seq2seq(101, 103, **SIZES, **options),
    "shared": lambda **options: recurrent_seq2seq(101, 101, share_embeddings=True, **SIZES, **options),
    "abs": lambda **options: abs_summarizer(101, 103, source_dim=3, **SIZES, **options),
}


def weights(name: str, **options: Any) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return dict(MODELS[name](**options).state_dict())


@pytest.mark.parametrize("name", MODELS)
def test_only_the_embeddings_are_spread_and_padding_stays_zero(name: str) -> None:
    plain, same, wide = weights(name), weights(name, embedding_init_range=0.1), weights(name, embedding_init_range=0.9)
    tables = {path for path in plain if path.endswith("embedding.weight")}
    assert len(tables) == (3 if name == "abs" else 2)
    tied = {"decoder.output.weight"} if name == "shared" else set()
    for path, weight in plain.items():
        assert torch.equal(same[path], weight)
        factor = 9.0 if path in tables | tied else 1.0
        torch.testing.assert_close(wide[path], factor * weight)
    for path in tables:
        assert 0.8 < wide[path].abs().max() <= 0.9
        assert not wide[path][0].any()


@pytest.mark.parametrize("name", MODELS)
def test_a_range_that_is_none(name: str) -> None:
    with pytest.raises(ConfigError, match="embedding_init_range is 0, expected a number above 0"):
        MODELS[name](embedding_init_range=0)
