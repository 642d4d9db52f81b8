"""The base of tasks that read examples from files: reading, splitting and built-in examples."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from foci.data.groups import joined, read_groups
from foci.data.splits import PARTS, Parts, file_key, split, text_key
from foci.data.tables import Column as TableColumn
from foci.data.word_splitter import WordSplitter, rule_of_texts
from foci.errors import ConfigError, DataError
from foci.printable import printable
from foci.tasks.frame.task import FILES, Log, Record, Shard, Splits, Task

LOGGED_LABELS = 20
"""How many labels are logged by name."""
_SHOWN = 90
"""Characters of the first example that are logged."""


class FileTask(Task):
    """A task whose examples come from files, or are built in.

    An example is a named tuple; ``config.data`` is a `foci.tasks.frame.data_settings.HeldOutData`.
    """

    noun: ClassVar[str]
    """What examples are called in messages, in the plural."""
    about: ClassVar[str] = "text (case, punctuation and spaces aside)"
    """What examples with one key have in common, for messages."""
    builtin_sizes: ClassVar[tuple[int, int, int]]
    """How many built-in examples are trained on where no data is named, validated and evaluated with."""

    # ---- what a task supplies

    @abstractmethod
    def read_file(self, path: str, log: Log | None = None) -> list[Any]:
        """Return the examples of a file or folder."""

    @abstractmethod
    def key(self, example: Any) -> str:
        """Return what an example is about: examples with one key are in one part."""

    @abstractmethod
    def read_builtin(self, size: int, part: str) -> Sequence[Any]:
        """Return built-in examples of a part: train, valid or test."""

    @abstractmethod
    def show(self, example: Any) -> str:
        """Return an example in one line, for messages."""

    def read_part(self, part: str, path: str, log: Log) -> list[Any]:
        """Return the examples of the file that is named for a part: train, valid or test."""
        return self.read_file(path, log)

    def twins(self, examples: Sequence[Any]) -> Sequence[str | None]:
        """Return what each example has in common with near-duplicates of other keys, such as a pair and its swap."""
        return [None] * len(examples)

    def split(self, examples: list[Any], log: Log) -> Parts:
        """Split the examples of the training file."""
        return self.split_by_content(examples, log, **self.config.data.shares)

    def split_by_content(self, examples: list[Any], log: Log, **shares: Any) -> Parts:
        """Split by thresholds on a hash of the keys; of near-duplicates with other keys only the held-out one is left.

        What is in one part with another, or is left out, is counted and logged.
        """
        keys = list(map(self.key, examples))
        if shared := len(keys) - len({*keys}):
            log(
                f"{shared:,} of {len(keys):,} {self.noun} have the same {self.about} as another one, and are in one "
                "part with it"
            )
        splits = any(shares[name] for name in ("valid_share", "test_share"))
        if (group := self.config.data.group) is not None and not splits:
            raise ConfigError(f"data.group is {group!r}, but the data says which part each of the {self.noun} is in.")
        key_of = iter(keys if group is None else self._groups(keys, log))
        paired = zip(examples, self.twins(examples) if splits else [None] * len(keys))
        made = split(paired, lambda example: next(key_of), **shares)
        seen: set[str | None] = set()
        kept = Parts([], [], [])
        for part in reversed(PARTS):
            left = [(one, twin) for one, twin in getattr(made, part) if twin not in seen]
            getattr(kept, part).extend(one for one, _ in left)
            seen |= {twin for _, twin in left} - {None}
        if left_out := len(examples) - sum(map(len, kept)):
            log(f"{left_out:,} of {len(keys):,} {self.noun} are left out: near-duplicates of held-out ones")
        return kept

    def key_column(self) -> TableColumn:
        """Return the column that keys are made of, where a table has data.group: that of the first input."""
        columns = getattr(self.config.data, "columns", None)
        if columns is not None and (isinstance(columns[0], int) == isinstance(self.config.data.group, int)):
            return columns[0]  # type: ignore[no-any-return]
        return 0 if isinstance(self.config.data.group, int) else self.inputs[0].name

    def located(self, name: str) -> str:
        """Return the path of an image or a recording that a table of the training data names."""
        data = self.config.data
        return os.path.join(getattr(data, "images", None) or os.path.dirname(data.path), name)

    def _groups(self, keys: Sequence[str], log: Log) -> list[str]:
        """Return the group of each key, by which examples are split."""
        data, kind = self.config.data, self.inputs[0].kind

        def key(value: str) -> str:
            return text_key(value) if kind not in FILES else file_key(self.located(value))

        groups = joined(read_groups(Path(data.path), self.key_column(), data.group, key))
        if missing := [one for one in keys if one not in groups]:
            raise DataError(
                f"{data.path}: {len(missing):,} of {len(keys):,} {self.noun} have no group, expected one of each in "
                f"the column data.group = {data.group!r}."
            )
        found = [groups[one] for one in keys]
        log(f"{len({*found}):,} groups (data.group = {data.group!r}), each of which is in one part")
        return found

    def read_parts(self, log: Log) -> Parts:
        """Return the examples of all parts, from one file or several."""
        data = self.config.data
        train, valid, test = self.split(self.read_part("train", data.path, log), log)
        return Parts(
            train,
            valid if data.valid is None else self.read_part("valid", data.valid, log),
            test if data.test is None else self.read_part("test", data.test, log),
        )

    def select(self, train: list[Any], log: Log) -> list[Any]:
        """Return the examples that can be trained on, and log what is left out."""
        return train

    def sizes(self, builtin: int) -> tuple[int, int, int]:
        """Return how many built-in examples each part has, if this many are trained on."""
        return builtin, *self.builtin_sizes[1:]

    def normalize(self, examples: list[Any], log: Log) -> list[Any]:
        """Return the examples with their texts in the normal form of ``data.normalize``, and log how many change."""
        form = self.config.data.normalize
        if form == "none":
            return examples
        normal = list(map(self.normal_example, examples))
        if changed := sum(one != other for one, other in zip(examples, normal)):
            log(f"{changed:,} of {len(examples):,} {self.noun} are changed to the normal form {form} (data.normalize)")
        return normal

    def normal_example(self, example: Any) -> Any:
        """Return an example as `normal` returns a record."""
        return (
            self.normal(example) if isinstance(example, Mapping) else example._replace(**self.normal(example._asdict()))
        )

    # ---- words

    @property
    def splitter(self) -> WordSplitter:
        """Splits texts into words as the training data was."""
        return WordSplitter(self.config.data.words)

    def settle_words(self, parts: Parts, log: Log) -> Parts:
        """Replace ``data.words = auto`` by the rule that fits to the training examples; return the examples."""
        data = self.config.data
        if getattr(data, "words", None) == "auto":
            self.config = replace(self.config, data=replace(data, words=self.word_rule(parts.train, log)))
        return parts

    def word_rule(self, train: Sequence[Any], log: Log) -> str:
        """Return the rule by which the texts of the training examples become words."""
        names = [field.name for field in self.inputs if field.kind in ("sentence", "document")]
        rule = rule_of_texts(getattr(example, name) for example in train for name in names)
        if rule == "spaces":
            log("the texts are segmented: their words stay as the spaces have them (data.words = spaces)")
        return rule

    # ---- data

    @property
    def origin(self) -> str:
        """What the run was trained on, for messages."""
        return self.config.data.path or f"built-in {self.noun} (data.builtin)"

    def read(self, log: Log) -> Splits:
        """Read, check and split the examples."""
        data = self.config.data
        if data.path is None:
            return self._builtin(log)
        parts = self.settle_words(Parts(*(self.normalize(part, log) for part in self.read_parts(log))), log)
        train, valid, test = self.select(parts.train, log), parts.valid, parts.test
        if not train or not valid:
            raise self.nothing_left(sum(map(len, parts)), "train on" if valid else "validate")
        log(
            f"{len(train):,} {self.noun} to train on, {len(valid):,} to validate, {len(test):,} to evaluate; the first "
            f"is {self.show(train[0])}"
        )
        return Splits(train, valid, test)

    def nothing_left(self, count: int, use: str) -> DataError:
        """Return the error for a part without examples."""
        data = self.config.data
        return DataError(
            f"{data.path}, line 1: of {count} {self.noun} none is left to {use}. Give more of them, change "
            f"data.valid_share = {data.valid_share}, or name data.valid."
        )

    def _builtin(self, log: Log) -> Splits:
        builtin = self.config.data.builtin
        if builtin is None:
            log(f"no data is named: training on built-in {self.noun} (data.builtin)")
        sizes = self.sizes(builtin or self.builtin_sizes[0])
        made = [self.read_builtin(size, part) for part, size in zip(PARTS, sizes)]
        seen = {key for one in made[0] for key in self.contents(one)}  # as generated, some differ in form alone
        for number in (2, 1):
            made[number] = [one for one in made[number] if seen.isdisjoint(self.contents(one))]
            seen |= {key for one in made[number] for key in self.contents(one)}
        train, valid, test = map(len, made)
        log(f"{train:,} built-in {self.noun} to train on, {valid:,} to validate, {test:,} to evaluate")
        return Splits(*self.settle_words(Parts(*(self.normalize(list(part), log) for part in made)), log))

    def batching(self, shard: Shard, max_tokens: int, max_examples: int | None = None) -> dict[str, Any]:
        """Return the options of training batches, as in `foci.data.TokenBatches`."""
        limits = {"max_tokens": max_tokens, "max_examples": max_examples}
        return {**limits, "seed": self.config.training.seed, "workers": self.config.data.workers, **shard._asdict()}

    def read_records(self, paths: Sequence[str]) -> Sequence[Record]:
        """Read examples in the form of the training data."""
        return [example._asdict() for path in paths for example in self.read_file(path)]


def log_labels(labels: Iterable[str], kinds: str, log: Log) -> None:
    """Log labels with their counts, and which of them differ in case or spaces alone; ``kinds`` is their plural."""
    counts = Counter(labels)
    shown = [f"{printable(label)} ({count:,})" for label, count in counts.most_common(LOGGED_LABELS)]
    more = f" and {len(counts) - LOGGED_LABELS} more" if len(counts) > LOGGED_LABELS else ""
    log(f"{len(counts)} {kinds}: {', '.join(shown)}{more}")
    alike: dict[str, list[str]] = {}
    for label in sorted(counts):
        alike.setdefault("".join(label.casefold().split()), []).append(label)
    for variants in alike.values():
        if len(variants) > 1:
            names = ", ".join(repr(printable(label)) for label in variants)
            log(f"warning: the {kinds} {names} differ in case or spaces alone, and are trained as different {kinds}")


def shortened(*texts: str) -> str:
    """Return texts with arrows between them, each in quotes and cut to a line."""
    cut = (text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…" for text in texts)
    return " → ".join(repr(printable(text)) for text in cut)
