"""Options of heads in every Transformer by name: each has an effect, trains, and steps equal the whole text."""

import pytest
import torch
from torch.nn import functional as F

from foci.errors import ConfigError
from foci.functional.rotary_options import Rotary
from foci.layers.several_heads import HEAD_OPTIONS
from foci.models.build import build_decoder, build_seq2seq
from foci.models.options.attention import AttentionOptions
from foci.models.options.decoders import RecurrentDecoderOptions, TransformerDecoderOptions
from foci.models.options.seq2seq import Seq2SeqOptions
from foci.models.options.text_encoders import TransformerTextEncoderOptions
from foci.models.options.words import TaggerOptions
from foci.tasks.frame import config as configs
from foci.tasks.frame.config import find_config

SIZES = {"model_dim": 12, "num_heads": 6, "hidden_dim": 7, "num_layers": 3}
VOCABULARY, B, T = 11, 2, 9

OF_HEADS = [
    {"head_dim": 4},
    {"num_key_heads": 3},
    {"qk_norm": True},
    {"qk_norm": "rms"},
    {"qk_norm": "layer"},
    {"scale": 0.1},
    {"score_cap": 0.3},
    {"sink": "learned"},
    {"sink": "zero"},
    {"gate": "elementwise"},
    {"gate": "headwise"},
    {"output_bias": False},
]
OF_BLOCKS = [
    *OF_HEADS,
    {"positions": "rotary"},
    {"positions": "rotary", "head_dim": 4, "rotary": Rotary(base=100.0, layout="half", rotated_dim=2)},
    {"positions": "rotary", "rotary": Rotary(scaling="linear", factor=2.0)},
    {"positions": "alibi"},
    {"positions": "t5"},
    {"positions": "shaw"},
    {"positions": "transformer_xl"},
    {"window": (2, 0)},
    {"window": (2, 0), "global_every": 2},
]


def with_random_parameters(build):
    torch.manual_seed(3)
    model = build()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


def language_model(**options):
    decoder = TransformerDecoderOptions(**SIZES, **options)
    return with_random_parameters(lambda: build_decoder(VOCABULARY, None, decoder))


def translator(of_encoder, of_attention):
    options = Seq2SeqOptions(
        encoder=TransformerTextEncoderOptions(**SIZES, **of_encoder),
        decoder=TransformerDecoderOptions(**SIZES),
        attention=AttentionOptions(**of_attention),
    )
    return with_random_parameters(lambda: build_seq2seq(VOCABULARY, VOCABULARY, options))


def tokens():
    return torch.randint(3, VOCABULARY, (B, T), generator=torch.Generator().manual_seed(5))


def check_training(model, logits, plain):
    """The options change the result, every parameter gets a gradient, and the loss falls."""
    before = logits(model)
    assert before.shape == plain.shape
    assert not torch.allclose(before, plain)
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.02), []
    for _ in range(8):
        loss = F.cross_entropy(logits(model)[:, :-1].flatten(0, 1), tokens()[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        optimizer.step()
        losses.append(float(loss))
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("options", OF_BLOCKS, ids=str)
def test_a_language_model(options):
    def logits(model):
        return model(None, tokens()).logits

    model = language_model(**options)
    check_training(model, logits, logits(language_model()))
    model.eval()
    with torch.no_grad():
        whole, (memory, state), steps = logits(model), model.start(None, B), []
        for token in tokens().T:
            predicted = model.step(token, memory, state)
            state = predicted.state
            steps.append(predicted.logits)
        torch.testing.assert_close(torch.stack(steps, dim=1), whole, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("of_encoder", "of_attention"),
    [*((one, {}) for one in OF_BLOCKS), *(({}, one) for one in OF_HEADS)],
    ids=str,
)
def test_the_encoder_and_the_attention_to_the_source(of_encoder, of_attention):
    source = tokens().flip(0)

    def logits(model):
        return model(source, source != 5, tokens()).logits

    check_training(translator(of_encoder, of_attention), logits, logits(translator({}, {})))


@pytest.mark.parametrize("options", OF_HEADS, ids=str)
def test_the_attention_of_a_recurrent_decoder(options):
    decoder = RecurrentDecoderOptions(embedding_dim=5, hidden_dim=12)

    def model(**options):
        return with_random_parameters(
            lambda: build_decoder(VOCABULARY, 7, decoder, AttentionOptions(num_heads=6, **options))
        )

    attention, plain = (one.attention for one in (model(**options), model()))
    query, key = torch.randn(B, 3, 12), torch.randn(B, 5, 7)
    output = attention(query, key).output
    assert not torch.allclose(output, plain(query, key).output)
    output.square().sum().backward()
    assert all(p.grad is not None for p in attention.parameters())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TransformerDecoderOptions(**SIZES, num_key_heads=4), "num_key_heads is 4, expected a divisor"),
        (lambda: TransformerDecoderOptions(**SIZES, global_every=2), "global_every is 2 without a window"),
        (lambda: TransformerDecoderOptions(**SIZES, rotary=Rotary(base=7.0)), "expected positions 'rotary'"),
        (lambda: TransformerDecoderOptions(**SIZES, qk_norm="rmss"), "Did you mean 'rms'"),
        (lambda: TransformerDecoderOptions(**SIZES, positions="rotary", head_dim=5), "heads of 5 features"),
        (lambda: TaggerOptions(gate="headwise"), "Set encoder='attention'"),
        (
            lambda: build_decoder(11, 7, RecurrentDecoderOptions(), AttentionOptions(sink="zero")),
            "Set attention.num_heads",
        ),
        (
            lambda: build_decoder(11, 7, TransformerDecoderOptions(**SIZES, copy=True), AttentionOptions(sink="zero")),
            "expected no sink",
        ),
    ],
)
def test_what_has_no_effect_or_does_not_fit_is_refused(make, words):
    with pytest.raises(ConfigError, match=words):
        make()


@pytest.mark.parametrize(("task", "table"), [("generate", "model"), ("translate", "model.decoder"), ("tag", "model")])
def test_options_of_heads_are_settings(task, table):
    kind = find_config(task)
    kinds = {"translate": {"model.kind": "transformer"}, "tag": {"model.encoder": "attention"}}
    values = {"head_dim": 6, "qk_norm": "rms", "score_cap": 3.0, "sink": "learned", "gate": "headwise"}
    given = kinds.get(task, {}) | {f"{table}.{name}": value for name, value in values.items()}
    start = {name: one for name, one in kind.smallest.items() if name.partition(".")[0] != "model"}
    config = configs.configure(kind, configs.put(start, given), "test")
    options = config
    for name in table.split("."):
        options = getattr(options, name)
    assert {name: getattr(options, name) for name in values} == values
    assert set(HEAD_OPTIONS) > set(values)
