"""Copying: the mixture as the paper writes it, in plain loops, and its values at the limits of p_gen."""

import itertools
import math
from functools import partial

import pytest
import torch
from flat_models import abs_summarizer, conv_seq2seq, recurrent_seq2seq, transformer
from searches import beam, greedy, sample
from seq2seq import TARGET_VOCABULARY, B, S, T, example, generic
from torch import nn

from foci.decoding import GenerationConstraints, select
from foci.errors import ConfigError, ShapeError
from foci.layers.copying import CopyHead, CopySource
from foci.layers.token_loss import Targets, token_log_probs
from foci.weights import Weights

V, F = TARGET_VOCABULARY, 5
RNN = partial(recurrent_seq2seq, 17, V, embedding_dim=5, hidden_dim=6, copy=True)
MODELS = {
    "luong": RNN,
    "all at once": partial(RNN, input_feeding=False),
    "coverage": partial(RNN, score="additive", coverage=True),
    "bahdanau": partial(RNN, decoder="bahdanau"),
    "heads": partial(RNN, num_heads=2, score="dot"),
    "conv": partial(
        conv_seq2seq, 17, V, embedding_dim=5, encoder_layers=[(7, 3)], decoder_layers=[(7, 2)] * 2, copy=True
    ),
    "abs": partial(abs_summarizer, 17, V, embedding_dim=3, hidden_dim=5, source_dim=7, context_size=3, copy=True),
    "transformer": partial(transformer, 17, V, model_dim=6, num_heads=2, hidden_dim=7, num_layers=2, copy=True),
}


def extended(source: torch.Tensor) -> torch.Tensor:
    """Every third word is unknown to the target vocabulary, numbered from V in the order of occurrence."""
    rows = []
    for row in source.tolist():
        own: dict[int, int] = {}
        rows.append([word if word % 3 else own.setdefault(word, V + len(own)) for word in row])
    return torch.tensor(rows)


def copied_example() -> tuple[CopySource, torch.Tensor, torch.Tensor]:
    source, valid, target = example()
    ids = extended(source).masked_fill(~valid, 0)
    target[0, 2] = V  # a word of the source that the vocabulary does not have
    target[2, 1] = V
    assert ids.max() >= V
    return CopySource(source, ids), valid, target


def mixture(logits, gate, weights, copied, width):
    """The paper's equation for one step."""
    p_gen = 1 / (1 + math.exp(-gate)) if sum(weights) > 0 else 1.0
    exponents = [math.exp(logit) for logit in logits]
    found = [p_gen * each / sum(exponents) for each in exponents] + [0.0] * (width - len(logits))
    for weight, word in zip(weights, copied):
        found[word] += (1 - p_gen) * weight
    return found


def test_the_mixture_is_the_papers():
    torch.manual_seed(0)
    head = CopyHead(F, V).double()
    logits, features = torch.randn(B, T, V).double(), torch.randn(B, T, F).double()
    source, valid, _ = copied_example()
    weights = torch.rand(B, T, S).double() * valid.unsqueeze(1)
    weights = weights / weights.sum(-1, keepdim=True)
    weights[1] = 0.0  # nothing to attend to
    found = head.mix(logits, features, weights, source.extended)
    for b in range(B):
        for t in range(T):
            gate = head.gate(features[b, t]).item()
            row = logits[b, t].tolist()
            right = mixture(row, gate, weights[b, t].tolist(), source.extended[b].tolist(), found.shape[-1])
            assert found[b, t].exp().tolist() == pytest.approx(right, abs=1e-12)
            assert sum(right) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_a_copied_word_is_read_as_unknown(kind):
    model = generic(MODELS[kind]())
    source, valid, target = copied_example()
    target[0, 2] = V + 1
    as_unknown = target.masked_fill(target >= V, 3)
    torch.testing.assert_close(model(source, valid, target).logits, model(source, valid, as_unknown).logits)
    memory, state = model.start(source, valid)
    one, other = (model.step(tokens[:, 2], memory, state).logits for tokens in (target, as_unknown))
    torch.testing.assert_close(one, other)


@pytest.mark.parametrize("kind", ["heads", "transformer"])
@torch.no_grad()
def test_the_first_head_copies(kind):
    model = generic(MODELS[kind]())
    nn.init.constant_(model.decoder.copying.gate.bias, -1e4)  # nothing is generated
    source, valid, target = copied_example()
    read = model(source, valid, target)
    name = "decoder.cross" if kind == "heads" else "decoder.1.cross"
    first = read.attentions[name].dense()[:, 0]
    found = torch.zeros_like(read.logits)
    for b, t, place in itertools.product(range(B), range(T), range(S)):
        found[b, t, source.extended[b, place]] += first[b, t, place]
    reads = valid.any(dim=1)
    torch.testing.assert_close(read.logits.exp()[reads], found[reads])


@pytest.mark.parametrize("padding", [-100, -1, 1, V - 1, 1_000_000])
@pytest.mark.parametrize("kind", MODELS)
def test_padding_may_have_any_id(kind, padding):
    torch.manual_seed(0)
    model = generic(MODELS[kind]()).eval()
    source, valid, target = copied_example()
    other = source._replace(extended=source.extended.masked_fill(~valid, padding))
    assert not valid.all()
    torch.testing.assert_close(model(other, valid, target).logits, model(source, valid, target).logits)
    with torch.no_grad():
        found, expected = (beam(model, one, valid, size=2) for one in (other, source))
    assert [one[0].tokens for one in found] == [one[0].tokens for one in expected]
    targets = Targets(target.roll(-1, 1))
    ours, plain = (model(one, valid, target, targets).loss for one in (other, source))
    torch.testing.assert_close(ours, plain)


@pytest.mark.parametrize("kind", MODELS)
def test_loss_and_log_probabilities_agree(kind):
    model = generic(MODELS[kind]())
    source, valid, target = copied_example()
    wanted = target.roll(-1, 1)
    logits = model(source, valid, target).logits
    assert torch.allclose(logits.exp().sum(-1), torch.ones(()).double())
    right = logits.gather(2, wanted.unsqueeze(2)).squeeze(2)
    found = model(source, valid, target, Targets(wanted, padding=0))
    present = (source.extended.unsqueeze(1) == wanted.unsqueeze(2)).any(2) | (wanted < V)
    assert not present.all()  # BOS rolled in is known; the extended word of row 2 is not in it
    torch.testing.assert_close(found.log_probs[present], right[present])
    assert found.loss.isfinite()
    expected = torch.autograd.grad(-right[present].sum(), tuple(model.parameters()), allow_unused=True)
    absent = Targets(wanted.masked_fill(~present, 0), padding=0)
    given = torch.autograd.grad(model(source, valid, target, absent).loss, tuple(model.parameters()), allow_unused=True)
    for (name, _), one, other in zip(model.named_parameters(), given, expected):
        assert (one is None) == (other is None), name
        if one is not None:
            torch.testing.assert_close(one, other, msg=name)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("hypotheses", [1, 3])
@torch.no_grad()
def test_steps_equal_teacher_forcing(kind, hypotheses):
    model = generic(MODELS[kind]())
    source, valid, target = copied_example()
    rows = torch.arange(B).repeat_interleave(hypotheses)
    whole = model(CopySource(source.tokens[rows], source.extended[rows]), valid[rows], target[rows])
    memory, state = model.start(source, valid)
    state = select(state, rows)
    for t in range(T):
        stepped = model.step(target[rows, t], memory, state)
        state = stepped.state
        torch.testing.assert_close(stepped.logits, whole.logits[:, t], atol=1e-9, rtol=1e-9)
    p_gen = whole.generates
    assert p_gen.shape == (B * hypotheses, T)
    assert ((p_gen > 0) & (p_gen < 1)).all()


@pytest.mark.parametrize("kind", MODELS)
@torch.no_grad()
def test_a_padded_batch_equals_each_alone(kind):
    model = generic(MODELS[kind]())
    source, valid, target = copied_example()
    batched = model(source, valid, target).logits
    for b, length in enumerate(valid.sum(1).tolist()):
        row = slice(b, b + 1)
        alone = CopySource(source.tokens[row, :length], source.extended[row, :length])
        logits = model(alone, valid[row, :length], target[row]).logits
        torch.testing.assert_close(batched[row, :, : logits.shape[2]], logits, atol=1e-9, rtol=1e-9)
        assert (batched[row, :, logits.shape[2] :] == -torch.inf).all()


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("gate", [-1e4, 1e4])
def test_saturated_gates_and_empty_sources_are_finite(kind, gate):
    model = generic(MODELS[kind]()).float().train()
    nn.init.constant_(model.decoder.copying.gate.bias, gate)
    source, valid, target = copied_example()
    valid = valid.clone()
    valid[1] = False
    with torch.autograd.set_detect_anomaly(True):
        learned = model(source, valid, target, Targets(target.roll(-1, 1), 0.1))
        learned.loss.backward()
    assert learned.loss.isfinite()
    assert learned.log_probs.isfinite().all()
    for name, parameter in model.named_parameters():
        assert parameter.grad is None or parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("kind", ["luong", "conv", "transformer", "coverage"])
@torch.no_grad()
def test_searches_produce_words_outside_the_vocabulary(kind):
    model = generic(MODELS[kind]()).float()
    nn.init.constant_(model.decoder.copying.gate.bias, -30.0)
    nn.init.constant_(model.decoder.copying.gate.weight, 0.0)
    source, valid, _ = copied_example()
    words = [set(row[where].tolist()) for row, where in zip(source.extended, valid)]
    constraints = GenerationConstraints(max_length=4)
    searches = [
        greedy(model, source, valid, constraints=constraints),
        beam(model, source, valid, size=3, length_penalty=0.0, constraints=constraints),
        sample(model, source, valid, samples=2, constraints=constraints, generator=torch.Generator().manual_seed(1)),
    ]
    for found in searches:
        for row, hypotheses in enumerate(found):
            for one in hypotheses:
                assert set(one.tokens) <= words[row]  # everything is copied, nothing is another row's word
                target = torch.tensor([[1, *one.tokens]])
                forced = model(CopySource(*(each[row : row + 1] for each in source)), valid[row : row + 1], target)
                sums = sum(float(forced.logits[0, t, token]) for t, token in enumerate(one.tokens))
                assert one.log_prob == pytest.approx(sums, abs=1e-4)
    assert any(token >= V for found in searches for row in found for one in row for token in one.tokens)
    assert (
        beam(model, source, valid, size=1, length_penalty=0.0, constraints=constraints)[0][0].tokens
        == searches[0][0][0].tokens
    )


def test_log_probabilities_in_chunks_have_the_gradients_of_the_whole(monkeypatch):
    monkeypatch.setattr("foci.layers.token_loss._CELLS", 2 * V)
    torch.manual_seed(2)
    output = nn.Linear(F, V).double()
    features = torch.randn(B * T, F, dtype=torch.double, requires_grad=True)
    tokens = torch.randint(0, V, (B * T,))
    logs = output(features).log_softmax(-1)
    right = (logs.gather(1, tokens.unsqueeze(1)).squeeze(1), logs.mean(1))
    found = token_log_probs(features, output, tokens)
    torch.testing.assert_close(found, right)
    slopes = torch.randn(2, B * T).double()
    inputs = (features, *output.parameters())
    given = torch.autograd.grad((found[0] * slopes[0] + found[1] * slopes[1]).sum(), inputs)
    torch.testing.assert_close(given, torch.autograd.grad((right[0] * slopes[0] + right[1] * slopes[1]).sum(), inputs))


@pytest.mark.parametrize("features_in", [torch.float32, torch.bfloat16])  # as a linear layer and an LSTM give them
def test_log_probabilities_under_autocast_have_gradients(features_in, monkeypatch):
    """The logits are computed again in the backward pass, which runs outside autocast: as they were before."""
    monkeypatch.setattr("foci.layers.token_loss._CELLS", 2 * V)
    output = nn.Linear(F, V)
    features = torch.randn(B * T, F).to(features_in).requires_grad_()
    tokens = torch.randint(0, V, (B * T,))
    slopes = torch.randn(2, B * T)
    inputs = (features, *output.parameters())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = token_log_probs(features, output, tokens)
        logs = output(features).float().log_softmax(-1)
    right = (logs.gather(1, tokens.unsqueeze(1)).squeeze(1), logs.mean(1))
    torch.testing.assert_close(found, right)
    given = torch.autograd.grad((found[0] * slopes[0] + found[1] * slopes[1]).sum(), inputs)
    wanted = torch.autograd.grad((right[0] * slopes[0] + right[1] * slopes[1]).sum(), inputs)
    for one, other in zip(given, wanted):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.02)


def test_label_smoothing_is_of_the_generated_words():
    torch.manual_seed(4)
    head, output = CopyHead(F, V).double(), nn.Linear(F, V).double()
    source, _, target = copied_example()
    features, weights = torch.randn(B, T, F).double(), torch.rand(B, T, S).double().softmax(-1)

    def loss(smoothing):
        targets = Targets(target, smoothing)
        return head.predict(features, output, {}, targets, Weights.from_tensor(weights), source.extended).loss

    mean = output(features).log_softmax(-1).mean(2)[target != 0].sum()
    torch.testing.assert_close(loss(0.25), 0.75 * loss(0.0) - 0.25 * mean)


def test_mistakes_are_explained():
    with pytest.raises(ConfigError, match="copy is True with variant 'cho'"):
        RNN(decoder="cho")
    model = MODELS["luong"]()
    source, valid, target = copied_example()
    with pytest.raises(ConfigError, match="CopySource"):
        model(source.tokens, valid, target)
    with pytest.raises(ShapeError, match=r"encoded.copied has shape \(3, 6\)"):
        model(CopySource(source.tokens, source.extended[:, 1:]), valid, target)
