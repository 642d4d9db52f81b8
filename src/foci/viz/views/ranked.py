"""For each row what it read most of: where a heat map would be too wide for the terminal."""

from __future__ import annotations

from foci.viz.pictured import images_as_one
from foci.viz.selection import Selection
from foci.viz.terminal.sheet import sheet_of, with_notes


def fits(selection: Selection) -> bool:
    """Too many columns for a heat map."""
    return not sheet_of(selection).fits()


def terminal(selection: Selection) -> list[str]:
    """The positions that each row read most of, with their share."""
    selection = images_as_one(selection)
    return with_notes(selection, sheet_of(selection).ranked(selection.top))
