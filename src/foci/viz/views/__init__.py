"""The views of a trace: one file and one row each.

A view is a module of this folder, called as its row, with a function for each of the forms in the row:

    figure(trace, style, …) -> Figure    for print; its further arguments are options of `Trace.plot`
    terminal(selection) -> list[str]     lines for a terminal
    page(trace) -> str                   HTML above the page's own views; empty for traces without it

and with ``fits(selection) -> bool``: whether it is the view of what is shown where none was asked for. The first row
that fits is taken. A view that shows an attention of its own has ``attention(trace, name)``, which returns it. A script
of the page that belongs to a view is ``page/static/script/views/NAME.js``. Views do not import each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from foci.errors import unknown_name

if TYPE_CHECKING:
    from foci.viz.selection import Selection

VIEWS = {
    "probed": ("page",),
    "copied": ("figure", "terminal", "page"),
    "reading": ("figure", "terminal", "page"),
    "tags": ("figure", "terminal", "page"),
    "boxes": ("figure", "terminal"),
    "image": ("figure", "terminal"),
    "spectrogram": ("figure", "page"),
    "without_heads": ("page",),
    "document": ("figure", "terminal"),
    "memory": ("figure",),
    "marginals": ("figure",),
    "bars": ("figure", "terminal"),
    "heads": ("figure",),
    "ranked": ("terminal",),
    "heatmap": ("figure", "terminal"),
}
"""The forms that each view has."""


def views_of(form: str) -> list[str]:
    """Return the names of the views with this form: "figure", "terminal" or "page"."""
    return [name for name, forms in VIEWS.items() if form in forms]


def load(form: str) -> Iterator[ModuleType]:
    """Yield the views with this form, in their order."""
    return (import_module(f"{__name__}.{name}") for name in views_of(form))


def choose(selection: Selection, view: str | None = None) -> ModuleType:
    """Return the view of this name, or the first that fits, among those with the form of the selection.

    Raises:
        UnknownNameError: there is no such view with this form.
    """
    form = selection.form
    if view is None:
        return next(module for module in load(form) if module.fits(selection))
    if view not in views_of(form):
        raise unknown_name(f"view of a {form}", view, views_of(form))
    return import_module(f"{__name__}.{view}")
