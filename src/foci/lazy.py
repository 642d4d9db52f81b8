"""Packages whose names are imported on first use, as those of scipy are.

Type checkers do not see any of it: they read imports under ``if TYPE_CHECKING`` beside the table, and so report a name
that a package does not have. tests/test_lazy.py checks that the two agree.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module


def attach(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its ``__name__``.
        homes: name -> the module that defines it; the package itself for the name of one of its modules.

    Example:
        >>> load, names = attach("foci", {"masks": "foci", "list_mechanisms": "foci.catalog"})
        >>> load("masks").__name__, load("list_mechanisms").__name__
        ('foci.masks', 'list_mechanisms')
    """

    def load(name: str) -> object:
        module = sys.modules[package]
        if name not in homes:  # Python adds the most similar name to the message
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=module)
        home = homes[name]
        value = import_module(f"{package}.{name}") if home == package else getattr(import_module(home), name)
        setattr(module, name, value)
        return value

    def names() -> list[str]:
        return sorted({*homes, *(name for name in vars(sys.modules[package]) if name.startswith("__"))})

    return load, names
