"""The recipes of translation.

multi30k    en→de, the `tiny` Transformer with one vocabulary of 6,000 for both sides
compare     en→de, one budget for every kind of attention and for none
tatoeba     en→zh
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from foci.data import Pair, open_corpus
from foci.tasks import load
from foci.tasks.translate import Search, TranslateConfig, Translator, train
from recipes import data
from recipes.report import Job, Recipe, Row, markdown

MULTI30K_TRANSFORMER: dict[str, Any] = {
    "tokeniser": {"kind": "bpe", "size": 6000, "shared": True},
    # Normalising first learns sooner: after 400 steps the validation loss was 3.29, with the paper's order 4.56.
    "model": {"kind": "transformer", "preset": "tiny", "norm": "pre", "share_embeddings": True, "dropout": 0.2},
    "label_smoothing": 0.1,
    "data": {"max_tokens": 2048},
    "training": {
        "max_steps": 7700,
        "learning_rate": 4e-3,
        "schedule": "cosine",
        "warmup": 300,
        "valid_every": 500,
        "checkpoint_every": 200,
        "average_last": 5,
        "clip": 1.0,
    },
}

_RNN = {"kind": "rnn", "preset": "tiny", "dropout": 0.1}  # the presets' 0.3 is for many epochs
COMPARED: dict[str, dict[str, Any]] = {
    "no attention, GRU": {**_RNN, "decoder": "cho"},
    "no attention, LSTM": {**_RNN, "decoder": "sutskever", "cell": "lstm"},
    "additive (Bahdanau)": {**_RNN, "decoder": "bahdanau", "score": "additive"},
    "dot (Luong)": {**_RNN, "score": "dot"},
    "general (Luong)": {**_RNN, "score": "general"},
    "concat (Luong)": {**_RNN, "score": "concat"},
    "local-m (Luong)": {**_RNN, "score": "general", "focus": "local_m", "radius": 5},
    "local-p (Luong)": {**_RNN, "score": "general", "focus": "local_p", "radius": 5},
    "ConvS2S": {"kind": "conv", "preset": "tiny", "dropout": 0.1},
    "Transformer": {"kind": "transformer", "preset": "tiny", "norm": "pre", "dropout": 0.1},
}
RATES = {"conv": 1e-3, "rnn": 2e-3, "transformer": 3e-3}
STEPS, TOKENS = 1600, 1024
"""Of every model that is compared, and of each of its batches: three epochs."""


def multi30k(out: Path, minutes: float, seed: int) -> Iterator[Job]:
    """One training."""
    tables = _multi30k(MULTI30K_TRANSFORMER, minutes, seed)
    yield Job("Transformer tiny", partial(_run, tables, out / f"multi30k-{seed}", _test2016()))


def compare(out: Path, minutes: float, seed: int) -> Iterator[Job]:
    """One training a model, all with the same data, vocabulary and steps."""
    for name, model in COMPARED.items():
        tables = {
            "data": {"max_tokens": TOKENS},
            "tokeniser": {"kind": "bpe", "size": 4000},
            "model": model,
            "training": {
                "max_steps": STEPS,
                "learning_rate": RATES[model["kind"]],
                "schedule": "cosine",
                "warmup": 200,
                "valid_every": 400,
            },
        }
        folder = out / f"compare-{name.split(' (')[0].replace(', ', '-').replace(' ', '-')}-{seed}"
        yield Job(name, partial(_run, _multi30k(tables, minutes, seed), folder, _test2016()))


def tatoeba(out: Path, minutes: float, seed: int) -> Iterator[Job]:
    """One training."""
    splits = data.tatoeba_splits(out)
    tables: dict[str, Any] = {
        "data": {"source": str(splits["train"]), "valid_source": str(splits["valid"]), "max_tokens": 2048},
        "tokeniser": {"kind": "bpe", "size": 6000},
        "model": {"kind": "transformer", "preset": "tiny", "norm": "pre", "dropout": 0.2},
        "training": MULTI30K_TRANSFORMER["training"] | {"max_steps": 2400, "time_limit": 60 * minutes, "seed": seed},
    }
    test = list(open_corpus(splits["test"]))
    yield Job("Transformer tiny", partial(_run, tables, out / f"tatoeba-{seed}", test))


def _multi30k(tables: dict[str, Any], minutes: float, seed: int) -> dict[str, Any]:
    here = data.folder("multi30k")
    files = {
        "source": str(here / "train.en.gz"),
        "target": str(here / "train.de.gz"),
        "valid_source": str(here / "val.en.gz"),
        "valid_target": str(here / "val.de.gz"),
    }
    training = {**tables["training"], "time_limit": 60 * minutes, "seed": seed}
    return {**tables, "data": files | tables.get("data", {}), "training": training}


def _test2016() -> list[Pair]:
    here = data.folder("multi30k")
    return list(open_corpus(here / "test_2016_flickr.en.gz", here / "test_2016_flickr.de.gz"))


def _run(tables: dict[str, Any], folder: Path, test: list[Pair]) -> Row:
    """Train, or go on with, one run; then its figures on the test set."""
    print(f"== {folder}", flush=True)
    config = TranslateConfig.from_table(tables, "recipes", "")
    summary = train(config, folder, resume=(folder / "config.json").exists())
    if summary.reason == "interrupted":
        sys.exit(130)
    if os.environ.get("RANK", "0") != "0":  # under torchrun the first process alone looks at what came of it
        return {}
    run: Translator = load(folder)
    sources = [pair.source for pair in test]
    found = run.predict(sources, search=Search(beam=5, length_penalty=1.0))
    cased = run.evaluate(test, predictions=found)
    lower = run.evaluate(test, predictions=found, lowercase=True)
    started = time.perf_counter()
    produced = run.predict(sources[:200], search=Search(beam=1), trace=True)
    traced = time.perf_counter() - started
    started = time.perf_counter()
    greedy = run.predict(sources, search=Search(beam=1))
    seconds = time.perf_counter() - started
    tokens = sum(len(row) for row in run.target.encode_many(p.text for p in greedy))
    return {
        "steps": summary.step,
        "minutes": summary.seconds / 60,
        "epochs": _epochs(folder),
        "tokens_per_second_trained": summary.count / max(summary.seconds, 1e-9),
        "tokens_per_second_decoded": tokens / seconds,
        "seconds_for_200_traces": traced,
        "alignment_entropy": _alignment_entropy(produced),
        "bleu_lower": lower["bleu"],
        "bleu_lower_signature": lower["bleu_signature"],
        **cased,
    }


def _epochs(folder: Path) -> int:
    lines = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    return max((line["epoch"] for line in lines if "epoch" in line), default=0)


def _alignment_entropy(predictions: list[Any]) -> float | None:
    """Mean entropy, in nats, of what a produced token reads of the source; None without attention."""
    rows = [p.trace.alignment() for p in predictions if p.trace is not None and p.trace.attentions]
    if not rows:
        return None
    every = [-(row * np.log(np.maximum(row, 1e-12))).sum(axis=1) for row in rows]
    return float(np.concatenate(every).mean())


def _table(rows: list[Row]) -> str:
    head = ["model", "BLEU", "BLEU, lower-cased", "chrF", "perplexity", "entropy", "minutes", "epochs", "s / epoch",
            "tokens/s trained", "tokens/s decoded", "seed"]  # fmt: skip
    lines = []
    for row in rows:
        entropy = "" if row["alignment_entropy"] is None else f"{row['alignment_entropy']:.2f}"
        each = f"{60 * row['minutes'] / row['epochs']:.0f}" if row["epochs"] else ""
        figures = [f"{row[name]:.2f}" for name in ("bleu", "bleu_lower", "chrf", "perplexity")]
        speeds = [f"{row[f'tokens_per_second_{what}']:,.0f}" for what in ("trained", "decoded")]
        cells = [row["name"], *figures, entropy, f"{row['minutes']:.1f}", str(row["epochs"]), each, *speeds]
        lines.append([*cells, str(row["seed"])])
    kinds = ("bleu_signature", "bleu_lower_signature", "chrf_signature")
    signatures = sorted({row[kind] for row in rows for kind in kinds})
    return markdown(head, lines) + "\n\nsacrebleu: " + "; ".join(f"`{signature}`" for signature in signatures)


def _compared_table(rows: list[Row]) -> str:
    """In the order of the models, whichever was trained first."""
    return _table(sorted(rows, key=lambda row: ([*COMPARED].index(row["name"]), row["seed"])))


RECIPES = {
    "multi30k": Recipe(
        multi30k,
        minutes=60,
        title="Multi30k, English to German",
        note="test2016, 1,000 sentences. Published for this model and size: 41.02 BLEU (arXiv 2105.14462), "
        "lower-cased and on joined subwords; beside it stands our lower-cased figure.",
        table=_table,
    ),
    "compare": Recipe(
        compare,
        minutes=60,
        title="What each attention brings: Multi30k, English to German, one budget",
        note="The same pairs, vocabulary (4,000 each side) and optimiser for every row, with a learning rate for each "
        f"family ({', '.join(f'{kind} {rate:g}' for kind, rate in RATES.items())}), and "
        f"{STEPS:,} steps of {TOKENS:,} tokens (three epochs); test2016, beam 5. Entropy is that of what a produced "
        "token reads of the source, in nats: 0 is one word only. One seed: a small difference may be chance.",
        table=_compared_table,
    ),
    "tatoeba": Recipe(
        tatoeba,
        minutes=30,
        title="Tatoeba, English to Chinese",
        note="The English sentence alone decides which split a pair is in. About a fifth of the Chinese is in "
        "traditional characters, which costs BLEU.",
        table=_table,
    ),
}
"""By name."""
