"""Traces: what they keep, how they are made, saved and refused."""

import json
import math

import numpy as np
import pytest
import torch

import foci
from foci.errors import ConfigError, DataError, ShapeError, UnknownNameError
from foci.functional import windows
from foci.viz import trace_files
from foci.viz.trace import Axis, TopWeights, Trace, TracedAttention
from foci.weights import Weights
from foci.weights.sources import Dense

SOURCES, TARGETS = list("abcde"), list("xyz")


def softmax(*shape, seed=0):
    weights = np.exp(np.random.default_rng(seed).normal(size=shape))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(
    ("leading", "names"),
    [((), ["cross"]), ((2,), ["cross"]), ((3, 2), ["cross.0", "cross.1", "cross.2"])],
)
def test_arrays_of_every_rank(leading, names):
    weights = softmax(*leading, 3, 5)
    trace = Trace.from_arrays(weights, SOURCES, TARGETS, name="cross", title="xyz")
    assert list(trace.attentions) == names
    assert trace.text == "xyz"
    layers = weights.reshape(-1, *(leading[-1:] or (1,)), 3, 5)
    for attention, layer in zip(trace.attentions.values(), layers):
        assert (attention.source, attention.target, attention.is_exact) == ("source", "target", True)
        assert attention.shape == layer.shape
        for head in range(attention.heads):
            assert np.array_equal(attention.dense(head), layer[head])
        assert np.allclose(attention.dense(), layer.mean(0))
    assert np.allclose(trace.alignment(), layers[-1].mean(0))


def test_lists_tensors_and_self_attention():
    weights = torch.tensor([[0.25, 0.75], [1.0, 0.0]], requires_grad=True)
    trace = Trace.from_arrays(weights, ["a", "b"])
    assert trace.attention("attention").target == "source"
    assert trace.alignment().tolist() == [[0.25, 0.75], [1.0, 0.0]]
    assert Trace.from_arrays([[1, 0]], ["a", "b"], ["x"]).alignment().dtype == np.float32


@pytest.mark.parametrize(
    ("name", "layer", "kind"),
    [
        ("decoder.3.cross", 3, "cross"),
        ("attention", None, "attention"),
        ("attention.12", 12, "attention"),
        ("encoder.layers.0.self_attn#2", 0, "self_attn"),
        ("ntm:read", None, "read"),
        ("conv1d.attention", None, "attention"),
    ],
)
def test_layer_and_kind_are_read_from_the_name(name, layer, kind):
    attention = TracedAttention(name, "source", "target", softmax(1, 3, 5))
    assert (attention.layer, attention.kind) == (layer, kind)


def test_entropy_is_that_of_the_rows():
    entropy = Trace.from_arrays([[[1.0, 0.0], [0.5, 0.5]]], ["a", "b"], ["x", "y"]).attention("attention").entropy()
    assert entropy.shape == (1, 2)
    assert np.allclose(entropy, [[0.0, math.log(2)]])


def test_above_the_budget_the_largest_are_kept_with_the_rest_and_the_entropy():
    weights = softmax(2, 7, 11)
    full = Trace.from_arrays(weights, list("abcdefghijk"), list("tuvwxyz")).attention("attention")
    kept = Trace.from_arrays(weights, list("abcdefghijk"), list("tuvwxyz"), budget=2 * 7 * 3 * 2).attention("attention")
    assert isinstance(kept.weights, TopWeights)
    assert kept.weights.values.shape == kept.weights.indices.shape == (2, 7, 3)
    assert kept.shape == (2, 7, 11)
    assert not kept.is_exact
    for head in range(2):
        dense = kept.dense(head)
        for row in range(7):
            largest = sorted(range(11), key=lambda cell: -weights[head, row, cell])[:3]
            expected = [weights[head, row, cell] if cell in largest else 0.0 for cell in range(11)]
            assert dense[row].tolist() == expected
            assert math.isclose(kept.weights.rest[head, row], 1.0 - sum(expected), abs_tol=1e-6)
    assert np.allclose(kept.dense(), (kept.dense(0) + kept.dense(1)) / 2)
    assert np.allclose(kept.dense(-1), kept.dense(1))
    assert np.allclose(kept.entropy(), full.entropy(), atol=1e-6)


def test_sparse_rows_stay_exact_above_the_budget():
    weights = np.eye(30, dtype=np.float32)
    attention = Trace.from_arrays(weights, [str(n) for n in range(30)], budget=100).attention("attention")
    assert isinstance(attention.weights, TopWeights)
    assert attention.is_exact
    assert np.array_equal(attention.dense(), weights)


@pytest.mark.parametrize("row", [0, 2, -1])
def test_one_row_of_a_batch_from_handles(row):
    query, key = torch.randn(3, 2, 5, 7), torch.randn(3, 2, 6, 7)
    lengths = torch.tensor([4, 6, 3])
    mask = foci.masks.keys(foci.masks.lengths(lengths, 6))
    handle = foci.attend(query, key, key, mask).weights
    columns = int(lengths[row])
    axes = {"source": Axis.from_tokens(list("abcdef")[:columns]), "target": Axis.from_tokens(list("xyz"))}
    handles = {
        "decoder.1.cross": handle,
        "mean.cross": handle.mean_heads(),
        "kept.cross": Weights.from_tensor(handle.dense()),
    }
    trace = Trace.from_handles(handles, axes, {"*cross": ("target", "source")}, row=row)
    dense = handle.dense()[row, :, :3, :columns].numpy()
    assert np.allclose(trace.attention("decoder.1.cross").weights, dense, atol=1e-6)
    assert np.allclose(trace.attention("mean.cross").dense(), dense.mean(0), atol=1e-6)
    assert np.array_equal(trace.attention("kept.cross").weights, dense)


def test_one_row_of_windows_maps_and_pools():
    """Whatever the handle computes its weights from."""
    words = {"words": Axis.from_tokens(list("abcdefg"))}
    query = torch.randn(3, 7, 5)
    maps = foci.build("cbam", channels=2, reduction=1)(torch.randn(3, 2, 7, 7)).weights
    assert type(maps.source).__name__ == "ProductOfMaps"
    for handle in (windows.local_m(query, query, query, radius=2).weights, maps):
        trace = Trace.from_handles({"a": handle}, words, row=1)
        dense = handle.dense()[1].detach().numpy()
        assert np.allclose(trace.attention("a").weights, dense.reshape(-1, 7, 7), atol=1e-6)
    pooled = Weights.from_tensor(torch.tensor([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]]))
    axes = {"words": Axis.from_tokens(list("abc")), "label": Axis("tags", ("good",))}
    assert Trace.from_handles({"pool": pooled}, axes, row=1).alignment().tolist() == [pytest.approx([0.1, 0.2, 0.7])]


def test_axes_are_given_or_told_by_their_sizes():
    axes = {"source": Axis.from_tokens(list("abcd")), "target": Axis.from_tokens(list("xyz"))}

    def handle(rows, columns):
        return Weights.from_tensor(torch.full((1, rows, columns), 1 / columns))

    def found(trace):
        return {name: (attention.target, attention.source) for name, attention in trace.attentions.items()}

    handles = {
        "encoder.0.self": handle(4, 4),
        "decoder.0.self": handle(3, 3),
        "decoder.0.cross": handle(3, 4),
        "other": handle(4, 3),
    }
    assert found(Trace.from_handles(handles, axes)) == {
        "encoder.0.self": ("source", "source"),
        "decoder.0.self": ("target", "target"),
        "decoder.0.cross": ("target", "source"),
        "other": ("source", "target"),
    }
    alike = {"source": Axis.from_tokens(list("abc")), "target": Axis.from_tokens(list("xyz"))}
    axes_of = {
        "model.encoder.*": ("source", "source"),
        "model.decoder.layers.1.self_attn": ("target", "source"),
        "*.self_attn": ("target", "target"),
        "*.encoder_attn": ("target", "source"),
    }
    expected = {
        "model.encoder.layers.0.self_attn": ("source", "source"),
        "model.decoder.layers.0.self_attn": ("target", "target"),
        "model.decoder.layers.0.encoder_attn": ("target", "source"),
        "model.decoder.layers.1.self_attn": ("target", "source"),
    }
    assert found(Trace.from_handles(dict.fromkeys(expected, handle(3, 3)), alike, axes_of)) == expected
    for name in ("a", "decoder.0.cross", "encoder.0.self"):  # names tell nothing
        with pytest.raises(ConfigError, match=f"'{name}' has 3 rows and 3 columns.*'source' .3 labels.*axes_of="):
            Trace.from_handles({name: handle(3, 3)}, alike)
    named = Trace.from_handles({"a": handle(3, 3)}, alike, {"a": ("target", "source")})
    assert found(named) == {"a": ("target", "source")}


def test_a_recorded_model_becomes_a_trace():
    layer = torch.nn.TransformerDecoderLayer(8, 2, 16, batch_first=True)
    with foci.record(layer, detach=True) as tape:
        layer(torch.randn(2, 3, 8), torch.randn(2, 5, 8))
    axes = {"source": Axis.from_tokens(SOURCES), "target": Axis.from_tokens(TARGETS)}
    trace = Trace.from_tape(tape, axes, row=1, text="xyz", metadata={"score": 0.5})
    assert (trace.text, trace.metadata) == ("xyz", {"score": 0.5})
    assert np.allclose(trace.attention("multihead_attn").weights, tape["multihead_attn"].dense()[1].numpy(), atol=1e-6)
    assert trace.attention("self_attn").shape == (2, 3, 3)


def test_steps_of_a_decoder_become_the_rows_of_one_attention():
    """A decoder that reads its growing output, and a memory: one call a step."""

    class Stepper(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
            self.memory = foci.build("ntm", **foci.catalog.MECHANISMS["ntm"].example)

        def forward(self, words):
            state = self.memory.initial_state(1)
            for step in range(words.shape[1]):
                self.attention(words[:, step : step + 1], words[:, : step + 1], words[:, : step + 1])
                _, state = self.memory(torch.randn(1, self.memory.input_dim), state)

    model = Stepper()
    with foci.record(model, detach=True) as tape:
        model(torch.randn(1, 3, 4))
    slots = tape["memory:read"].shape[-1]
    axes = {"text": Axis.from_tokens(TARGETS), "slots": Axis.numbered("slots", slots)}
    trace = Trace.from_tape(tape, axes)
    attention = trace.attention("attention")
    for step in range(3):
        expected = tape["attention", step].dense()[0, :, 0].numpy()
        assert np.allclose(attention.weights[:, step, : step + 1], expected)
        assert not attention.weights[:, step, step + 1 :].any()
    read = trace.attention("memory:read")
    assert read.shape == (tape["memory:read"].shape[1], 3, slots)
    for step in range(3):
        assert np.allclose(read.weights[:, step], tape["memory:read", step].dense()[0].numpy())


@pytest.mark.parametrize("queries", [1, 2])
def test_rows_without_labels_are_an_error_that_names_both_axes(queries):
    model = foci.build("scaled_dot")
    with foci.record(model) as tape:
        model(torch.randn(1, queries, 3), torch.randn(1, 5, 3))
    rows = f"'target': {queries} of who reads"
    with pytest.raises(ConfigError, match=rf"only axis, has 5 labels.*axes={{'source': 5 labels of what.*{rows}"):
        Trace.from_tape(tape, {"words": list("abcde")})
    with pytest.raises(ConfigError, match=r"axes is of type list, expected labels by the name of their text"):
        Trace.from_tape(tape, list("abcde"))
    trace = Trace.from_tape(tape, {"source": list("abcde"), "target": ["?", "!"][:queries]})
    assert trace.alignment().shape == (queries, 5)


def test_the_alignment_is_of_the_last_layer_that_crosses():
    axes = {"source": Axis.from_tokens(SOURCES), "target": Axis.from_tokens(TARGETS)}

    def made(name, target, source, seed):
        return TracedAttention(name, source, target, softmax(2, len(axes[target]), len(axes[source]), seed=seed))

    several = [
        made("decoder.0.cross", "target", "source", 1),
        made("decoder.10.cross", "target", "source", 2),
        made("decoder.2.cross", "target", "source", 3),
        made("decoder.11.self", "target", "target", 4),
    ]
    trace = Trace(axes, {attention.name: attention for attention in several})
    assert np.allclose(trace.alignment(), several[1].weights.mean(0))
    assert np.allclose(trace.alignment("decoder.0.cross"), several[0].weights.mean(0))
    among = Trace(axes, {name: made(name, "target", "target", 5) for name in ("a", "b")})
    assert np.array_equal(among.alignment(), among.alignment("b"))
    layers = Trace(axes, {name: made(name, "target", "target", seed) for seed, name in enumerate(("h.1", "h.0"))})
    assert np.array_equal(layers.alignment(), layers.alignment("h.1"))


@pytest.mark.parametrize("view", ["alignment", "plot", "print", "save", "save_html", "_repr_mimebundle_"])
def test_a_trace_without_weights_is_an_error_in_every_view(view, tmp_path):
    path = [tmp_path / "a"] if view.startswith("save") else []
    with pytest.raises(ConfigError, match=r"no attention in this trace.*Trace\.from_tape.*print\(tape\)"):
        getattr(Trace(AXES, {}), view)(*path)
    assert not list(tmp_path.iterdir())


def test_cells_of_every_kind():
    assert Axis.from_document([["a", "b"], [], ["c"]]).sentences == (2, 0, 1)
    assert Axis.from_image(np.zeros((6, 4, 3), np.uint8), (3, 2)).labels[3] == "1,1"
    assert Axis.from_frames(3, seconds=0.02).labels == ("0.00 s", "0.02 s", "0.04 s")
    assert Axis.numbered("slots", 2).labels == ("0", "1")
    assert not Axis.from_tokens(["the", "ال"]).right_to_left
    assert Axis.from_tokens(["السلام", "the"]).right_to_left
    assert not Axis.from_tokens(["12", "%"]).right_to_left


IMAGE = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
SPECTROGRAM = np.random.default_rng(1).random((13, 3)).astype(np.float32)


@pytest.mark.parametrize("budget", [1 << 20, 12])
@pytest.mark.parametrize("name", ["x", "x.json", "x.safetensors", "x.1"])
def test_saved_and_loaded_it_is_the_same(name, budget, tmp_path):
    axes = {
        "image": Axis.from_image(IMAGE, (2, 3)),
        "audio": Axis.from_frames(6, seconds=0.1, spectrogram=SPECTROGRAM),
        "text": Axis.from_document([["</script>", "中文"], ["السلام", "👍🏽", "", "\ud800\n"]]),
    }
    handles = {key: Weights.from_tensor(torch.from_numpy(softmax(1, 2, 6, 6))) for key in ("a.0", "a.1")}
    between = {"a.0": ("text", "image"), "a.1": ("text", "audio")}
    trace = Trace.from_handles(handles, axes, between, text="中", metadata={"score": -1.5, "model": "m"}, budget=budget)
    stem = "x.1" if name == "x.1" else "x"
    assert trace.save(tmp_path / "new" / name) == tmp_path / "new" / f"{stem}.json"
    assert sorted(file.name for file in (tmp_path / "new").iterdir()) == [f"{stem}.json", f"{stem}.safetensors"]
    loaded = Trace.load(tmp_path / "new" / name)
    assert (loaded.text, loaded.metadata, repr(loaded)) == (trace.text, trace.metadata, repr(trace))
    for key, side in axes.items():
        other = loaded.axes[key]
        for field in ("kind", "labels", "title", "grid", "seconds", "sentences"):
            assert getattr(other, field) == getattr(side, field)
    assert np.array_equal(loaded.axes["image"].image, IMAGE)
    assert np.array_equal(loaded.axes["audio"].spectrogram, SPECTROGRAM)
    for name, attention in trace.attentions.items():
        assert np.array_equal(loaded.attention(name).dense(1), attention.dense(1))
        assert np.array_equal(loaded.attention(name).entropy(), attention.entropy())
        assert loaded.attention(name).is_exact == attention.is_exact == (budget > 12)


def damage_json(change):
    def apply(folder):
        text = json.loads((folder / "x.json").read_text())
        change(text)
        (folder / "x.json").write_text(json.dumps(text))

    return apply


def shorten(folder):
    numbers = (folder / "x.safetensors").read_bytes()
    (folder / "x.safetensors").write_bytes(numbers[:-1])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "x.json").unlink(), r"no file .*x\.json"),
        (lambda folder: (folder / "x.safetensors").unlink(), r"no file .*x\.safetensors.*two files"),
        (lambda folder: (folder / "x.json").write_text('{"format": "foci.tr'), "not JSON"),
        (lambda folder: (folder / "x.json").write_bytes(b"\xff\xfe\x00"), "not JSON"),
        (lambda folder: (folder / "x.json").write_text("[1, 2]"), "no trace"),
        (shorten, r"x\.safetensors is not the file x\.json was saved with"),
        (damage_json(lambda text: text.update(version=99)), "version 99, but this foci reads version 2"),
        (damage_json(lambda text: text["axes"]["source"]["labels"].pop()), "4 labels, but 'attention' has 5 columns"),
        (damage_json(lambda text: text["axes"]["source"].update(color=1)), "damaged"),
        (damage_json(lambda text: text["axes"]["source"].update(kind="token")), "'tokens'"),
        (damage_json(lambda text: text.pop("attentions")), "damaged .*attentions"),
        (damage_json(lambda text: text["attentions"][0].update(source="sauce")), "'sauce'.*'source'"),
    ],
)
def test_damaged_files_are_named(damage, message, tmp_path):
    Trace.from_arrays(softmax(3, 5), SOURCES, TARGETS).save(tmp_path / "x")
    damage(tmp_path)
    with pytest.raises(DataError, match=message):
        Trace.load(tmp_path / "x")


def test_positions_beyond_the_columns_are_refused(tmp_path):
    trace = Trace.from_arrays(softmax(3, 5), SOURCES, TARGETS, budget=12)
    path = trace.save(tmp_path / "x")
    damage_json(lambda text: text["attentions"][0].update(size=2))(tmp_path)
    with pytest.raises(DataError, match="lie outside of its 2 columns"):
        Trace.load(path)


def test_a_save_that_fails_leaves_the_old_files(tmp_path, monkeypatch):
    trace = Trace.from_arrays(softmax(3, 5), SOURCES, TARGETS)
    path = trace.save(tmp_path / "x")
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(DataError, match="metadata"):
        Trace(trace.axes, trace.attentions, metadata={"score": math.nan}).save(path)

    def half(path, data):
        with path.open("wb") as file:
            file.write(data[: len(data) // 2])
        raise OSError("no space left on device")

    monkeypatch.setattr(trace_files.Path, "write_bytes", half)
    with pytest.raises(OSError, match="no space"):
        Trace.from_arrays(softmax(3, 5, seed=3), SOURCES, TARGETS).save(path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


HANDLE = Weights(Dense(torch.full((2, 3, 5), 0.2)))
AXES = {"source": Axis.from_tokens(SOURCES), "target": Axis.from_tokens(TARGETS)}
CROSS = {"cross": ("target", "source")}


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Trace.from_arrays(softmax(3, 5), SOURCES, list("xy")), ShapeError, "target has 2 labels.*3 rows"),
        (lambda: Trace.from_arrays(softmax(3, 5), list("abcd"), TARGETS), ShapeError, "source has 4 labels.*5 columns"),
        (lambda: Trace.from_arrays(softmax(2, 2, 2, 3, 5), SOURCES, TARGETS), ShapeError, r"\(2, 2, 2, 3, 5\)"),
        (lambda: Trace.from_arrays([0.5, 0.5], ["a", "b"]), ShapeError, r"\(2,\)"),
        (lambda: Trace.from_arrays([[0.5, math.nan]], ["a", "b"], ["x"]), DataError, "NaN"),
        (lambda: Trace.from_arrays([[0.5, -0.5]], ["a", "b"], ["x"]), DataError, "below 0.*softmax"),
        (
            lambda: Trace.from_handles(
                {"a": Weights.from_tensor(torch.tensor([[[0.5, -0.5]]]))}, {"x": ["a", "b"], "y": ["c"]}
            ),
            DataError,
            "'a' has weights below 0.*difference of two softmaxes",
        ),
        (lambda: Trace.from_arrays(HANDLE, SOURCES, TARGETS), ShapeError, "from_handles"),
        (lambda: Trace.from_arrays(softmax(3, 5), "abcde", TARGETS), ShapeError, r"text\.split\(\)"),
        (lambda: Trace.from_arrays(softmax(1, 2), ["a", 3], ["x"]), DataError, "type int"),
        (lambda: Trace.from_handles({"a": HANDLE}, AXES, row=2), ConfigError, "row is 2, but 'a' has a batch of 2"),
        (lambda: Trace.from_handles({"a": HANDLE.dense()}, AXES), ShapeError, "Tensor, expected Weights"),
        (lambda: Trace.from_handles({"a": HANDLE}, AXES, {"b": ("target", "source")}), UnknownNameError, "'b'"),
        (lambda: Trace.from_handles({"a": HANDLE}, AXES, {"a": ("targets", "source")}), UnknownNameError, "'target'"),
        (
            lambda: Trace.from_handles({"cross": HANDLE}, AXES | {"source": Axis.from_tokens(list("abc"))}, CROSS),
            ShapeError,
            "'source' has 3 labels, but 'cross' has 5 columns, and up to 40% of a row's weight",
        ),
        (
            lambda: Trace.from_handles({"cross": HANDLE}, AXES | {"target": Axis.from_tokens(list("wxyz"))}, CROSS),
            ShapeError,
            "'target' has 4 labels, but 'cross' has 3 rows",
        ),
        (lambda: Trace(AXES, {}).attention("atention"), UnknownNameError, "atention"),
        (
            lambda: Trace.from_arrays(softmax(3, 5), SOURCES, TARGETS).attention("atention"),
            UnknownNameError,
            "Did you mean 'attention'",
        ),
        (
            lambda: Trace.from_arrays(softmax(2, 3, 5), SOURCES, TARGETS).attention("attention").dense(2),
            ConfigError,
            "head is 2, but 'attention' has 2",
        ),
        (lambda: TracedAttention("a", "s", "t", np.zeros((2, 3), np.float32)), ShapeError, r"\(2, 3\)"),
        (lambda: TracedAttention("a", "s", "t", np.zeros((1, 2, 3))), ShapeError, "float64"),
        (lambda: Axis("words", ("a",)), UnknownNameError, "'words'.*tokens"),
        (lambda: Axis.from_image(IMAGE / 255, (1, 1)), ShapeError, r"float64.*uint8"),
        (lambda: Axis("regions", ("a",), image=IMAGE, grid=(2, 3)), ShapeError, "2 × 3 has 6 regions.*1 labels"),
        (lambda: Axis("document", ("a", "b"), sentences=(3,)), ShapeError, "3 words in all.*2 labels"),
        (lambda: Axis.from_frames(2, spectrogram=[1.0, 2.0]), ShapeError, r"\(2,\), expected \(time, bin\)"),
        (lambda: Axis.from_frames(2, seconds=0.0), ConfigError, "seconds is 0.0"),
    ],
)
def test_refuses_what_does_not_fit(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_nothing_read_and_nobody_reading():
    trace = Trace.from_arrays(np.zeros((0, 5)), SOURCES, [])
    assert trace.alignment().shape == (0, 5)
    assert Trace.from_arrays(np.zeros((3, 5)), SOURCES, TARGETS).attention("attention").entropy().tolist() == [
        [0.0] * 3
    ]
