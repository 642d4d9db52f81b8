"""The tables of docs/results.md about speech, and the metrics that only they need."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import torch

from foci.data import BOS
from foci.data.audio.features import normalized
from foci.models.recognizer import Recognizer
from foci.tasks.frame.predictor import Predictor
from foci.tasks.frame.task import Evaluation, Record
from foci.tasks.transcribe.data import SpeechAssets
from foci.tasks.transcribe.search import read_segments
from foci.viz.figure.curves import plot_curves
from recipes import report
from recipes.recipe import Row
from recipes.speech import LONGEST, STRINGS, TIMES
from recipes.tables import markdown, share_cell

_TIMED = 30
"""Utterances that the real-time factor is measured with."""


def measure_recognizer(run: Predictor, evaluation: Evaluation, records: list[Row] | None) -> Row:
    """Return the real-time factor of decoding, and the error rates of further manifests beside the test part."""
    held_out = [dict(record) for record in run.held_out()][:_TIMED]
    started = time.perf_counter()
    found = run.predict([record["audio"] for record in held_out])
    seconds = time.perf_counter() - started
    row: Row = {"real_time_factor": seconds / sum(one.details.get("seconds", 0.0) for one in found)}
    unseen = Path(os.path.expandvars(run.config.data.test or "")).with_name("unseen.jsonl")
    if unseen.exists():
        metrics = run.evaluate(run.read(str(unseen))).metrics
        row |= {"unseen_wer": metrics["wer"], "unseen_cer": metrics["cer"]}
    return row


def error_rates_table(rows: list[Row]) -> str:
    """Return a line for each row."""
    unseen = any("unseen_wer" in row for row in rows)
    head = ["model", "CER", "WER", "substituted", "deleted", "inserted", "sentences with errors",
            *(["WER, unseen speaker"] if unseen else []), "real-time factor", "minutes", "seed"]  # fmt: skip
    lines = []
    for row in rows:
        shares = [f"{100 * row['cer']:.1f} %", share_cell([row["wer"]], row["words"], digits=1)]
        counts = [str(row[name]) for name in ("substitutions", "deletions", "insertions")]
        rest = [f"{100 * row['unseen_wer']:.1f} %"] if unseen else []
        ends = [f"{row['real_time_factor']:.3f}", f"{row['minutes']:.1f}", str(row["seed"])]
        lines.append([row["name"], *shares, *counts, f"{100 * row['sentence_errors']:.1f} %", *rest, *ends])
    return markdown(head, lines)


def measure_longer(run: Predictor, evaluation: Evaluation, records: list[Row] | None) -> Row:
    """Return the error rates of strings that are longer than those of the training, and how many digits were found.

    For the latter the decoder is given the transcript, as Chorowski et al. do: a digit is found where the median of the
    weights of its token lies within its recording.
    """
    test = Path(os.path.expandvars(run.config.data.test or ""))
    times = json.loads(test.with_name(TIMES).read_text(encoding="utf-8"))
    rates, found = {"1": evaluation.metrics["wer"]}, {"1": _share_found(run, run.held_out(), times["times1"])}
    for factor in sorted({*STRINGS} - {1}):
        longer = run.read(str(test.with_name(f"times{factor}.jsonl")))
        # Not cut at silences: the attention is to read all of it.
        rates[str(factor)] = run.evaluate(longer, options={"ctc_weight": 0.0, "max_segment_seconds": 600.0}).metrics[
            "wer"
        ]
        found[str(factor)] = _share_found(run, longer, times[f"times{factor}"])
    return {"wer_by_length": rates, "found_by_length": found}


def _share_found(run: Predictor, records: Sequence[Record], ends: list[list[float]]) -> float:
    """Return the share of the digits whose token, by teacher forcing, reads the digit's own recording."""
    model = cast("Recognizer", run.model)
    assets, settings = cast("SpeechAssets", run.assets), run.config.features
    seconds = model.subsampling_factor * settings.hop_ms / 1000
    hits: list[bool] = []
    for record, last in zip(records, ends, strict=True):
        (segment,), _ = read_segments(0, str(record["audio"]), settings, assets, seconds=600.0)
        read = normalized(segment.features, settings.normalize, assets.features)
        features = torch.from_numpy(read).unsqueeze(0)
        target = torch.tensor([[BOS, *next(iter(assets.tokenizer.encode_many([f" {record['text']}"])))]])
        with torch.inference_mode():
            encoded = model.encode(features, torch.tensor([features.shape[1]]))
            weights = model.teach(encoded, target).attentions["decoder.cross"].dense()[0, : len(last)]
        medians = (weights.cumsum(dim=-1) < weights.sum(dim=-1, keepdim=True) / 2).sum(dim=-1) * seconds
        hits += [first <= at < end for first, end, at in zip([0.0, *last], last, medians.tolist(), strict=False)]
    return sum(hits) / len(hits)


def longer_table(rows: list[Row]) -> str:
    """Return what each model makes of each length."""
    words = {str(factor): factor * LONGEST * strings for factor, strings in STRINGS.items()}
    head = ["attention", *(f"WER, {factor} × the length" for factor in words)]
    head += [*(f"digits found, {factor} ×" for factor in words), "minutes", "seed"]
    lines = [
        [
            row["name"],
            *(share_cell([row["wer_by_length"][factor]], count, 1) for factor, count in words.items()),
            *(share_cell([row["found_by_length"][factor]], count, 1) for factor, count in words.items()),
            f"{row['minutes']:.1f}",
            str(row["seed"]),
        ]
        for row in rows
    ]
    return markdown(head, lines)


def draw_longer(rows: list[Row]) -> None:
    """Draw the error rate of each model by length."""
    short = {
        ", windowed and sharpened, from the first position": ", window",
        ", from the first position": ", first",
        " and": ",",
    }
    curves = {}
    for row in rows:
        label = row["name"]
        for long, instead in short.items():
            label = label.replace(long, instead)
        curves[label] = [(int(factor), 100 * rate) for factor, rate in row["wer_by_length"].items()]
    plot_curves(
        curves,
        report.ROOT / "docs" / "images" / "longer-strings.png",
        across="× the longest trained",
        up="word errors (%)",
        title="strings of digits, longer than in training",
    )
