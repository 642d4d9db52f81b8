"""Weights as text: a heat map of blocks, for each row what it read most of, or a document with its words shaded.

Colors are those of the figures (`foci.viz.colors`), painted behind the cells on a white ground, so that a darker cell
has a larger weight on light and on dark terminals. Every column lines up, whatever script its label is in. A map too
wide for the terminal comes in parts; columns that have only a number (frames, slots) are put together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foci.viz.axis import Axis
from foci.viz.colors import HATCH, ink, rgb
from foci.viz.labels import cut, shown, widest, width
from foci.viz.screen import Screen
from foci.viz.selection import Selection
from foci.viz.zeros import zeros_on_purpose

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
_NUMBERED = ("regions", "frames", "slots", "steps", "channels")
_OF_256 = {231: 0.0, 153: 0.18, 110: 0.34, 67: 0.51, 25: 0.67, 18: 0.97}
"""White and blues among the 256 colors, each with the share whose lightness it has."""
_LETTERS_OF_256 = {0: 16, 255: 231, 0xB0: 249}
"""Black, white and the gray of hatching."""
_LEFT_TO_RIGHT, _ISOLATE, _END = "\u200e", "\u2068", "\u2069"


def sheet_of(selection: Selection) -> Sheet:
    """Return the selected weights as they are shown on its screen."""
    rows, screen = selection.rows, selection.screen
    labels = row_labels(selection.target.labels[:rows], screen)
    return Sheet(selection.weights[:rows], labels, selection.source, screen)


def row_labels(labels: Sequence[str], screen: Screen) -> list[str]:
    """Return the labels of rows, cut to what a screen has room for."""
    return [cut(shown(label), min(_LABEL, screen.columns // 3)) for label in labels]


def heading(selection: Selection) -> str:
    """Return what is shown, as the first line."""
    attention = selection.attention
    names = ", ".join(shown(one.name) for one in selection.attentions)
    target, source = selection.target.title or attention.target, selection.source.title or attention.source
    notes = [*selection.notes, *filter(None, [selection.hidden_note])]
    return cut(" · ".join([names, *notes, f"{shown(target)} ← {shown(source)}"]), selection.screen.columns)


def with_notes(selection: Selection, lines: list[str]) -> list[str]:
    """Return the lines below their heading, and after them what was left out."""
    lines = [heading(selection), *lines, *_spoken(selection.source, selection.screen.columns)]
    if selection.rows < len(selection.target):
        lines.append(f"… and {len(selection.target) - selection.rows:,} rows more")
    if not all(attention.is_exact for attention in selection.attentions):
        lines.append("(small weights of long rows were not kept)")
    return lines


def _spoken(source: Axis, columns: int) -> list[str]:
    """Return the words of a recording, each with its first and last moment and how sure it is."""
    if source.kind != "frames" or not source.marks:
        return []
    size = max(width(shown(mark.label)) for mark in source.marks)
    return [
        cut(
            f"{source.moment(mark.first):7.2f} to {source.moment(mark.last + 1):6.2f} s  {shown(mark.label)}"
            f"{' ' * (size - width(shown(mark.label)))}  {100 * mark.share:.0f} %",
            columns,
        )
        for mark in source.marks
    ]


@dataclass(frozen=True)
class Sheet:
    """Weights that are shown as text: as a heat map, a ranked list, or a shaded document."""

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
        """Whether the columns have numbers and no words."""
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

    def document(self, shares: NDArray[np.float32]) -> list[str]:
        """The text of the source, a paragraph a sentence: its share before it, its words shaded by the first row."""
        highest = float(self.weights[0].max())
        lines, word = [], 0
        for length, share in zip(self.source.sentence_lengths, shares):
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
                    line += self._gap() + self.cell(float(weights[number]), highest, size, zero=bool(zeros[number]))
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
                self.cell(float(weight), float(pooled.max()), 1, zero=bool(zero))
                for weight, zero in zip(weights, zeros)
            )
            lines.append(f"{_padded(label, margin)} {cells}".rstrip())
        if together > 1:
            lines.append(f"(each column: {together} {self.source.kind})")
        return lines

    def cell(self, weight: float, highest: float, size: int, *, zero: bool = False) -> str:
        """Return a cell of this many columns for a weight, hatched where it is exactly 0."""
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


def _padded(label: str, columns: int) -> str:
    return _isolated(label) + " " * (columns - width(label))


def _isolated(label: str) -> str:
    """A label of a right-to-left script must not turn the rest of its line around."""
    if not Axis.from_tokens([label]).right_to_left:
        return label
    return f"{_LEFT_TO_RIGHT}{_ISOLATE}{label}{_END}"
