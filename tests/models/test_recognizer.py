"""The model of speech recognition and its encoders."""

import pytest
import torch
from flat_models import recognizer

from foci.decoding import DecoderInputs, GenerationConstraints, greedy
from foci.errors import ConfigError, ShapeError
from foci.models.options.attention import AttentionOptions
from foci.models.options.decoders import RecurrentDecoderOptions
from foci.models.options.speech import RECOGNIZER_PRESETS, RecognizerOptions, SpeechEncoderOptions, recognizer_preset
from foci.models.recognizer import Recognizer

F, V, B, T = 5, 11, 3, 29
LENGTHS = torch.tensor([29, 17, 12])
SMALL = {"hidden_dim": 6, "embedding_dim": 3, "attention_dim": 7, "num_filters": 2, "kernel_size": 3}
TARGET = torch.tensor([[1, 5, 6, 6, 2], [1, 7, 2, 0, 0], [1, 8, 9, 2, 0]])

ENCODERS = {
    "conv": {},
    "conv, all frames": {"subsampling_factor": 1, "cell": "lstm"},
    "dilated": {"encoder": "dilated", "num_layers": 5, "subsampling_factor": 2},
    "pyramid": {"encoder": "pyramidal", "cell": "lstm", "num_layers": 3},
    "pyramid by 2": {"encoder": "pyramidal", "num_layers": 3, "subsampling_factor": 2},
    "transformer": {"encoder": "transformer", "encoder_heads": 2},
}
DECODERS = {
    "content": {"score": "additive"},
    "location": {"content": False},
    "smoothing": {"normalize": "sigmoid"},
    "sharpening and window": {"sharpening": 2.0, "focus": "median_window", "window": (2, 3)},
    "from the first position": {"initial_alignment": "first", "focus": "median_window", "window": (2, 3)},
    "luong": {"decoder": "luong"},
    "dot": {"score": "scaled_dot", "decoder": "luong", "encoder_dim": 6},
    "heads": {"score": "scaled_dot", "num_heads": 2},
    "attention alone": {"ctc": False},
    "ctc alone": {"decoder": "none"},
}
ALL = ENCODERS | DECODERS


def example():
    return torch.randn(B, T, F, generator=torch.Generator().manual_seed(2)), LENGTHS, TARGET


def built(name):
    torch.manual_seed(1)
    return recognizer(F, V, **(SMALL | ALL[name]))


def losses(found):
    return [None if part is None else part for part in (found.attention and found.attention.loss, found.ctc)]


@pytest.mark.parametrize("name", ALL)
def test_padding_changes_nothing(name):
    model = built(name).eval()
    features, lengths, target = example()
    together = model(features, lengths, target)
    noisy = features.clone()
    for row, length in enumerate(lengths.tolist()):
        noisy[row, length:] = torch.nan
    again = model(noisy, lengths, target)
    sums = [torch.zeros(()), torch.zeros(())]
    for row, length in enumerate(lengths.tolist()):
        one = model(features[row : row + 1, :length], lengths[row : row + 1], target[row : row + 1])
        sums = [total if part is None else total + part for total, part in zip(sums, losses(one))]
    for total, part, noise in zip(sums, losses(together), losses(again)):
        if part is not None:
            assert torch.allclose(part, total, atol=1e-4)
            assert torch.allclose(part, noise, atol=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_every_parameter_learns(name):
    model = built(name)
    features, lengths, target = example()
    found = model(features, lengths, target)
    sum(part for part in losses(found) if part is not None).backward()
    for called, parameter in model.named_parameters():
        assert parameter.grad is not None, called
        assert torch.isfinite(parameter.grad).all(), called
    frozen = [called for called, one in model.named_parameters() if not one.grad.any()]
    # Without content the keys are zero, and so is what their layer learns; the first step's feed is zero as well.
    assert all("key_layer" in called for called in frozen), frozen


@pytest.mark.parametrize("name", [name for name in ALL if name != "ctc alone"])
def test_steps_equal_teacher_forcing(name):
    model = built(name).eval()
    features, lengths, target = example()
    with torch.no_grad():
        encoded = model.encode(features, lengths)
        logits = model.teach(encoded, target[:, :-1]).logits
        memory, state = model.decoder.start(encoded)
        for t in range(target.shape[1] - 1):
            stepped = model.step(target[:, t], memory, state)
            state = stepped.state
            assert torch.allclose(stepped.logits, logits[:, t], atol=1e-5)


def test_the_cells_are_reduced_and_read_both_sides():
    for name, cells in (
        ("conv", 8),
        ("conv, all frames", 29),
        ("pyramid", 8),
        ("pyramid by 2", 15),
        ("transformer", 8),
    ):
        model = built(name).eval()
        features, lengths, _ = example()
        encoded = model.encode(features, lengths)
        assert encoded.values.shape[1] == cells
        assert encoded.valid.sum(dim=1).tolist() == [
            -(-length // model.subsampling_factor) for length in LENGTHS.tolist()
        ]
        assert not encoded.values[~encoded.valid].any()


def test_location_alone_does_not_compare_content():
    """The weights of the first step depend on the query alone, which is the same for all cells."""
    model = built("location").eval()
    features, lengths, _ = example()
    encoded = model.encode(features, lengths)
    first = model.teach(encoded, torch.tensor([[1]] * B)).attentions["decoder.cross"].dense()[:, 0]
    for row, valid in zip(first, encoded.valid):
        assert torch.allclose(row[valid], torch.full((int(valid.sum()),), 1 / int(valid.sum())), atol=1e-6)


def test_reading_begins_at_the_first_position():
    """Nothing outside the window of the first position is read first; otherwise the window is the whole source."""
    found = []
    for start_at_first in (True, False):
        torch.manual_seed(1)
        options = {"subsampling_factor": 1, "focus": "median_window", "window": (0, 4)}
        options["initial_alignment"] = "first" if start_at_first else "none"
        model = recognizer(F, V, **(SMALL | options)).eval()
        encoded = model.encode(*example()[:2])
        found.append(model.teach(encoded, TARGET[:, :1]).attentions["decoder.cross"].dense()[:, 0])
    near, anywhere = found
    assert (near[:, :5] > 0).all()
    assert not near[:, 5:].any()
    assert (anywhere[0] > 0).all()


def test_ctc_is_torchs_and_too_short_counts_nothing():
    model = built("ctc alone").eval()
    features, lengths, target = example()
    logs = model.ctc_log_probs(model.encode(features, lengths))
    expected = sum(
        torch.nn.functional.ctc_loss(logs[i, :n].unsqueeze(1), t, [n], [len(t[0])], reduction="sum")
        for i, (n, t) in enumerate(
            [(8, torch.tensor([[5, 6, 6]])), (5, torch.tensor([[7]])), (3, torch.tensor([[8, 9]]))]
        )
    )
    assert torch.allclose(model(features, lengths, target).ctc, expected, atol=1e-4)
    short = model(features[:1, :4], torch.tensor([4]), target[:1])
    assert float(short.ctc.detach()) == 0.0


def test_steps_are_counted_by_the_training_and_kept_with_the_weights():
    model = built("conv")
    features, lengths, target = example()
    for _ in range(3):
        model(features, lengths, target)
    assert int(model.state_dict()["steps"]) == 0  # a step may have several batches


@pytest.mark.slow
def test_it_learns_a_batch():
    torch.manual_seed(0)
    model = recognizer(F, V, **(SMALL | {"hidden_dim": 32, "embedding_dim": 8}))
    features, lengths, target = example()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        found = model(features, lengths, target)
        (found.attention.loss + found.ctc).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        encoded = model.encode(features, lengths)
        memory, state = model.decoder.start(encoded)
        start = DecoderInputs(memory, state, B, torch.device("cpu"), 7)
        found = greedy(model, start, constraints=GenerationConstraints())
        assert [one[0].tokens for one in found] == [[5, 6, 6], [7], [8, 9]]


def test_wrong_options():
    for options, message in (
        ({"decoder": "none", "ctc": False}, "neither a decoder nor CTC"),
        ({"decoder": "sutskever"}, "The variant 'sutskever' has no attention"),
        ({"content": False, "score": "additive"}, "content is False with score 'additive'"),
        ({"subsampling_factor": 3}, "subsampling_factor is 3, expected a power of 2"),
        ({"encoder": "pyramidal", "num_layers": 2, "subsampling_factor": 4}, "expected at least 3"),
        (
            {"initial_alignment": "first", "score": "additive"},
            "expected an attention that depends on the previous weights",
        ),
        (
            {"initial_alignment": "first", "score": "scaled_dot", "num_heads": 2},
            "initial_alignment is 'first' with score 'scaled_dot'",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            recognizer(F, V, **(SMALL | options))
    model = built("attention alone")
    encoded = model.encode(*example()[:2])
    with pytest.raises(ConfigError, match="no CTC output"):
        model.ctc_log_probs(encoded)
    for name in ("teach", "step"):
        with pytest.raises(ConfigError, match="no decoder"):
            getattr(built("ctc alone"), name)(*[None] * (2 if name == "teach" else 3))
    with pytest.raises(ShapeError, match=r"expected \(batch, frame, 5\)"):
        built("conv")(torch.zeros(2, 9, 4), torch.tensor([9, 9]), TARGET[:2])


@pytest.mark.parametrize("preset", RECOGNIZER_PRESETS)
def test_presets_build(preset):
    with torch.device("meta"):
        tables = recognizer_preset(preset)
        (encoder,) = (one for one in SpeechEncoderOptions.__args__ if one.kind == tables["encoder"]["kind"])
        options = {
            **tables,
            "encoder": encoder(**tables["encoder"]),
            "decoder": RecurrentDecoderOptions(**tables["decoder"]),
            "attention": AttentionOptions(**tables["attention"]),
        }
        Recognizer(40, 30, RecognizerOptions(**options))
