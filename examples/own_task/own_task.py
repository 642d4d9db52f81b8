"""A task of one's own: does a word have a doubled letter? With this package installed, foci has one task more.

It is derived from `LabelTask`, the base of all tasks that give each input one label; see docs/train-your-own.md.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

import foci
from foci.data.batching import PaddedExamples, Sequences
from foci.data.splits import text_key
from foci.settings import settings
from foci.tasks.classify.reader import read_documents
from foci.tasks.frame.assets import Assets, Labels
from foci.tasks.frame.config import Promise, TaskConfig
from foci.tasks.frame.data_settings import DATA_FLAGS, Columns, HeldOutData
from foci.tasks.frame.labels.options import LabelOptions
from foci.tasks.frame.labels.task import Encoded, LabelTask
from foci.tasks.frame.task import Field, Log, Splits
from foci.training.options import TrainingOptions
from foci.viz.trace import Axis, Trace

LETTERS = "abcdefghijklmnopqrstuvwxyz"

# ---- settings: each field is a setting with a flag or --set, and the text below it is its help


@settings
class DataConfig(HeldOutData):
    """The words: a table with their labels, or made-up ones."""

    columns: Columns = ("text", "label")
    """Columns of the word and its label."""
    batch_tokens: int = 2000
    """Letters per batch, padding included."""
    batch_size: int = 64
    """Words per batch."""


@settings
class ModelConfig:
    """The model."""

    hidden_dim: int = 32
    """Size of a letter's vector."""


@settings
class DoubledConfig(TaskConfig):
    """All settings."""

    flags: ClassVar[Mapping[str, str]] = {**DATA_FLAGS, "hidden-dim": "model.hidden_dim"}
    demo: ClassVar[Mapping[str, Any]] = {"data": {"builtin": 4000}, "training": {"max_steps": 400, "eval_every": 100}}
    promise: ClassVar[Promise] = Promise("accuracy", 0.99, 0.01)

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    training: TrainingOptions = TrainingOptions(
        max_steps=500, learning_rate=0.01, metric_for_best_model="calibrated_loss"
    )


@settings
class DoubledOptions(LabelOptions):
    """How words are labeled."""

    batch_tokens: int = 2000
    """Letters per batch."""


# ---- the model: its output has the scores of the labels, and what is shown


class Output(NamedTuple):
    """The scores of both labels, and the weight of each letter."""

    logits: Tensor
    weights: foci.Weights


class Model(nn.Module):
    """Letters with their neighbors, read by an attention pool."""

    def __init__(self, hidden_dim: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(LETTERS) + 2, hidden_dim, padding_idx=0)
        self.neighbors = nn.Conv1d(hidden_dim, hidden_dim, 3, padding=1)
        self.pool = foci.AttentionPool(hidden_dim)
        self.output = nn.Linear(hidden_dim, 2)

    def forward(self, letters: Tensor) -> Output:
        """Return the scores for letters (B, T), padded with 0."""
        hidden = self.neighbors(self.embedding(letters).mT).relu().mT
        pooled = self.pool(hidden, letters != 0)
        return Output(self.output(pooled.output), pooled.weights)


# ---- the task


class Word(NamedTuple):
    """An example: the fields of the input, then the label."""

    text: str
    label: str


@dataclass(frozen=True)
class LabelAssets(Assets):
    """What a run keeps of its training data."""

    labels: Labels


class Doubled(LabelTask):
    """Say whether a word has a doubled letter."""

    name = "doubled"
    Config, Options, EvaluateOptions = DoubledConfig, DoubledOptions, DoubledOptions
    Assets, Example = LabelAssets, Word
    inputs, targets = (Field("text", "sentence"),), (Field("label", "label"),)
    noun = unit = "words"
    example = "a word"
    builtin_sizes = (4000, 200, 300)

    def read_file(self, path: str, log: Log | None = None) -> list[Word]:
        """Read a table of words with labels."""
        read = read_documents(path, columns=self.config.data.columns, log=log)
        return [Word(one.text, str(one.label)) for one in read]

    def read_builtin(self, size: int, part: str) -> list[Word]:
        """Make words up; half of them have a doubled letter."""
        draw, words = random.Random(f"{part} {self.config.data.split_seed}"), []
        for number in range(size):
            letters = draw.sample(LETTERS, draw.randint(3, 8))
            if number % 2:
                letters.insert(place := draw.randrange(len(letters)), letters[place])
            words.append(Word("".join(letters), "doubled" if number % 2 else "plain"))
        return words

    def key(self, example: Word) -> str:
        """Return the word: equal ones are never in two parts."""
        return text_key(example.text)

    def assets(self, splits: Splits, log: Log) -> LabelAssets:
        """Keep the labels."""
        return LabelAssets(tuple(sorted({one.label for one in splits.train})))

    def model(self, assets: LabelAssets) -> nn.Module:
        """Build the model."""
        return Model(self.config.model.hidden_dim)

    def encode(self, examples: Sequence[Word], labels: Sequence[int], assets: LabelAssets, log: Log | None) -> Encoded:
        """Return letters as numbers: 0 is padding, 1 any character that is not a letter."""
        ids = [[LETTERS.find(letter) + 2 for letter in one.text.lower()] for one in examples]
        return Encoded(PaddedExamples({"letters": Sequences(ids, len(LETTERS) + 2)}, labels=labels))

    def trace(self, view: Output, row: int, example: Word, label: str, probability: float) -> Trace:
        """Return the weight of each letter."""
        axes = {"label": Axis.from_tokens([label], "label"), "word": Axis.from_tokens(list(example.text), "word")}
        return Trace.from_handles({"pool": view.weights}, axes, axes_of={"pool": ("label", "word")}, row=row)
