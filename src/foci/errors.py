"""The errors that foci raises, and the checks of options; nothing here imports torch.

Every message says what was passed, what was expected and how to fix it. No message shows the contents of a tensor.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


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
        if value is not None and not (_is_number(value) and value > 0):
            raise ConfigError(f"{owner}: {name} is {value!r}, expected a number above 0.")


def check_sizes(owner: str, **sizes: int | None) -> None:
    """Raise unless every size is a whole number above zero; None, for a size that was left out, passes."""
    for name, size in sizes.items():
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            raise ConfigError(f"{owner}: {name} is {size!r}, expected a whole number above 0.")


def check_share(owner: str, **shares: float) -> None:
    """Raise unless every share lies from 0 to below 1."""
    for name, share in shares.items():
        if not isinstance(share, int | float) or not 0.0 <= share < 1.0:
            raise ConfigError(f"{owner}: {name} is {share!r}, expected a number from 0 to below 1.")


def _is_number(value: object) -> bool:
    # The size of an axis while torch.compile traces is a torch.SymInt.
    return isinstance(value, int | float) or type(value).__name__ == "SymInt"
