"""The page of a text with an image in it: words and regions side by side."""

import re

import pytest
from mixed import text_around_image

pytestmark = pytest.mark.slow


@pytest.fixture
def trace():
    return text_around_image()


def test_the_page_shows_words_and_patches_side_by_side(trace, open_page):
    one = open_page(trace)
    one.page.wait_for_selector("html[data-lens]")
    text, picture = one.page.locator(".mixed .column").all()
    assert text.bounding_box()["x"] + text.bounding_box()["width"] <= picture.bounding_box()["x"]
    assert one.page.inner_text("[data-view=words]") == "Text and picture"
    one.page.locator(".cell", has_text="▁ca").hover()
    one.settle()
    share = 100 * trace.alignment()[15, 2:14].sum()
    assert abs(int(re.search(r"(\d+) %", picture.inner_text())[1]) - share) < 2  # bytes of it are added up
    assert "2, 3" in one.side()  # the region it read most
    box = one.page.locator(".mixed canvas").bounding_box()
    one.page.mouse.click(box["x"] + box["width"] * 2.5 / 4, box["y"] + box["height"] * 1.5 / 3)
    one.settle()
    assert one.page.inner_text(".word") == "row 2, column 3"
    one.page.check("#lens-words")
    one.page.wait_for_selector("html[data-lens=words]")
    assert one.page.inner_text(".word") == "row 2, column 3"
    assert "cat" in text.inner_text().split()
    for view in ("heat", "links", "heads"):
        one.show(view)


def test_the_page_of_a_narrow_screen_is_stacked(trace, open_page):
    one = open_page(trace, width=400, locale="zh-CN")
    one.page.wait_for_selector("html[data-lens]")
    text, picture = one.page.locator(".mixed .column").all()
    assert text.bounding_box()["y"] + text.bounding_box()["height"] <= picture.bounding_box()["y"]
    assert one.page.inner_text("[data-view=words]") == "图文"
