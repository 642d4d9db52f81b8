"""Decoders without a source (language models): steps against teacher forcing, peers, and searches by enumeration."""

import itertools

import pytest
import torch
from seq2seq import generic
from torch import nn

import foci
from foci.decoding import DecoderInputs, GenerationConstraints, beam, greedy, sample, select
from foci.errors import ConfigError, ShapeError
from foci.functional.positions import sinusoid
from foci.layers.interfaces import EncoderOutput
from foci.layers.token_loss import Targets
from foci.models.build import build_decoder
from foci.models.options.decoders import (
    ConvolutionalDecoderOptions,
    HistoryDecoderOptions,
    RecurrentDecoderOptions,
    TransformerDecoderOptions,
)

VOCABULARY, EOS = 11, 2
BLOCK = {"model_dim": 12, "num_heads": 3, "hidden_dim": 17}


def transformer(positions: dict | None = None, **block):
    return build_decoder(
        VOCABULARY, None, TransformerDecoderOptions(**BLOCK, num_layers=2, **block, **(positions or {}))
    )


DECODERS = {
    "transformer": transformer,
    "transformer pre learned": lambda: transformer({"positions": "learned", "max_length": 31}, norm="pre"),
    "transformer window": lambda: transformer(window=(3, 0)),
    "transformer rotary": lambda: transformer({"positions": "rotary"}),
    "transformer alibi": lambda: transformer({"positions": "alibi"}),
    "transformer alibi window": lambda: transformer({"positions": "alibi"}, window=(4, 0), norm="pre"),
    "transformer rotary sparse": lambda: transformer({"positions": "rotary"}, normalize="entmax15"),
    "transformer sparse": lambda: transformer({"tie_output": False}, normalize="sparsemax", score="cosine"),
    "transformer modern": lambda: transformer(
        {"positions": "rotary", "tie_output": False, "logit_cap": 3.0},
        norm="pre",
        rms_norm=True,
        qk_norm=True,
        activation="relu2",
        bias=False,
    ),
    "history": lambda: build_decoder(VOCABULARY, None, HistoryDecoderOptions(embedding_dim=5, hidden_dim=6, span=4)),
    "history of two parts": lambda: build_decoder(
        VOCABULARY, None, HistoryDecoderOptions(embedding_dim=5, hidden_dim=12, span=2, split=2)
    ),
    "gru": lambda: build_decoder(VOCABULARY, None, RecurrentDecoderOptions(embedding_dim=5, hidden_dim=6)),
    "lstm": lambda: build_decoder(
        VOCABULARY, None, RecurrentDecoderOptions(embedding_dim=5, hidden_dim=6, cell="lstm", num_layers=2)
    ),
    "lstm tied": lambda: build_decoder(
        VOCABULARY, None, RecurrentDecoderOptions(embedding_dim=5, hidden_dim=6, cell="lstm", tie_output=True)
    ),
    "convolutional": lambda: build_decoder(
        VOCABULARY, None, ConvolutionalDecoderOptions(embedding_dim=5, layers=((6, 3), (4, 2)), max_length=31)
    ),
}
every_decoder = pytest.mark.parametrize("name", DECODERS)


def make(name: str) -> nn.Module:
    return generic(DECODERS[name]())


def start(decoder: nn.Module, rows: int, max_steps: int = 9) -> DecoderInputs:
    return DecoderInputs(*decoder.start(None, rows), rows=rows, device=torch.device("cpu"), max_steps=max_steps)


@every_decoder
@torch.no_grad()
def test_steps_equal_teacher_forcing_while_rows_are_repeated_reordered_and_dropped(name):
    decoder = make(name)
    generator = torch.Generator().manual_seed(3)
    roots = torch.arange(4)  # the rows that are left of those the search started from
    memory, state = decoder.start(None, 4)
    past = torch.full((4, 1), 1)
    for t in range(23):  # more steps than the room a cache begins with
        step = decoder.step(past[:, -1], memory, state)
        whole = decoder(None, past)
        torch.testing.assert_close(step.logits, whole.logits[:, -1], atol=1e-9, rtol=1e-9)
        assert step.attention is None
        width, new_width = past.shape[0] // len(roots), 1 if t < 2 else 3
        parents = torch.randint(0, width, (len(roots), new_width), generator=generator)
        index = parents + width * torch.arange(len(roots)).unsqueeze(1)
        if t in (5, 11):  # a root ends
            kept = torch.arange(len(roots)) != 1
            roots, index = roots[kept], index[kept]
            memory = select(memory, kept.nonzero().squeeze(1))
        state = select(step.state, index.flatten())
        new = torch.randint(3, VOCABULARY, (index.numel(), 1), generator=generator)
        past = torch.cat([past[index.flatten()], new], dim=1)
    assert len(roots) == 2
    assert past.shape[0] == 6


@every_decoder
def test_no_position_sees_what_comes_later(name):
    decoder = make(name)
    target = torch.randint(3, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))
    other = target.clone()
    other[:, 5] = 3 + (other[:, 5] - 2) % 8
    before, after = decoder(None, target).logits, decoder(None, other).logits
    assert torch.equal(before[:, :5], after[:, :5])
    assert not torch.allclose(before[:, 5], after[:, 5])


@pytest.mark.parametrize("rows", [1, 5, 17])
@pytest.mark.parametrize("name", [name for name in DECODERS if name.startswith("transformer") and "sparse" not in name])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@torch.no_grad()
def test_fast_steps_are_those_of_the_modules(name, rows, dtype):
    decoder = make(name).to(dtype)
    memory, state = decoder.start(None, rows)
    plain, other = memory._replace(steps=None), state
    generator = torch.Generator().manual_seed(2)
    for t in range(8):
        token = torch.randint(3, VOCABULARY, (state.rows,), generator=generator)
        found, expected = decoder.step(token, memory, state), decoder.step(token, plain, other)
        torch.testing.assert_close(found.logits, expected.logits)
        state, other = found.state, expected.state
        if t == 1:
            index = torch.arange(rows).repeat_interleave(3)
            state, other = select(state, index), select(other, index)
    assert memory.steps.form is not None


@pytest.mark.parametrize("norm", ["pre", "post"])
@torch.no_grad()
def test_the_transformer_is_torchs_encoder_with_a_causal_mask(norm):
    decoder = generic(transformer(norm=norm))
    layer = nn.TransformerEncoderLayer(12, 3, 17, 0.0, batch_first=True, norm_first=norm == "pre", dtype=torch.float64)
    peer = nn.TransformerEncoder(layer, 2, decoder.norm if norm == "pre" else None, enable_nested_tensor=False).eval()
    for ours, theirs in zip(decoder.layers, peer.layers):
        attention = ours.self_attention
        parts = (attention.query_layer, attention.key_layer, attention.value_layer)
        theirs.self_attn.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        theirs.self_attn.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
        theirs.self_attn.out_proj.load_state_dict(attention.output_layer.state_dict())
        theirs.linear1.load_state_dict(ours.feed_forward.inner_layer.state_dict())
        theirs.linear2.load_state_dict(ours.feed_forward.outer_layer.state_dict())
        theirs.norm1.load_state_dict(ours.around_self.norm.state_dict())
        theirs.norm2.load_state_dict(ours.around_feed_forward.norm.state_dict())
    target = torch.randint(3, VOCABULARY, (3, 7), generator=torch.Generator().manual_seed(1))
    table = decoder.embedding.table.weight
    embedded = table[target] * 12**0.5 + sinusoid(7, 12, dtype=torch.float64)
    mask = nn.Transformer.generate_square_subsequent_mask(7, dtype=torch.float64)
    predicted = decoder(None, target)
    torch.testing.assert_close(predicted.logits, peer(embedded, mask, is_causal=True) @ table.T)
    assert list(predicted.attentions) == ["decoder.0.self", "decoder.1.self"]


@pytest.mark.parametrize(("name", "kind"), [("gru", nn.GRU), ("lstm", nn.LSTM)])
def test_the_recurrence_is_torchs_from_a_state_of_zeros(name, kind):
    decoder = make(name)
    peer = kind(5, 6, 2 if name == "lstm" else 1, batch_first=True, dtype=torch.float64)
    peer.load_state_dict(decoder.recurrence.layers.state_dict())
    target = torch.randint(3, VOCABULARY, (3, 7), generator=torch.Generator().manual_seed(1))
    hidden, _ = peer(decoder.embedding.weight[target])
    expected = hidden @ decoder.output.weight.T + decoder.output.bias
    predicted = decoder(None, target)
    torch.testing.assert_close(predicted.logits, expected)
    assert predicted.attentions == {}


# --- searches


def log_prob_of(decoder: nn.Module, tokens: list[int]) -> float:
    logs = decoder(None, torch.tensor([[1, *tokens]])).logits[0].log_softmax(-1)
    return sum(float(logs[t, token]) for t, token in enumerate(tokens))


@every_decoder
@torch.no_grad()
def test_a_full_beam_is_enumeration(name):
    decoder = make(name)
    words, prefix = (3, 4, 5), [[4], []]
    constraints = GenerationConstraints(banned=(0, 1, *range(6, VOCABULARY)), prefix=prefix)
    found = beam(
        decoder, start(decoder, 2, max_steps=4), size=200, n_best=7, length_penalty=0.0, constraints=constraints
    )
    for row, hypotheses in enumerate(found):
        every = [
            list(tokens)
            for length in range(4)
            for tokens in itertools.product(words, repeat=length)
            if list(tokens[: len(prefix[row])]) == prefix[row]
        ]
        expected = sorted(((log_prob_of(decoder, [*tokens, EOS]), tokens) for tokens in every), reverse=True)[:7]
        assert [one.tokens for one in hypotheses] == [tokens for _, tokens in expected]
        assert [one.log_prob for one in hypotheses] == pytest.approx([log_prob for log_prob, _ in expected])


@every_decoder
def test_searches_of_several_rows_are_those_of_each(name):
    decoder = make(name)
    prefixes = [[3, 7], [5], [4, 4, 9]]
    for search in (greedy, lambda *args, **more: beam(*args, size=3, n_best=2, **more)):
        together = search(decoder, start(decoder, 3), constraints=GenerationConstraints(prefix=prefixes))
        for prefix, hypotheses in zip(prefixes, together):
            (alone,) = search(decoder, start(decoder, 1), constraints=GenerationConstraints(prefix=[prefix]))
            assert [one.tokens for one in alone] == [one.tokens for one in hypotheses]
            assert [one.score for one in alone] == pytest.approx([one.score for one in hypotheses])
            assert all(one.tokens[: len(prefix)] == prefix for one in hypotheses)


@every_decoder
def test_samples_have_the_models_log_probability(name):
    decoder = make(name)
    generator = torch.Generator().manual_seed(0)
    found = sample(
        decoder, start(decoder, 2), samples=5, generator=generator, constraints=GenerationConstraints(banned=())
    )
    assert [len(row) for row in found] == [5, 5]
    with torch.no_grad():
        for one in itertools.chain(*found):
            tokens = [*one.tokens, EOS] if one.finished else one.tokens
            assert one.log_prob == pytest.approx(log_prob_of(decoder, tokens))


@pytest.mark.parametrize("name", ["transformer pre learned", "convolutional"])
def test_a_search_stops_at_the_last_position(name):
    decoder = make(name)
    assert decoder.max_length == 31
    for max_steps in (30, 31, 32):
        constraints = GenerationConstraints(min_length=99)
        ((one,), _) = greedy(decoder, start(decoder, 2, max_steps), constraints=constraints)
        assert len(one.tokens) == min(max_steps, 31)


def test_one_number_of_steps_for_each_row():
    decoder = make("gru")
    begun = start(decoder, 3)._replace(max_steps=[5, 2, 7])
    constraints = GenerationConstraints(min_length=99)
    assert [len(row[0].tokens) for row in greedy(decoder, begun, constraints=constraints)] == [5, 2, 7]
    with pytest.raises(ConfigError, match=r"max_steps has 2 entries, the least of them 5, expected 3"):
        greedy(decoder, begun._replace(max_steps=[5, 7]))
    with pytest.raises(ConfigError, match=r"the least of them 0, expected 3 of at least 1"):
        greedy(decoder, begun._replace(max_steps=0))


# --- training, recording


@every_decoder
def test_it_overfits_a_text(name):
    torch.manual_seed(5)
    decoder = DECODERS[name]()
    text = torch.randint(3, VOCABULARY, (1, 21), generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.Adam(decoder.parameters(), lr=0.03)
    losses = []
    for _ in range(200):
        loss = decoder(None, text[:, :-1], Targets(text[:, 1:])).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()) / 20)
        if losses[-1] < 0.5:
            break
    assert losses[0] > 2.0
    assert losses[-1] < 0.5
    assert all(parameter.grad is not None for parameter in decoder.parameters())


def test_record_sees_the_attention_of_steps_and_of_a_pass():
    decoder = make("transformer")
    target = torch.randint(3, VOCABULARY, (2, 5), generator=torch.Generator().manual_seed(1))
    with foci.record(decoder) as tape:
        predicted = decoder(None, target)
    torch.testing.assert_close(tape["layers.1.self_attention"].dense(), predicted.attentions["decoder.1.self"].dense())


@every_decoder
def test_no_rows_and_no_tokens(name):
    decoder = make(name)
    assert decoder(None, torch.zeros(0, 3, dtype=torch.long)).logits.shape == (0, 3, VOCABULARY)
    assert decoder(None, torch.zeros(2, 0, dtype=torch.long)).logits.shape == (2, 0, VOCABULARY)
    for search in (greedy, beam, sample):
        assert search(decoder, start(decoder, 0)) == []


# --- errors


@every_decoder
def test_a_source_that_is_not_expected_is_named(name):
    decoder, encoded = make(name), EncoderOutput(torch.zeros(1, 2, 7), torch.ones(1, 2, dtype=torch.bool))
    for call in (lambda: decoder(encoded, torch.ones(1, 3, dtype=torch.long)), lambda: decoder.start(encoded)):
        with pytest.raises(ConfigError, match=r"there is a source, expected encoded=None.*source_dim=7"):
            call()


def test_kinds_that_need_a_source_are_named():
    for kind in ("cho", "bahdanau", "luong"):
        with pytest.raises(ConfigError, match=rf"variant is '{kind}' and source_dim is None.*variant='sutskever'"):
            build_decoder(VOCABULARY, None, RecurrentDecoderOptions(variant=kind))


def test_penalties_that_need_a_source_are_named():
    decoder = make("transformer")
    begun = start(decoder, 1)
    with pytest.raises(ConfigError, match=r"coverage_penalty needs inputs.valid"):
        beam(decoder, begun, coverage_penalty=0.2)
    with pytest.raises(ConfigError, match=r"coverage_penalty needs a decoder with attention to a source"):
        beam(decoder, begun._replace(valid=torch.ones(1, 3, dtype=torch.bool)), coverage_penalty=0.2)


def test_wrong_shapes_are_named():
    decoder = make("transformer")
    memory, state = decoder.start(None, 2)
    with pytest.raises(ShapeError, match=r"there are 3 hypotheses of 2 sources"):
        decoder.step(torch.ones(3, dtype=torch.long), memory, select(state, torch.tensor([0, 0, 1])))
    with pytest.raises(ConfigError, match=r"num_layers is 0"):
        TransformerDecoderOptions(**BLOCK, num_layers=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["transformer", "convolutional"])
def test_it_compiles_whole(name):
    torch._dynamo.reset()
    decoder = make(name).float()
    target = torch.randint(3, VOCABULARY, (2, 5), generator=torch.Generator().manual_seed(1))
    compiled = torch.compile(lambda tokens: decoder(None, tokens).logits, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(target), decoder(None, target).logits, atol=1e-5, rtol=1e-4)
