"""The errors that foci raises, and the checks of options; nothing here imports torch.

Every message says what was passed, what was expected and how to fix it. No message shows the contents of a tensor.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence


class FociError(Exception):
    """The base class of all errors that foci raises."""


class ShapeError(FociError, ValueError):
    """A tensor has the wrong rank, size, dtype or device."""


class ConfigError(FociError, ValueError):
    """Options that contradict each other or are out of range."""


class UnknownNameError(ConfigError, KeyError):
    """A name that is not in the table it was looked up in."""

    __str__ = Exception.__str__  # KeyError's own puts the message in quotes


class StaleWeightsError(FociError, RuntimeError):
    """Weights were requested after a tensor that they are computed from was changed in place."""


class DataError(FociError, ValueError):
    """User data that cannot be read in the expected format."""


class CheckpointError(FociError, RuntimeError):
    """A saved run that is missing, damaged or of another kind."""


class TrainingError(FociError, RuntimeError):
    """Training that cannot continue, for example because the loss is not finite."""


class MissingPackageError(FociError, ImportError):
    """A required optional package is not installed."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """Return an error that suggests the known names most similar to ``name``, or lists all of them."""
    return UnknownNameError(f"unknown {kind} {name!r}. {near_names(name, known)}")


def near_names(name: object, known: Iterable[str]) -> str:
    """Return a sentence that suggests the known names most similar to ``name``, or lists all of them."""
    names = sorted(known)
    by_lower = {known_name.lower(): known_name for known_name in names}
    near = [by_lower[n] for n in difflib.get_close_matches(str(name).lower(), by_lower, n=3, cutoff=0.5)]
    if near:
        return f"Did you mean {' or '.join(repr(n) for n in near)}? All: {', '.join(names)}."
    return f"Known: {', '.join(names)}."


def check_positive(owner: str, **values: int | float | None) -> None:
    """Raise unless every value is a number above zero; None, for a value that was left out, passes."""
    for name, value in values.items():
        if value is not None and not (_is_number(value) and 0 < value < math.inf):
            raise ConfigError(f"{owner}: {name} is {value!r}, expected a number above 0.")


def check_sizes(owner: str, **sizes: int | None) -> None:
    """Raise unless every size is a whole number above zero; None, for a size that was left out, passes."""
    for name, size in sizes.items():
        if size is not None and not (_is_whole(size) and size > 0):
            raise ConfigError(f"{owner}: {name} is {size!r}, expected a whole number above 0.")


def check_counts(owner: str, **counts: int) -> None:
    """Raise unless every count is a whole number from zero."""
    for name, count in counts.items():
        if not (_is_whole(count) and count >= 0):
            raise ConfigError(f"{owner}: {name} is {count!r}, expected a whole number from 0.")


def check_share(owner: str, **shares: float) -> None:
    """Raise unless every share lies from 0 to below 1."""
    for name, share in shares.items():
        if not _is_number(share) or not 0.0 <= share < 1.0:
            raise ConfigError(f"{owner}: {name} is {share!r}, expected a number from 0 to below 1.")


def _is_number(value: object) -> bool:
    return isinstance(value, float) or _is_whole(value)


def _is_whole(value: object) -> bool:
    # The size of an axis while torch.compile traces is a torch.SymInt.
    return (isinstance(value, int) and not isinstance(value, bool)) or type(value).__name__ == "SymInt"


def check_odd(owner: str, **sizes: int) -> None:
    """Raise unless every size is an odd whole number above zero, so that there is a center."""
    for name, size in sizes.items():
        if not (_is_whole(size) and size > 0 and size % 2):
            raise ConfigError(f"{owner}: {name} is {size!r}, expected an odd number above 0.")


def check_flags(owner: str, **flags: bool | None) -> None:
    """Raise unless every flag is True or False, since any text would be true; None, for one left out, passes."""
    for name, flag in flags.items():
        if flag is not None and not isinstance(flag, bool):
            raise ConfigError(f"{owner}: {name} is {flag!r}, expected True or False.")


def check_window(
    owner: str, window: Sequence[int | None] | None, *, bounded: bool = False, lowest: int | None = 0
) -> None:
    """Raise unless ``window`` is None or (left, right), two whole numbers.

    Args:
        owner: who has it.
        window: what was given.
        bounded: whether a side may not be None, for no bound.
        lowest: the smallest number of a side; None for any, as a window may end before a query's own position.
    """
    if window is None:
        return
    given = window if isinstance(window, tuple | list) else ()
    sides = [side for side in given if side is not None or bounded]
    if len(given) != 2 or not all(_is_whole(side) and (lowest is None or side >= lowest) for side in sides):
        least = "" if lowest is None else f" of {lowest} or more"
        none = "" if bounded else ", each None for no bound"
        raise ConfigError(f"{owner}: window is {window!r}, expected (left, right), two whole numbers{least}{none}.")
