"""Every search stops where the model's own positions end."""

import pytest
import torch
from flat_models import conv_seq2seq, recurrent_seq2seq, transformer
from searches import beam, greedy, sample

from foci.decoding import GenerationConstraints

LONGEST = 13
SOURCE = torch.tensor([[3, 4, 5, 6, 7], [8, 3, 0, 0, 0]])
VALID = SOURCE > 0

LIMITED = {
    "convolutional": lambda: conv_seq2seq(
        11, 11, embedding_dim=6, encoder_layers=[(8, 3)], decoder_layers=[(8, 3)], max_length=LONGEST
    ),
    "learned positions": lambda: transformer(
        11, 11, model_dim=8, num_heads=2, hidden_dim=10, num_layers=1, positions="learned", max_length=LONGEST
    ),
}
UNLIMITED = {
    "sinusoids": lambda: transformer(11, 11, model_dim=8, num_heads=2, hidden_dim=10, num_layers=1),
    "a limit of the source": lambda: recurrent_seq2seq(
        11, 11, embedding_dim=6, hidden_dim=8, score="location", max_length=LONGEST
    ),
}
SEARCHES = {
    "greedy": greedy,
    "beam": lambda *args, **more: beam(*args, size=3, n_best=2, **more),
    "sample": lambda *args, **more: sample(*args, samples=3, generator=torch.Generator().manual_seed(1), **more),
}


def lengths(build, search, **constraints):
    """How many tokens each hypothesis has, of a model that may never end."""
    torch.manual_seed(0)
    found = SEARCHES[search](
        build().eval(), SOURCE, VALID, constraints=GenerationConstraints(min_length=1000, **constraints)
    )
    assert not any(one.finished for row in found for one in row)
    return [{len(one.tokens) for one in row} for row in found]


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("model", LIMITED)
def test_a_search_stops_where_the_positions_of_the_model_end(model, search):
    assert lengths(LIMITED[model], search) == [{LONGEST}] * 2
    assert lengths(LIMITED[model], search, max_length=LONGEST + 1) == [{LONGEST}] * 2
    assert lengths(LIMITED[model], search, max_length=LONGEST - 1) == [{LONGEST - 1}] * 2


@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("model", UNLIMITED)
def test_a_model_without_such_a_limit_goes_on(model, search):
    assert lengths(UNLIMITED[model], search) == [{2 * 5 + 20}, {2 * 2 + 20}]


@pytest.mark.parametrize("model", LIMITED)
def test_the_last_position_may_hold_the_end(model):
    """EOS as the very last token is still a finished hypothesis."""
    torch.manual_seed(0)
    constraints = GenerationConstraints(min_length=LONGEST - 1, banned=(0, 1, *range(4, 11)))
    for (best,) in beam(LIMITED[model]().eval(), SOURCE, VALID, constraints=constraints):
        assert best.tokens == [3] * (LONGEST - 1)
        assert best.finished
