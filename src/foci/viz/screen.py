"""What a terminal can show: how many columns, which colors, and whether it has blocks."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TextIO

BLOCKS = "·░▒▓█"
PLAIN = ".:+*#"
"""For terminals whose encoding has no blocks."""


@dataclass(frozen=True)
class Screen:
    """What a terminal can show."""

    columns: int = 80
    colors: int = 0
    """0, 256, or 1 << 24."""
    blocks: str = BLOCKS

    @classmethod
    def from_stream(cls, file: TextIO) -> Screen:
        """What this stream can show, by its environment."""
        columns = shutil.get_terminal_size(fallback=(80, 24)).columns
        try:
            BLOCKS.encode(getattr(file, "encoding", None) or "utf-8")
            blocks = BLOCKS
        except UnicodeEncodeError:
            blocks = PLAIN
        return cls(columns, _colors(file), blocks)


def _colors(file: TextIO) -> int:
    """How many colors the stream shows."""
    terminal = os.environ.get("TERM", "")
    if os.environ.get("NO_COLOR") or terminal == "dumb" or not file.isatty():
        return 0
    if os.environ.get("COLORTERM", "") in ("truecolor", "24bit"):
        return 1 << 24
    return 256 if "256color" in terminal else 0
