"""Built-in texts with summaries: docstrings of Python's standard library, and their first lines.

    source      def shuffle(self, x): x -> list; shuffle list x in place, and return None.
    target      Shuffle list x in place, and return None.

A docstring's first line summarizes the rest of it. The source is the name and the arguments of what is documented, and
the docstring after its first line; the target is that line. They are read from the .py files of the running Python, so
nothing is downloaded; another version of Python has slightly different ones.
"""

from __future__ import annotations

import hashlib
import re
import sysconfig
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from foci.errors import DataError, check_positive, unknown_name
from foci.tasks.summarize.reader import SummarizedText

SPLITS = ("train", "valid", "test")
_LEFT_OUT = frozenset(("test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages", "__pycache__"))
# Parsing all files would take many seconds.
_DOCUMENTED = re.compile(
    r'^[ \t]*(?:async[ \t]+)?(def|class)[ \t]+(\w+)[ \t]*(\([^"#]*?\))?[^\n:"]*:[ \t]*\n[ \t]*[rR]?"""(.*?)"""',
    re.MULTILINE | re.DOTALL,
)
_NAMES = re.compile(r"[(,]\s*\**(\w+)")
_SHORTEST, _LONGEST = 3, 20
"""Words of a first line that is used."""
_LEAST = 8
"""Words of the text below it, at least."""
_MOST = 120
"""Words of a source, at most; the rest is not used."""


def docstrings(split: str = "train", size: int | None = None) -> list[SummarizedText]:
    """Return the documented functions and classes of the standard library with their first lines.

    Args:
        split: ``train``, ``valid`` or ``test``, by a hash of the first line: no first line is in two splits.
        size: at most this many.
    """
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    if size is not None:
        check_positive("docstrings", size=size)
    return list(_by_split()[split][:size])


@cache
def _by_split() -> dict[str, list[SummarizedText]]:
    found: dict[tuple[str, str], SummarizedText] = {}
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if _LEFT_OUT.isdisjoint(path.relative_to(root).parts):
            for one in _in_file(path):
                found.setdefault((one.source, one.target), one)
    splits: dict[str, list[SummarizedText]] = {split: [] for split in SPLITS}
    for one in sorted(found.values(), key=lambda one: _digest(one.source + one.target)):
        number = _digest(one.target)[0] % 10
        splits["test" if number == 0 else "valid" if number == 1 else "train"].append(one)
    if not all(splits.values()):
        raise DataError(f"docstrings: {root} has no .py files with docstrings. Name your own data (data.path).")
    return splits


def _in_file(path: Path) -> Iterator[SummarizedText]:
    text = path.read_text(encoding="utf-8", errors="replace")
    for found in _DOCUMENTED.finditer(text):
        kind, name, arguments, documentation = found.groups()
        first, _, rest = documentation.strip().partition("\n")
        words = rest.split()
        whole = first.rstrip().endswith((".", "!", "?", ")")) or not rest.partition("\n")[0].strip()
        fits = _SHORTEST <= len(first.split()) <= _LONGEST and len(words) >= _LEAST
        if fits and whole and "\N{REPLACEMENT CHARACTER}" not in documentation:
            names = [] if kind == "class" else [one for one in _NAMES.findall(arguments or "") if one != "self"]
            called = f"{name.replace('_', ' ').strip()} ({', '.join(names)}):" if kind == "def" else f"class {name}:"
            yield SummarizedText(" ".join([*called.split(), *words][:_MOST]), first.strip())


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
