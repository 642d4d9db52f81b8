"""Traces in a terminal: a heat map of blocks, or for each row what it read most of.

Colors appear where the terminal has them (``NO_COLOR``, ``TERM`` and a pipe are respected). They are those of the
figures (`foci.viz.colors`), painted behind the cells on a white ground, so that a darker cell has a larger weight on
light and on dark terminals. Every column lines up, whatever script its label is in. A map too wide for the terminal
comes in parts; one that would take too many parts is listed row by row, most read cells first; cells that have only a
number (frames, slots) are put together. A document is shown as text, its words shaded; so are words that were copied;
an image with what each row looked at; weights of channels as bars.
"""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foci.errors import ConfigError, unknown_name
from foci.viz.colors import HATCH, ink, rgb
from foci.viz.copied_words import copied_attention, copied_words, has_copies
from foci.viz.document_attention import over_words, shares_of_sentences
from foci.viz.labels import cut, shown, widest, width
from foci.viz.reading import IMPORTANCE, PRODUCT, has_reading, reading
from foci.viz.stream import Stream
from foci.viz.tagged_words import tagged_attention
from foci.viz.terminal_media import bar_lines, image_lines
from foci.viz.terminal_tags import copied_lines, tagged_lines
from foci.viz.trace import Axis, Trace
from foci.viz.zeros import zeros_on_purpose

STYLES = ("heat", "ranked", "document", "tags", "copied", "image", "bars", "reading")
BLOCKS = "·░▒▓█"
PLAIN = ".:+*#"
"""For terminals whose encoding has no blocks."""

_PLAIN_SIGNS = str.maketrans({"·": "-", "←": "<-", "…": "~", "␣": "_", "∅": "0", "⟨": "<", "⟩": ">", "◌": "o"})
_LABEL = 16
"""Columns of a row's label; longer ones are cut."""
_CELL = 8
"""The same of a column's label."""
_NARROWEST = 4
"""A part of a heat map with fewer columns is no map."""
_MOST_PARTS = 4
_FAINT = 0.02
"""A weight that is so small beside the highest one is left blank."""
_TELLING = 0.005
"""A smaller share would read 0 %."""
_READ_ROWS = 8
"""Words of a question whose attentions are shown."""
_NUMBERED = ("regions", "frames", "slots", "steps", "channels")
_OF_256 = {231: 0.0, 153: 0.18, 110: 0.34, 67: 0.51, 25: 0.67, 18: 0.97}
"""White and blues among the 256 colors, each with the share whose lightness it has."""
_LETTERS_OF_256 = {0: 16, 255: 231, 0xB0: 249}
"""Black, white and the gray of hatching."""
_LEFT_TO_RIGHT, _ISOLATE, _END = "\u200e", "\u2068", "\u2069"


@dataclass(frozen=True)
class Screen:
    """What a terminal can show."""

    columns: int = 80
    colors: int = 0
    """0, 256, or 1 << 24."""
    blocks: str = BLOCKS

    @classmethod
    def from_stream(cls, file: Stream) -> Screen:
        """What this stream can show, by its environment."""
        columns = shutil.get_terminal_size(fallback=(80, 24)).columns
        try:
            BLOCKS.encode(getattr(file, "encoding", None) or "utf-8")
            blocks = BLOCKS
        except UnicodeEncodeError:
            blocks = PLAIN
        return cls(columns, _colors(file), blocks)


def show(trace: Trace, name: str | None = None, *, file: Stream | None = None, **options: Any) -> None:
    """Write `render`'s text to a stream, by default the standard output, as that stream can show it."""
    file = sys.stdout if file is None else file
    screen = options.setdefault("screen", Screen.from_stream(file))
    text = render(trace, name, **options)
    encoding = getattr(file, "encoding", None) or "utf-8"
    if screen.blocks == PLAIN:
        text = text.translate(_PLAIN_SIGNS)
    file.write(text.encode(encoding, errors="backslashreplace").decode(encoding) + "\n")


def render(
    trace: Trace,
    name: str | None = None,
    *,
    head: int | None = None,
    style: str | None = None,
    top: int = 3,
    most_rows: int | None = 60,
    screen: Screen | None = None,
) -> str:
    """The trace as text.

    Args:
        trace: what to show.
        name: which attention; those between two sides in the last layer unless given.
        head: which head; their mean unless given.
        style: "heat", "ranked", "document" (a text with its words shaded), "tags" (words with their labels), "copied"
            (a summary and what of its text was copied), "image" (what each row looked at), "bars" (weights of
            channels) or "reading" (a document, and both attentions between it and a question). Whichever fits unless
            given.
        top: of how many cells each row tells when ranked.
        most_rows: how many rows are shown; None shows all.
        screen: what the terminal can show; 80 columns without colors unless given.

    Example:
        >>> trace = Trace.from_arrays([[0.9, 0.1], [0.2, 0.8]], ["das", "Haus"], ["the", "house"])
        >>> print(render(trace, style="ranked"))
        attention · target ← source
        the   ← das 90 %, Haus 10 %
        house ← Haus 80 %, das 20 %
    """
    screen = screen or Screen()
    if style == "document":
        name = over_words(trace, name).name
    elif style == "tags":
        name = tagged_attention(trace, name).name
    elif style == "copied" or (style is None and name is None and head is None and has_copies(trace)):
        style, name = "copied", copied_attention(trace).name
    elif style == "reading" or (style is None and name is None and head is None and has_reading(trace)):
        lines = [cut(shown(f"{PRODUCT} · as it was read"), screen.columns)]
        return "\n".join([*lines, *_reading_lines(trace, screen)])
    if style is not None and style not in STYLES:
        raise unknown_name("style", style, STYLES)
    if top < 1:
        raise ConfigError(f"render: top is {top}, expected a number above 0.")
    chosen = trace.cross_attentions() if name is None else [trace.attention(name)]
    weights = trace.alignment(name) if head is None else chosen[0].dense(head)
    target, source = trace.axes[chosen[0].target], trace.axes[chosen[0].source]
    what = ", ".join(shown(attention.name) for attention in chosen)
    if name is None and trace.default_note:
        what += f" · {trace.default_note}"
    if chosen[0].heads > 1:
        what += f" · mean of {chosen[0].heads} heads" if head is None else f" · head {head}"
    heading = f"{what} · {shown(target.title or chosen[0].target)} ← {shown(source.title or chosen[0].source)}"
    as_document = style == "document" or (style is None and source.kind == "document" and len(target) == 1)
    rows = len(target) if most_rows is None else min(most_rows, len(target))
    if as_document:
        rows = 1
    lines = [cut(heading, screen.columns)]
    if weights.size == 0:
        return "\n".join([*lines, "(no cells)"])
    if style == "copied":
        return "\n".join([*lines, *copied_lines(copied_words(trace), screen.columns, screen.colors)])
    if style == "tags" or (style is None and source.kind == "tags" and target.marks is not None):
        return "\n".join([*lines, *tagged_lines(target, source, weights, screen.columns, screen.colors)])
    names = [cut(shown(label), min(_LABEL, screen.columns // 3)) for label in target.labels[:rows]]
    page = _Page(weights[:rows], names, source, screen)
    if style == "image" and source.grid is None:
        raise ConfigError(f"view 'image' needs regions of an image, but {chosen[0].source!r} has no grid.")
    if style == "image" or (style is None and source.kind == "regions" and source.grid is not None):
        lines += image_lines(target, source, weights[:rows], screen.columns, screen.colors, page.block)
    elif style == "bars" or (style is None and source.kind == "channels"):
        applied = chosen[0].extras.get("weight", weights)[:rows]
        lines += bar_lines(names, applied, screen.columns, plain=screen.blocks == PLAIN)
    elif as_document:
        lines += page.document(shares_of_sentences(trace, chosen[0], weights[0], page.sentences))
    elif style == "ranked" or (style is None and not page.fits()):
        lines += page.ranked(top)
    else:
        lines += page.heat()
    lines += _spoken(source, screen.columns)
    if rows < len(target):
        lines.append(f"… and {len(target) - rows:,} rows more")
    if not all(attention.is_exact for attention in chosen):
        lines.append("(small weights of long rows were not kept)")
    return "\n".join(lines)


def _spoken(source: Axis, columns: int) -> list[str]:
    """Return the words of a recording, each with its first and last moment and how sure it is."""
    if source.kind != "frames" or not source.marks:
        return []
    long = source.seconds or 1.0
    size = max(width(shown(mark.label)) for mark in source.marks)
    return [
        cut(
            f"{mark.first * long:7.2f} to {(mark.last + 1) * long:6.2f} s  {shown(mark.label)}"
            f"{' ' * (size - width(shown(mark.label)))}  {100 * mark.share:.0f} %",
            columns,
        )
        for mark in source.marks
    ]


@dataclass(frozen=True)
class _Page:
    weights: NDArray[np.float32]
    rows: list[str]
    source: Axis
    screen: Screen

    @property
    def room(self) -> int:
        """Columns beside the labels of the rows."""
        return max(self.screen.columns - widest(self.rows) - 1, 1)

    @property
    def numbered(self) -> bool:
        return self.source.kind in _NUMBERED

    def parts(self) -> list[list[tuple[int, int]]]:
        """The columns of the source, each with its width, in as many parts as the room asks for."""
        parts: list[list[tuple[int, int]]] = [[]]
        used = 0
        for number, label in enumerate(self.source.labels):
            size = min(max(width(shown(label)), 2), _CELL)
            if parts[-1] and used + size > self.room:
                parts.append([])
                used = 0
            parts[-1].append((number, size))
            used += size + 1
        return parts

    def fits(self) -> bool:
        """Whether a heat map says more than a list."""
        if self.numbered:
            return True
        parts = self.parts()
        return len(parts) <= _MOST_PARTS and (len(parts) == 1 or len(parts[0]) >= _NARROWEST)

    def heat(self) -> list[str]:
        """A block for each weight, and what the blocks mean."""
        lines = self._strip() if self.numbered else self._table()
        drawn = self._pooled() if self.numbered else self.weights
        return [*lines, self._legend(float(drawn.max()), zeros=bool(zeros_on_purpose(drawn).any()))]

    def ranked(self, top: int) -> list[str]:
        """For each row the cells it read most of, with their share of it."""
        lines = []
        margin = widest(self.rows)
        for label, weights in zip(self.rows, self.weights):
            order = np.argsort(-weights, kind="stable")[:top]
            told, room = "", self.room - 2
            for cell in order[weights[order] > 0]:
                called = _isolated(cut(shown(self.source.labels[cell]), max(room - 6, 1)))
                entry = f"{called} {100 * weights[cell]:.0f} %"
                joined = f"{told}, {entry}" if told else entry
                if told and (width(joined) > room or weights[cell] < _TELLING):
                    break
                told = joined
            lines.append(f"{_padded(label, margin)} ← {told or '(nothing)'}")
        return lines

    @property
    def sentences(self) -> tuple[int, ...]:
        """How many words each sentence of a document has."""
        return self.source.sentences or (len(self.source),)

    def document(self, shares: NDArray[np.float32]) -> list[str]:
        """The text of the source, a paragraph a sentence: its share before it, its words shaded by the first row."""
        highest = float(self.weights[0].max())
        lines, word = [], 0
        for length, share in zip(self.sentences, shares):
            begin = f"{100 * share:>3.0f} % "
            line, used = begin, len(begin)
            for number in range(word, word + length):
                label, weight = shown(self.source.labels[number]), float(self.weights[0, number])
                marked = not self.screen.colors and weight > _FAINT * highest
                size = width(label) + marked
                if used > len(begin):
                    if used + 1 + size > self.screen.columns:
                        lines.append(line)
                        line, used = " " * len(begin), len(begin)
                    else:
                        line, used = line + self._gap(), used + 1
                line += self._shaded(label, weight, highest)
                used += size
            lines.append(line.rstrip())
            word += length
        return [*lines, self._legend(highest)]

    def _shaded(self, label: str, weight: float, highest: float) -> str:
        """A word on the color of its weight; without colors, the block of its weight after it."""
        if self.screen.colors:
            return self._painted(_isolated(label), weight / highest if highest > 0 else 0.0)
        if weight <= _FAINT * highest:
            return _isolated(label)
        return _isolated(label) + self.block(weight / highest)

    def _table(self) -> list[str]:
        highest = float(self.weights.max())
        margin = widest(self.rows)
        lines: list[str] = []
        for part in self.parts():
            if lines:
                lines.append("")
            shown_order = part[::-1] if self.source.right_to_left else part
            names = [_padded(cut(shown(self.source.labels[number]), size), size) for number, size in shown_order]
            lines.append(" ".join([" " * margin, *names]).rstrip())
            for label, weights, zeros in zip(self.rows, self.weights, zeros_on_purpose(self.weights)):
                line = _padded(label, margin)
                for number, size in shown_order:
                    line += self._gap() + self._cell(float(weights[number]), highest, size, zero=bool(zeros[number]))
                lines.append(line.rstrip())
        return lines

    def _pooled(self) -> NDArray[np.float32]:
        """Neighboring cells added up until there is room for all."""
        together = -(-len(self.source) // self.room)
        starts = np.arange(0, len(self.source), together)
        pooled: NDArray[np.float32] = np.add.reduceat(self.weights, starts, axis=1)
        return pooled

    def _strip(self) -> list[str]:
        pooled = self._pooled()
        together = -(-len(self.source) // self.room)
        margin, columns = widest(self.rows), pooled.shape[1]
        first, last = (cut(shown(self.source.labels[place]), max(columns // 2 - 1, 1)) for place in (0, -1))
        gap = columns - width(first) - width(last)
        ruler = first + " " * gap + last if gap > 0 else first
        lines = [f"{' ' * margin} {ruler}"]
        for label, weights, zeros in zip(self.rows, pooled, zeros_on_purpose(pooled)):
            cells = "".join(
                self._cell(float(weight), float(pooled.max()), 1, zero=bool(zero))
                for weight, zero in zip(weights, zeros)
            )
            lines.append(f"{_padded(label, margin)} {cells}".rstrip())
        if together > 1:
            lines.append(f"(each column: {together} {self.source.kind})")
        return lines

    def _cell(self, weight: float, highest: float, size: int, *, zero: bool) -> str:
        if self.screen.colors:
            return self._hatched(size) if zero else self._painted(" " * size, weight / highest if highest > 0 else 0.0)
        if weight <= _FAINT * highest:
            return " " * size
        return self.block(weight / highest) * size

    def block(self, share: float) -> str:
        """What stands for a share of the highest weight, from 0 to 1, where there are no colors."""
        blocks = self.screen.blocks
        level = int(np.ceil(share * len(blocks) - 1e-6)) - 1  # equal steps; a bound belongs to the step below it
        return blocks[min(max(level, 0), len(blocks) - 1)]

    def _painted(self, text: str, share: float) -> str:
        """The text on the color of a share from 0 to 1."""
        return self._on(text, rgb(share), (0, 0, 0) if ink(share) == "black" else (255, 255, 255), share)

    def _hatched(self, size: int) -> str:
        """Axis whose weight is exactly 0."""
        return self._on("/" * size, rgb(0.0), tuple(bytes.fromhex(HATCH[1:])), 0.0)

    def _on(self, text: str, paper: tuple[int, ...], letters: tuple[int, ...], share: float) -> str:
        if self.screen.colors > 256:
            codes = [f"2;{';'.join(map(str, color))}" for color in (letters, paper)]
        else:
            nearest = min(_OF_256, key=lambda number: abs(_OF_256[number] - share))
            codes = [f"5;{_LETTERS_OF_256[letters[0]]}", f"5;{nearest}"]
        return f"\x1b[38;{codes[0]};48;{codes[1]}m{text}\x1b[0m"

    def _gap(self) -> str:
        """What stands between two cells: on a map in colors the white ground goes on."""
        return self._painted(" ", 0.0) if self.screen.colors else " "

    def _legend(self, highest: float, *, zeros: bool = False) -> str:
        if highest <= 0:
            return "(all weights are 0)"
        count = len(self.screen.blocks)
        bounds = [f"{highest * (step + 1) / count:.2g}" for step in range(count)]
        if self.screen.colors:
            entries = [f"{self._painted('  ', step / count)} {bound}" for step, bound in enumerate(["0", *bounds])]
            entries += [f"{self._hatched(2)} exactly 0"] if zeros else []
            wide = sum(len(bound) + 5 for bound in ["0", *bounds]) + 14 * zeros
            return "  ".join(entries if wide <= self.screen.columns else [entries[0], entries[count]])
        start = f"up to: blank {highest * _FAINT:.1g}"
        if len(start) + sum(len(bound) + 4 for bound in bounds) > self.screen.columns:
            return f"{self.block(1.0)} {bounds[-1]}"
        return "  ".join([start, *(f"{self.block((step + 1) / count)} {bound}" for step, bound in enumerate(bounds))])


def _reading_lines(trace: Trace, screen: Screen) -> list[str]:
    """The document and the question as they were read, and both attentions between the words that matter most."""
    found = reading(trace, most_rows=_READ_ROWS)
    attention = trace.attentions[PRODUCT]
    whole = _Page(attention.dense(), [""], found.document, screen)
    lines = whole.document(shares_of_sentences(trace, attention, whole.weights[0], whole.sentences))
    asked = _Page(trace.attentions[IMPORTANCE].dense(), [""], found.question, screen)
    lines += ["", "question · how much each word counts", *asked.document(np.ones(1, dtype=np.float32))]
    words = Axis.from_tokens([found.document.labels[column] for column in found.columns])
    labels = [cut(shown(found.question.labels[row]), min(_LABEL, screen.columns // 3)) for row in found.rows]
    for title, weights, rows in (
        ("words · question ← document", found.alpha, labels),
        ("to_question · document ← question, each column", found.beta, labels),
        ("document · their product", found.product[None], [" " * widest(labels)]),
    ):
        lines += ["", cut(title, screen.columns), *_Page(weights, rows, words, screen).heat()]
    return lines


def _padded(label: str, columns: int) -> str:
    return _isolated(label) + " " * (columns - width(label))


def _isolated(label: str) -> str:
    """A label of a right-to-left script must not turn the rest of its line around."""
    if not Axis.from_tokens([label]).right_to_left:
        return label
    return f"{_LEFT_TO_RIGHT}{_ISOLATE}{label}{_END}"


def _colors(file: Stream) -> int:
    """How many colors the stream shows."""
    terminal = os.environ.get("TERM", "")
    if os.environ.get("NO_COLOR") or terminal == "dumb" or not file.isatty():
        return 0
    if os.environ.get("COLORTERM", "") in ("truecolor", "24bit"):
        return 1 << 24
    return 256 if "256color" in terminal else 0
