"""Which group each row of a table belongs to, such as its speaker or author, so that a group stays in one part."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from foci.data.lines import usable
from foci.data.tables import Column, read_rows


def read_groups(path: Path, column: Column, group: Column, key: Callable[[str], str]) -> dict[str, set[str]]:
    """Return the groups of each key of a table: most keys have one.

    Args:
        path: a .csv, .tsv, .txt (tabs) or .jsonl file, plain, .gz or .xz.
        column: what the keys are made of.
        group: the column of the groups.
        key: returns the key of a value.
    """
    found: dict[str, set[str]] = {}
    expected = f"a .csv, .tsv or .jsonl file with the column {group!r}, since data.group names it"
    rows = read_rows(path, (column, group), texts=1, tabs=(".tsv", ".txt"), expected=expected)
    for row in usable(rows, "rows"):
        value, name = row.values
        found.setdefault(key(value.strip()), set()).add(name.strip())
    return found


def joined(groups: dict[str, set[str]]) -> dict[str, str]:
    """Return one name for the groups of each key; groups that share a key are one.

    Example:
        >>> joined({"a": {"Ada"}, "b": {"Ada", "Bob"}, "c": {"Bob"}, "d": {"Eve"}})
        {'a': 'Ada', 'b': 'Ada', 'c': 'Ada', 'd': 'Eve'}
    """
    first: dict[str, str] = {}

    def of(name: str) -> str:
        while first.setdefault(name, name) != name:
            name = first[name]
        return name

    for names in groups.values():
        roots = sorted(map(of, names))
        first.update(dict.fromkeys(roots, roots[0]))
    return {key: of(min(names)) for key, names in groups.items()}
