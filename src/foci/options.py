"""The base of all options: frozen dataclasses that check their values; nothing here imports torch.

A field's type lists its choices (``Literal``). Its name says what it counts, as docs/design.md names sizes: ``num_…``,
``…_dim``, ``…_size``, ``…_width`` and ``…_length`` are whole numbers above 0, ``…_range``, ``…_bound`` and ``…_cap``
numbers above 0, ``…_weight`` numbers from 0, ``…dropout`` and ``…_share`` shares. The text below a field is its
description: help, settings and docs are generated from it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from foci.errors import ConfigError, check_positive, check_share, check_sizes, unknown_name
from foci.names import NORMALIZER_ALIASES, SCORE_ALIASES, settled

Value = TypeVar("Value")

LARGEST = 1e9
"""No option of a model is larger that is not a whole number."""

_ALIASES = {"score": SCORE_ALIASES, "normalize": NORMALIZER_ALIASES}
"""Options whose value may be an alias; they keep the name itself."""


class _NotInSettings:
    """Has pydantic refuse all objects: a run is described by texts and numbers, which a part of one's own is not."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.is_instance_schema(cls)


OwnPart = Annotated[Callable[..., Any], _NotInSettings]
"""A part of attention of one's own, a function or a module that fulfils a protocol of `foci.mechanisms.parts`."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of one part of a model, checked where they are made."""

    __pydantic_config__: ClassVar[dict[str, Any]] = {"extra": "forbid", "use_attribute_docstrings": True}
    """For settings, which read options from TOML; a plain dictionary, since foci itself does not need pydantic."""

    def __post_init__(self) -> None:
        owner = type(self).__name__
        for name, (choices, or_own) in _choices(type(self)).items():  # type: ignore[arg-type]
            value = settled(getattr(self, name), _ALIASES.get(name, {}))
            object.__setattr__(self, name, value)
            if or_own and not isinstance(value, str | None):
                if not callable(value):
                    raise ConfigError(
                        f"{owner}: {name} is a {type(value).__name__}, expected a name, or a function or module "
                        "(docs/your-own-parts.md)."
                    )
            elif value not in choices:
                raise unknown_name(
                    f"{name} of {owner}", value, [choice for choice in choices if isinstance(choice, str)]
                )
        for field in fields(self):
            name, value = field.name, {field.name: getattr(self, field.name)}
            check_number(owner, name, value[name], flag="bool" in str(field.type))
            if name.startswith("num_") or name.endswith(("_dim", "_size", "_width", "_length")):
                check_sizes(owner, **value)
            elif name.endswith(("_range", "_bound", "_cap")):
                check_positive(owner, **value)
            elif name.endswith("_weight") and value[name] < 0:
                raise ConfigError(f"{owner}: {name} is {value[name]!r}, expected a number from 0.")
            elif name.endswith(("dropout", "_share")) and value[name] is not None:
                check_share(owner, **value)


def check_number(owner: str, name: str, value: Any, *, flag: bool) -> None:
    """Raise for a number that is not finite or beyond `LARGEST`, and for true or false where no flag is expected."""
    if isinstance(value, float) and not abs(value) <= LARGEST:
        raise ConfigError(f"{owner}: {name} is {value!r}, expected a number from -{LARGEST:g} to {LARGEST:g}.")
    if isinstance(value, bool) and not flag:
        raise ConfigError(f"{owner}: {name} is {value!r}, expected a number.")


@cache
def _choices(kind: type[Options]) -> dict[str, tuple[tuple[Any, ...], bool]]:
    """Return the values that each field may have whose type lists them, and whether it may be a part of one's own."""
    found = {}
    for name, hint in get_type_hints(kind).items():
        union = get_origin(hint) in (Union, types.UnionType)
        parts = get_args(hint) if union else (hint,)
        named = tuple(part for part in parts if get_origin(part) is not Callable)
        if get_origin(hint) is not ClassVar and all(
            get_origin(part) is Literal or part is type(None) or (union and part is bool) for part in named
        ):
            others = {bool: (False, True), type(None): (None,)}
            choices = tuple(choice for part in named for choice in (get_args(part) or others[part]))
            found[name] = (choices, len(named) < len(parts))
    return found


Made = TypeVar("Made", bound=Options)


def from_tables(kind: type[Made], tables: Mapping[str, Any]) -> Made:
    """Return options made from nested tables, such as those of a preset; ``kind`` chooses among the classes of a union.

    Example:
        >>> from foci.models.options.seq2seq import Seq2SeqOptions, seq2seq_preset
        >>> options = from_tables(Seq2SeqOptions, seq2seq_preset("tiny", "convolutional", "recurrent"))
        >>> options.encoder.layers, options.decoder.hidden_dim
        (((128, 3), (128, 3), (128, 3), (128, 3)), 256)
    """
    hints = get_type_hints(kind)
    values = {}
    for name, value in tables.items():
        parts = [
            part for part in (hints.get(name), *get_args(hints.get(name))) if hasattr(part, "__dataclass_fields__")
        ]
        if isinstance(value, Mapping) and parts:
            tag = value.get("kind")
            part = next((part for part in parts if tag is None or getattr(part, "kind", None) == tag), None)
            if part is None:
                raise unknown_name(f"kind of {name}", tag, [str(getattr(part, "kind", "")) for part in parts])
            value = from_tables(part, value)
        values[name] = value
    return kind(**values)


def check_default(owner: str, options: Options, *names: str, reason: str) -> None:
    """Raise if one of these fields was set, because it has no effect.

    Args:
        owner: who reads the options.
        options: the options.
        names: the fields without effect.
        reason: a sentence that says why.
    """
    defaults = {field.name: field.default for field in fields(options)}
    for name in names:
        value = getattr(options, name)
        if value != defaults[name]:
            raise ConfigError(f"{owner}: {name} is {value!r}, expected it to be left out. {reason}")


def from_preset(what: str, presets: Mapping[str, Value], name: str) -> Value:
    """Return the preset of this name.

    Example:
        >>> from_preset("tagger", {"tiny": {"hidden_dim": 96}}, "tiny")
        {'hidden_dim': 96}
    """
    if name not in presets:
        raise unknown_name(f"preset of {what}", name, presets)
    return presets[name]
