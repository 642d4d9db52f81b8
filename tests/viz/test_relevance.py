"""Relevance in traces: the maps are those of the tape, and views show them instead of the weights."""

import numpy as np
import pytest
import torch
from torch import nn

import foci
from foci.errors import ConfigError, UnknownNameError
from foci.metrics import relevance
from foci.metrics.attention import rollout
from foci.viz.relevance import _chefer, maps_of, rollouts, with_maps
from foci.viz.terminal import render
from foci.viz.trace import Axis, Trace, TracedAttention

WORDS = ["the", "old", "house", "burns"]


def random_weights(*shape, seed=0):
    scores = np.exp(2 * np.random.default_rng(seed).normal(size=shape))
    return (scores / scores.sum(-1, keepdims=True)).astype(np.float32)


class Translator(nn.Module):
    """A Transformer of torch, two layers a side, whose score is a number of the last position."""

    def __init__(self):
        super().__init__()
        self.model = nn.Transformer(8, 2, 2, 2, 12, dropout=0.0, batch_first=True)

    def forward(self, source, target):
        return self.model(source, target)[:, -1].sin().sum()


AXES_OF = {
    "*encoder*": ("source", "source"),
    "*self_attn": ("target", "target"),
    "*multihead_attn": ("target", "source"),
}


@pytest.fixture(scope="module")
def taped():
    torch.manual_seed(0)
    model = Translator()
    with foci.record(model, gradients=True, values=True) as tape:
        score = model(torch.randn(2, 4, 8), torch.randn(2, 3, 8))
    score.backward()
    axes = {"source": WORDS, "target": ["a", "b", "c"]}
    # A pattern names the encoder first: of several that fit, the first counts.
    axes_of = {path: next(pair for key, pair in AXES_OF.items() if key.strip("*") in path) for path in tape.paths}
    return tape, Trace.from_tape(tape, axes, axes_of, row=1)


@pytest.mark.parametrize("method", ["chefer", "gradient", "norms"])
def test_maps_are_those_of_the_tape(taped, method):
    tape, trace = taped
    streams = {path: (one.target, one.source) for path, one in trace.attentions.items()}
    expected = relevance.relevances(tape, method, streams=streams)
    shown = trace.relevance(method)
    assert shown.metadata["relevance"] == method
    assert list(shown.attentions) == tape.paths
    for path, of_tape in expected.items():
        one = of_tape[1].numpy()
        if method == "chefer" and "multihead" not in path:
            one = one - np.eye(len(one))
        np.testing.assert_allclose(trace.attention(path).extras[method], one, rtol=1e-4, atol=1e-7)
        total = one.sum(axis=1, keepdims=True)
        known = total[:, 0] > 1e-4 * total.max()
        shares = shown.attention(path).dense()
        np.testing.assert_allclose(shares[known], (one / np.maximum(total, 1e-30))[known], rtol=1e-3, atol=1e-6)
        assert shown.attention(path).heads == 1


def test_they_are_kept_in_files_and_by_selections(taped, tmp_path):
    _, trace = taped
    loaded = Trace.load(trace.select(layers=[1], heads=[0]).save(tmp_path / "one"))
    name = "model.decoder.layers.1.multihead_attn"
    for method in ("chefer", "norms"):
        np.testing.assert_array_equal(
            loaded.relevance(method).attention(name).dense(), trace.relevance(method).attention(name).dense()
        )


def test_a_self_attention_named_so_is_one_stream_whatever_its_labels():
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    maps = {name: rng.random((3, 3), dtype=np.float32) for name in ("decoder.0.self", "decoder.1.self")}
    axes = {"target": Axis.from_tokens(list("abc")), "input": Axis.from_tokens(["<s>", "a", "b"])}
    weights = random_weights(1, 3, 3)
    trace = Trace(axes, {name: TracedAttention(name, "input", "target", weights) for name in maps})
    found = _chefer(trace, maps)
    first, second = maps.values()
    both = (np.eye(3) + second) @ (np.eye(3) + first)
    np.testing.assert_allclose(found["decoder.1.self"], both - np.eye(3), rtol=1e-5)


def test_rows_that_did_not_matter_are_0_and_those_left_out_are_counted():
    trace = Trace.from_arrays(random_weights(2, 2, 4, 4), WORDS)
    one = np.zeros((4, 4), np.float32)
    one[1] = [0, 1e-3, 3e-3, 0]
    one[2] = 1e-12
    shown = with_maps(trace, "gradient", {"attention.1": one}).relevance("gradient")
    assert shown.metadata == {"relevance": "gradient", "attentions with relevance": "1 of 2"}
    expected = np.zeros((4, 4))
    expected[1] = [0, 0.25, 0.75, 0]
    np.testing.assert_allclose(shown.attention("attention.1").dense(), expected, rtol=1e-5)


def test_what_lacks_is_said():
    trace = Trace.from_arrays(random_weights(1, 4, 4), WORDS)
    with pytest.raises(ConfigError, match="no chefer in this trace.*gradients=True"):
        trace.relevance("chefer")
    with pytest.raises(ConfigError, match="no norms in this trace.*values=True"):
        trace.relevance("norms")
    with pytest.raises(ConfigError, match="no rollout in this trace.*all layers"):
        trace.relevance("rollout")
    with pytest.raises(UnknownNameError, match="Did you mean 'rollout'"):
        maps_of(trace, "rolout")


def test_attentions_whose_norms_cannot_be_known_are_named():
    class Gated(nn.Module):
        def __init__(self):
            super().__init__()
            self.plain = foci.build("multi_head", model_dim=8, num_heads=2)
            self.gated = foci.build("multi_head", model_dim=8, num_heads=2, gate="headwise")

        def forward(self, x):
            return self.gated(self.plain(x, x).output, x).output

    torch.manual_seed(0)
    with foci.record(model := Gated(), values=True) as tape:
        model(torch.randn(1, 4, 8))
    trace = Trace.from_tape(tape, {"text": WORDS})
    assert trace.metadata == {"without norms": "gated"}
    assert list(trace.relevance("norms").attentions) == ["plain"]
    with pytest.raises(ConfigError, match="'gated'.*not known.*gate"):
        tape.projected("gated")


def test_every_view_shows_them(taped, tmp_path):
    _, trace = taped
    shown = trace.relevance("chefer")
    name = "model.decoder.layers.1.multihead_attn"
    assert "burns" in render(shown, name, view="ranked")
    figure = shown.plot(name=name)
    assert any("relevance (Chefer)" in axes.get_ylabel() + axes.get_xlabel() for axes in figure.axes)
    assert "relevance (Chefer)" in render(shown, name)
    page = trace.save_html(tmp_path / "a.html").read_text(encoding="utf-8")
    assert '"extras": ["gradient", "chefer", "norms"]' in page or '"extras":["gradient","chefer","norms"]' in page


def test_rollouts_are_of_whole_stacks_of_self_attention():
    weights = random_weights(3, 2, 5, 5)
    axes = {"source": Axis.from_tokens(list("abcde")), "target": Axis.from_tokens(WORDS)}
    encoder = {
        f"encoder.{layer}.self": TracedAttention(f"encoder.{layer}.self", "source", "source", weights[layer])
        for layer in (2, 0, 1)
    }
    cross = {
        f"decoder.{layer}.cross": TracedAttention(f"decoder.{layer}.cross", "source", "target", weights[layer][:, :4])
        for layer in range(2)
    }
    trace = Trace(axes, encoder | cross)
    found = rollouts(trace)
    assert sorted(found) == [f"encoder.{layer}.self" for layer in range(3)]
    for layer, expected in enumerate(rollout(weights)):
        np.testing.assert_allclose(found[f"encoder.{layer}.self"], expected, rtol=1e-5)
    assert rollouts(trace.select(layers=[1, 2])) == {}  # what lies below them is not known
    assert rollouts(trace.select(heads=[0])) == {}
    assert rollouts(trace.select(layers=[0])) == {}
