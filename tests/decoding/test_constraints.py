"""Lengths and tokens that a search may produce, in every search."""

import math
from typing import Any

import pytest
import torch
from searches import EOS, SOURCE, VALID, beam, greedy, repeats, sample
from table_model import TableModel

from foci.decoding import GenerationConstraints
from foci.errors import ConfigError


def test_constraints_hold_for_every_search() -> None:
    model = TableModel(7, seed=2)
    constraints = GenerationConstraints(
        min_length=3, max_length=9, no_repeat_ngram=2, prefix=[[5, 5], [0], []], banned=(0, 1, 4)
    )
    generator = torch.Generator().manual_seed(0)
    searches = (
        greedy(model, SOURCE, VALID, constraints=constraints),
        beam(model, SOURCE, VALID, size=4, n_best=4, constraints=constraints),
        sample(model, SOURCE, VALID, samples=11, generator=generator, constraints=constraints),
    )
    for found in searches:
        for row, hypotheses in enumerate(found):
            for tokens, _, log_prob, _ in hypotheses:
                assert 3 <= len(tokens) <= 9
                assert tokens[: len(constraints.prefix[row])] == constraints.prefix[row]  # type: ignore[index]
                assert not {1, 4, EOS} & set(tokens[1:])
                assert not repeats(tuple(tokens), 2)
                assert math.isfinite(log_prob)


def test_a_prefix_is_of_its_source_after_others_have_ended() -> None:
    model = TableModel(7)
    model.table[..., EOS] += 100.0  # every source ends where its prefix does
    prefix = [[5], [], [4, 3, 5, 4]]
    generator = torch.Generator().manual_seed(0)
    constraints = GenerationConstraints(prefix=prefix)
    for found in (
        greedy(model, SOURCE, VALID, constraints=constraints),
        beam(model, SOURCE, VALID, size=3, constraints=constraints),
        sample(model, SOURCE, VALID, samples=2, generator=generator, constraints=constraints),
    ):
        assert [one[0].tokens for one in found] == prefix


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_length": 0}, "max_length is 0"),
        ({"min_length": -1}, "min_length is -1"),
        ({"banned": (2,)}, "EOS is 2 and banned"),
        ({"prefix": [[5, 2]]}, "a prefix holds EOS, token 2"),
    ],
)
def test_wrong_constraints(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        GenerationConstraints(**options)
