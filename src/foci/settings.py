"""Settings: frozen dataclasses that pydantic validates, and what help, docs and error messages say about them.

Each setting is a field: its type has the range or the choices, and the text below it is its only description. An
unknown name, a wrong type or a value out of range is a ConfigError with the dotted path, the origin (a file, the
command line) and, for names, similar ones. Nothing here imports torch.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import textwrap
import tomllib
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, wraps
from itertools import pairwise
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypeVar,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

import pydantic
from annotated_types import Ge
from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticOmit

from foci.errors import ConfigError, FociError, UnknownNameError, near_names

Made = TypeVar("Made")
Function = TypeVar("Function", bound=Callable[..., Any])

Numbers = Annotated[
    tuple[Annotated[int, Ge(1)], ...],
    BeforeValidator(lambda value: value.split(",") if isinstance(value, str) else value),
]
"""Whole numbers above 0; as text with commas between them."""

Texts = Annotated[tuple[str, ...], BeforeValidator(lambda value: (value,) if isinstance(value, str) else value)]
"""Texts; one may be given by itself."""


def _once(function: Function) -> Function:
    """Compute a function once for each of its arguments."""
    return typing.cast("Function", cache(function))


class Text(str):
    """A value as it was typed on the command line: TOML where that fits the setting, else the text itself."""

    __slots__ = ()

    @property
    def value(self) -> Any:
        """The value in TOML; the text itself where it is none."""
        try:
            return tomllib.loads(f"value = {self}")["value"]
        except (tomllib.TOMLDecodeError, RecursionError):
            return str(self)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(dataclasses.field,))
def settings(kind: type[Made]) -> type[Made]:
    """Make a class a frozen dataclass with keyword arguments only, which raises a ConfigError for a wrong value.

    Example:
        >>> from typing import Literal
        >>> @settings
        ... class Search:
        ...     order: Literal["best", "any"] = "best"
        >>> Search(order="bset")
        Traceback (most recent call last):
        ...
        foci.errors.UnknownNameError: Search: order is 'bset', which is not known. Did you mean 'best'? All: any, best.
    """
    config = ConfigDict(extra="forbid", allow_inf_nan=False)
    made: Any = pydantic.dataclasses.dataclass(kind, frozen=True, kw_only=True, config=config)
    validated = made.__init__

    @wraps(validated)
    def checked(self: Any, **values: Any) -> None:
        _refuse_others(made, values, made.__name__)
        try:
            validated(self, **values)
        except ValidationError as error:
            raise _config_error(made, error, made.__name__, values) from error

    made.__init__ = checked
    return typing.cast("type[Made]", made)


# ---- reading


def build(kind: type[Made], tables: Mapping[str, Any], origin: str) -> Made:
    """Return a dataclass made from a table; a field whose type is a dataclass is a table of its own.

    Args:
        kind: the dataclass.
        tables: its values, some of which may be a `Text`.
        origin: where they come from, for messages.
    """
    if isinstance(tables, kind):
        return tables
    _refuse_others(kind, tables, origin)
    values = parsed(tables)
    adapter: TypeAdapter[Made] = _adapter(kind)
    try:
        return adapter.validate_python(values)
    except ValidationError as error:
        first = error
    try:
        return adapter.validate_python(_as_text(kind, first, tables, values))
    except ValidationError:  # the first error is about the value as it was meant
        raise _config_error(kind, first, origin, values) from first


def _refuse_others(kind: type[Any], tables: Mapping[str, Any], origin: str, *above: str) -> None:
    """Raise where a text, true or false is given for a number: pydantic would take it for one."""
    for name, value in tables.items():
        hint = _hints(kind).get(name)
        inner = _tables(hint)
        if inner and isinstance(value, Mapping):
            for table in inner if len(inner) == 1 else [one for one in inner if _tag(one) == value.get("kind")]:
                _refuse_others(table, value, origin, *above, name)
            continue
        if get_origin(hint) in (dict, Mapping):
            hint = get_args(hint)[1]
        types = _types(hint)
        if isinstance(value, Text):
            value = str(value) if str in types else value.value
            accepted: tuple[Any, ...] = (str,)  # what is typed may be a number or one of the choices
        else:
            own = any(isinstance(one, BeforeValidator) for one in types)  # that reads a text itself
            accepted = (str,) if own or str in types else ()
        accepted += (bool,) if bool in types else ()
        if {int, float}.isdisjoint(types):
            continue
        for one in _entries(value):
            if isinstance(one, bool | str) and not isinstance(one, accepted) and one not in types - {0, 1}:
                path, what = ".".join((*above, name)), "a text" if isinstance(one, str) else "true or false"
                raise ConfigError(f"{origin}: {path} is {_short(value)}, expected a number, not {what}.")


def _types(hint: Any) -> set[Any]:
    """Return the types and choices that a type is made of."""
    return {hint} if not get_args(hint) else {one for part in get_args(hint) for one in _types(part)}


def _entries(value: Any) -> Iterator[Any]:
    """Yield a value; of a list or a mapping, its values."""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else None
    if parts is None:
        yield value
    else:
        for part in parts:
            yield from _entries(part)


@_once
def _adapter(kind: type[Any]) -> Any:  # beartype, in the pass over the shapes, does not know TypeAdapter[…]
    return TypeAdapter(kind)


def parsed(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the tables in which each `Text` is its value in TOML."""
    return {
        name: parsed(value) if isinstance(value, Mapping) else value.value if isinstance(value, Text) else value
        for name, value in tables.items()
    }


def _as_text(kind: type[Any], error: ValidationError, tables: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """Return the values with those that were not valid as the text that was typed; ``none`` is None."""
    again = parsed(values)
    for details in error.errors(include_url=False):
        *names, last = _named(kind, details["loc"])[0] or [""]
        table, given = value_at(again, names), value_at(tables, names)
        if isinstance(table, dict) and last in table:
            text = str(given[last]) if isinstance(given[last], Text) else table[last]
            table[last] = None if str(text).lower() == "none" else text
    return again


def _config_error(kind: type[Any], error: ValidationError, origin: str, values: Mapping[str, Any]) -> ConfigError:
    """Return the first mistake that pydantic found, in the words of foci."""
    every = error.errors(include_url=False)
    first = every[0]
    names, table = _named(kind, first["loc"])
    path, context = ".".join(names), first.get("ctx", {})
    match first["type"]:
        case "unexpected_keyword_argument":
            return ConfigError(f"{origin}: {path} is not known. {near_names(names[-1], _fields(table))}")
        case "dataclass_type" | "model_attributes_type":
            return ConfigError(
                f"{origin}: {path} is {_short(first['input'])}, expected a table of settings, as in {path}.x = …."
            )
        case "union_tag_invalid" | "union_tag_not_found":
            known = [_tag(one) for one in _tables(_hints(table)[names[-1]])]
            return UnknownNameError(
                f"{origin}: {path}.kind is {context.get('tag')!r}, which is not known. "
                f"{near_names(context.get('tag', ''), known)}"
            )
        case "missing":
            return ConfigError(f"{origin}: {path} is missing.")
        case "value_error" if isinstance(context["error"], FociError):
            return _placed(context["error"], origin, names, first["input"])
    value, same = value_at(values, names), [one for one in every if _named(kind, one["loc"])[0] == names]
    same = [one for one in same if one["type"] != "is_instance_of"]  # a part of one's own, which no setting is
    if isinstance(value, str) and all(one["type"] == "literal_error" for one in same):
        known = [choice for one in _literals(_hints(table)[names[-1]]) for choice in get_args(one)]
        return UnknownNameError(f"{origin}: {path} is {value!r}, which is not known. {near_names(value, known)}")
    reasons = sorted({one["msg"].removeprefix("Input should be ").removeprefix("Value error, ") for one in same})
    return ConfigError(f"{origin}: {path} is {_short(value)}, expected {' or '.join(reasons)}.")


def _placed(error: FociError, origin: str, names: list[str], table: Any) -> ConfigError:
    """Return an error of a table's own checks, which begins with the name of its class, with the dotted path."""
    owner, colon, rest = str(error).partition(": ")
    message = rest if colon and owner.isidentifier() else str(error)
    field = message.partition(" ")[0]
    if isinstance(table, Mapping) and field in table and " is " in message:
        message = ".".join([*names, message])
    else:
        message = f"{'.'.join(names) or 'the configuration'}: {message}"
    return type(error)(f"{origin}: {message}")  # type: ignore[return-value]


def _named(kind: type[Any], location: Sequence[int | str]) -> tuple[list[str], type[Any]]:
    """Return the names of the setting at a location of pydantic, which also has the kinds of unions, and its table."""
    names: list[str] = []
    tables = [kind]
    for part in location:
        if len(tables) > 1:
            tables = [one for one in tables if _tag(one) == part]
            continue
        table = tables[0]
        names.append(str(part))
        tables = _tables(_hints(table).get(str(part)))
        if not tables:
            return names, table
    return names, table if location else kind


def _tables(hint: Any) -> list[type[Any]]:
    """Return the dataclasses of a type: itself, or those of a union."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return [hint]
    return [table for part in get_args(hint) for table in _tables(part)]


def _literals(hint: Any) -> list[Any]:
    """Return the lists of choices in a type."""
    return [hint] if get_origin(hint) is Literal else [one for part in get_args(hint) for one in _literals(part)]


def _tag(table: type[Any]) -> Any:
    return getattr(table, "kind", None)


@_once
def _hints(kind: type[Any]) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _fields(kind: type[Any]) -> list[str]:
    return [one.name for one in dataclasses.fields(kind)]


def value_at(tables: Any, names: Sequence[str]) -> Any:
    """Return the value at the end of a path of names; None where there is none."""
    for name in names:
        tables = tables.get(name) if isinstance(tables, Mapping) else None
    return tables


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:99]}…"


def merge(kind: type[Any], tables: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of a dataclass merged with the given settings, which take precedence.

    A setting that is a mapping itself, such as training.lr_multipliers, is replaced as a whole, and so is a table of
    another ``kind``.
    """
    merged = dict(tables)
    for name, value in given.items():
        old, inner = merged.get(name), _tables(_hints(kind).get(name))
        if inner and isinstance(old, Mapping) and isinstance(value, Mapping):
            tag = value.get("kind", old.get("kind"))
            fitting = inner if len(inner) == 1 else [one for one in inner if _tag(one) == tag]
            same = len(inner) == 1 or tag == old.get("kind")
            merged[name] = merge(fitting[0], old if same else {}, value) if fitting else value
        else:
            merged[name] = value
    return merged


def to_tables(made: Any) -> dict[str, Any]:
    """Return settings as plain tables, from which `build` makes the same settings."""
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(made)))
    return plain


# ---- describing


class Setting(NamedTuple):
    """One setting: its dotted path, its JSON Schema, its value or default, and its description."""

    path: str
    schema: Mapping[str, Any]
    value: Any
    doc: str

    @property
    def is_flag(self) -> bool:
        """Whether it is either true or false."""
        return self.schema.get("type") == "boolean"

    @property
    def is_texts(self) -> bool:
        """Whether it is any number of texts."""
        return self.schema.get("items") == {"type": "string"}

    @property
    def type_text(self) -> str:
        """What a value is."""
        names = {"string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}
        found = (names.get(part.get("type", ""), "a value") for part in _parts(self.schema))
        return " or ".join(dict.fromkeys(found))


def describe(made: Any, path: str = "") -> Iterator[Setting]:
    """Yield every setting of a dataclass: kind and preset, the other fields in their order, then the tables."""
    properties = json_schema(type(made))["properties"]
    first = ("kind", "preset")
    names = sorted(_fields(type(made)), key=lambda name: first.index(name) if name in first else len(first))
    for name in sorted(names, key=lambda name: dataclasses.is_dataclass(getattr(made, name))):
        value = getattr(made, name)
        joined = f"{path}.{name}" if path else name
        if dataclasses.is_dataclass(value):
            kinds = [_tag(table) for table in _tables(_hints(type(made))[name])]
            for one in describe(value, joined):
                own = one.path == f"{joined}.kind" and len(kinds) > 1
                yield one._replace(doc=f"{one.doc} One of: {', '.join(kinds)}.") if own else one
        else:
            if name not in properties:  # an option that takes a part of one's own alone
                continue
            schema = properties[name]
            choices = [str(choice) for part in _parts(schema) for choice in part.get("enum", ())]
            doc = schema.get("description", "")
            yield Setting(joined, schema, value, f"{doc} One of: {', '.join(choices)}." if choices else doc)


def unions(kind: type[Any]) -> Iterator[type[Any]]:
    """Yield the dataclasses that a setting, or one of its tables, is chosen from by its ``kind``."""
    for hint in (_hints(kind)[name] for name in _fields(kind)):
        tables = _tables(hint)
        if len(tables) > 1:
            yield from tables
        for table in tables:
            yield from unions(table)


def _parts(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the types that a value may have, without null."""
    return [part for part in schema.get("anyOf", [schema]) if part.get("type") != "null"]


@_once
def json_schema(kind: type[Any]) -> dict[str, Any]:
    """Return the JSON Schema of a dataclass, with the description of every field."""
    schema: dict[str, Any] = _adapter(kind).json_schema(schema_generator=_Described)
    return schema


class _Described(GenerateJsonSchema):
    """Adds the text below each field, that of inherited fields included (pydantic itself reads only own ones).

    Parts of one's own (`foci.options.OwnPart`), which no setting is, are left out.
    """

    def is_instance_schema(self, schema: Any) -> dict[str, Any]:
        raise PydanticOmit

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        made = super().dataclass_schema(schema)
        for name, doc in field_docs(schema["cls"]).items():
            made["properties"].get(name, {})["description"] = doc
        return made


@_once
def field_docs(kind: type[Any]) -> dict[str, str]:
    """Return the text below each field of a dataclass, those of its base classes included."""
    docs: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(base):
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        for one, below in pairwise(typing.cast("ast.ClassDef", definition).body):
            text = below.value if isinstance(below, ast.Expr) else None
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name) and isinstance(text, ast.Constant):
                docs[one.target.id] = " ".join(str(text.value).split())
    return docs
