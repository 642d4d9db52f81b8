"""The view of attention over attention: the document as it was read, both attentions, and their product."""

import io

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from foci import Trace
from foci.errors import ConfigError
from foci.mechanisms.pair import AttentionOverAttention
from foci.viz.trace import Axis
from foci.viz.views.reading import has_reading, page, reading
from foci.weights import Weights

DOCUMENT = [["Mary", "went", "home", "."], ["小", "明", "<b>"]]
QUESTION = ["who", "went", "XXXXX"]


def trace_of(document: list[list[str]] = DOCUMENT, scale: float = 1.5) -> Trace:
    torch.manual_seed(3)
    left, right = scale * torch.randn(1, sum(map(len, document)), 5), torch.randn(1, len(QUESTION), 5)
    matched = AttentionOverAttention()(left, right)
    handles = {"document": matched.left, "question": matched.right}
    handles |= {"words": matched.weights, "to_question": matched.reverse}
    return Trace.from_handles(
        {name: handle for name, handle in handles.items() if handle is not None},
        {"document": Axis.from_document(document), "question": QUESTION, "answer": ["Mary"]},
        {
            "document": ("answer", "document"),
            "question": ("answer", "question"),
            "words": ("question", "document"),
            "to_question": ("document", "question"),
        },
        text="Mary",
    )


def images(trace: Trace, **options: float) -> list[NDArray[np.float32]]:
    figure = trace.plot(view="reading", **options)
    return [np.asarray(axes.images[0].get_array()) for axes in figure.axes if axes.images]


def test_the_maps_hold_both_attentions_and_their_product() -> None:
    trace = trace_of()
    found = reading(trace)
    assert_allclose(found.product, found.importance @ found.alpha, rtol=1e-5)
    assert_allclose(found.alpha.sum(axis=1), 1, rtol=1e-5)
    assert_allclose(found.beta.sum(axis=0), 1, rtol=1e-5)
    assert_allclose(found.importance, found.beta.mean(axis=1), rtol=1e-5)
    alpha, beta, product = images(trace)
    assert_allclose(alpha, found.alpha)
    assert_allclose(beta, found.beta)
    assert_allclose(product, found.product[None])


def test_only_the_words_that_matter_most_are_in_the_maps() -> None:
    trace = trace_of()
    found = reading(trace, most_columns=2, most_rows=1)
    product, importance = (trace.attentions[name].dense()[0] for name in ("document", "question"))
    assert found.columns == sorted(np.argsort(-product)[:2].tolist())
    assert found.rows == [int(importance.argmax())]
    assert_allclose(found.beta, trace.attentions["to_question"].dense()[found.columns, found.rows[0]][None])
    assert [image.shape[1] for image in images(trace, width=3.3)] == [3, 3, 3]


def test_the_picture_is_the_default_and_other_traces_have_none() -> None:
    trace = trace_of()
    texts = {text.get_text() for axes in trace.plot().axes for text in axes.texts}
    assert {"Mary", "<b>"} <= texts
    assert any("product" in label.get_text() for axes in trace.plot().axes for label in axes.get_yticklabels())
    plain = Trace.from_arrays([[0.5, 0.5]], ["a", "b"], ["c"])
    assert not has_reading(plain)
    with pytest.raises(ConfigError, match="over_attention"):
        plain.plot(view="reading")


def test_a_document_of_which_nothing_was_read_is_shown_as_a_document() -> None:
    trace = trace_of()
    axes = dict(trace.axes)
    handles = {name: Weights.from_tensor(torch.zeros(1, *one.shape[1:])) for name, one in trace.attentions.items()}
    between = {name: (one.target, one.source) for name, one in trace.attentions.items()}
    empty = Trace.from_handles(handles, axes, between)
    assert not has_reading(empty)
    assert not images_of_default(empty)
    assert page(empty) == ""


def images_of_default(trace: Trace) -> list[object]:
    return [axes.images for axes in trace.plot().axes if axes.images]


def test_terminal_and_page_show_the_question_and_both_attentions() -> None:
    trace = trace_of()
    out = io.StringIO()
    trace.print(file=out)
    lines = out.getvalue().splitlines()
    assert "question · how much each word counts" in lines
    assert {"words · question ← document", "document · their product"} <= set(lines)
    html = page(trace)
    largest = 100 * reading(trace).alpha.max()
    assert f">{largest:.1f}</mark>" in html
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert html.count("<table>") == 3
