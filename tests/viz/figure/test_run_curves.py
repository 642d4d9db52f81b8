"""Training curves as a page and as a figure."""

import re
import xml.etree.ElementTree as ElementTree

import pytest

from foci.errors import ConfigError
from foci.viz.figure.run_curves import plot_run_curves, save_curves_html

CURVES = {
    "loss (training)": {"one": [(10, 4.0), (20, 2.0), (30, 1.0)], "two": [(10, 3.0), (30, float("nan")), (20, 2.5)]},
    "bleu (validation)": {"two": [(30, 17.5)]},
}
ATTACK = "</script><img src=x onerror=alert(1)>"


def test_a_figure_has_a_panel_for_each_figure_and_a_line_for_each_run(tmp_path):
    figure = plot_run_curves(CURVES, tmp_path / "a.svg")
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == list(CURVES)
    lines = {line.get_label(): line.get_xydata().tolist() for line in shown[0].lines}
    assert lines == {"one": [[10, 4], [20, 2], [30, 1]], "two": [[10, 3], [20, 2.5]]}
    assert shown[1].lines[0].get_marker() == "o"  # a single point is seen
    colors = {line.get_label(): line.get_color() for axes in shown for line in axes.lines}
    assert shown[1].lines[0].get_color() == colors["two"]
    ElementTree.parse(tmp_path / "a.svg")
    with pytest.raises(ConfigError, match="expected a name that ends in"):
        plot_run_curves(CURVES, tmp_path / "a.txt")


def test_more_panels_than_figures_are_hidden():
    figure = plot_run_curves({f"figure {number}": {"run": [(1, 1.0)]} for number in range(4)})
    assert sum(axes.get_visible() for axes in figure.axes) == 4


def test_the_page_needs_no_network_and_its_names_stay_text(tmp_path):
    text = save_curves_html({ATTACK: {ATTACK: [(1, 2.0)]}}, tmp_path / "a.html", ATTACK).read_text(encoding="utf-8")
    harmless = save_curves_html({"a": {"b": [(1, 2.0)]}}, tmp_path / "b.html", "c").read_text(encoding="utf-8")
    assert text.count("<img") == 0
    assert text.count("</script") == harmless.count("</script")
    assert "default-src 'none'" in text
    assert not re.search(r"https?:|url\(|@import|\bsrc=|\bhref=|innerHTML", harmless)


@pytest.mark.slow
def test_pointing_tells_the_values_of_all_runs(open_file, tmp_path):
    one = open_file(save_curves_html(CURVES | {ATTACK: {ATTACK: [(1, 2.0)]}}, tmp_path / "a.html", "one, two"))
    one.ready("curves")
    assert one.page.locator(".figure").count() == 3
    assert one.page.locator("img").count() == 0
    assert one.page.locator(".figure h2").nth(2).inner_text() == ATTACK
    chart = one.page.locator(".chart").first
    assert "two: 2.5 at step 20" in chart.get_attribute("aria-label")
    box = chart.bounding_box()
    one.page.mouse.move(box["x"] + 0.55 * box["width"], box["y"] + 0.5 * box["height"])
    assert one.page.locator(".readout").first.inner_text().split() == ["step", "20", "one", "2", "two", "2.5"]
    chart.focus()
    one.page.keyboard.press("ArrowLeft")
    assert one.page.inner_text("#live").replace("\n", " ").startswith("step 10")
    one.page.get_by_label("two").first.uncheck()
    assert one.page.locator(".chart").first.locator("path").count() == 1
    one.page.check("#logarithm")
    assert one.page.locator(".chart").first.locator("path").count() == 1
    one.page.click("#language")
    assert one.page.inner_text("h1") == "训练曲线"
    assert one.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_a_page_without_figures_opens(open_file, tmp_path):
    one = open_file(save_curves_html({}, tmp_path / "a.html"), width=390, scheme="dark", locale="zh-CN")
    one.ready("curves")
    assert "还没有" in one.page.inner_text("#charts")
