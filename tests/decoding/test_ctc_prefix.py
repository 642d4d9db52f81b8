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


def test_padded_frames_change_no_score():
    """At every step, not only in the sum of a whole sequence, from which they cancel out."""
    _, valid, logs = examples(2)
    decoder, tokens = CtcJoinedDecoder(None, 1.0), (1, 3, 4, 3)
    steps = []
    for row, length in ((slice(0, 2), T), (slice(1, 2), int(valid[1].sum()))):
        memory, state, rows, *_ = decoder.start(None, logs[row, :length], valid[row, :length])
        steps.append([])
        for token in tokens:
            step = decoder.step(torch.full((rows,), token), memory, state)
            steps[-1].append(step.logits[-1])
            state = step.state
    assert int(valid[1].sum()) < T
    torch.testing.assert_close(*steps)


def test_as_many_tokens_as_frames_and_the_end():
    tokens = torch.tensor([[3, 4, 3, 4], [4, 3, 4, 0]])
    logs = torch.nn.functional.one_hot(tokens, V).double().add(1e-6).log()
    decoder = CtcJoinedDecoder(None, 1.0)
    for (best,), row in zip(greedy(decoder, decoder.start(None, logs, examples()[1])), tokens.tolist()):
        assert best.finished
        assert best.tokens == [token for token in row if token]


def test_sums_over_a_long_recording_are_exact():
    frames, tokens = 1500, [3, 4, 3, 3, 4]
    generator = torch.Generator().manual_seed(0)
    logs = torch.randn(1, frames, V, generator=generator).mul(3)
    logs[:, :, 0] += 12.0  # mostly blank, so that every frame counts
    logs = logs.log_softmax(dim=-1)
    decoder, valid = CtcJoinedDecoder(None, 1.0), torch.ones(1, frames, dtype=torch.bool)
    constraints = GenerationConstraints(prefix=[tokens], banned=(0, 1, 3, 4))
    ((best,),) = greedy(decoder, decoder.start(None, logs, valid), constraints=constraints)
    assert best.finished
    assert best.log_prob == pytest.approx(ctc_of(logs[0].double(), valid[0], tokens), abs=1e-5)
    found = []
    for given in (logs, logs.double()):
        memory, state, *_ = decoder.start(None, given, valid)
        for token in (1, *tokens):
            step = decoder.step(torch.tensor([token]), memory, state)
            state = step.state
        found.append(step.logits)
    torch.testing.assert_close(*found, rtol=1e-7, atol=0)


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
