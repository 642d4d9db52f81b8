"""What a run keeps of its training data: tokenizers, vocabularies, labels and counts, one JSON file each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, get_type_hints

from pydantic import AfterValidator, TypeAdapter, ValidationError

from foci.data.tokenizer import Tokenizer
from foci.errors import CheckpointError

_LISTED = 10
"""Names that a description lists of a longer list."""


@dataclass(frozen=True)
class Assets:
    """Derived from the training data and kept in the run.

    A subclass is a frozen dataclass; the file of a field is its name and ``.json``. A type with ``to_text()`` and
    ``from_text(text, origin)``, such as a tokenizer, writes and reads its file itself; files of all other types are
    plain JSON, validated by pydantic. A field with a ``default_factory`` may have no file, in runs of earlier versions.
    `check` raises a ValueError if fields do not fit together.

    Example:
        >>> @dataclass(frozen=True)
        ... class Classes(Assets):
        ...     labels: Labels
        >>> files = Classes(("cat", "dog")).to_files()
        >>> files, Classes.from_files(files.__getitem__)
        ({'labels.json': '["cat","dog"]'}, Classes(labels=('cat', 'dog')))
    """

    def to_files(self) -> dict[str, str]:
        """Return the text of each file by its name."""
        return {f"{name}.json": _text(getattr(self, name), kind) for name, kind in _kinds(type(self))}

    @classmethod
    def from_files(cls, read: Callable[[str], str]) -> Assets:
        """Return the assets whose files ``to_files`` gave; ``read`` returns the text of a file by its name.

        Raises:
            CheckpointError: a file is damaged, or does not fit to the others.
        """
        later = {one.name for one in fields(cls) if one.default_factory is not MISSING}
        made = cls(**{name: value for name, kind in _kinds(cls) for value in _found(read, name, kind, name in later)})
        try:
            made.check()
        except ValueError as error:
            names = ", ".join(f"{name}.json" for name, _ in _kinds(cls))
            raise CheckpointError(f"{names}: do not belong to one run ({error}). Restore the files.") from error
        return made

    def check(self) -> None:
        """Raise a ValueError if fields do not fit together."""

    def describe(self) -> dict[str, str]:
        """Return in words what has a size: labels by their names, tokenizers and vocabularies by their entries."""
        values = ((one.name, getattr(self, one.name)) for one in fields(self))
        return {name: text for name, value in values if isinstance(value, Sized) and (text := _counted(value))}


def _counted(value: Sized) -> str:
    """Return how many names there are, and the first of them; or how many entries; nothing for a text or numbers."""
    if not isinstance(value, str | tuple):
        return f"{len(value):,} entries"
    if not value or isinstance(value, str) or not all(isinstance(name, str) for name in value):
        return ""
    return f"{len(value):,} ({', '.join([*value[:_LISTED], *['…'] * (len(value) > _LISTED)])})"


def _found(read: Callable[[str], str], name: str, kind: Any, may_be_missing: bool) -> list[Any]:
    """Return the value of a field; nothing where earlier versions had no such file, so that its default is taken."""
    try:
        text = read(f"{name}.json")
    except (CheckpointError, KeyError) as error:  # KeyError: of what another process has sent
        if may_be_missing and isinstance(error.__cause__ or error, FileNotFoundError | KeyError):
            return []
        raise
    return [_parsed(text, kind, f"{name}.json")]


def _kinds(kind: type[Assets]) -> Iterable[tuple[str, Any]]:
    hints = get_type_hints(kind, include_extras=True)
    return [(one.name, hints[one.name]) for one in fields(kind)]


def _text(value: Any, kind: Any) -> str:
    if hasattr(kind, "from_text"):
        own: str = value.to_text()
        return own
    return TypeAdapter(kind).dump_json(value).decode()


def _parsed(text: str, kind: Any, name: str) -> Any:
    if hasattr(kind, "from_text"):
        return kind.from_text(text, name)
    try:
        return TypeAdapter(kind).validate_json(text)
    except ValidationError as error:
        reason = "; ".join(sorted({one["msg"] for one in error.errors()}))
        raise CheckpointError(f"{name}: is not what foci wrote ({reason}). Restore the file.") from error


def _different(labels: tuple[str, ...]) -> tuple[str, ...]:
    if len({*labels}) < max(2, len(labels)):
        raise ValueError("it has no list of at least two different labels")
    return labels


Labels = Annotated[tuple[str, ...], AfterValidator(_different)]
"""At least two different labels, in the order of the model's scores."""


@dataclass(frozen=True)
class TokenizerAssets(Assets):
    """The tokenizer of a run."""

    tokenizer: Tokenizer
