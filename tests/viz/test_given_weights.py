"""Traces of what foci's own mechanisms give, for every row of the catalog: without flattening by hand."""

import copy

import numpy as np
import pytest
import torch
from cases import any_inputs, attend_inputs, cases, make, map_input, names

import foci
from foci.errors import ConfigError, ShapeError
from foci.viz.axis import Axis
from foci.viz.trace import Trace
from foci.weights import Weights
from foci.weights.sources import Dense

ROW = 1
LETTERS = list("abcdefghijklmnopqrstuvwxyz")


@pytest.mark.parametrize("case", cases("attend"))
def test_a_list_of_step_handles_is_one_map(case):
    """A `prepare` and `read` loop, as a decoder has."""
    module = make(case)
    if not hasattr(module, "prepare"):
        pytest.skip("reads at once")
    query, key, value = attend_inputs(case)
    with torch.no_grad(), foci.record(module) as tape:
        memory, state, steps = module.prepare(key, value), None, []
        for step in query.split(1, dim=1):
            steps.append(module.read(step, memory, state))
            state = steps[-1].state
    axes = {"source": Axis.from_tokens(LETTERS[:7]), "target": Axis.from_tokens(LETTERS[:5])}
    want = np.concatenate([step.weights.dense()[ROW].detach().numpy() for step in steps], axis=-2)
    for given in ([step.weights for step in steps], steps):
        trace = Trace.from_handles({"cross": given}, axes, row=ROW)
        np.testing.assert_allclose(trace.attention("cross").dense(), want.mean(0) if want.ndim == 3 else want)
    recorded = Trace.from_tape(tape, axes, row=ROW).attention(".")
    np.testing.assert_allclose(recorded.weights, trace.attention("cross").weights)


@pytest.mark.parametrize("window", [1, 2, 3, 7])
def test_steps_with_a_sliding_cache_are_at_their_positions(window):
    attention = foci.MultiHeadAttention(6, 2, causal=True, window=(window, 0))
    x, cache, steps = torch.randn(2, 5, 6), attention.empty_cache(2, sliding=True), []
    with foci.record(attention) as tape:
        for first, last in ((0, 1), (1, 3), (3, 4), (4, 5)):
            steps.append(attention(x[:, first:last], x[:, first:last], state=cache))
            cache = steps[-1].state
    expected = attention(x, x).weights.dense()[1]
    handles = [step.weights for step in steps]
    for given in (steps, handles, [copy.deepcopy(one) for one in handles], [one.detach() for one in handles]):
        trace = Trace.from_handles({"self": given}, {"text": list("abcde")}, row=1)
        torch.testing.assert_close(torch.tensor(trace.attentions["self"].weights), expected, atol=1e-3, rtol=0.01)
    (recorded,) = Trace.from_tape(tape, {"text": list("abcde")}, row=1).attentions.values()
    torch.testing.assert_close(torch.tensor(recorded.weights), expected, atol=1e-3, rtol=0.01)
    one_head = Trace.from_handles({"self": [one.heads(1) for one in handles]}, {"text": list("abcde")}, row=1)
    (found,) = one_head.attentions.values()
    torch.testing.assert_close(torch.tensor(found.weights)[0], expected[1], atol=1e-3, rtol=0.01)


def test_rows_of_a_batch_have_their_own_positions():
    weights = torch.tensor([[[0.0, 0.25, 0.75]], [[0.5, 0.25, 0.25]]])
    step = Weights(Dense(weights), start=torch.tensor([-1, 1]))
    for row, expected in ((0, [0.25, 0.75, 0.0, 0.0]), (1, [0.0, 0.5, 0.25, 0.25])):
        trace = Trace.from_handles(
            {"self": step}, {"text": list("abcd"), "step": ["x"]}, {"self": ("step", "text")}, row=row
        )
        assert trace.attentions["self"].weights.ravel().tolist() == expected


def test_sentences_are_the_labels_of_a_document():
    pool = foci.build("hierarchical", value_dim=5, hidden_dim=7)
    valid = torch.tensor([[[True, True, True], [True, True, False]]])
    result, document = pool(torch.randn(1, 2, 3, 5), valid), [["a", "b", "c"], ["d", "e"]]
    found = Trace.from_handles({"pool": result}, {"document": document, "topic": ["x"]})
    expected = Trace.from_handles({"pool": result}, {"document": Axis.from_document(document), "topic": ["x"]})
    assert found.axes["document"].sentences == (3, 2)
    assert np.array_equal(found.attentions["pool"].weights, expected.attentions["pool"].weights)
    with pytest.raises(ConfigError, match=r"axis 'image' is an array of shape \(4, 4, 3\), .*Axis.from_image"):
        Trace.from_handles({"pool": result}, {"image": np.zeros((4, 4, 3))})


def test_a_hierarchical_pool_reads_a_document():
    pool, sentences = make("hierarchical"), [["It", "rains", "."], ["Again", "."]]
    value = torch.randn(2, 3, 4, pool.value_dim)  # a third sentence and more words are padding
    mask = torch.zeros(2, 3, 4, dtype=torch.bool)
    for number, sentence in enumerate(sentences):
        mask[ROW, number, : len(sentence)] = True
    with torch.no_grad(), foci.record(pool) as tape:
        output = pool(value, mask)
    axes = {"document": Axis.from_document(sentences), "class": ["positive"]}
    weights = output.weights.dense()[ROW].reshape(3, 4).numpy()
    want = np.concatenate([weights[0, :3], weights[1, :2]])
    for trace in (
        Trace.from_handles({"words": output}, axes, row=ROW),
        Trace.from_handles({"words": output.weights}, axes, {"words": ("class", "document")}, row=ROW),
        Trace.from_tape(tape, axes, row=ROW),
    ):
        (attention,) = trace.attentions.values()
        np.testing.assert_allclose(attention.weights[0, 0], want)
        assert (attention.target, attention.source) == ("class", "document")
        np.testing.assert_allclose(attention.weights.sum(), 1.0, rtol=1e-5)
    short = {"document": Axis.from_document([["It", "rains"], ["Again", "."]]), "class": ["positive"]}
    with pytest.raises(ShapeError, match=r"sentences of \[2, 2\] words"):
        Trace.from_handles({"words": output}, short, row=ROW)
    flat = Trace.from_handles({"words": output}, {"all": LETTERS[:12], "class": ["positive"]}, row=ROW)
    np.testing.assert_allclose(flat.alignment()[0], weights.flatten())


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("case", cases("map"))
def test_channels_and_places_of_an_image(case, gradients):
    module = make(case)
    features = map_input(case).requires_grad_(gradients)
    with foci.record(module, gradients=gradients) as tape:
        output = module(features)
    if gradients:
        output.output.sum().backward()
    channels, height, width = features.shape[1:]
    axes = {"image": Axis.from_image(np.zeros((height, width, 3), np.uint8), (height, width))}
    of_tape = Trace.from_tape(tape, axes, row=ROW)
    for trace in (Trace.from_handles({".": output}, axes, row=ROW), of_tape):
        attention, dense = trace.attention("."), output.weights.dense()[ROW].detach().numpy()
        if dense.shape[1:] == (1, 1):
            want, sides = dense.reshape(1, -1), ("maps", "channels")
        else:
            want, sides = dense.reshape(len(dense), -1), ("channels" if len(dense) > 1 else "maps", "image")
        np.testing.assert_allclose(attention.weights[0], want)
        assert (attention.target, attention.source) == sides
    for path, handle in tape.items():
        assert of_tape.attention(path).shape[1] * of_tape.attention(path).shape[2] == handle.shape[1:].numel()
    if gradients and case.startswith(("squeeze", "efficient", "spatial")):
        gradient = tape.gradient(".")[ROW].numpy().reshape(want.shape)
        np.testing.assert_allclose(
            of_tape.attention(".").extras["gradient"], np.maximum(want * gradient, 0), rtol=1e-5, atol=1e-6
        )
    named = {**axes, "kinds": Axis("channels", tuple(f"c{number}" for number in range(channels)), "kinds"), "x": ["y"]}
    trace = Trace.from_tape(tape, named, row=ROW)
    assert set(trace.axes) == set(named)
    trace.plot()


def test_heads_stay_heads_beside_an_image():
    axes = {"image": Axis.from_image(np.zeros((2, 3, 3), np.uint8), (2, 3)), "text": list("abcd")}
    weights = Weights.from_tensor(torch.rand(1, 5, 4, 6).softmax(-1))
    assert Trace.from_handles({"cross": weights}, axes).attention("cross").shape == (5, 4, 6)


@pytest.mark.parametrize("case", cases("memory"))
def test_the_steps_of_a_memory(case):
    memory = make(case)
    with torch.no_grad(), foci.record(memory) as tape:
        state, steps = memory.initial_state(2), []
        for _ in range(3):
            steps.append(memory(torch.randn(2, memory.input_dim), state))
            state = steps[-1][1]
    axes = {"slots": Axis.numbered("slots", state.memory.shape[1]), "steps": Axis.numbered("steps", 3)}
    recorded = Trace.from_tape(tape, axes, row=ROW)
    for given in (steps, [state for _, state in steps]):
        trace = Trace.from_handles({"ntm": given}, axes, {"ntm:*": ("steps", "slots")}, row=ROW)
        assert list(trace.attentions) == ["ntm:read", "ntm:write"]
        for name, attention in trace.attentions.items():
            np.testing.assert_allclose(attention.weights, recorded.attention(name.replace("ntm", ".")).weights)
        want = torch.stack([state.read_weights[ROW] for _, state in steps], dim=1)
        np.testing.assert_allclose(trace.attention("ntm:read").weights, want.numpy())
    once = Trace.from_handles({"ntm": steps[0]}, {**axes, "steps": ["0"]})
    assert once.attention("ntm:write").shape == (state.write_weights.shape[1], 1, len(axes["slots"]))


@pytest.mark.parametrize("case", names("pair"))
def test_all_weights_of_a_pair(case):
    with torch.no_grad():
        output = make(case)(*any_inputs(case))
    axes = {"left": LETTERS[:7], "right": LETTERS[:11], "answer": ["x"]}
    trace = Trace.from_handles({"pair": output}, axes, row=ROW)
    np.testing.assert_allclose(trace.attention("pair").dense(), output.weights.dense()[ROW].numpy())
    if output.left is not None:
        assert trace.attention("pair:left").shape == (1, 1, 7)
        assert (trace.attention("pair:reverse").target, trace.attention("pair:right").source) == ("left", "right")


def test_what_is_no_attention_is_refused():
    for given in (torch.rand(1, 2, 3), "text", [torch.rand(1, 2, 3)], (1, 2)):
        with pytest.raises(ShapeError, match="'x' has a .*expected Weights"):
            Trace.from_handles({"x": given}, {"text": list("abc")})
    for given in (torch.rand(1, 2, 3), [Weights.from_tensor(torch.rand(1, 2, 3))]):
        with pytest.raises(ConfigError, match="expected a mapping of names"):
            Trace.from_handles(given, {"text": list("abc")})
    with pytest.raises(ConfigError, match="no steps"):
        Trace.from_handles({"x": []}, {"text": list("abc")})
