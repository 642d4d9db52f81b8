"""`foci list`: the catalog as a table."""

from __future__ import annotations

import re
import sys
import textwrap

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from foci.names import Family

_NARROW = 84
"""Columns of a terminal; with fewer, too few would be left for the column of summaries."""


def show_list(*, family: Family | None = None) -> None:
    """List every mechanism with its summary and its paper.

    On a terminal this is a table, or on a narrow one a list; into a pipe or a file it is one line per mechanism.

    Parameters
    ----------
    family
        Only one family, by its inputs. attend: query, key and value. pool: one sequence. pair: two sequences.
        memory: input and state. map: feature maps of images.
    """
    from foci.catalog import MECHANISMS

    rows = [
        (name, row.family, row.summary, short_reference(row.paper))
        for name, row in MECHANISMS.items()
        if family in (None, row.family)
    ]
    if not sys.stdout.isatty():
        print(in_columns([("NAME", "FAMILY", "WHAT IT DOES", "PAPER"), *rows]))
        return
    console = Console()
    if console.width < _NARROW:
        for name, kind, summary, paper in rows:
            console.print(Text.assemble((name, "cyan"), f"  {kind}, {paper}"), soft_wrap=True)
            console.print(
                textwrap.indent(textwrap.fill(summary, console.width - 2, break_on_hyphens=False), "  "),
                markup=False,
                highlight=False,
            )
        return
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("name", style="cyan", no_wrap=True)
    table.add_column("family")
    table.add_column("what it does", ratio=1)
    table.add_column("paper", max_width=24)
    for cells in rows:
        table.add_row(*(Text(cell) for cell in cells))
    table.caption = "For details: foci explain NAME."
    console.print(table)


def short_reference(paper: str) -> str:
    """Return authors and year of a `Paper:` line, whose form is ``Title (authors, year), where``.

    Example:
        >>> short_reference("A Title (One, Two, Three, 2015), eq. 8")
        'One et al., 2015'
    """
    found = re.search(r"\(([^()]+), (\d{4})\)", paper)
    if found is None:
        return paper
    authors, year = found[1].split(", "), found[2]
    return f"{authors[0]} et al., {year}" if len(authors) > 2 else f"{' and '.join(authors)}, {year}"


def in_columns(rows: list[tuple[str, ...]]) -> str:
    """Return the rows with their cells one below the other, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)
