"""Any encoder with any decoder: words, or regions that the user encodes, read by every kind of decoder."""

import math

import pytest
import seq2seq as checks
import torch
from searches import beam, greedy
from seq2seq import SOURCE_VOCABULARY, TARGET_VOCABULARY, B, S, example, generic
from torch import Tensor, nn

from foci.decoding import GenerationConstraints
from foci.errors import ConfigError, ShapeError
from foci.layers.interfaces import EncoderOutput
from foci.layers.recurrent import Bridge
from foci.layers.token_loss import Targets, TokenLoss
from foci.models.build import build_text_encoder
from foci.models.decoders.convolutional import ConvolutionalDecoder
from foci.models.decoders.recurrent import recurrent_decoder
from foci.models.decoders.transformer import TransformerDecoder
from foci.models.encoder_decoder import EncoderDecoder
from foci.models.options.attention import AttentionOptions
from foci.models.options.decoders import (
    ConvolutionalDecoderOptions,
    RecurrentDecoderOptions,
    TransformerDecoderOptions,
)
from foci.models.options.text_encoders import (
    ConvolutionalTextEncoderOptions,
    RecurrentTextEncoderOptions,
    TransformerTextEncoderOptions,
)

SIZE = 6  # of the source's cells


class Regions(nn.Module):
    """A user's own encoder: a table stands for the features of image regions. It has no summary."""

    output_dim = SIZE

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Embedding(SOURCE_VOCABULARY, SIZE)

    def forward(self, source: Tensor, valid: Tensor) -> EncoderOutput:
        return EncoderOutput(self.features(source), valid)


ENCODERS = {
    "gru": lambda: build_text_encoder(SOURCE_VOCABULARY, RecurrentTextEncoderOptions(embedding_dim=5, hidden_dim=SIZE)),
    "two-layer lstm": lambda: build_text_encoder(
        SOURCE_VOCABULARY,
        RecurrentTextEncoderOptions(embedding_dim=5, hidden_dim=SIZE, cell="lstm", num_layers=2, bidirectional=False),
    ),
    "convolutional": lambda: build_text_encoder(
        SOURCE_VOCABULARY,
        ConvolutionalTextEncoderOptions(embedding_dim=SIZE, layers=((7, 3), (4, 1)), max_length=11),
        num_readers=2,
    ),
    "transformer": lambda: build_text_encoder(
        SOURCE_VOCABULARY, TransformerTextEncoderOptions(model_dim=SIZE, num_heads=3, hidden_dim=7, num_layers=2)
    ),
    "regions": Regions,
}
RECURRENT = {"embedding_dim": 5, "hidden_dim": 7}


def recurrent(attention=None, **options):
    options = RecurrentDecoderOptions(**{**RECURRENT, **options})
    return recurrent_decoder(TARGET_VOCABULARY, SIZE, options, AttentionOptions(**(attention or {})))


DECODERS = {
    "sutskever": lambda: recurrent(variant="sutskever", num_layers=2),
    "cho lstm": lambda: recurrent(variant="cho", cell="lstm"),
    "bahdanau lstm": lambda: recurrent({"score": "location_aware"}, variant="bahdanau", cell="lstm", num_layers=3),
    "luong": lambda: recurrent(),
    "luong from the first position": lambda: recurrent(
        {"score": "location_aware", "initial_alignment": "first"}, input_feeding=False
    ),
    "convolutional": lambda: ConvolutionalDecoder(
        TARGET_VOCABULARY, SIZE, ConvolutionalDecoderOptions(layers=((7, 3), (4, 2)), max_length=11)
    ),
    "transformer": lambda: TransformerDecoder(
        TARGET_VOCABULARY, SIZE, TransformerDecoderOptions(model_dim=10, num_heads=2, hidden_dim=7, num_layers=2)
    ),
}
every_pair = pytest.mark.parametrize("decoder", DECODERS)
every_encoder = pytest.mark.parametrize("encoder", ENCODERS)


def make(encoder: str, decoder: str) -> EncoderDecoder:
    return generic(EncoderDecoder(ENCODERS[encoder](), DECODERS[decoder]()))


@every_pair
@every_encoder
def test_steps_equal_teacher_forcing(encoder, decoder):
    checks.check_steps_equal_teacher_forcing(make(encoder, decoder), 3)


@every_pair
@every_encoder
def test_padded_equals_alone(encoder, decoder):
    checks.check_padded_equals_alone(make(encoder, decoder))


@every_pair
@every_encoder
def test_a_masked_cell_is_not_seen(encoder, decoder):
    checks.check_masked_source_is_not_seen(make(encoder, decoder))


@every_pair
@every_encoder
def test_gradients_are_finite_with_an_empty_source(encoder, decoder):
    checks.check_gradients_with_an_empty_source(make(encoder, decoder))


@every_pair
@every_encoder
def test_every_parameter_learns_and_the_loss_is_that_of_the_logits(encoder, decoder):
    model = make(encoder, decoder)
    source, valid, target = example()
    tokens = target.roll(-1, dims=1)
    learned = model(source, valid, target, Targets(tokens, 0.1, padding=-1))
    assert isinstance(learned, TokenLoss)
    logits = model(source, valid, target).logits
    expected = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten(), reduction="sum", label_smoothing=0.1)
    torch.testing.assert_close(learned.loss, expected)
    learned.loss.backward()
    unused = [name for name, parameter in model.named_parameters() if parameter.grad is None]
    assert unused == []


@every_pair
def test_searches_of_a_batch_are_those_of_its_rows(decoder):
    model = make("regions", decoder)
    source, valid, _ = example()
    constraints = GenerationConstraints(max_length=9)
    for search, options in ((greedy, {}), (beam, {"size": 3, "n_best": 2})):
        together = search(model, source, valid, constraints=constraints, **options)
        for row, length in enumerate(checks.LENGTHS):
            part = slice(row, row + 1)
            (alone,) = search(model, source[part, :length], valid[part, :length], constraints=constraints, **options)
            assert [one.tokens for one in alone] == [one.tokens for one in together[row]]
            assert [one.score for one in alone] == pytest.approx([one.score for one in together[row]])


def test_positions_are_sampled_from_the_first_on():
    options = {"focus": "median_window", "window": (0, 1), "normalize": "sample", "initial_alignment": "first"}
    decoder = recurrent({**options, "expectation_share": 0.5})
    model = generic(EncoderDecoder(Regions(), decoder))
    checks.check_steps_equal_teacher_forcing(model, 3)
    source, valid, target = example()
    weights = model.train()(source, valid, target).attentions["decoder.cross"].dense()
    assert not weights[:, 0, 2:].any()
    assert (weights[:, 0].sum(dim=-1) - valid[:, 0].double()).abs().max() < 1e-9


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_source_without_a_summary_starts_from_its_mean(cell):
    """Xu et al. (2015), section 3.1.2: two layers map the mean of the regions to the first hidden state and cell."""
    decoder = generic(recurrent(cell=cell, num_layers=2))
    values, valid = torch.randn(2, 5, SIZE, dtype=torch.float64), torch.arange(5) < torch.tensor([[3], [0]])
    _, state = decoder.start(EncoderOutput(values, valid))
    assert len(state.recurrent) == (2 if cell == "lstm" else 1)
    for row, mean in enumerate(([float(values[0, :3, d].mean()) for d in range(SIZE)], [0.0] * SIZE)):
        for number, layer in enumerate((decoder.bridge.hidden, decoder.bridge.cell)[: len(state.recurrent)]):
            weight, bias = layer.weight.tolist(), layer.bias.tolist()
            first = [sum(w * m for w, m in zip(line, mean)) + b for line, b in zip(weight, bias)]
            expected = [math.tanh(x) for x in first] if number == 0 else first
            for depth in range(2):
                assert state.recurrent[number][row, depth].tolist() == pytest.approx(expected)


@pytest.mark.parametrize(("parts", "layers"), [(1, 1), (1, 2), (2, 2), (2, 3)])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_summary_is_mapped_layer_by_layer_or_from_its_top(parts, layers, cell):
    bridge = generic(Bridge(3, 5, cell=cell, num_layers=2))
    summary = tuple(torch.randn(7, layers, 3, dtype=torch.float64) for _ in range(parts))
    state = bridge(summary)
    assert [part.shape for part in state] == [(7, 2, 5)] * (2 if cell == "lstm" else 1)
    for layer in range(2):
        read = layer if layers == 2 else layers - 1
        torch.testing.assert_close(state[0][:, layer], torch.tanh(bridge.hidden(summary[0][:, read])))
        if cell == "lstm":
            torch.testing.assert_close(state[1][:, layer], bridge.cell(summary[parts - 1][:, read]))


def test_keys_are_compared_and_values_are_read():
    values, keys = torch.randn(B, S, SIZE, dtype=torch.float64), torch.randn(B, S, SIZE, dtype=torch.float64)
    valid = example()[1]
    target = example()[2]
    for name in ("bahdanau lstm", "luong", "convolutional", "transformer"):
        decoder = generic(DECODERS[name]())
        both = decoder(EncoderOutput(values, valid, keys=keys), target)
        # The first step asks with the same query whatever is read: its weights depend on the keys alone.
        summary = (torch.zeros(B, 1, SIZE, dtype=torch.float64),)
        first = {}
        for case, cells in {
            "both": (values, keys),
            "other values": (values + 1, keys),
            "no keys": (values, None),
        }.items():
            predicted = decoder(EncoderOutput(cells[0], valid, summary, keys=cells[1]), target)
            weights = next(w for n, w in predicted.attentions.items() if n.endswith("cross"))
            first[case] = weights.dense()[..., 0, :]
        torch.testing.assert_close(first["both"], first["other values"])
        assert not torch.allclose(first["both"], first["no keys"])
        assert not torch.allclose(both.logits, decoder(EncoderOutput(values + 1, valid, keys=keys), target).logits)


# --- errors


def test_sizes_that_do_not_fit_are_named():
    encoder = Regions()
    with pytest.raises(ConfigError, match=r"positions have size 6 .* size 7, expected the same.*source_dim=6"):
        EncoderDecoder(encoder, recurrent_decoder(TARGET_VOCABULARY, 7, RecurrentDecoderOptions()))
    with pytest.raises(ConfigError, match=r"reads no source.*source_dim=6"):
        EncoderDecoder(encoder, recurrent_decoder(TARGET_VOCABULARY, None, RecurrentDecoderOptions()))
    with pytest.raises(ConfigError, match=r"source_dim is 6 and embedding_dim is 5.*Leave embedding_dim out"):
        ConvolutionalDecoder(TARGET_VOCABULARY, 6, ConvolutionalDecoderOptions(embedding_dim=5))


@every_pair
def test_a_wrong_source_is_named(decoder):
    built, target = DECODERS[decoder](), torch.ones(2, 3, dtype=torch.long)
    values, valid = torch.zeros(2, 5, SIZE), torch.ones(2, 5, dtype=torch.bool)
    for call in (lambda encoded: built(encoded, target), built.start):
        with pytest.raises(ConfigError, match=r"encoded is None, expected a source with values of size 6"):
            call(None)
        with pytest.raises(ShapeError, match=r"encoded.values has shape \(2, 5, 7\), expected \(batch, position, 6\)"):
            call(EncoderOutput(torch.zeros(2, 5, 7), valid))
        with pytest.raises(ShapeError, match=r"encoded.valid has shape \(2, 4\)"):
            call(EncoderOutput(values, valid[:, 1:]))
        with pytest.raises(ShapeError, match=r"encoded.keys has shape \(2, 4, 6\), expected \(2, 5, 6\)"):
            call(EncoderOutput(values, valid, keys=values[:, 1:]))
    with pytest.raises(ShapeError, match=r"target has shape \(3, 3\)"):
        built(EncoderOutput(values, valid), torch.ones(3, 3, dtype=torch.long))


def test_a_state_that_cannot_be_copied_is_named():
    decoder = recurrent(hidden_dim=SIZE, copy_state=True, num_layers=2)
    values, valid = torch.zeros(2, 5, SIZE), torch.ones(2, 5, dtype=torch.bool)
    with pytest.raises(ShapeError, match=r"1 parts of \(layers, size\) \(1, 6\), expected 1 of \(2, 6\)"):
        decoder.start(EncoderOutput(values, valid))
    summary = torch.randn(2, 2, SIZE)
    assert torch.equal(decoder.start(EncoderOutput(values, valid, (summary,)))[1].recurrent[0], summary)
