"""The settings of data that tasks share: where it is, what is held out of it, and built-in data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, TypedDict

from annotated_types import Ge, Lt
from pydantic import AfterValidator, BeforeValidator

from foci.encodings import AUTO, Encoding
from foci.errors import ConfigError
from foci.files import FilePath
from foci.scripts import NormalForm
from foci.settings import settings


def _listed(value: Any) -> Any:
    """Return a text such as ``0,label`` as its parts, numbers as such."""
    if not isinstance(value, str):
        return value
    return [int(part) if part.strip().lstrip("-").isdecimal() else part.strip() for part in value.split(",")]


Column = int | str
"""A column by its number from 0 or its name in the first line, or a field of JSON objects."""
Columns = Annotated[tuple[Column, Column], BeforeValidator(_listed)]
"""Two columns; on the command line with a comma between them."""
ThreeColumns = Annotated[tuple[Column, Column, Column], BeforeValidator(_listed)]
"""Three columns; on the command line with commas between them."""
OneOf = Column | tuple[str, ...]
"""A column, or the first of several names that there is."""
SixColumns = Annotated[tuple[OneOf, OneOf, OneOf, OneOf, OneOf, OneOf], BeforeValidator(_listed)]
"""Six columns; on the command line with commas between them."""


def _function(value: str) -> str:
    module, colon, name = value.partition(":")
    if not colon or not name.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise ValueError("module:function, such as jieba:lcut")
    return value


WordRule = (
    Literal["auto", "unicode", "treebank", "ud", "spaces", "characters"] | Annotated[str, AfterValidator(_function)]
)
"""How text becomes words: a rule of `foci.data.word_splitter`, or a function."""

Names = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda value: [part.strip() for part in value.split(",")] if isinstance(value, str) else value),
]
"""Texts; on the command line with commas between them."""

DATA_FLAGS = {
    "data": "data.path",
    "valid": "data.valid",
    "test": "data.test",
    "columns": "data.columns",
    "encoding": "data.encoding",
    "group": "data.group",
    "builtin": "data.builtin",
}
"""The flags of every task with files of its own."""


FOR_FILES = (
    *("valid", "test", "valid_share", "test_share", "columns", "encoding", "target", "valid_target", "test_target"),
    *("references", "tags", "intents", "images", "train_images", "valid_images", "test_images", "more", "labels"),
    *("links", "corners"),  # of words, of boxes
)
"""Settings of all tasks that say how files are read and split, so that they have no effect on built-in data."""
FOR_BUILTIN = ("language", "morse_words")
"""Settings of all tasks that choose among built-in data."""


def refuse_unused(data: Any, for_files: Sequence[str] = FOR_FILES) -> None:
    """Raise for a setting of files where none is named, one of built-in data where one is, or a share with a file."""
    for one in fields(data):
        value = getattr(data, one.name)
        if value == (one.default if one.default_factory is MISSING else one.default_factory()):
            continue
        if one.name in for_files and data.path is None:
            raise ConfigError(
                f"{one.name} is {value!r}, but no data is named, and built-in data has parts and a form of its own. "
                f"Name the data (--data, data.path), or leave {one.name} out."
            )
        part = one.name.removesuffix("_share")
        if part != one.name and value and getattr(data, part, None) is not None:
            raise ConfigError(
                f"{one.name} is {value!r}, but {part} names such examples, so none are split off. Leave one out."
            )
        if one.name in FOR_BUILTIN and data.path is not None:
            raise ConfigError(
                f"{one.name} is {value!r}, but it chooses among built-in data, and path names other data. Leave one of "
                "them out."
            )


class Shares(TypedDict):
    """The arguments of `foci.data.splits.split`."""

    valid_share: float
    test_share: float
    seed: int


def shares_of(data: Any) -> Shares:
    """Return the shares that are split off, 0 where a file is named, and the seed."""
    return {
        "valid_share": 0.0 if data.valid is not None else data.valid_share,
        "test_share": 0.0 if data.test is not None else data.test_share,
        "seed": data.split_seed,
    }


@settings
class HeldOutData:
    """The data, and which of its examples are held out."""

    path: FilePath | None = None
    """The file or folder of the data. Without one, built-in data is used."""
    builtin: Annotated[int, Ge(2)] | None = None
    """Train on this many built-in examples instead of a file."""
    valid: FilePath | None = None
    """Data in the same form that decides which checkpoint is the best one."""
    test: FilePath | None = None
    """Data in the same form that `foci evaluate` uses."""
    valid_share: Annotated[float, Ge(0), Lt(1)] = 0.05
    """Without data.valid: the share of the data that is held out to validate."""
    test_share: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Without data.test: the share of the data that is held out to evaluate, and never trained on."""
    encoding: Encoding = AUTO
    """The encoding of the files. auto reads UTF-8, and UTF-16 and UTF-32 by their marks or zero bytes; others, such as
    gb18030 or cp1252, have to be named."""
    normalize: NormalForm = "nfc"
    """The normal form of all text, labels included, where it enters: nfc (é is one character, however it is written),
    nfkc (also ﬁ is fi, and letters of full or half width are one), or none."""
    group: Column | None = None
    """Column or field of the data, such as a speaker, an author or a document: examples with the same value stay in one
    part."""
    split_seed: Annotated[int, Ge(0)] = 0
    """Another number holds other examples out. Which ones depends on it and on their own content alone."""
    workers: Annotated[int, Ge(0)] = 0
    """Processes that prepare batches ahead of time."""

    def __post_init__(self) -> None:
        if self.path is not None and self.builtin is not None:
            raise ConfigError("path and builtin are both set, expected one of them.")
        refuse_unused(self)

        if self.group is not None and (self.path is None or (self.valid is not None and self.test is not None)):
            raise ConfigError("group is set, but nothing is split: it needs path, and no file for valid or for test.")

    @property
    def shares(self) -> Shares:
        """The shares that are split off, 0 where a file is named, and the seed."""
        return shares_of(self)


@settings
class WordData(HeldOutData):
    """Data of which words are read."""

    words: WordRule = "auto"
    """How text becomes words, in training, predictions and metrics: unicode (letters, digits and marks together,
    scripts without spaces by characters), treebank (don't is do n't, U.S. and 2-0 are whole), ud (treebank, but split
    at hyphens), spaces, characters, or a function module:name, such as jieba:lcut. auto chooses by the training data
    and keeps the choice in the run."""
