"""The page's switches: words, special tokens and sinks, as in Python."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest

from foci.viz.axis import Axis
from foci.viz.trace import Trace

pytestmark = pytest.mark.slow

PIECES = ["<s>", "▁un", "believ", "able", "▁cat", "s", "⟨E7⟩⟨8C⟩", "⟨AB⟩", ".", "</s>", "▁on", "▁mats", "▁here"]


def made(heads=3):
    """A causal text with a sink, which is not its special token."""
    count = len(PIECES)
    weights = np.random.default_rng(5).dirichlet(np.full(count, 0.5), size=(2, heads, count)) + 1e-6
    weights[..., 1] += 40
    weights *= np.tril(np.ones((count, count)))
    return Trace.from_arrays(weights / weights.sum(-1, keepdims=True), PIECES, name="decoder.self")


def switch(one, name, on=True):
    """Change one of the switches, and wait until the page has done so."""
    one.page.wait_for_selector("html[data-lens]")
    one.page.set_checked(f"#lens-{name}", on)
    one.page.wait_for_selector(f"html[data-lens~='{name}']" if on else f"html:not([data-lens~='{name}'])")
    one.settle()


def turn(one, head):
    """Choose a head, or the mean of all."""
    one.page.wait_for_selector("html[data-lens]")
    one.page.select_option("#head", str(head))
    one.page.wait_for_selector(f"html[data-ready*='/{head}/']")


def numbers(one):
    rows = list(csv.reader(io.StringIO(one.saved("csv").decode("utf-8-sig"))))
    return rows[0][1:], np.array([[float(cell) for cell in row[1:]] for row in rows[1:]])


def check(one, trace, head):
    labels, weights = numbers(one)
    attention = trace.attention(one.page.evaluate("new URLSearchParams(location.hash.slice(1)).get('attention')"))
    assert labels == list(trace.axes[attention.source].labels)
    # Of what is rounded to a byte some are added up.
    np.testing.assert_allclose(weights, attention.dense(head), atol=0.01)
    return attention


@pytest.mark.parametrize("head", [None, 1])
def test_the_switches_show_what_python_shows(head, open_page):
    trace = made()
    one = open_page(trace)
    one.page.wait_for_selector("html[data-lens]")
    turn(one, -1 if head is None else head)
    switch(one, "words")
    check(one, trace.join_words(), head)
    switch(one, "special")
    attention = check(one, trace.hide(special=True).join_words(), head)
    assert (
        f"{attention.hidden.mean():.0%}".replace("%", " %") in one.page.inner_text("#attention-name")
        or head is not None
    )
    switch(one, "sinks")
    attention = check(one, trace.hide(special=True, sinks=True).join_words(), head)
    share = attention.hidden.mean() if head is None else attention.hidden[head].mean()
    said = int(one.page.inner_text("#attention-name").split(" · ")[-1].split()[0])
    assert abs(said - 100 * share) < 1.5
    switch(one, "words", on=False)
    check(one, trace.hide(special=True, sinks=True), head)


def test_the_address_keeps_them_and_what_is_pointed_at(open_page):
    one = open_page(made())
    one.page.wait_for_selector("html[data-lens]")
    one.word(0, 4).click()  # ▁cat
    switch(one, "words")
    switch(one, "special")
    assert one.page.inner_text(".cell.current") == "cats"
    address = one.page.url
    assert "lens=words+special" in address
    again = open_page(made(), fragment="#" + address.split("#")[1])
    again.page.wait_for_selector("html[data-lens~='words']")
    assert again.page.inner_text(".cell.current") == "cats"
    assert again.page.is_checked("#lens-words")
    assert not again.page.is_checked("#lens-sinks")
    one.page.go_back()
    one.page.wait_for_selector("html:not([data-lens~='special'])")
    assert not one.page.is_checked("#lens-special")


def test_every_view_takes_them(open_page):
    one = open_page(made())
    for name in ("words", "special", "sinks"):
        switch(one, name)
    for view in ("words", "heat", "links", "layers", "heads"):
        one.show(view)
        assert "able" not in one.page.inner_text("#view").split()
    assert one.page.inner_text("#attention-name").split(" · ")[2] == "7 × 7"


def test_switches_without_effect_are_not_shown(open_page):
    one = open_page(Trace.from_arrays(np.eye(2), ["a", "b"]))
    one.page.wait_for_selector("html[data-lens]")
    assert [one.page.is_visible(f"#lens-{name}-field") for name in ("words", "special", "sinks")] == [False] * 3


def test_what_was_hidden_before_is_said(open_page):
    trace = made().hide(special=True)
    one = open_page(trace)
    turn(one, -1)
    last = one.page.inner_text("#attention-name").split(" · ")[-1]
    assert last.endswith("of the weight hidden")
    switch(one, "words")
    check(one, trace.join_words(), None)
    assert one.page.inner_text("#attention-name").split(" · ")[-1].endswith("of the weight hidden")


def test_a_document_and_the_largest_weights(open_page):
    weights = np.random.default_rng(2).dirichlet(np.ones(6), size=(2, 3)).astype(np.float32)
    axis = Axis.from_document([["<s>", "▁un", "able"], ["▁cat", "s", "▁run"]])
    trace = Trace.from_arrays(weights, axis, ["a", "b", "c"], budget=35)
    one = open_page(trace)
    turn(one, -1)
    switch(one, "words")
    switch(one, "special")
    assert one.page.locator(".sentence").count() == 2
    check(one, trace.hide(special=True).join_words(), None)
    assert "elsewhere" in one.side()


def test_the_axis_says_which_tokens_are_special(open_page):
    trace = made()
    axis = replace(trace.axes["source"], special=(0, 11))
    one = open_page(Trace({"source": axis}, trace.attentions))
    one.page.wait_for_selector("html[data-lens]")
    assert one.page.get_attribute("#lens-special-field", "title") == "<s>, ▁mats"
    switch(one, "special")
    assert "▁mats" not in one.page.inner_text("#view")
