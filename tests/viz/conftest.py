"""Pages in a real browser, watched for everything they should not do."""

import base64
import shutil

import numpy as np
import pytest

from foci.viz import colors as colors

PIXELS = """(canvas) => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  let text = "";
  for (let k = 0; k < data.length; k += 8192) text += String.fromCharCode(...data.subarray(k, k + 8192));
  return [[canvas.height, canvas.width], btoa(text)];
}"""


@pytest.fixture(scope="module")
def chromium():
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


class Opened:
    """A page in the browser, and everything it did that it should not."""

    def __init__(self, context, path, fragment=""):
        self.asked, self.complaints = [], []
        self.page = context.new_page()
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: message.type == "error" and self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.complaints.append(dialog.message), dialog.dismiss()))
        self.uri = path.as_uri()
        self.page.goto(self.uri + fragment)

    def ready(self, state):
        self.page.wait_for_selector(f'html[data-ready="{state}"]')
        self.settle()

    def settle(self):
        """Two frames: what was asked to be drawn is drawn."""
        self.page.evaluate("() => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")

    def show(self, view):
        self.page.click(f"[data-view={view}]")
        self.settle()

    def shades(self, panel, name="--t"):
        """How strongly each word of a panel is shaded."""
        script = "(words, name) => words.map((word) => Number(word.style.getPropertyValue(name)))"
        return self.page.locator(".panel").nth(panel).locator(".cell").evaluate_all(script, name)

    def picture(self, selector="#view canvas"):
        """The drawing as numbers (height, width, 4)."""
        size, data = self.page.locator(selector).first.evaluate(PIXELS)
        return np.frombuffer(base64.b64decode(data), np.uint8).reshape(*size, 4)

    def darkest(self, selector="#view canvas"):
        """Where a heat map has its darkest color: rows and columns of pixels, from the top."""
        rows, columns = np.nonzero((self.picture(selector)[..., :3] == colors.rgb(1.0)).all(axis=-1))
        return rows, columns

    def hover_heat(self, column, row):
        box = self.page.locator(".scroller").bounding_box()
        self.page.mouse.move(box["x"] + float(column), box["y"] + float(row))
        self.settle()
        return self.page.inner_text(".readout").split()

    def word(self, panel, index):
        return self.page.locator(".panel").nth(panel).locator(".cell").nth(index)

    def side(self):
        return self.page.inner_text("#side")

    def saved(self, kind):
        """What the button for this kind of file gives."""
        with self.page.expect_download() as download:
            self.page.click(f"[data-kind={kind}]")
        return download.value.path().read_bytes()


@pytest.fixture
def open_file(chromium):
    """Open a file in the browser, and see at the end that it asked for nothing and complained of nothing."""
    opened = []

    def open_one(path, *, width=1280, height=800, scheme="light", locale="en-GB", fragment="", touch=False):
        context = chromium.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            locale=locale,
            offline=True,
            has_touch=touch,
            is_mobile=touch,
            accept_downloads=True,
        )
        context.set_default_timeout(10_000)
        opened.append((context, Opened(context, path, fragment)))
        return opened[-1][1]

    yield open_one
    for context, one in opened:
        asked = {url.split("#")[0] for url in one.asked if not url.startswith("blob:")}  # a file it made itself
        complaints = one.complaints
        context.close()
        assert complaints == []
        assert asked == {one.uri}


@pytest.fixture
def open_page(open_file, tmp_path):
    """Save a trace as a page, and open it."""
    numbers = iter(range(100))

    def open_one(trace, **options):
        return open_file(trace.save_html(tmp_path / f"{next(numbers)}.html"), **options)

    return open_one
