"""Parts of attention of one's own in models, which take them where they take names, and the aliases of names."""

import pytest
import torch
from torch import nn

import foci
from foci import settings
from foci.errors import ConfigError, UnknownNameError
from foci.layers.interfaces import EncoderOutput
from foci.models.attention import build_attention
from foci.models.build import build_decoder, build_text_encoder
from foci.models.image_answerer import ImageAnswerer
from foci.models.options.attention import AttentionOptions
from foci.models.options.decoders import (
    FeedForwardDecoderOptions,
    RecurrentDecoderOptions,
    TransformerDecoderOptions,
)
from foci.models.options.images import ImageAnswererOptions, ImageGridOptions
from foci.models.options.text_encoders import TransformerTextEncoderOptions
from foci.tasks.translate.config import TranslateConfig

torch.manual_seed(3)
ENCODED = EncoderOutput(torch.randn(2, 5, 6), torch.arange(5) < torch.tensor([[5], [3]]), (torch.randn(2, 1, 6),))
TARGET = torch.tensor([[1, 4, 7], [1, 3, 0]])


class Dots(nn.Module):
    """The dot product, with a factor that is learned; the sizes of query and key may differ."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(0.5))

    def forward(self, query, key):
        size = min(query.shape[-1], key.shape[-1])
        return query[..., :size] @ key[..., :size].mT * self.factor


class Sink(nn.Module):
    """A softmax with a learned score of reading nothing."""

    def __init__(self):
        super().__init__()
        self.score = nn.Parameter(torch.zeros(()))

    def forward(self, scores, mask):
        closed = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
        nothing = self.score.expand(*scores.shape[:-1], 1)
        return torch.cat([closed, nothing], dim=-1).softmax(dim=-1)[..., :-1]


def first_three(query, key):
    return (torch.arange(key.shape[1]) < 3).view(1, 1, -1)


def halved(query, attended):
    return attended._replace(output=attended.output / 2)


class Gate(nn.Module):
    """A stage with parameters."""

    def __init__(self, size):
        super().__init__()
        self.layer = nn.Linear(size, size)

    def forward(self, query, attended):
        return attended._replace(output=attended.output * torch.sigmoid(self.layer(query)))


OWN = {"score": Dots(), "normalize": Sink()}
DECODERS = {
    "recurrent": RecurrentDecoderOptions(embedding_dim=3, hidden_dim=7),
    "bahdanau": RecurrentDecoderOptions(variant="bahdanau", embedding_dim=3, hidden_dim=7, coverage=True),
    "feed_forward": FeedForwardDecoderOptions(embedding_dim=3, hidden_dim=7, context_size=2),
    "transformer": TransformerDecoderOptions(model_dim=6, num_heads=2, hidden_dim=7, num_layers=2, **OWN),
}


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_reads_with_parts_of_ones_own_step_by_step(name):
    options = AttentionOptions(**OWN, focus=first_three, after=halved)
    decoder = build_decoder(13, 6, DECODERS[name], options).eval()
    predicted = decoder(ENCODED, TARGET)
    weights = next(weights for path, weights in predicted.attentions.items() if path.endswith("cross")).dense()
    assert (weights.sum(dim=-1) < 1).all()
    assert (weights[..., 3:] == 0).all()
    memory, state = decoder.start(ENCODED)
    for number, token in enumerate(TARGET.unbind(dim=1)):
        logits, state, _ = decoder.step(token, memory, state)
        torch.testing.assert_close(logits, predicted.logits[:, number], atol=1e-5, rtol=1e-5)
    predicted.logits.sum().backward()
    own = {path: one.grad for path, one in decoder.named_parameters() if path.endswith(("factor", "normalize.score"))}
    assert len(own) == {"transformer": 8}.get(name, 1)
    assert all(gradient is not None for gradient in own.values())


@pytest.mark.parametrize("num_heads", [None, 2])
def test_a_focus_and_a_stage_of_heads_are_those_of_one_head(num_heads):
    options = AttentionOptions(num_heads=num_heads, focus=first_three, after=halved)
    attention, query, key = build_attention(6, 6, options), torch.randn(2, 3, 6), torch.randn(2, 5, 6)
    read = attention(query, key)
    assert (read.weights.dense()[..., 3:] == 0).all()
    attention.after = None
    torch.testing.assert_close(attention(query, key).output, read.output * 2)


def test_self_attention_takes_them():
    sizes = {"model_dim": 6, "num_heads": 2, "hidden_dim": 7, "num_layers": 2}
    encoder = build_text_encoder(13, TransformerTextEncoderOptions(**sizes, focus=first_three, after=Gate(6))).eval()
    tokens = torch.tensor([[5, 6, 7, 8, 9]])
    encoded = encoder(tokens, tokens > 0)
    assert all((weights.dense()[..., 3:] == 0).all() for weights in encoded.attentions.values())
    assert len({id(one) for one in encoder.modules() if isinstance(one, Gate)}) == 2
    gated = TransformerDecoderOptions(**sizes, after=Gate(6))
    decoder = build_decoder(13, 6, gated, AttentionOptions(focus=first_three, after=Gate(6))).eval()
    predicted = decoder(ENCODED, TARGET)
    memory, state = decoder.start(ENCODED)
    for number, token in enumerate(TARGET.unbind(dim=1)):
        logits, state, _ = decoder.step(token, memory, state)
        torch.testing.assert_close(logits, predicted.logits[:, number], atol=1e-5, rtol=1e-5)
    predicted.logits.sum().backward()
    assert all(one.layer.weight.grad is not None for one in decoder.modules() if isinstance(one, Gate))


@pytest.mark.parametrize("where", ["self", "cross"])
def test_functions_are_used_in_the_fast_steps_of_a_decoder(where):
    own = {"after": halved} if where == "self" else {}
    source = AttentionOptions() if own else AttentionOptions(focus=first_three)
    options = TransformerDecoderOptions(model_dim=6, num_heads=2, hidden_dim=7, num_layers=2, **own)
    decoder = build_decoder(13, 6, options, source).eval()
    with torch.no_grad():
        predicted = decoder(ENCODED, TARGET)
        memory, state = decoder.start(ENCODED)
        for number, token in enumerate(TARGET.unbind(dim=1)):
            logits, state, _ = decoder.step(token, memory, state)
            torch.testing.assert_close(logits, predicted.logits[:, number], atol=1e-5, rtol=1e-5)


def test_a_focus_of_the_self_attention_of_a_decoder_is_refused():
    with pytest.raises(ConfigError, match="TransformerDecoderOptions: focus is .*keeps its past as projected keys"):
        TransformerDecoderOptions(model_dim=6, num_heads=2, focus=first_three)


def test_every_attention_has_a_copy():
    options = TransformerTextEncoderOptions(model_dim=6, num_heads=2, hidden_dim=7, num_layers=2, **OWN)
    encoders = [build_text_encoder(13, options) for _ in range(2)]
    owned = [one for encoder in (*encoders, *OWN.values()) for one in encoder.parameters()]
    assert len({*map(id, owned)}) == len(owned)


@pytest.mark.parametrize("num_heads", [None, 2])
def test_heads_and_hops_take_them(num_heads):
    attention = build_attention(6, 6, AttentionOptions(**OWN, num_heads=num_heads))
    query, key = torch.randn(2, 3, 6), torch.randn(2, 5, 6)
    assert (attention(query, key).weights.dense().sum(dim=-1) < 1).all()
    options = ImageAnswererOptions(
        hidden_dim=6, encoder=ImageGridOptions(hidden_dim=8), attention=AttentionOptions(**OWN, focus=first_three)
    )
    images, questions = torch.zeros(2, 3, 16, 12, dtype=torch.uint8), torch.tensor([[7, 8, 9], [5, 0, 0]])
    for weights in ImageAnswerer(11, 5, options)(images, questions).attentions.values():
        assert (weights.dense()[..., 3:] == 0).all()
        assert (weights.dense().sum(dim=-1) < 1).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": 3}, "score is a int, expected a name, or a function or module"),
        ({"score": nn.Linear(6, 6)}, r"score Linear: it takes .*protocol foci.mechanisms.parts.Score"),
        ({"score": Dots}, r"score is the class Dots, expected an object"),
        ({"normalize": nn.Softmax(-1)}, r"normalizer Softmax: .*protocol foci.mechanisms.parts.Normalizer"),
        ({"focus": lambda query: None}, r"focus <lambda>: .*protocol foci.mechanisms.parts.Focus"),
        ({"after": nn.Identity()}, r"after Identity: .*protocol foci.mechanisms.parts.Stage"),
        ({"num_heads": 2, "focus": "local_m", "radius": 1}, "focus 'global' or of your own, with several heads"),
        ({"num_heads": 2, "score": "additive"}, "score of .* or of your own, .*with several heads"),
        ({"expectation_share": 0.5, "normalize": "sample", "after": halved}, "after is .* has no effect here"),
    ],
)
def test_what_is_no_part_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        build_attention(6, 6, AttentionOptions(**options))


def test_settings_take_names_alone_and_aliases():
    made = settings.build(TranslateConfig, tables({"score": "luong"}), "settings")
    assert made == settings.build(TranslateConfig, tables({"score": "general"}), "settings")
    assert made.model.attention.score == "general"
    with pytest.raises(UnknownNameError, match="model.attention.score is 'luonk'.*Did you mean 'luong'"):
        settings.build(TranslateConfig, tables({"score": "luonk"}), "settings")
    for own in ({"score": Dots()}, {"after": halved}):
        with pytest.raises(ConfigError, match=f"settings: model.attention.{next(iter(own))} is "):
            settings.build(TranslateConfig, tables(own), "settings")
    recurrent = {"encoder": {"kind": "recurrent"}, "decoder": {"kind": "recurrent"}}
    implied = [
        TranslateConfig.implied({"model": {"preset": "tiny", **recurrent, "attention": {"score": name}}})
        for name in ("luong", "general")
    ]
    assert implied[0]["training"] == implied[1]["training"]
    assert implied[0]["training"]["lr_multipliers"]


def tables(attention):
    return {"data": {"path": "a", "target": "b"}, "model": {"attention": attention}}


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ({"score": "bahdanau", "hidden_dim": 7}, {"score": "additive", "hidden_dim": 7}),
        ({"normalize": "entmax"}, {"normalize": "entmax15"}),
    ],
)
def test_an_alias_is_the_name(alias, name):
    assert AttentionOptions(**alias) == AttentionOptions(**name)
    assert repr(foci.Attention(3, 5, **{"score": "general", **alias})) == repr(
        foci.Attention(3, 5, **{"score": "general", **name})
    )


def test_aliases_of_normalizers_hold_in_heads_and_in_attend():
    assert foci.MultiHeadAttention(6, 2, normalize="reinforce").normalize == "sample"
    query, key = torch.randn(2, 3, 5), torch.randn(2, 7, 5)
    found, want = (foci.attend(query, key, key, normalize=name).output for name in ("entmax", "entmax15"))
    assert torch.equal(found, want)
    with pytest.raises(ConfigError, match=r"score 'additive' has learned parameters. Use foci.Attention"):
        foci.attend(query, key, key, score="bahdanau")
