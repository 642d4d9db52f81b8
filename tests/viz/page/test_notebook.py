"""A trace in a notebook: what it offers, and that its frame can do nothing but show the page."""

import base64
import html
import re
import shutil
import sys

import numpy as np
import pytest

from foci.viz.page import notebook
from foci.viz.trace import Trace

EVIL = '"></iframe><script>alert("x")</script>'


@pytest.fixture
def trace():
    weights = np.random.default_rng(1).dirichlet(np.ones(3), size=(2, 3))
    return Trace.from_arrays(weights, ["a", EVIL, "中"], title=EVIL)


def test_it_offers_a_page_a_picture_and_text(trace):
    bundle = trace._repr_mimebundle_()
    assert list(bundle) == ["text/html", "image/png", "text/plain"]
    assert base64.b64decode(bundle["image/png"]).startswith(b"\x89PNG")
    assert bundle["text/plain"].startswith(repr(trace))
    assert "attention · head 0 · says most of 2 heads" in bundle["text/plain"]
    assert list(trace._repr_mimebundle_(include=["text/plain", "image/png"])) == ["image/png", "text/plain"]
    assert list(trace._repr_mimebundle_(exclude={"text/html"})) == ["image/png", "text/plain"]


def test_the_frame_holds_the_page_and_nothing_escapes_it(trace, tmp_path):
    frame = trace._repr_mimebundle_()["text/html"]
    (inside,) = re.findall(r'srcdoc="([^"]*)"', frame)
    assert html.unescape(inside) == trace.save_html(tmp_path / "page.html").read_text(encoding="utf-8")
    outside = frame.replace(inside, "")
    assert re.fullmatch(
        r'<iframe sandbox="allow-scripts allow-downloads" srcdoc="" title="[\w ]+" style="[^"<>]*"></iframe>', outside
    )
    assert "allow-same-origin" not in frame


def test_a_page_too_large_for_a_notebook_is_not_put_into_it(trace, monkeypatch):
    monkeypatch.setattr(notebook, "LARGEST", 1000)
    text = trace._repr_mimebundle_()["text/html"]
    assert "<iframe" not in text
    assert "save_html" in text


def test_without_matplotlib_there_is_no_picture(trace, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert list(trace._repr_mimebundle_()) == ["text/html", "text/plain"]


def test_a_figure_shows_itself_at_its_size(trace):
    figure = trace.plot(width=4.0)
    raw, size = figure._repr_png_()
    assert raw.startswith(b"\x89PNG")
    assert size["width"] <= 4.25 * 96
    assert size["width"] > 0.6 * 4.0 * 96


def test_in_a_browser_the_page_works_within_its_frame_and_cannot_leave_it(trace, tmp_path):
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    api = pytest.importorskip("playwright.sync_api")
    notebook_page = tmp_path / "notebook.html"
    notebook_page.write_text(f'<meta charset="utf-8">{trace._repr_mimebundle_()["text/html"]}', encoding="utf-8")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1000, "height": 700})
        said, asked = [], []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(notebook_page.as_uri())
        (frame,) = page.frames[1:]
        frame.wait_for_selector("html[data-ready]")
        frame.click("[data-view=links]")
        assert "a" in frame.inner_text("body")
        reached = frame.evaluate("() => { try { return String(parent.document) } catch (error) { return error.name } }")
        origin = frame.evaluate("() => origin")
        browser.close()
    assert (reached, origin) == ("SecurityError", "null")
    assert said == []
    assert [url for url in asked if not url.startswith(("file:", "about:", "data:", "blob:"))] == []
