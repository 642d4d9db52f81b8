"""Language models: the equations of attention over the history, and a context that slides."""

import itertools

import pytest
import torch
from flat_models import transformer_language_model
from seq2seq import generic

from foci.decoding import DecoderInputs, GenerationConstraints, SlidingContext, beam, generate, greedy, select, windows
from foci.decoding.sampling import Sampler
from foci.errors import ConfigError
from foci.layers.token_loss import Targets
from foci.models.decoders.history import HistoryDecoder
from foci.models.language_model import build_language_model
from foci.models.options.decoders import (
    LANGUAGE_MODEL_PRESETS,
    HistoryDecoderOptions,
    LanguageModelOptions,
    RecurrentDecoderOptions,
)

VOCABULARY, CONTEXT, BOS = 11, 7, 1
GPT2 = {
    "norm": "pre",
    "qk_norm": False,
    "bias": True,
    "zero_residual": False,
    "tie_output": True,
    **LANGUAGE_MODEL_PRESETS["transformer"]["gpt2"],
}
SIZES = {"model_dim": 12, "num_heads": 3, "hidden_dim": 17, "num_layers": 2}

MODELS = {
    **{
        positions: lambda positions=positions: transformer_language_model(
            VOCABULARY, CONTEXT, positions=positions, **SIZES
        )
        for positions in ("rotary", "alibi", "sinusoidal", "learned")
    },
    "rotary, window": lambda: transformer_language_model(VOCABULARY, CONTEXT, window=(3, 0), **SIZES),
    "alibi, window": lambda: transformer_language_model(VOCABULARY, CONTEXT, positions="alibi", window=(2, 0), **SIZES),
    "all options": lambda: transformer_language_model(
        VOCABULARY, CONTEXT, rms_norm=True, logit_cap=4.0, bias=True, activation="gelu", **SIZES
    ),
    "post, tied": lambda: transformer_language_model(
        VOCABULARY, CONTEXT, norm="post", qk_norm=False, tie_output=True, scale_embeddings=True, **SIZES
    ),
    "gpt2": lambda: transformer_language_model(VOCABULARY, CONTEXT, **{**GPT2, **SIZES}),
    "lstm": lambda: build_language_model(
        VOCABULARY, CONTEXT, RecurrentDecoderOptions(embedding_dim=5, hidden_dim=6, num_layers=2, cell="lstm")
    ),
    "history": lambda: build_language_model(
        VOCABULARY, CONTEXT, HistoryDecoderOptions(embedding_dim=5, hidden_dim=6, span=3)
    ),
}
every_model = pytest.mark.parametrize("name", MODELS)


def make(name):
    return generic(MODELS[name]())


def whole_window(model, text, context, stride):
    """Log-probabilities of what follows a text, without any cache: one pass over the window it ends in."""
    begin = 0
    while len(text) - begin >= context:
        begin += stride
    logits = model(torch.tensor([[BOS, *text[begin:]]])).logits
    return logits[0, -1].log_softmax(-1)


@every_model
@pytest.mark.parametrize(("prompt", "stride"), [(0, 3), (4, 1), (6, 6), (7, 3), (19, 5)])
@torch.no_grad()
def test_cached_steps_equal_a_pass_over_the_window_also_beyond_the_context(name, prompt, stride):
    model = make(name)
    generator = torch.Generator().manual_seed(4)
    sliding = SlidingContext(model, context=CONTEXT, stride=stride)
    prompts = torch.randint(3, VOCABULARY, (2, prompt), generator=generator)
    inputs = sliding.start(prompts, 99)
    memory, state, token = inputs.memory, inputs.state, inputs.last
    texts = prompts.tolist()
    for t in range(2 * CONTEXT + 3):
        step = sliding.step(token, memory, state)
        for row, text in enumerate(texts):
            expected = whole_window(model, text, CONTEXT, stride)
            torch.testing.assert_close(step.logits[row].log_softmax(-1), expected, atol=1e-9, rtol=1e-9)
        token = torch.randint(3, VOCABULARY, (2,), generator=generator)
        for text, new in zip(texts, token.tolist()):
            text.append(new)
        state = step.state
        if t == 4:  # rows change places
            state, token, texts = select(state, torch.tensor([1, 0])), token.flip(0), texts[::-1]


@every_model
@torch.no_grad()
def test_a_beam_slides_too(name):
    model = make(name)
    sliding = SlidingContext(model, context=4, stride=2)
    constraints = GenerationConstraints(banned=(0, 1, *range(6, VOCABULARY)))
    start = sliding.start(torch.tensor([[3, 5, 4]]), 4)
    (found,) = beam(sliding, start, size=150, n_best=5, length_penalty=0.0, constraints=constraints)

    def log_prob(tokens):
        text, total = [3, 5, 4], 0.0
        for token in tokens:
            total += float(whole_window(model, text, 4, 2)[token])
            text.append(token)
        return total

    every = [[*tokens, 2] for length in range(4) for tokens in itertools.product((3, 4, 5), repeat=length)]
    best = sorted(((log_prob(tokens), tokens[:-1]) for tokens in every), reverse=True)[:5]
    assert [one.tokens for one in found] == [tokens for _, tokens in best]
    assert [one.log_prob for one in found] == pytest.approx([total for total, _ in best])


@every_model
@torch.no_grad()
def test_hypotheses_that_slid_several_times_keep_their_own_past(name):
    model = make(name)
    sliding = SlidingContext(model, context=5, stride=2)
    prompts = torch.tensor([[3, 5], [7, 4]])
    constraints = GenerationConstraints(min_length=11)
    found = beam(sliding, sliding.start(prompts, 11), size=4, n_best=4, length_penalty=0.0, constraints=constraints)
    for prompt, hypotheses in zip(prompts.tolist(), found):
        assert len({tuple(one.tokens) for one in hypotheses}) == 4
        for one in hypotheses:
            text, total = list(prompt), 0.0
            for token in one.tokens:
                total += float(whole_window(model, text, 5, 2)[token])
                text.append(token)
            assert one.log_prob == pytest.approx(total)


@every_model
@torch.no_grad()
def test_windows_predict_each_token_as_generation_does(name):
    model = make(name)
    text = torch.randint(3, VOCABULARY, (23,), generator=torch.Generator().manual_seed(8)).tolist()
    for stride in (1, 3, 6):
        counted = 0
        for window in windows(len(text), CONTEXT, stride):
            inputs = torch.tensor([[BOS, *text[window.begin : window.end - 1]]])
            logs = model(inputs).logits[0].log_softmax(-1)
            for place in range(window.new, window.end):
                expected = whole_window(model, text[:place], CONTEXT, stride)
                torch.testing.assert_close(logs[place - window.begin], expected, atol=1e-9, rtol=1e-9)
                counted += 1
        assert counted == len(text)


@pytest.mark.parametrize("length", [0, 1, 4, 5, 12, 13])
@pytest.mark.parametrize(("context", "stride"), [(4, 1), (4, 3), (4, 4), (5, 2)])
def test_windows_cover_every_token_once_with_the_promised_past(length, context, stride):
    found = windows(length, context, stride)
    new = [place for window in found for place in range(window.new, window.end)]
    assert new == list(range(length))
    for window in found:
        assert window.end - window.begin <= context
        if window.begin:
            assert window.new - window.begin >= context - stride
    with pytest.raises(ConfigError, match="stride is 6, expected from 1 to the context of 5"):
        windows(9, 5, 6)


def test_contexts_that_do_not_fit_are_named():
    model = make("learned")
    with pytest.raises(ConfigError, match="context is 8, expected at least 2 and at most the model's 7 learned"):
        SlidingContext(model, context=8, stride=2)
    for stride in (0, 7):
        with pytest.raises(ConfigError, match=f"stride is {stride}, expected from 1 to 6"):
            SlidingContext(model, context=7, stride=stride)
    SlidingContext(make("rotary"), context=70, stride=2)


# --- attention over the history


@pytest.mark.parametrize("split", [1, 2, 3])
@torch.no_grad()
def test_the_history_is_read_by_the_equations_of_the_paper(split):
    decoder = generic(
        HistoryDecoder(VOCABULARY, HistoryDecoderOptions(embedding_dim=5, hidden_dim=6, span=3, split=split))
    )
    text = torch.randint(3, VOCABULARY, (1, 8), generator=torch.Generator().manual_seed(2))
    hidden, _ = decoder.recurrence(decoder.embedding(text))
    part = 6 // split
    key, value, predict = hidden[0, :, :part], hidden[0, :, part : 2 * part], hidden[0, :, -part:]
    if split == 1:
        value = key
    score = decoder.attention.score
    found = decoder(None, text)
    weights = found.attentions["decoder.0.self"].dense()[0]
    for t in range(8):
        before = range(max(0, t - 3), t)
        scores = torch.stack(
            [
                score.vector
                @ torch.tanh(score.key_layer.weight @ key[j] + score.query_layer.weight @ key[t] + _bias(score))
                for j in before
            ]
            or [torch.zeros((), dtype=torch.float64)]
        )
        alpha = scores.softmax(0)
        read = sum((a * value[j] for a, j in zip(alpha, before)), torch.zeros(part, dtype=torch.float64))
        joined = torch.tanh(decoder.read_layer.weight @ read + decoder.predict_layer.weight @ predict[t])
        expected = decoder.output.weight @ joined + decoder.output.bias
        torch.testing.assert_close(found.logits[0, t], expected)
        for place, j in enumerate(before):
            assert float(weights[t, j]) == pytest.approx(float(alpha[place]))
        assert float(weights[t].sum()) == pytest.approx(1.0 if t else 0.0)


def _bias(score):
    biases = [layer.bias for layer in (score.key_layer, score.query_layer) if layer.bias is not None]
    return sum(biases, torch.zeros((), dtype=torch.float64))


def test_sizes_that_do_not_divide_are_named():
    with pytest.raises(ConfigError, match="split is 3 and hidden_dim is 8, expected a split that divides"):
        HistoryDecoderOptions(hidden_dim=8)


# --- what the options do


@torch.no_grad()
def test_zero_residual_starts_as_the_identity_and_a_cap_bounds_the_logits():
    torch.manual_seed(1)
    model = transformer_language_model(VOCABULARY, CONTEXT, logit_cap=0.7, **SIZES)
    tokens = torch.tensor([[1, 4, 5, 9]])
    embedded = model.decoder.embedding(tokens)
    logits = model(tokens).logits
    expected = 0.7 * torch.tanh(model.decoder.output.weight @ model.decoder.norm(embedded)[0].T / 0.7).T
    torch.testing.assert_close(logits[0], expected)
    model.decoder.output.weight.mul_(1000)
    assert float(model(tokens).logits.abs().max()) <= 0.7


@torch.no_grad()
def test_norms_and_activation_are_those_of_their_papers():
    model = make("all options")
    layer = model.decoder.layers[0]
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    norm = layer.around_self.norm
    torch.testing.assert_close(norm(x), x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt() * norm.weight)
    attention = layer.self_attention
    for projected in (attention.project_query(x), attention.prepare(x).key):
        torch.testing.assert_close(
            projected.square().mean(-1), torch.ones(2, 3, 5, dtype=torch.float64), atol=1e-4, rtol=0
        )
    other = make("rotary").decoder.layers[0].feed_forward
    inner = (x @ other.inner_layer.weight.T).clamp_min(0) ** 2
    torch.testing.assert_close(other(x), inner @ other.outer_layer.weight.T)


def test_presets_build():
    with torch.device("meta"):
        for options in LanguageModelOptions.__args__:
            for preset in LANGUAGE_MODEL_PRESETS[options.kind].values():
                build_language_model(65, 64, options(**preset))


@every_model
def test_losses_are_those_of_the_logits(name):
    model = make(name)
    tokens = torch.randint(3, VOCABULARY, (3, 6), generator=torch.Generator().manual_seed(2))
    logs = model(tokens[:, :-1]).logits.log_softmax(-1)
    learned = model(tokens[:, :-1], Targets(tokens[:, 1:]))
    expected = logs.gather(2, tokens[:, 1:].unsqueeze(2)).squeeze(2)
    torch.testing.assert_close(learned.log_probs, expected)
    torch.testing.assert_close(learned.loss, -expected.sum())


# --- searches


@torch.no_grad()
def test_rows_end_where_they_are_told_to_and_others_go_on():
    model = make("rotary")
    memory, state = model.start(3)
    start = DecoderInputs(memory, state, 3, torch.device("cpu"), max_steps=9)
    constraints = GenerationConstraints(min_length=99)
    free = generate(model, start, constraints, Sampler(temperature=0.0).chooser())
    steps = []

    def ends(tokens, sources):
        steps.append((tokens.shape[1], list(sources)))
        return torch.tensor([source == 1 and tokens.shape[1] == 4 for source in sources])

    found = generate(model, start, constraints, Sampler(temperature=0.0).chooser(), ends_here=ends)
    assert [len(row[0].tokens) for row in found] == [9, 4, 9]
    assert [row[0].finished for row in found] == [False, True, False]
    assert [row[0].tokens for row in found] == [row[0].tokens[: len(one[0].tokens)] for row, one in zip(free, found)]
    assert steps[:5] == [(t, [0, 1, 2]) for t in range(1, 5)] + [(5, [0, 2])]


@torch.no_grad()
def test_a_search_goes_on_from_what_was_read():
    model = make("alibi")
    text = [4, 7, 3, 9]
    memory, _ = model.start(1)
    state = model.read(torch.tensor([[BOS, *text[:-1]]]), memory)
    given = DecoderInputs(memory, state, 1, torch.device("cpu"), 5, last=torch.tensor(text[-1:]))
    ((one,),) = greedy(model, given)
    start = DecoderInputs(*model.start(1), 1, torch.device("cpu"), 9)
    ((other,),) = greedy(model, start, constraints=GenerationConstraints(prefix=[text]))
    assert one.tokens == other.tokens[4:]
