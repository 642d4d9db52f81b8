"""CTC joined with a decoder, by every hypothesis; and alone."""

import itertools

import pytest
import torch
from table_model import TableModel

from foci.decoding import CtcJoinedDecoder, GenerationConstraints, beam, greedy, sample
from foci.errors import ConfigError

V, T, EOS = 5, 4, 2
CONSTRAINTS = GenerationConstraints(max_length=4, banned=(0, 1))


def examples(seed=0):
    generator = torch.Generator().manual_seed(seed)
    source = torch.tensor([[3, 1, 2, 4], [4, 2, 3, 0]])
    valid = torch.tensor([[True] * 4, [True, True, True, False]])
    logs = torch.randn(2, T, V, generator=generator, dtype=torch.float64).mul(2)
    logs[:, :, 1:3] = -20.0  # BOS and EOS are no symbols of CTC
    return source, valid, logs.log_softmax(dim=-1)


def ctc_of(logs, valid, tokens):
    if not tokens:
        return float(logs[: int(valid.sum()), 0].sum())
    loss = torch.nn.functional.ctc_loss(
        logs[: int(valid.sum())].unsqueeze(1),
        torch.tensor([tokens]),
        [int(valid.sum())],
        [len(tokens)],
        reduction="sum",
    )
    return -float(loss)


def attention_of(model, source, valid, tokens):
    target = torch.tensor([[1, *tokens]])
    logits = model(source.unsqueeze(0), valid.unsqueeze(0), target).logits.log_softmax(dim=-1)[0]
    return sum(float(logits[t, token]) for t, token in enumerate([*tokens, EOS]))


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.8])
def test_a_wide_beam_finds_the_best_of_all_sequences(weight):
    model = TableModel(V, size=4)
    source, valid, logs = examples()
    decoder = CtcJoinedDecoder(model, weight)
    start = decoder.start(model.start(source, valid), logs, valid)
    found = beam(decoder, start, size=60, n_best=3, length_penalty=0.0, constraints=CONSTRAINTS)
    for row in range(2):
        scored = []
        for length in range(4):
            for tokens in itertools.product((3, 4), repeat=length):
                joint = (1 - weight) * attention_of(model, source[row], valid[row], tokens)
                joint += weight * ctc_of(logs[row], valid[row], list(tokens)) if weight else 0.0
                scored.append((joint, list(tokens)))
        scored.sort(reverse=True)
        for (expected, tokens), hypothesis in zip(scored, found[row]):
            assert hypothesis.finished
            assert hypothesis.tokens == tokens
            assert hypothesis.log_prob == pytest.approx(expected, abs=1e-4)


def test_ctc_alone_and_alone_in_the_batch():
    _, valid, logs = examples(1)
    decoder = CtcJoinedDecoder(None, 1.0)
    found = beam(decoder, decoder.start(None, logs, valid), size=40, length_penalty=0.0, constraints=CONSTRAINTS)
    for row in range(2):
        sequences = [list(tokens) for length in range(4) for tokens in itertools.product((3, 4), repeat=length)]
        best = max(sequences, key=lambda tokens: ctc_of(logs[row], valid[row], tokens))
        assert found[row][0].tokens == best
        length = int(valid[row].sum())
        alone = decoder.start(None, logs[row : row + 1, :length], valid[row : row + 1, :length])
        assert beam(decoder, alone, size=40, length_penalty=0.0, constraints=CONSTRAINTS)[0][0].tokens == best
        assert len(greedy(decoder, alone, constraints=CONSTRAINTS)[0]) == 1


@pytest.mark.parametrize("seed", range(3))
def test_samples_that_end_at_different_steps(seed):
    """CTC may allow nothing after EOS, while other samples of the source go on."""
    valid = examples()[1]
    logs = torch.randn(2, T, V, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).log_softmax(dim=-1)
    decoder = CtcJoinedDecoder(None, 1.0)
    generator = torch.Generator().manual_seed(seed)
    found = sample(decoder, decoder.start(None, logs, valid), samples=20, generator=generator)
    for row, samples in enumerate(found):
        assert len({len(one.tokens) for one in samples}) > 1
        for one in samples:
            assert one.finished
            assert one.log_prob == pytest.approx(ctc_of(logs[row], valid[row], one.tokens), abs=1e-4)


def test_what_ctc_cannot_make_longer_ends_unfinished():
    _, valid, logs = examples()
    decoder = CtcJoinedDecoder(None, 1.0)
    constraints = GenerationConstraints(min_length=9, max_length=20)
    for search in (greedy, sample):
        for (one,), length in zip(search(decoder, decoder.start(None, logs, valid), constraints=constraints), (4, 3)):
            assert not one.finished
            assert len(one.tokens) <= length
            assert one.log_prob > -torch.inf


def test_a_wrong_weight():
    for decoder, weight in ((None, 0.5), (TableModel(V), 1.5)):
        with pytest.raises(ConfigError, match="expected 0 to 1"):
            CtcJoinedDecoder(decoder, weight)
