"""Configurations: TOML, or flags, read into frozen dataclasses; every mistake is named by its path and file."""

from __future__ import annotations

import dataclasses
import inspect
import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_args, get_type_hints

from torch import nn

from foci.errors import ConfigError, near_names, unknown_name
from foci.training.options import TrainingOptions

Config = TypeVar("Config")
Choice = TypeVar("Choice", bound="ModelChoice")


@dataclass(frozen=True, kw_only=True)
class ModelChoice:
    """Which model: a kind, a preset of sizes, and any option of the model's class. Each task has its own kinds."""

    models: ClassVar[Mapping[str, tuple[Callable[..., nn.Module], Mapping[str, Mapping[str, Any]]]]] = {}
    """What a model is called -> its class and its sizes by name."""

    kind: str = ""
    preset: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_table(cls: type[Choice], table: Mapping[str, Any], origin: str, path: str) -> Choice:
        """Keys other than kind and preset are options of the model."""
        kind, preset = table.get("kind", cls.kind), table.get("preset", cls.preset)
        if kind not in cls.models:
            raise unknown_name(f"model ({origin}: {path}.kind)", kind, cls.models)
        maker, presets = cls.models[kind]
        if preset not in presets:
            raise unknown_name(f"preset of {kind} ({origin}: {path}.preset)", preset, presets)
        options = options_of(table, ("kind", "preset"))
        check_options(maker, options, origin, path)
        return cls(kind=kind, preset=preset, options=options)

    @property
    def resolved(self) -> dict[str, Any]:
        """The preset's options and those that were given; what is in neither has the default of the model's class."""
        return {**self.models[self.kind][1][self.preset], **self.options}

    def build(self, *sizes: int) -> nn.Module:
        """The model for these sizes: those of vocabularies, or of inputs and outputs."""
        return self.models[self.kind][0](*sizes, **self.resolved)


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: the configuration cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is no TOML: {error}.") from error


def apply_changes(tables: Mapping[str, Any], changes: Sequence[str]) -> dict[str, Any]:
    """The tables with changes such as ``model.num_heads=8`` made; values are TOML, and what is none is text.

    Example:
        >>> apply_changes({"model": {"num_heads": 4}}, ["model.num_heads=8", "model.score=dot"])
        {'model': {'num_heads': 8, 'score': 'dot'}}
    """
    for change in changes:
        path, equals, text = change.partition("=")
        if not equals or not all(path.strip().split(".")):
            raise ConfigError(f"--set {change}: expected a path and a value, as in model.num_heads=8.")
        tables = put(tables, {path.strip(): _value(text)})
    return dict(tables)


def put(tables: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The tables with these values, by their dotted paths."""
    changed = _copied(tables)
    for path, value in values.items():
        *names, last = path.split(".")
        table = changed
        for name in names:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{path}: {name} is a value, not a table of values.")
        table[last] = value
    return changed


def without_none(tables: Mapping[str, Any]) -> dict[str, Any]:
    """The tables without the keys that are None, which TOML cannot say: they are as good as left out."""
    return {
        name: without_none(value) if isinstance(value, Mapping) else value
        for name, value in tables.items()
        if value is not None
    }


def build(kind: type[Config], tables: Mapping[str, Any], origin: str, path: str = "") -> Config:
    """A dataclass from tables; an unknown key names its path, its origin (a file, the command line) and the near ones.

    A field whose type is a dataclass is a table of its own. A class may do this itself, in a method
    ``from_table(table, origin, path)``.
    """
    if hasattr(kind, "from_table"):
        made: Config = kind.from_table(tables, origin, path)  # type: ignore[attr-defined]
        return made
    hints = get_type_hints(kind)
    check_names(tables, hints, origin, path)
    values = {name: _fitted(value, hints[name], origin, _join(path, name)) for name, value in tables.items()}
    missing = [
        field.name
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]
        if field.default is field.default_factory is dataclasses.MISSING and field.name not in values
    ]
    if missing:
        raise ConfigError(f"{origin}: {_join(path, missing[0])} is missing.")
    return kind(**values)


def options_of(table: Mapping[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """What a table holds beside the known keys, and what it holds as ``options``, where a run's own record keeps it."""
    beside = {name: value for name, value in table.items() if name not in (*known, "options")}
    return {**beside, **table.get("options", {})}


def check_task(table: Mapping[str, Any], task: str, origin: str) -> None:
    """That the tables are for this task, if they name one."""
    if table.get("task", task) != task:
        raise ConfigError(f"{origin}: task is {table['task']!r}, expected {task!r}.")


def training_options(defaults: TrainingOptions, given: Mapping[str, Any], origin: str) -> TrainingOptions:
    """The training of a task: what is not given comes from its defaults."""
    table = {**dataclasses.asdict(defaults), **given}
    if {"max_steps", "time_limit"} & given.keys():  # who says when to stop is taken at their word
        for name in ("max_steps", "max_epochs", "time_limit", "patience"):
            table[name] = given.get(name)
    return build(TrainingOptions, table, origin, "training")


def check_options(maker: Callable[..., Any], options: Mapping[str, Any], origin: str, path: str) -> None:
    """That a class or function has keyword arguments of these names."""
    names = [
        name
        for name, parameter in inspect.signature(maker).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    check_names(options, names, origin, path)


def check_names(tables: Mapping[str, Any], known: Sequence[str] | Mapping[str, Any], origin: str, path: str) -> None:
    """That every key is known."""
    for name in tables:
        if name not in known:
            raise ConfigError(f"{origin}: {_join(path, name)} is not known. {near_names(name, known)}")


def _fitted(value: Any, wanted: Any, origin: str, path: str) -> Any:
    choices = get_args(wanted) if isinstance(wanted, types.UnionType) else (wanted,)
    for choice in choices:
        if dataclasses.is_dataclass(choice) and isinstance(value, Mapping):
            return build(choice, value, origin, path)  # type: ignore[arg-type]
    from pydantic import ConfigDict, TypeAdapter, ValidationError

    try:
        return TypeAdapter(wanted, config=ConfigDict(strict=False)).validate_python(value)
    except ValidationError as error:
        reason = "; ".join(sorted({details["msg"].lower() for details in error.errors()}))
        raise ConfigError(f"{origin}: {path} is {value!r}: {reason}.") from error


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _copied(tables: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copied(value) if isinstance(value, Mapping) else value for name, value in tables.items()}


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
