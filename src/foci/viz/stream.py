"""The streams that text is written to."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class Stream(Protocol):
    """What text can be written to: the standard output, a file, `io.StringIO`."""

    def write(self, text: str, /) -> object:
        """Write the text."""
        ...

    def isatty(self) -> bool:
        """Whether a person is looking."""
        ...
