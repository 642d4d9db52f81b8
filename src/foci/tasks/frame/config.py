"""Settings: frozen dataclasses, read from TOML files, mappings and flags.

Each setting is a field, and the text below the field is its only description: help, `--print-config` and error messages
are generated from it. An unknown name, a wrong type or a value out of range is a ConfigError with the dotted path, the
origin (a file, the command line) and, for names, similar ones.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import os
import re
import textwrap
import tomllib
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError
from torch import nn

from foci.errors import ConfigError, FociError, near_names, unknown_name
from foci.files import A_FILE
from foci.files import FilePath as FilePath

Config = TypeVar("Config")

Numbers = Annotated[
    tuple[int, ...], BeforeValidator(lambda value: value.split(",") if isinstance(value, str) else value)
]
"""Whole numbers; as text with commas between them."""

Texts = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]
"""Texts; one may be given by itself."""


class Text(str):
    """A value as it was typed on the command line: TOML where that fits the setting, else the text itself."""

    __slots__ = ()


@dataclass(frozen=True, kw_only=True)
class OpenTable(ABC):
    """A table with further keys: the keyword arguments of the class that the table selects."""

    options: Mapping[str, Any] = field(default_factory=dict)

    @abstractmethod
    def maker(self, origin: str, path: str) -> Callable[..., Any]:
        """Return the class or function whose keyword arguments the further keys are."""

    def check(self, origin: str, path: str) -> None:  # noqa: B027 (most tables need none)
        """Raise a ConfigError unless the options fit together."""

    @property
    def resolved(self) -> dict[str, Any]:
        """The options, those of the preset included; all others have the defaults of `maker`."""
        return dict(self.options)


@dataclass(frozen=True, kw_only=True)
class ModelChoice(OpenTable):
    """Which model: a kind, a preset of sizes, and any option of the model's class."""

    models: ClassVar[Mapping[str, tuple[Callable[..., nn.Module], Mapping[str, Mapping[str, Any]]]]] = {}
    """Kind of model -> its class, and its presets by name."""
    trial_sizes: ClassVar[tuple[int, ...]] = (11, 7)
    """Sizes with which the options are checked."""

    kind: str = ""
    """Kind of model."""
    preset: str = ""
    """The sizes of the model by name."""

    def maker(self, origin: str, path: str) -> Callable[..., Any]:
        """Return the model's class."""
        if self.kind not in self.models:
            raise unknown_name(f"model ({origin}: {path}.kind)", self.kind, self.models)
        make, presets = self.models[self.kind]
        if self.preset not in presets:
            raise unknown_name(f"preset of {self.kind} ({origin}: {path}.preset)", self.preset, presets)
        return make

    def check(self, origin: str, path: str) -> None:
        """Build the model without memory for its weights, so that it checks all options."""
        try:
            with torch.device("meta"):
                self.build(*self.trial_sizes)
        except FociError as error:
            raise type(error)(f"{origin}: {path}: {error}") from error
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            raise ConfigError(
                f"{origin}: {path}: a {self.kind} cannot be built with these options ({error})."
            ) from error

    @property
    def resolved(self) -> dict[str, Any]:
        """The preset's options and those that were given."""
        return {**self.models[self.kind][1][self.preset], **self.options}

    def build(self, *sizes: Any) -> nn.Module:
        """Build the model for what its data decides: sizes of vocabularies, or of inputs and outputs."""
        return self.models[self.kind][0](*sizes, **self.resolved)


class TaskConfig:
    """The base of all settings of one task: its fields are tables of settings, or settings by themselves."""

    flags: ClassVar[Mapping[str, str]]
    """Settings with a flag of their own: flag -> dotted path. ``data`` is the main data file, if the task reads any."""
    demo: ClassVar[Mapping[str, Any]]
    """Settings of `foci demo`: built-in data, some minutes on one core."""
    smallest: ClassVar[Mapping[str, Any]]
    """Settings of the smallest training on built-in data that still learns something, for the contract tests."""

    @classmethod
    def implied(cls, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings that follow from the given ones; given ones win."""
        return {}


Whole = TypeVar("Whole", bound=TaskConfig)


# ---- reading


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: the configuration cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: is no TOML: {error}.") from error


def apply_changes(tables: Mapping[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """Return the tables with changes such as ``model.num_heads=8`` applied.

    Example:
        >>> apply_changes({"model": {"num_heads": 4}}, ["model.num_heads=8", "model.score=dot"])
        {'model': {'num_heads': '8', 'score': 'dot'}}
    """
    for change in changes:
        path, equals, text = change.partition("=")
        if not equals or not all(path.strip().split(".")):
            raise ConfigError(f"--set {change}: expected a path and a value, as in model.num_heads=8.")
        tables = put(tables, {path.strip(): Text(text)})
    return dict(tables)


def put(tables: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables with these values at their dotted paths."""
    changed = _copied(tables)
    for path, value in values.items():
        *names, last = path.split(".")
        table = changed
        for name in names:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{path}: {name} is a value, expected a table of settings.")
        table[last] = value
    return changed


def merge(tables: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables merged with the given settings, which take precedence.

    A setting that is a mapping itself, such as training.lr_multipliers, is replaced as a whole.
    """
    merged = _copied(tables)
    for name, value in given.items():
        old = merged.get(name)
        merged[name] = {**old, **value} if isinstance(old, dict) and isinstance(value, Mapping) else value
    return merged


def configure(kind: type[Whole], tables: Mapping[str, Any], origin: str) -> Whole:
    """Return a task's configuration.

    What is not given comes from the settings that follow from the given ones (``kind.implied``), then from the
    defaults of the fields.
    """
    given = _checked_tables(kind, tables, origin)
    training = given.get("training", {})
    if {"max_steps", "time_limit"} & training.keys():  # a given limit replaces the default ones
        stops = dict.fromkeys(("max_steps", "max_epochs", "time_limit", "patience"))
        given = {**given, "training": {**stops, **training}}
    return build(kind, merge(kind.implied(given), given), origin)


def _checked_tables(kind: type[Any], tables: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Return the tables after checking that every table is one and that all names are known."""
    hints = _hints(kind)
    _check_names(tables, hints, origin, "")
    for name, value in tables.items():
        if dataclasses.is_dataclass(hints[name]) and not isinstance(value, Mapping | hints[name]):
            raise ConfigError(f"{origin}: {name} is {value!r}, expected a table of settings, as in {name}.x = ….")
    return _copied(tables)


def build(
    kind: type[Config], tables: Mapping[str, Any], origin: str, path: str = "", default: Config | None = None
) -> Config:
    """Return a dataclass made from a table; a field whose type is a dataclass is a table of its own.

    Args:
        kind: the dataclass.
        tables: its values.
        origin: where they come from, for messages.
        path: the dotted path of the table, for messages.
        default: has the values of the fields that are not given.
    """
    if isinstance(tables, kind):
        return tables
    if not isinstance(tables, Mapping):
        raise ConfigError(f"{origin}: {path} is {tables!r}, expected a table of settings.")
    hints = _hints(kind)
    is_open = issubclass(kind, OpenTable)
    if not is_open:
        _check_names(tables, hints, origin, path)
    values: dict[str, Any] = {}
    for one in dataclasses.fields(kind):  # type: ignore[arg-type]
        if is_open and one.name == "options":
            continue
        if one.name in tables:
            nested = None if default is None else getattr(default, one.name)
            if nested is None and one.default_factory is not dataclasses.MISSING:
                nested = one.default_factory()
            values[one.name] = fit_value(tables[one.name], hints[one.name], origin, _join(path, one.name), nested)
        elif default is not None:
            values[one.name] = getattr(default, one.name)
        elif one.default is one.default_factory is dataclasses.MISSING:
            raise ConfigError(f"{origin}: {_join(path, one.name)} is missing.")
    try:
        made = kind(**values)
    except ConfigError as error:
        raise type(error)(f"{origin}: {path or 'the configuration'}: {error}") from error
    if isinstance(made, OpenTable):
        further = {name: value for name, value in tables.items() if name not in hints or name == "options"}
        made = _with_options(made, further, origin, path)  # type: ignore[assignment]
    return made


def _with_options(table: OpenTable, given: Mapping[str, Any], origin: str, path: str) -> OpenTable:
    known = keyword_arguments(table.maker(origin, path))
    own = [one.name for one in dataclasses.fields(table) if one.name != "options"]
    _check_names(given, [*own, *known], origin, path)
    options = {name: fit_value(value, known[name].hint, origin, _join(path, name)) for name, value in given.items()}
    for name, value in options.items():
        # The names of docs/design.md: num_… is a count, …_dim a size.
        counts = name.startswith("num_") or name.endswith("_dim")
        if counts and isinstance(value, int) and value < 1:
            raise ConfigError(f"{origin}: {_join(path, name)} is {value}, expected at least 1.")
    made = dataclasses.replace(table, options=options)
    made.check(origin, path)
    return made


def fit_value(value: Any, hint: Any, origin: str, path: str, default: Any = None) -> Any:
    """Return the value as the type that the setting has, or raise a ConfigError."""
    choices = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    for choice in choices:
        if dataclasses.is_dataclass(choice) and value is not None:
            return build(choice, value, origin, path, default)  # type: ignore[arg-type]
    if isinstance(value, str) and value.lower() == "none" and type(None) in choices and str not in choices:
        return None
    if isinstance(value, Text):
        meant = _toml_value(value)
        try:
            fitted = _validated(meant, hint)
        except ValueError as error:
            try:
                fitted = _validated(str(value), hint)
            except ValueError:
                raise ConfigError(f"{origin}: {path} is {meant!r}: {error}.") from error
    else:
        try:
            fitted = _validated(value, hint)
        except ValueError as error:
            raise ConfigError(f"{origin}: {path} is {_short(value)}: {error}.") from error
    is_file = any(A_FILE in getattr(choice, "__metadata__", ()) for choice in choices)
    return (
        os.path.abspath(os.path.expandvars(os.path.expanduser(fitted)))
        if is_file and isinstance(fitted, str)
        else fitted
    )


def _validated(value: Any, hint: Any) -> Any:
    try:
        return TypeAdapter(hint, config=ConfigDict(allow_inf_nan=False)).validate_python(value)
    except ValidationError as error:
        reasons = sorted({details["msg"][:1].lower() + details["msg"][1:] for details in error.errors()})
        raise ValueError("; ".join(reasons)) from error


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return str(text)


def _check_names(tables: Mapping[str, Any], known: Sequence[str] | Mapping[str, Any], origin: str, path: str) -> None:
    for name in tables:
        if name not in known:
            raise ConfigError(f"{origin}: {_join(path, name)} is not known. {near_names(name, known)}")


def _copied(tables: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copied(value) if isinstance(value, Mapping) else value for name, value in tables.items()}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def to_tables(config: Any) -> dict[str, Any]:
    """Return a configuration as plain tables, from which `configure` makes the same configuration."""
    tables: dict[str, Any] = {}
    for one in dataclasses.fields(config):
        value = getattr(config, one.name)
        if isinstance(config, OpenTable) and one.name == "options":
            tables |= value
        else:
            tables[one.name] = to_tables(value) if dataclasses.is_dataclass(value) else value
    plain: dict[str, Any] = json.loads(json.dumps(tables))
    return plain


def changes(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the dotted path, the old and the new value of every setting that differs."""
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from changes(old, new, _join(path, name))
        elif old != new:
            yield _join(path, name), old, new


# ---- describing


class Setting(NamedTuple):
    """One setting: its dotted path, its type, its value or default, and its description."""

    path: str
    hint: Any
    value: Any
    doc: str
    is_option: bool
    """Whether it is an option of the class that an `OpenTable` selects; a preset may set its value."""


class Argument(NamedTuple):
    """A keyword argument: its type, default and description."""

    hint: Any
    default: Any
    doc: str


def settings(config: Any, path: str = "") -> Iterator[Setting]:
    """Yield every setting of a configuration, in the order of the fields."""
    docs, hints = field_docs(type(config)), _hints(type(config))
    for one in dataclasses.fields(config):
        value = getattr(config, one.name)
        if isinstance(config, OpenTable) and one.name == "options":
            continue
        if dataclasses.is_dataclass(value):
            yield from settings(value, _join(path, one.name))
        else:
            doc = docs.get(one.name, "")
            if listed := _choices(hints[one.name]):
                doc = f"{doc} One of: {', '.join(listed)}."
            if isinstance(config, ModelChoice) and one.name in ("kind", "preset"):
                choices = config.models if one.name == "kind" else config.models[config.kind][1]
                doc = f"{doc.rstrip('.')}: {', '.join(choices)}."
            yield Setting(_join(path, one.name), hints[one.name], value, doc, False)
    if isinstance(config, OpenTable):
        resolved = config.resolved
        for name, argument in keyword_arguments(config.maker("", path)).items():
            value = resolved.get(name, argument.default)
            yield Setting(_join(path, name), argument.hint, value, argument.doc[:1].upper() + argument.doc[1:], True)


def commented_toml(config: Any, title: str) -> str:
    """Return a TOML file with every setting: its meaning as a comment, and its value.

    Settings that are not set, and the options of a model, whose values come from a preset, are commented out: the file
    parses to the given configuration.
    """
    lines = [f"# {title}", ""]
    table = ""
    for one in sorted(settings(config), key=lambda one: "." in one.path):  # values come before tables
        *tables, name = one.path.split(".")
        if ".".join(tables) != table:
            table = ".".join(tables)
            lines += ["", f"[{table}]"]
        doc = " ".join(one.doc.split())
        lines += textwrap.wrap(doc, 112, initial_indent="# ", subsequent_indent="# ")
        if one.value is None:
            lines.append(f"# {name} =    (not set; {_type_text(one.hint)})")
        else:
            given = not one.is_option or name in _options_of(config, tables)
            lines.append(f"{'' if given else '# '}{name} = {to_toml(one.value)}")
    return "\n".join(lines) + "\n"


def _options_of(config: Any, tables: list[str]) -> Mapping[str, Any]:
    for name in tables:
        config = getattr(config, name)
    options: Mapping[str, Any] = config.options
    return options


def to_toml(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(name))} = {to_toml(entry)}" for name, entry in value.items()) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    return repr(value)


def _type_text(hint: Any) -> str:
    names = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
    parts = [part for part in _parts(hint) if part is not type(None)]
    return " or ".join(dict.fromkeys(names.get(part, "a value") for part in parts))


def _parts(hint: Any) -> list[Any]:
    if get_origin(hint) in (Union, types.UnionType):
        return [part for choice in get_args(hint) for part in _parts(choice)]
    return [get_args(hint)[0]] if get_origin(hint) is Annotated else [hint]


def is_flag(hint: Any) -> bool:
    """Return whether a setting is either true or false."""
    return _parts(hint) == [bool]


def is_texts(hint: Any) -> bool:
    """Return whether a setting is any number of texts."""
    return _parts(hint) == [tuple[str, ...]]


def _choices(hint: Any) -> tuple[str, ...]:
    """Return the values that a setting may have, where its type lists them."""
    return tuple(str(value) for part in _parts(hint) if get_origin(part) is Literal for value in get_args(part))


_DOCS: dict[type[Any], dict[str, str]] = {}


def field_docs(kind: type[Any]) -> dict[str, str]:
    """Return the text below each field of a dataclass, those of its base classes included."""
    if kind in _DOCS:
        return _DOCS[kind]
    docs = _DOCS[kind] = {}
    for base in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        body = definition.body if isinstance(definition, ast.ClassDef) else []
        for one, below in pairwise(body):
            text = below.value if isinstance(below, ast.Expr) else None
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(text, ast.Constant):
                docs[one.target.id] = " ".join(str(text.value).split())
    return docs


@cache
def keyword_arguments(make: Callable[..., Any]) -> dict[str, Argument]:
    """Return the keyword-only arguments of a class or function, described by its docstring's ``Args:``."""
    docs = {**(field_docs(make) if isinstance(make, type) and dataclasses.is_dataclass(make) else {})}
    docs |= _documented_arguments(inspect.getdoc(make) or "")
    function = make.__init__ if isinstance(make, type) else make  # type: ignore[misc]
    hints = get_type_hints(function, include_extras=True)
    return {
        name: Argument(hints.get(name, Any), parameter.default, docs.get(name, ""))
        for name, parameter in inspect.signature(make).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def _documented_arguments(docstring: str) -> dict[str, str]:
    """Return the entries of ``Args:``; several names before one colon share its text."""
    section = re.search(r"^(?:Args|Arguments):\n((?:[ ].*\n|\n)*)", docstring + "\n", re.MULTILINE)
    docs: dict[str, str] = {}
    names: list[str] = []
    for line in textwrap.dedent(section[1]).splitlines() if section else []:
        entry = re.match(r"([\w*]+(?:, [\w*]+)*): (.*)", line)
        if entry:
            names = entry[1].split(", ")
            docs |= dict.fromkeys(names, entry[2])
        elif line.strip():
            docs |= {name: f"{docs[name]} {line.strip()}" for name in names}
    return docs


def _hints(kind: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {one.name: hints[one.name] for one in dataclasses.fields(kind)}
