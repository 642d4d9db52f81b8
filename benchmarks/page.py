"""The interactive page compared with bertviz's: size of the file, and time until it is drawn in a headless browser.

    python -m benchmarks.page                           256 tokens × 4 heads, and 2,000 × 8 of foci alone
    python -m benchmarks.page --libraries FOLDER        for bertviz without a network, see below

It needs playwright and Chromium (`pip install playwright`; Debian: `apt-get install chromium`). bertviz is measured if
it can be imported, on the same arrays and labels. Its pages load three scripts from the network; with ``--libraries``
they come from a folder that holds ``require.min.js`` (2.3.6), ``d3.min.js`` (5.7.0) and ``jquery.min.js`` (2.1.1), and
the network's time is not measured.

The pages are opened alternately, each time in a fresh browser. The time runs from navigation to the second frame after
the picture is drawn: for foci when the page sets its attribute, for bertviz when the first of its lines is in the
document. The smallest time of all rounds is reported.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foci.viz.trace import Trace

READY = {"foci": "html[data-ready]", "bertviz": "svg line, svg path, svg rect"}
UNTIL_DRAWN = """(selector) => new Promise((done) => {
  const frames = () => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
  const look = () => (document.querySelector(selector) ? frames() : setTimeout(look, 5));
  look();
})"""


def near_diagonal(heads: int, size: int, sharp: float, noise: float) -> np.ndarray:
    """Return random weights ``(heads, size, size)``, concentrated near the diagonal, more so in later heads."""
    random = np.random.default_rng(0)
    distance = np.abs(np.arange(size)[:, None] - np.arange(size)) / size
    scores = [noise * random.normal(size=(size, size)) - sharp * (1 + head) * distance for head in range(heads)]
    raised = np.exp(np.stack(scores))
    return (raised / raised.sum(-1, keepdims=True)).astype(np.float32)


def words(count: int) -> list[str]:
    return [f"word{number}" for number in range(count)]


def write_pages(folder: Path) -> list[Path]:
    """Return the pages to be measured; the first word of a name is the package."""
    small = near_diagonal(4, 256, sharp=30.0, noise=1.0)
    pages = [Trace.from_arrays(small, words(256)).save_html(folder / "foci, 256 x 256 x 4.html")]
    for name, view in bertviz_views().items():
        page = folder / f"bertviz {name}, 256 x 256 x 4.html"
        drawn = view([torch.from_numpy(small)[None]], words(256), html_action="return").data
        page.write_text(f"<!doctype html><meta charset=utf-8><body>{drawn}", encoding="utf-8")
        pages.append(page)
    for name, sharp, noise in (("peaked", 200.0, 1.5), ("diffuse", 0.0, 1.0)):
        trace = Trace.from_arrays(near_diagonal(8, 2000, sharp, noise), words(2000))
        pages.append(trace.save_html(folder / f"foci, 2000 x 2000 x 8, {name}.html"))
    return pages


def bertviz_views() -> dict[str, Callable[..., Any]]:
    try:
        from bertviz import head_view
    except ImportError as error:
        print(f"bertviz is left out ({error}).", file=sys.stderr)
        return {}
    return {"head_view": head_view}


def seconds_to_draw(playwright: Any, chromium: str, page_file: Path, libraries: Path | None) -> float:
    """Return the time of one page in a browser that has just been started."""
    browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
    try:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(120_000)
        if libraries is not None:
            page.route("http*://**/*", lambda route: route.fulfill(path=libraries / Path(route.request.url).name))
        page.goto(page_file.as_uri(), wait_until="commit")
        ready = READY["foci" if page_file.name.startswith("foci") else "bertviz"]
        return float(page.evaluate(UNTIL_DRAWN, ready)) / 1000
    finally:
        browser.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="number of times each page is opened")
    parser.add_argument("--libraries", type=Path, help="the folder of bertviz's scripts")
    options = parser.parse_args()
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        print("playwright or Chromium is missing: pip install playwright; apt-get install chromium", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        pages = write_pages(Path(folder))
        times = [
            [seconds_to_draw(playwright, chromium, page, options.libraries) for page in pages]
            for _ in range(options.rounds)
        ]
        for page, fastest in zip(pages, map(min, zip(*times))):
            print(f"{page.stem:36} {page.stat().st_size / 1e6:6.2f} MB {fastest:6.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
