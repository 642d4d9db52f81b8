"""Tables whose keys are the keyword arguments of a class."""

from __future__ import annotations

import dataclasses
import inspect
import re
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, NamedTuple, get_type_hints

import torch
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import core_schema
from torch import nn

from foci.errors import ConfigError, FociError, near_names, unknown_name
from foci.settings import Setting, field_docs


@dataclass(frozen=True, kw_only=True)
class OpenTable(ABC):
    """A table with further keys: the keyword arguments of the class that the table selects."""

    options: Mapping[str, Any] = field(default_factory=dict)

    @abstractmethod
    def maker(self, origin: str, path: str) -> Callable[..., Any]:
        """Return the class or function whose keyword arguments the further keys are."""

    def check(self, origin: str, path: str) -> None:  # noqa: B027 (most tables need none)
        """Raise a ConfigError unless the options fit together."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return core_schema.no_info_plain_validator_function(cls._read)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
        return {"type": "object"}

    @classmethod
    def _read(cls, tables: Any) -> Any:
        if isinstance(tables, cls):
            return tables
        if not isinstance(tables, Mapping):
            raise ConfigError("expected a table of settings.")
        hints = get_type_hints(cls, include_extras=True)
        own = [one.name for one in dataclasses.fields(cls) if one.name != "options"]
        made = cls(**{name: _fit(name, tables[name], hints[name]) for name in own if name in tables})
        known = keyword_arguments(made.maker("", ""))
        options = {}
        for name, value in tables.items():
            if name not in own:
                if name not in known:
                    raise ConfigError(f"{name} is not known. {near_names(name, [*own, *known])}")
                options[name] = _fit(name, value, known[name].hint)
                counts = name.startswith("num_") or name.endswith("_dim")
                if counts and isinstance(options[name], int) and options[name] < 1:
                    raise ConfigError(f"{name} is {options[name]}, expected at least 1.")
        made = dataclasses.replace(made, options=options)
        made.check("", "")
        return made

    def described(self, path: str) -> Iterator[Setting]:
        """Yield the settings of the table."""
        docs = field_docs(type(self))
        for one in dataclasses.fields(self):
            if one.name != "options":
                doc = docs.get(one.name, "")
                if isinstance(self, ModelChoice) and one.name in ("kind", "preset"):
                    choices = self.models if one.name == "kind" else self.models[self.kind][1]
                    doc = f"{doc.rstrip('.')}: {', '.join(choices)}."
                yield Setting(f"{path}.{one.name}", {}, getattr(self, one.name), doc)
        for name, argument in keyword_arguments(self.maker("", path)).items():
            value = self.resolved.get(name, argument.default)
            yield Setting(
                f"{path}.{name}",
                {"type": "boolean"} if argument.hint is bool else {},
                value,
                argument.doc[:1].upper() + argument.doc[1:],
            )

    @property
    def resolved(self) -> dict[str, Any]:
        """The options, those of the preset included; all others have the defaults of `maker`."""
        return dict(self.options)


def _fit(name: str, value: Any, hint: Any) -> Any:
    try:
        return TypeAdapter(hint, config=ConfigDict(allow_inf_nan=False)).validate_python(value)
    except ValidationError as error:
        reasons = sorted({details["msg"][:1].lower() + details["msg"][1:] for details in error.errors()})
        text = repr(value)
        raise ConfigError(f"{name} is {text if len(text) < 100 else text[:99] + '…'}: {'; '.join(reasons)}.") from error


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
            raise unknown_name("model", self.kind, self.models)
        make, presets = self.models[self.kind]
        if self.preset not in presets:
            raise unknown_name(f"preset of {self.kind}", self.preset, presets)
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


class Argument(NamedTuple):
    """A keyword argument: its type, default and description."""

    hint: Any
    default: Any
    doc: str


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
