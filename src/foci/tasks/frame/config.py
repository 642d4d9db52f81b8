"""The settings of a task: read from TOML files, mappings and flags, and printed as a file with their descriptions."""

from __future__ import annotations

import dataclasses
import json
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from foci.encodings import decode
from foci.errors import ConfigError
from foci.files import read_bytes
from foci.options import from_preset
from foci.settings import Text, build, describe, merge, parsed, to_tables, value_at
from foci.tasks import row_of
from foci.training.options import TrainingOptions


class Promise(NamedTuple):
    """What a demo reaches on held-out data with any seed; `make demos` measures it, and the docs state it.

    Example:
        >>> promise = Promise("accuracy", 0.95, 0.03)
        >>> str(promise), promise.holds(0.97), promise.holds(0.91)
        ('accuracy 0.95 ± 0.03', True, False)
    """

    metric: str
    """One of the metrics of the task's evaluation."""
    value: float
    tolerance: float
    """How far a measured value may be from it, in both directions: a better demo deserves a better promise."""

    def holds(self, measured: float) -> bool:
        """Return whether a measured value is within the tolerance."""
        return abs(measured - self.value) <= self.tolerance + 1e-9

    def __str__(self) -> str:
        return f"{self.metric} {self.value:g} ± {self.tolerance:g}"


class TaskConfig:
    """The base of all settings of one task: its fields are tables of settings, or settings by themselves."""

    training: TrainingOptions
    """The options of the training loop, with the defaults of the task."""

    flags: ClassVar[Mapping[str, str]]
    """Settings with a flag of their own: flag -> dotted path. ``data`` is the main data file, if the task reads any."""
    demo: ClassVar[Mapping[str, Any]]
    """Settings of `foci demo`: built-in data, some minutes on one core."""
    promise: ClassVar[Promise]
    """What the demo reaches with these settings."""
    smallest: ClassVar[Mapping[str, Any]]
    """Settings of the smallest training on built-in data that still learns something, for the contract tests."""

    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """The options of the model by the names of its presets, ``base`` among them, which has the options'
    defaults; empty where the parts of a model have presets of their own."""

    suited: ClassVar[tuple[str, ...]] = ()
    """Settings, as dotted paths, that `Task.suited` chooses by the training data unless they are given."""

    @classmethod
    def implied(cls, tables: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings that follow from the given ones; given ones win."""
        model = tables.get("model", {})
        preset = {"preset": model["preset"]} if "preset" in model else {}
        resolved = {**preset, **cls.model_preset(model)}
        return {"model": resolved} if resolved else {}

    @classmethod
    def model_preset(cls, model: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that kind and preset of the model stand for."""
        return preset_tables(model, cls.presets, "base") if cls.presets else {}

    def unused(self) -> Iterator[tuple[str, str]]:
        """Yield the dotted path of every setting or table that has no effect here, and what it would need."""
        if self.training.optimizer != "muon":
            yield from (
                ("training.momentum", "training.optimizer=muon"),
                ("training.adam_layers", "training.optimizer=muon"),
            )
        if self.training.schedule not in ("cosine", "linear"):
            yield "training.min_lr_ratio", "training.schedule=cosine or linear"
        if self.training.schedule != "noam":
            yield "training.model_dim", "training.schedule=noam"


Whole = TypeVar("Whole", bound=TaskConfig)


def preset_tables(model: Mapping[str, Any], presets: Mapping[str, Mapping[str, Any]], preset: str) -> dict[str, Any]:
    """Return the options of the preset that a model names, or of the default one."""
    return dict(from_preset("the model", presets, str(model.get("preset", preset))))


def preset_by_kind(
    model: Mapping[str, Any], presets: Mapping[str, Mapping[str, Mapping[str, Any]]], kind: str, preset: str
) -> dict[str, Any]:
    """Return the options of the preset and the kind that a model names, or of the default ones."""
    kind = str(model.get("kind", kind))
    # An unknown kind is reported when the settings are read.
    return {"kind": kind, **(preset_tables(model, presets[kind], preset) if kind in presets else {})}


def kind_of(model: Mapping[str, Any], part: str, default: str) -> str:
    """Return the kind of a part of a model."""
    table = model.get(part)
    return str(table.get("kind", default)) if isinstance(table, Mapping) else default


def find_config(name: str) -> type[TaskConfig]:
    """Return the settings of a task by its name; of foci's own tasks torch is not imported."""
    row = row_of(name)
    if row.home:
        from foci.tasks.frame.task import find

        return find(name).Config
    found: type[TaskConfig] = getattr(import_module(f"foci.tasks.{name}.config"), f"{row.title}Config")
    return found


# ---- reading


def read_toml(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file."""
    try:
        return tomllib.loads(decode(read_bytes(path)))
    except OSError as error:
        raise ConfigError(f"{path}: the configuration cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path}: is no TOML: byte {error.start + 1} is not UTF-8, which TOML is always in. Save it as UTF-8."
        ) from error
    except (ValueError, RecursionError) as error:
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
        value = Text(text)
        tables = put(tables, {path.strip(): value.value if isinstance(value.value, dict) else value})
    return dict(tables)


def put(tables: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables with these values at their dotted paths."""
    changed = copied(tables)
    for path, value in values.items():
        *names, last = path.split(".")
        table = changed
        for name in names:
            table = table.setdefault(name, {})
            if not isinstance(table, dict):
                raise ConfigError(f"{path}: {name} is a value, expected a table of settings.")
        table[last] = value
    return changed


def configure(kind: type[Whole], tables: Mapping[str, Any], origin: str) -> Whole:
    """Return a task's configuration.

    What is not given comes from the settings that follow from the given ones (`TaskConfig.implied`), then from the
    defaults.
    """
    given = {name: to_tables(value) if dataclasses.is_dataclass(value) else value for name, value in tables.items()}
    values = parsed(given)
    defaults = to_tables(kind())
    defaults.pop("model", None)  # its defaults depend on the kind and the preset
    for name, value in values.items():
        if dataclasses.is_dataclass(getattr(kind, name, None)) and not isinstance(value, Mapping):
            raise ConfigError(f"{origin}: {name} is {value!r}, expected a table of settings, as in {name}.x = ….")
    training = values.get("training", {})
    if {"max_steps", "time_limit"} & training.keys():  # a given limit replaces the default ones
        defaults["training"] |= dict.fromkeys(("max_steps", "max_epochs", "time_limit", "patience"))
    try:
        implied = kind.implied(values)
    except ConfigError as error:
        raise type(error)(f"{origin}: model: {error}") from error
    config = build(kind, merge(kind, merge(kind, defaults, implied), given), origin)
    made, usual = to_tables(config), to_tables(kind())
    for path, need in config.unused():
        # Printed configurations have every setting, most of them with its default.
        if has(given, path) and value_at(made, path.split(".")) != value_at(usual, path.split(".")):
            raise ConfigError(f"{origin}: {path} has no effect without {need}. Set that, or leave {path} out.")
    return config


def copied(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of nested tables."""
    return {name: copied(value) if isinstance(value, Mapping) else value for name, value in tables.items()}


def changes(before: Mapping[str, Any], after: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the dotted path, the old and the new value of every setting that differs."""
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from changes(old, new, _join(path, name))
        elif old != new:
            yield _join(path, name), old, new


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


# ---- describing


def commented_toml(config: Any, title: str, given: Mapping[str, Any]) -> str:
    """Return a TOML file with every setting: its meaning as a comment, and its value.

    Settings that are not set are commented out, and so are those that were not given whose values come from a preset or
    are chosen by the training data: the file parses to the same configuration.
    """
    lines = [f"# {title}", ""]
    table = ""
    for one in describe(config):
        *tables, name = one.path.split(".")
        if ".".join(tables) != table:
            table = ".".join(tables)
            lines += ["", f"[{table}]"]
        lines += textwrap.wrap(one.doc, 112, initial_indent="# ", subsequent_indent="# ")
        if one.value is None:
            lines.append(f"# {name} =    (not set; {one.type_text})")
        else:
            by_data = one.path in type(config).suited
            preset = tables[:1] == ["model"] and one.path not in ("model.kind", "model.preset")
            line = f"{name} = {to_toml(one.value)}"
            if (preset or by_data) and not has(given, one.path):
                line = f"# {line}{'    (unless the training data decides)' * by_data}"
            lines.append(line)
    return "\n".join(lines) + "\n"


def has(tables: Any, path: str) -> bool:
    """Return whether tables have a value at a dotted path.

    Example:
        >>> has({"data": {"builtin": 3}}, "data.builtin"), has({}, "data.builtin")
        (True, False)
    """
    for name in path.split("."):
        if not isinstance(tables, Mapping) or name not in tables:
            return False
        tables = tables[name]
    return True


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
