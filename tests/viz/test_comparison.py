"""Parts of a trace, and two traces beside each other."""

import numpy as np
import pytest

from foci.errors import ConfigError, ShapeError
from foci.viz import compare
from foci.viz.page.trace_page import write
from foci.viz.trace import Axis, TopWeights, Trace, TracedAttention


def random_weights(*shape, seed=5):
    raised = np.exp(np.random.default_rng(seed).normal(size=shape))
    return (raised / raised.sum(-1, keepdims=True)).astype(np.float32)


def labels(count):
    return [f"w{number}" for number in range(count)]


@pytest.mark.parametrize("budget", [1 << 20, 60])
def test_selected_layers_and_heads_are_those_of_the_trace(budget):
    trace = Trace.from_arrays(random_weights(3, 5, 7, 7), labels(7), budget=budget)
    some = trace.select(layers=[0, 2], heads=[4, 1, 11])
    assert list(some.attentions) == ["attention.0", "attention.2"]
    attention = some.attention("attention.2")
    assert attention.head_numbers == (1, 4)
    assert isinstance(attention.weights, TopWeights) == (budget == 60)
    for place, number in enumerate((1, 4)):
        np.testing.assert_array_equal(attention.dense(place), trace.attention("attention.2").dense(number))
        np.testing.assert_array_equal(attention.entropy()[place], trace.attention("attention.2").entropy()[number])
    assert some.select(heads=[4]).attention("attention.0").head_numbers == (4,)


def test_selecting_keeps_what_has_no_number_and_no_heads():
    axes = {"source": Axis.from_tokens(labels(3)), "target": Axis.from_tokens(labels(2))}
    attentions = {
        name: TracedAttention(name, "source", "target", random_weights(heads, 2, 3))
        for name, heads in (("pool", 1), ("decoder.1.cross", 4), ("decoder.0.cross", 4))
    }
    some = Trace(axes, attentions, "text", {"score": 1.0}).select(layers=[1], heads=[2])
    assert {name: attention.head_numbers for name, attention in some.attentions.items()} == {
        "pool": (0,),
        "decoder.1.cross": (2,),
    }
    assert (some.text, some.metadata) == ("text", {"score": 1.0})


def test_selecting_nothing_is_an_error_that_names_what_there_is():
    trace = Trace.from_arrays(random_weights(2, 3, 4, 4), labels(4))
    with pytest.raises(ConfigError, match=r"layers is \[7\], but there are only \[0, 1\]"):
        trace.select(layers=[7])
    with pytest.raises(ConfigError, match=r"heads is \[3\], but 'attention.0' has 3"):
        trace.select(heads=[3])


def test_selected_heads_and_further_maps_are_saved(tmp_path):
    trace = Trace.from_arrays(random_weights(5, 3, 4), labels(4), labels(3)).select(heads=[1, 3])
    attention = trace.attention("attention")
    gradient = random_weights(3, 4, seed=6)
    more = TracedAttention(
        "attention", "source", "target", attention.weights, attention.selected, extras={"gradient": gradient}
    )
    loaded = Trace.load(Trace(trace.axes, {"attention": more}).save(tmp_path / "a")).attention("attention")
    assert loaded.head_numbers == (1, 3)
    np.testing.assert_array_equal(loaded.extras["gradient"], gradient)
    plain = Trace.load(trace.select().save(tmp_path / "b")).attention("attention")
    assert plain.extras == {}


def test_further_maps_must_have_the_shape_of_the_weights():
    with pytest.raises(ShapeError, match=r"'gradient' of 'x' has shape \(4, 3\).*expected \(3, 4\)"):
        TracedAttention("x", "s", "t", random_weights(1, 3, 4), extras={"gradient": random_weights(4, 3)})


def test_a_page_of_some_heads_is_smaller(tmp_path):
    trace = Trace.from_arrays(random_weights(4, 6, 40, 40), labels(40))
    whole = trace.save_html(tmp_path / "a.html").stat().st_size
    part = trace.save_html(tmp_path / "b.html", layers=[3], heads=[0, 5]).stat().st_size
    empty = write(tmp_path / "c.html", [Trace({}, {})]).stat().st_size
    assert (part - empty) < (whole - empty) / 5


def test_the_difference_is_second_minus_first():
    first, second = random_weights(2, 3, 4), random_weights(2, 3, 4, seed=9)
    both = compare(Trace.from_arrays(first, labels(4), labels(3)), Trace.from_arrays(second, labels(4), labels(3)))
    assert both.names == ("attention",)
    np.testing.assert_allclose(both.difference("attention", 1), second[1] - first[1], atol=1e-7)
    np.testing.assert_allclose(both.difference("attention"), (second - first).mean(axis=0), atol=1e-7)


def test_what_cannot_be_compared_is_an_error():
    one = Trace.from_arrays(random_weights(3, 4), labels(4), labels(3))
    other = Trace.from_arrays(random_weights(3, 4), ["x", *labels(3)], labels(3))
    with pytest.raises(ConfigError, match="the axes of 'attention' differ"):
        compare(one, other).difference("attention")
    with pytest.raises(ConfigError, match="no attention has the same name in both: attention and cross"):
        compare(one, Trace.from_arrays(random_weights(3, 4), labels(4), labels(3), name="cross"))
    with pytest.raises(ConfigError, match="both traces are called 'a'"):
        compare(one, other, ("a", "a"))
