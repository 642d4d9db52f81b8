"""The panel of a probe on the page: its numbers, both languages, texts that are escaped, and traces on disk."""

import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest

from foci.errors import ConfigError
from foci.probing.report import CHANCE, MEASURES, Estimate, Probe, Row
from foci.viz.trace import Trace
from foci.viz.views.probed import page

NAME = "self <b>0</b>"


def found(inputs=3):
    interval = (0.125, 0.375) if inputs > 1 else (None, None)
    measures = {"comprehensiveness": Estimate(0.25, *interval), "tau": Estimate(-0.5, *interval)}
    rows = [Row(NAME, head, "source", measures, {"comprehensiveness": 0.0625}, (CHANCE,)) for head in (None, 0, 1)]
    return Probe(tuple(rows), inputs)


@pytest.fixture
def trace():
    return Trace.from_arrays(np.eye(2)[None], ["a", "b"], name=NAME)


def test_the_panel_has_measures_chance_and_words_in_both_languages(trace):
    html = page(trace.with_probe(found().to_json()))
    assert "self &lt;b&gt;0&lt;/b&gt;" in html
    assert "<b>0</b>" not in html
    assert "0.250 <small>[0.125, 0.375]</small>" in html
    assert "0.062" in html  # chance
    for words in ("do not read it as a reason", "不要把它当作理由", *MEASURES["tau"], "3 inputs", "3 个输入"):
        assert words in unescape(html)
    assert html.count('class="in-en"') == html.count('class="in-zh"')
    assert len(re.findall(r'<th scope="row">[01]</th>', html)) == 2


def test_the_panel_is_closed_and_has_first_what_mattered_most():
    rows = []
    for number, value in enumerate((0.1, 0.4, 0.2, 0.5, 0.3)):  # the fourth has the largest chance, too
        chance = {"comprehensiveness": 0.45 if number == 3 else 0.05}
        rows.append(Row(f"layer {number}", None, "source", {"comprehensiveness": Estimate(value)}, chance, (CHANCE,)))
    of_layers = Trace.from_arrays(np.eye(2)[None], ["a", "b"], name="layer 4")  # of which the others are no attentions
    html = page(of_layers.with_probe(Probe(tuple(rows), 3).to_json()))
    assert re.findall(r'data-name="layer (\d)"', html) == [*"4", *"14203"]  # the summary has the first attention
    assert html.index("2 more") > html.index('"layer 2"')
    assert " open" not in html
    assert html.count("<details") == html.count("</details>") == 7


def test_of_one_input_there_is_no_interval(trace):
    html = page(trace.with_probe(found(1).to_json()))
    assert "[" not in html
    assert "of this input alone" in html


def test_rows_say_what_was_read_where_there_are_several_things(trace):
    probe = found()
    other = tuple(replace(row, source="question", unit="regions") for row in probe.rows)
    html = page(trace.with_probe(replace(probe, rows=(*probe.rows, *other)).to_json()))
    for words in (f"{NAME} · source", f"{NAME} · question", "regions it looked at", "看得最多的区域"):
        assert words in unescape(html)
    assert " · source" not in unescape(page(trace.with_probe(probe.to_json())))


def test_a_trace_without_a_probe_has_no_panel(trace, tmp_path):
    assert page(trace) == ""
    trace.save_html(tmp_path / "plain.html")
    assert 'probed"' not in (tmp_path / "plain.html").read_text(encoding="utf-8")
    trace.with_probe(found().to_json()).save_html(tmp_path / "probed.html")
    assert 'class="reading probed"' in (tmp_path / "probed.html").read_text(encoding="utf-8")


def test_a_saved_trace_keeps_what_was_found(trace, tmp_path):
    probed = trace.with_probe(found().to_json())
    again = Trace.load(probed.save(tmp_path / "kept"))
    assert page(again) == page(probed)


def test_what_is_no_probe_is_refused(trace):
    with pytest.raises(ConfigError, match=r"probe is a Probe, expected what foci\.probe\(…\)\.to_json\(\) gives"):
        trace.with_probe(found())
