"""A page in Chinese has no English of foci's own: every task's trace, every view, the tables above and the notes."""

import re

import numpy as np
import pytest

import foci
from foci.tasks import TASKS
from foci.tasks.frame import config as configs
from foci.tasks.frame.task import find

NAMES = {"English", "Enter", "Esc", "SVG", "PNG", "CSV", "JSON", "CTC", "WAV", "rollout"}
"""Keys, kinds of files and names that stay as they are."""
OWN_AXES = {"maps", "hops", "all"}
"""Axes whose labels are not data."""


def latin(text):
    return {*re.findall(r"[A-Za-z]{2,}", text)}


@pytest.mark.slow
def test_data_stays_as_it_is(open_page):
    """A class or a value may be called as something of foci is."""
    plain = foci.Trace.from_arrays(np.eye(2), ["a", "b"], ["words", "copy"])
    trace = foci.Trace(plain.axes, plain.attentions, text="image", metadata={"kind": "class"})
    one = open_page(trace, locale="zh-CN")
    assert one.page.inner_text("#heading") == "image"
    assert one.page.inner_text("dl.metadata dd") == "class"


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_no_english_is_left(task, tmp_path, open_page):
    kind = find(task)
    settings = configs.put(kind.Config.smallest, {"training.max_steps": 1})
    foci.train(task, settings, out=tmp_path / "run", log=lambda text: None)
    run = foci.load(tmp_path / "run")
    trace = run.predict(run.task.examples(run.held_out(), 1), trace=True)[0].trace
    data = [label for key, axis in trace.axes.items() if key not in OWN_AXES for label in axis.labels]
    data += [mark.label for axis in trace.axes.values() for mark in axis.marks or ()]
    if task != "memorize":  # whose text is a title
        data.append(trace.text)
    one = open_page(trace, locale="zh-CN")
    seen = [one.page.inner_text("body")]
    for button in one.page.locator("[data-view]:visible").all():
        button.click()
        one.settle()
        seen.append(one.page.inner_text("body"))
        titles = (
            "[...document.querySelectorAll('[title],[aria-label]')].map((e) => e.title + ' ' + e.ariaLabel).join(' ')"
        )
        seen.append(one.page.evaluate(titles).replace("null", " "))
    for option in one.page.locator("#group option").all():
        seen.append(option.inner_text())
    for table in one.page.locator("caption").all():
        seen.append(table.text_content())
    pieces = re.sub(r"[^A-Za-z]", "", "".join(data))  # pieces of words are put together
    assert {word for word in latin(" ".join(seen)) - NAMES if word not in pieces} == set()
