import math

import pytest
import seq2seq as checks
import torch
from flat_models import conv_seq2seq, seq2seq_by_preset
from seq2seq import SOURCE_VOCABULARY, TARGET_VOCABULARY, B, S, T, example, generic

import foci
from foci.decoding import select
from foci.errors import ConfigError, ShapeError
from foci.layers.conv import GatedConvolution, normalized_linear, scale_gradient
from foci.models.encoders.convolutional import ConvolutionalEncoderLayer
from foci.models.options.text_encoders import TEXT_ENCODER_PRESETS

CASES = {
    "even widths": {"encoder_layers": [(6, 3)] * 2, "decoder_layers": [(6, 3)] * 2},
    "changing widths": {"encoder_layers": [(6, 3), (4, 1), (7, 5)], "decoder_layers": [(6, 3), (8, 1), (4, 2)]},
    "one layer": {"encoder_layers": [(3, 1)], "decoder_layers": [(2, 4)]},
    "dropout": {"encoder_layers": [(6, 3)], "decoder_layers": [(6, 3)] * 3, "dropout": 0.5},
}


def make(name, **others):
    options = {"embedding_dim": 5, "max_length": 11} | CASES[name] | others
    return generic(conv_seq2seq(SOURCE_VOCABULARY, TARGET_VOCABULARY, **options))


@pytest.mark.parametrize("hypotheses", [1, 3])
@pytest.mark.parametrize("name", CASES)
def test_steps_equal_teacher_forcing(name, hypotheses):
    checks.check_steps_equal_teacher_forcing(make(name), hypotheses)


@pytest.mark.parametrize("name", CASES)
def test_padded_equals_alone(name):
    checks.check_padded_equals_alone(make(name))


@pytest.mark.parametrize("name", CASES)
def test_a_masked_source_token_is_not_seen(name):
    checks.check_masked_source_is_not_seen(make(name))


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_finite_with_an_empty_source(name):
    checks.check_gradients_with_an_empty_source(make(name), anomaly=name == "one layer")


def test_no_step_sees_what_comes_later():
    model, (source, valid, target) = make("changing widths"), example()
    other = target.clone()
    other[:, 3] = (other[:, 3] + 1) % TARGET_VOCABULARY
    before, after = model(source, valid, target).logits, model(source, valid, other).logits
    assert torch.equal(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3], after[:, 3])


def test_empty_batch_source_and_target():
    model, (source, valid, target) = make("changing widths"), example()
    for source_part, valid_part, target_part in (
        (source[:0], valid[:0], target[:0]),
        (source[:, :0], valid[:, :0], target),
        (source, valid, target[:, :0]),
    ):
        predicted = model(source_part, valid_part, target_part)
        assert predicted.logits.shape == (*target_part.shape, TARGET_VOCABULARY)
        for handle in predicted.attentions.values():
            assert handle.dense().shape == (*target_part.shape, source_part.shape[1])
    memory, state = model.start(source[:0], valid[:0])
    assert model.step(target[:0, 0], memory, state).logits.shape == (0, TARGET_VOCABULARY)


def test_every_decoder_layer_has_its_attention():
    model = make("changing widths")
    with foci.record(model) as tape:
        predicted = model(*example())
    assert list(predicted.attentions) == ["decoder.0.cross", "decoder.1.cross", "decoder.2.cross"]
    for number, weights in enumerate(predicted.attentions.values()):
        assert weights.shape == (B, T, S)
        torch.testing.assert_close(tape[f"decoder.layers.{number}.attention"].dense(), weights.dense())


def test_state_dict_round_trip():
    model = make("changing widths")
    other = conv_seq2seq(
        SOURCE_VOCABULARY, TARGET_VOCABULARY, embedding_dim=5, max_length=11, **CASES["changing widths"]
    )
    other = other.double().eval()
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(*example()).logits, other(*example()).logits)


def test_forward_changes_no_attribute():
    model = make("dropout").train()
    before = {key: dict(module.__dict__) for key, module in model.named_modules()}
    model(*example())
    assert {key: dict(module.__dict__) for key, module in model.named_modules()} == before


def test_overfits_one_batch():
    torch.manual_seed(13)
    options = {"encoder_layers": [(32, 3)] * 2, "decoder_layers": [(32, 3)] * 2, "max_length": 11}
    model = conv_seq2seq(SOURCE_VOCABULARY, TARGET_VOCABULARY, embedding_dim=16, **options)
    assert checks.overfit(model, steps=50, rate=0.005) > 0.95


def test_shared_embeddings_are_one_table():
    model = conv_seq2seq(
        19, 19, embedding_dim=5, encoder_layers=[(6, 3)], decoder_layers=[(6, 3)], share_embeddings=True
    )
    assert model.encoder.embedding.weight is model.decoder.embedding.weight is model.decoder.output.weight
    assert (model.decoder.output.weight[0] == 0).all()
    checks.check_steps_equal_teacher_forcing(generic(model), 3)


def test_presets_build():
    sizes = {}
    for name in TEXT_ENCODER_PRESETS["convolutional"]:
        with torch.device("meta"):  # sizes without numbers
            sizes[name] = sum(p.numel() for p in seq2seq_by_preset(50, 60, "conv", name).parameters())
    assert sizes["tiny"] < sizes["small"] < sizes["base"] < sizes["wmt_en_de"]


# --- the paper's equations as plain loops


def matvec(weight, vector):
    return [sum(w * v for w, v in zip(row, vector)) for row in weight]


def plus(*vectors):
    return [sum(parts) for parts in zip(*vectors)]


def conv_by_hand(layer, inputs):
    """GLU(W ∗ x) with zeros where there is no input; inputs are vectors in time."""
    weight, bias, size = layer.conv.weight.tolist(), layer.conv.bias.tolist(), layer.kernel_size
    first = -(size - 1) if layer.causal else -(size // 2)
    outputs = []
    for t in range(len(inputs)):
        found = list(bias)
        for o, row in enumerate(weight):
            for c, taps in enumerate(row):
                for j, tap in enumerate(taps):
                    if 0 <= t + first + j < len(inputs):
                        found[o] += tap * inputs[t + first + j][c]
        half = len(found) // 2
        outputs.append([a / (1 + math.exp(-b)) for a, b in zip(found[:half], found[half:])])
    return outputs


def linear_by_hand(layer, vector):
    return plus(matvec(layer.weight.tolist(), vector), layer.bias.tolist())


@pytest.mark.parametrize(("kernel_size", "causal"), [(3, False), (1, False), (3, True), (2, True)])
def test_gated_convolution_by_hand(kernel_size, causal):
    layer = generic(GatedConvolution(2, 3, kernel_size, causal=causal))
    inputs = torch.randn(2, 5, 2, dtype=torch.float64)
    for row, found in zip(inputs.tolist(), layer(inputs)):
        torch.testing.assert_close(found, torch.tensor(conv_by_hand(layer, row), dtype=torch.float64))


def test_an_encoder_layer_by_hand():
    layer = generic(ConvolutionalEncoderLayer(2, 3, 3))
    inputs = torch.randn(1, 5, 2, dtype=torch.float64)
    for t, found in enumerate(conv_by_hand(layer.conv, inputs[0].tolist())):
        residual = linear_by_hand(layer.residual, inputs[0, t].tolist())
        expected = [(f + r) * math.sqrt(0.5) for f, r in zip(found, residual)]
        assert layer(inputs)[0, t].tolist() == pytest.approx(expected)


def test_a_decoder_layer_by_hand():
    model, (source, valid, target) = make("even widths"), example()
    layer = model.decoder.layers[0]
    memory, _ = model.start(source, valid)
    embedded = model.decoder.positions(model.decoder.embedding(target))
    inputs = model.decoder.input(embedded)
    output, weights = layer(inputs, embedded, memory)
    source_embedded = model.encoder.positions(model.encoder.embedding(source))
    for b, length in enumerate(checks.LENGTHS):
        z, e = memory.key[b, :length].tolist(), source_embedded[b, :length].tolist()
        found = conv_by_hand(layer.conv, inputs[b].tolist())
        for t in range(T):
            d = plus(linear_by_hand(layer.attention.layer, found[t]), embedded[b, t].tolist())
            scores = [sum(x * y for x, y in zip(d, key)) for key in z]
            exps = [math.exp(score - max(scores)) for score in scores]
            a = [x / sum(exps) for x in exps]
            assert weights.dense()[b, t, :length].tolist() == pytest.approx(a)
            c = [sum(a[j] * (z[j][i] + e[j][i]) for j in range(length)) * math.sqrt(length) for i in range(5)]
            conditioned = [(f + w) * math.sqrt(0.5) for f, w in zip(found[t], linear_by_hand(layer.context, c))]
            expected = [(x + y) * math.sqrt(0.5) for x, y in zip(conditioned, inputs[b, t].tolist())]
            assert output[b, t].tolist() == pytest.approx(expected)


def test_the_encoders_gradient_is_divided_by_the_attentions():
    model, (source, valid, target) = make("dropout").eval(), example()
    gradients = []
    for scaled in (True, False):
        model.zero_grad()
        if not scaled:  # three decoder layers divide by three; here nothing does
            model.encoder.output.register_forward_hook(lambda _, __, z: scale_gradient(z, 3.0))
        model(source, valid, target).logits.square().sum().backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})
    for name, gradient in gradients[0].items():
        if name.startswith(("encoder.layers.", "encoder.output")):
            torch.testing.assert_close(3.0 * gradient, gradients[1][name])
        elif name.startswith("decoder"):
            torch.testing.assert_close(gradient, gradients[1][name])


def test_the_encoders_gradient_is_a_third_of_the_true_one():
    """Against the slope of the loss itself: three attentions, so the encoder's convolutions get a third of it."""
    model, (source, valid, target) = make("dropout").eval(), example()

    def loss():
        return model(source, valid, target).logits.square().sum()

    loss().backward()
    parameters = dict(model.named_parameters())
    for side, share in (("encoder.", 1 / 3), ("decoder.", 1.0)):
        moved = {name: p for name, p in parameters.items() if name.startswith(side) and ".conv." in name}
        assert moved
        directions = {name: torch.randn_like(p) for name, p in moved.items()}
        ours = sum((p.grad * directions[name]).sum() for name, p in moved.items())
        losses = []
        for step in (1e-6, -2e-6, 1e-6):  # ahead, back, and where it was
            with torch.no_grad():
                for name, p in moved.items():
                    p.add_(directions[name], alpha=step)
                losses.append(loss())
        slope = (losses[0] - losses[1]) / 2e-6
        torch.testing.assert_close(ours, share * slope, rtol=1e-5, atol=0.0)


def test_weights_start_as_the_paper_says():
    conv = GatedConvolution(64, 64, 3, dropout=0.25)
    assert conv.conv.weight.std().item() == pytest.approx(math.sqrt(4 * 0.75 / (64 * 3)), rel=0.05)
    assert (conv.conv.bias == 0).all()
    layer = normalized_linear(128, 128, dropout=0.5)
    assert layer.weight.std().item() == pytest.approx(math.sqrt(0.5 / 128), rel=0.05)
    model = conv_seq2seq(300, 300, embedding_dim=64)
    assert model.encoder.embedding.weight.std().item() == pytest.approx(0.1, rel=0.05)
    assert model.decoder.positions.table.std().item() == pytest.approx(0.1, rel=0.05)


# --- errors


def test_wrong_options_are_named():
    with pytest.raises(ConfigError, match="a kernel size is 4, expected an odd number"):
        conv_seq2seq(5, 7, encoder_layers=[(6, 4)])
    with pytest.raises(ConfigError, match="one \\(width, kernel size\\) at least"):
        conv_seq2seq(5, 7, decoder_layers=[])
    with pytest.raises(ConfigError, match="5 source and 7 target"):
        conv_seq2seq(5, 7, share_embeddings=True)
    with pytest.raises(ConfigError, match="with causal=True"):
        GatedConvolution(2, 3, 3).step(torch.zeros(1, 2), torch.zeros(1, 2, 2))


def test_wrong_shapes_are_named():
    model, (source, valid, target) = make("even widths"), example()
    with pytest.raises(ShapeError, match=r"source has dtype torch.float32, expected whole numbers"):
        model(source.float(), valid, target)
    with pytest.raises(ShapeError, match=r"source_valid has shape \(3, 6\).*\(3, 7\)"):
        model(source, valid[:, 1:], target)
    with pytest.raises(ShapeError, match=r"target has shape \(2, 5\), expected \(3, time\)"):
        model(source, valid, target[:2])
    with pytest.raises(ShapeError, match=r"position 13, expected at most 11"):
        model(torch.ones(1, 13, dtype=torch.long), torch.ones(1, 13, dtype=torch.bool), target[:1])
    memory, state = model.start(source, valid)
    with pytest.raises(ShapeError, match=r"token has shape \(2,\), expected \(3\)"):
        model.step(target[:2, 0], memory, state)
    rows = torch.tensor([0, 0, 1, 1])
    with pytest.raises(ShapeError, match="token has 4 rows, expected a multiple of the 3 sources"):
        model.step(target[rows, 0], memory, select(state, rows))
    with pytest.raises(ShapeError, match="reaches position 12, expected at most 11"):
        model.step(target[:, 0], memory, state._replace(position=state.position + 11))
    with pytest.raises(ShapeError, match=r"inputs has shape \(1, 4, 3\), expected \(batch, time, 2\)"):
        GatedConvolution(2, 3, 3)(torch.zeros(1, 4, 3))
    with pytest.raises(ShapeError, match=r"cache has shape \(1, 2, 1\), expected \(1, 2, 2\)"):
        GatedConvolution(2, 3, 3, causal=True).step(torch.zeros(1, 2), torch.zeros(1, 2, 1))


def test_bfloat16():
    assert make("even widths").bfloat16()(*example()).logits.isfinite().all()


@pytest.mark.slow
def test_compiles_whole():
    torch._dynamo.reset()
    model, inputs = make("changing widths").float(), example()
    with torch.no_grad():
        compiled = torch.compile(lambda *i: model(*i).logits, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(*inputs), model(*inputs).logits, atol=1e-5, rtol=1e-4)
        memory, state = model.start(*inputs[:2])
        step = torch.compile(lambda token, m, s: model.step(token, m, s)[:2], fullgraph=True, backend="aot_eager")
        logits, _ = step(inputs[2][:, 0], memory, state)
        torch.testing.assert_close(logits, model.step(inputs[2][:, 0], memory, state).logits, atol=1e-5, rtol=1e-4)
