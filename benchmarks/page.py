"""The interactive page beside those of bertviz and circuitsvis: file size, time until it is drawn, cost of hovering.

    python -m benchmarks.page

It needs playwright and Chromium (`pip install playwright`; Debian: `apt-get install chromium`). The peers are installed
into the bench's environment (see `benchmarks.peers`) and write their pages there, from the same arrays and labels.
bertviz's page loads three scripts from the network; they are served from packages of that environment, so that the
network's time is not counted. circuitsvis' page is written with its script inside.

Each page is opened in a fresh browser, the pages in turns. Told are

    size      of the file
    drawn     from navigation to the second frame after the picture is there: the smallest of all rounds
    busy      processor time of the page's main thread until then: the smallest of all rounds
    hover     processor time of the page's main thread, from pointing at a word until two frames later, less that of two
              frames without pointing: median and 95th percentile. It depends little on what else the machine does
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks import peers
from foci.viz.trace import Trace

HOVERS = 60


class Viewer(NamedTuple):
    """How a page of this make is recognized and used; all are selectors or events of the browser."""

    ready: str
    """What is there when the page is drawn."""
    words: str
    """What is pointed at."""
    event: str
    """What pointing is for the page's script."""


VIEWERS = {
    "foci": Viewer("html[data-ready]", ".panel:first-child .cell", "pointerover"),
    "bertviz": Viewer("svg line", "svg g > g > g:has(> text)", "mouseover"),
    "circuitsvis": Viewer(".tokens button", ".tokens button", "mouseover"),
}
SCRIPTS = {
    "d3.min.js": ("mpld3", "js/d3.v5.min.js"),
    "jquery.min.js": ("nbclassic", "static/components/jquery/jquery.min.js"),
    "require.min.js": ("nbclassic", "static/components/requirejs/require.js"),
}
"""What bertviz's page loads: the name at the end of its address, and where the bench's environment has it."""

UNTIL_DRAWN = """(selector) => new Promise((done) => {
  const frames = () => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now())));
  const look = () => (document.querySelector(selector) ? frames() : setTimeout(look, 5));
  look();
})"""
POINT = """([selector, event, place]) => new Promise((done) => {
  const words = event ? document.querySelectorAll(selector) : [];
  requestAnimationFrame(() => {
    const word = words[place % words.length];
    word?.dispatchEvent(new PointerEvent(event, { bubbles: true, relatedTarget: document.body }));
    requestAnimationFrame(() => requestAnimationFrame(() => done(words.length)));
  });
})"""


def near_diagonal(heads: int, size: int, sharp: float, noise: float) -> np.ndarray:
    """Return random weights ``(heads, size, size)``, concentrated near the diagonal, more so in later heads."""
    random = np.random.default_rng(0)
    distance = np.abs(np.arange(size)[:, None] - np.arange(size)) / size
    scores = [noise * random.normal(size=(size, size)) - sharp * (1 + head) * distance for head in range(heads)]
    raised = np.exp(np.stack(scores))
    weights: np.ndarray = (raised / raised.sum(-1, keepdims=True)).astype(np.float32)
    return weights


def words(count: int) -> list[str]:
    return [f"word{number}" for number in range(count)]


def write_pages(folder: Path) -> None:
    """Write the pages to be measured; the first word of a name tells whose it is."""
    small = near_diagonal(4, 256, sharp=30.0, noise=1.0)
    Trace.from_arrays(small, words(256)).save_html(folder / "foci, 256 x 256 x 4.html")
    for name, drawn in (("bertviz", _bertviz), ("circuitsvis", _circuitsvis)):
        try:
            text = drawn(small, words(256))
        except ImportError as error:
            print(f"{name} is left out ({error}).", file=sys.stderr)
            continue
        page = folder / f"{name}, 256 x 256 x 4.html"
        page.write_text(f"<!doctype html><meta charset=utf-8><body>{text}", encoding="utf-8")
    for name, sharp, noise in (("peaked", 200.0, 1.5), ("diffuse", 0.0, 1.0)):
        trace = Trace.from_arrays(near_diagonal(8, 2000, sharp, noise), words(2000))
        trace.save_html(folder / f"foci, 2000 x 2000 x 8, {name}.html")
    for name, (package, inside) in SCRIPTS.items():
        found = importlib.util.find_spec(package)
        if found is not None and found.origin is not None:
            shutil.copy(Path(found.origin).parent / inside, folder / name)


def _bertviz(weights: np.ndarray, labels: list[str]) -> str:
    from bertviz import head_view

    return str(head_view([torch.from_numpy(weights)[None]], labels, html_action="return").data)


def _circuitsvis(weights: np.ndarray, labels: list[str]) -> str:
    from circuitsvis.attention import attention_patterns  # the view of it that has words to point at

    return str(attention_patterns(labels, weights).local_src)


class Measured(NamedTuple):
    """One opening of one page: seconds until it was drawn, those of the processor, and milliseconds per hover."""

    drawn: float
    busy: float
    hovers: list[float]


def measure(playwright: Any, chromium: str, page_file: Path) -> Measured:
    """Open a page in a browser that has just been started, and point at its words."""
    viewer = VIEWERS[page_file.name.split(",")[0]]
    browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
    try:
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.set_default_timeout(180_000)
        page.route("http*://**/*", lambda route: route.fulfill(path=page_file.parent / Path(route.request.url).name))
        client = page.context.new_cdp_session(page)
        client.send("Performance.enable", {"timeDomain": "threadTicks"})

        def spent(selector: str, event: str, place: int) -> float:
            before = _task_seconds(client)
            page.evaluate(POINT, [selector, event, place])
            return 1000 * (_task_seconds(client) - before)

        page.goto(page_file.as_uri(), wait_until="commit")
        drawn = float(page.evaluate(UNTIL_DRAWN, viewer.ready)) / 1000
        busy = _task_seconds(client)
        page.wait_for_timeout(1000)
        if not page.evaluate(POINT, [viewer.words, viewer.event, 0]):
            raise LookupError(f"{page_file.name}: there is nothing that matches {viewer.words!r}.")
        idle = float(np.median([spent("", "", place) for place in range(HOVERS // 3)]))
        return Measured(
            drawn, busy, [spent(viewer.words, viewer.event, place) - idle for place in range(1, HOVERS + 1)]
        )
    finally:
        browser.close()


def _task_seconds(client: Any) -> float:
    """Processor time of the page's main thread so far."""
    metrics = client.send("Performance.getMetrics")["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2, help="how often each page is opened")
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)  # what the peers' environment is asked to do
    options = parser.parse_args()
    if options.write is not None:
        write_pages(options.write)
        return 0
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if chromium is None:
        print("playwright or Chromium is missing: pip install playwright; apt-get install chromium", file=sys.stderr)
        return 1
    failed = peers.install(lambda text: print(text, file=sys.stderr), peers=peers.VIEWERS, stamp_name="viewers.json")
    for name, reason in failed.items():
        print(f"{name} could not be installed ({reason}).", file=sys.stderr)
    root = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")])}
        command = [peers.python(), "-m", "benchmarks.page", "--write", folder]
        subprocess.run(command, cwd=root, env=environment, check=True)
        pages = sorted(Path(folder).glob("*.html"))
        rounds = [[measure(playwright, chromium, page) for page in pages] for _ in range(options.rounds)]
        for page, measured in zip(pages, zip(*rounds)):
            hovers = np.concatenate([one.hovers for one in measured])
            row = {
                "page": page.stem,
                "megabytes": round(page.stat().st_size / 1e6, 2),
                "drawn_seconds": round(min(one.drawn for one in measured), 2),
                "busy_seconds": round(min(one.busy for one in measured), 2),
                "hover_median_ms": round(float(np.median(hovers)), 1),
                "hover_p95_ms": round(float(np.quantile(hovers, 0.95)), 1),
            }
            print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
