"""Draws the pictures of docs/views.md: `python docs/pictures.py`. The one of the page needs playwright and Chromium.

The weights are made up: they show the views, not a model.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from foci.viz.trace import Axis, Trace, TracedAttention

IMAGES = Path(__file__).parent / "images"
GERMAN = ["Der", "Ausschuss", "hat", "nach", "langer", "Debatte", "die", "neuen", "Regeln", "beschlossen", "."]
ENGLISH = ["After", "a", "long", "debate", "the", "committee", "adopted", "the", "new", "rules", "."]
READ = (3, 4, 4, 5, 0, 1, 9, 6, 7, 8, 10)
"""For each English word the German one it comes from."""
REVIEW = [
    ["The", "room", "was", "clean", "and", "bright", "."],
    ["Staff", "at", "the", "desk", "were", "rude", "to", "us", "and", "slow", "."],
    ["Breakfast", "was", "excellent", "!"],
    ["We", "would", "still", "not", "come", "back", "."],
]
TELLING = {"rude": 6.0, "slow": 5.0, "not": 5.5, "excellent": 4.0, "clean": 3.0, "back": 3.5}


def softmax(scores: np.ndarray) -> np.ndarray:
    """Compute the softmax over the last axis."""
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return (raised / raised.sum(-1, keepdims=True)).astype(np.float32)


def translation() -> Trace:
    """Return two layers of four heads; the later ones are sharper."""
    random = np.random.default_rng(2)
    axes = {"source": Axis.from_tokens(GERMAN, "source"), "target": Axis.from_tokens(ENGLISH, "target")}
    attentions = {}
    for layer in range(2):
        scores = random.normal(size=(4, len(ENGLISH), len(GERMAN)))
        scores[:, range(len(ENGLISH)), READ] += np.array([1.0, 2.0, 3.0, 4.0])[:, None] + 1.5 * layer
        name = f"decoder.{layer}.cross"
        attentions[name] = TracedAttention(name, "source", "target", softmax(scores))
    return Trace(axes, attentions, " ".join(ENGLISH))


def review() -> Trace:
    """Return one row: the attention of a class over words."""
    scores = [[TELLING.get(word, 0.0) for sentence in REVIEW for word in sentence]]
    return Trace.from_arrays(softmax(np.array(scores)), Axis.from_document(REVIEW), ["negative"], title="negative")


def ball_and_box() -> np.ndarray:
    """Return the picture."""
    y, x = np.mgrid[:150, :200]
    image = np.stack([90 + 0 * x, 110 + y // 3, 150 - x // 5], -1).astype(np.uint8)
    image[(x - 65) ** 2 + (y - 80) ** 2 < 30**2] = (240, 200, 60)
    image[100:140, 130:180] = (180, 40, 50)
    return image


def caption() -> Trace:
    """Return words over the regions of a picture of a ball and a box."""
    image = ball_and_box()
    down, across = np.mgrid[:12, :16]
    centers = {"yellow": (6.4, 5.2, 1.5), "ball": (6.4, 5.2, 2.0), "red": (9.6, 12.4, 1.5), "box": (9.6, 12.4, 2.0)}
    rows = []
    for row, column, size in centers.values():
        rows.append(softmax((-((down - row) ** 2 + (across - column) ** 2) / (2 * size**2)).ravel()))
    return Trace.from_arrays(np.stack(rows), Axis.from_image(image, (12, 16)), list(centers), title=" ".join(centers))


def recording() -> Trace:
    """Return letters over the frames of a made-up sound."""
    letters, frames = list("good day"), 48
    time, bins = np.arange(4 * frames)[:, None], np.arange(40)
    sound = np.abs(np.sin(time / 9 + bins / 6)) * np.exp(-bins / 20)
    middle = (np.arange(len(letters)) + 0.5) * frames / len(letters)
    weights = softmax(-(((np.arange(frames) - middle[:, None]) / 2) ** 2))
    return Trace.from_arrays(
        weights, Axis.from_frames(frames, seconds=0.04, spectrogram=sound), letters, title="good day"
    )


def tape() -> Trace:
    """Return a memory that is written slot by slot, then read in the same order."""
    steps, slots = np.arange(20)[:, None], np.arange(10)
    weights = softmax(-3.0 * np.abs(slots - steps % 10))
    return Trace.from_arrays(
        weights, Axis.numbered("slots", 10), Axis.numbered("steps", 20), name="memory.read", title="copy"
    )


def tagging() -> Trace:
    """Return probabilities of tags."""
    words = ["Ada", "Lovelace", "lived", "in", "London", "."]
    tags = ("B-PER", "I-PER", "B-LOC", "I-LOC", "O")
    scores = np.random.default_rng(4).normal(size=(len(words), len(tags)))
    scores[range(len(words)), (0, 1, 4, 4, 2, 4)] += 4.0
    return Trace.from_arrays(softmax(scores), Axis("tags", tags, "tags"), words, name="marginals", title="tags")


def reading() -> Trace:
    """Return a question and a document that read each other."""
    story = [["Mary", "went", "to", "the", "garden", "."], ["John", "took", "the", "lamp", "to", "the", "kitchen", "."]]
    words, question = [word for sentence in story for word in sentence], ["Where", "is", "the", "lamp", "now", "?"]
    scores = 0.6 * np.random.default_rng(6).normal(size=(len(question), len(words)))
    for asked, word, score in (("Where", "kitchen", 4.0), ("Where", "garden", 3.0), ("lamp", "kitchen", 3.5)):
        scores[question.index(asked), words.index(word)] += score
    scores[question.index("lamp"), words.index("lamp")] += 2.5
    words_read, question_read = softmax(scores), softmax(scores.T)
    counted = question_read.mean(axis=0, keepdims=True)
    axes = {"document": Axis.from_document(story), "question": Axis.from_tokens(question, "question")}
    axes["answer"] = Axis.from_tokens(["kitchen"], "answer")
    weights = {
        "document": ("document", "answer", counted @ words_read),
        "question": ("question", "answer", counted),
        "words": ("document", "question", words_read),
        "to_question": ("question", "document", question_read),
    }
    attentions = {
        name: TracedAttention(name, source, target, one[None]) for name, (source, target, one) in weights.items()
    }
    return Trace(axes, attentions, "kitchen")


def screenshot(trace: Trace, picture: Path) -> None:
    """Take a screenshot of the page: the links, with a word selected."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = trace.save_html(Path(folder) / "page.html")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1100, "height": 640})
        page.goto(f"{file.as_uri()}#view=links&target={ENGLISH.index('committee')}")
        page.wait_for_selector("html[data-ready]")
        page.wait_for_timeout(300)
        page.screenshot(path=picture)
        browser.close()


def smaller(picture: Path) -> None:
    """Reduce the picture to 256 colors: a third of the bytes without a visible difference."""
    with Image.open(picture) as image:
        reduced = image.convert("RGB").quantize(256)
    reduced.save(picture, optimize=True)


def main() -> None:
    """Draw all of them."""
    trace = translation()
    trace.plot(IMAGES / "view-heatmap.png")
    trace.plot(IMAGES / "view-heads.png", "heads")
    for other in (review(), caption(), recording(), tape(), tagging()):
        (attention,) = other.attentions.values()
        other.plot(IMAGES / f"view-{other.axes[attention.source].kind}.png")
    reading().plot(IMAGES / "view-reading.png")
    try:
        screenshot(trace, IMAGES / "view-page.png")
    except ImportError:
        print("docs/images/view-page.png is left as it was: playwright is not installed.", file=sys.stderr)
    for picture in IMAGES.glob("view-*.png"):
        smaller(picture)


if __name__ == "__main__":
    main()
