"""docs/results.md, from the rows that recipes have left."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"

TITLES = {
    "multi30k": "Multi30k, English to German",
    "compare": "What each attention brings: Multi30k, English to German, one budget",
    "tatoeba": "Tatoeba, English to Chinese",
}
NOTES = {
    "multi30k": "test2016, 1,000 sentences. Published for this model and size: 41.02 BLEU (arXiv 2105.14462), "
    "lower-cased and on joined subwords; beside it stands our lower-cased figure.",
    "compare": "The same pairs, vocabulary (6,000 each side), optimiser and minutes for every row; test2016, beam 5. "
    "Entropy is that of what a produced token reads of the source, in nats: 0 is one word only.",
    "tatoeba": "The English sentence alone decides which split a pair is in. About a fifth of the Chinese is in "
    "traditional characters, which costs BLEU.",
}


def add(recipe: str, row: Mapping[str, Any]) -> None:
    """Keep a row in place of an older one of the same name and seed."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{recipe}.jsonl"
    rows = [old for old in _rows(path) if (old["name"], old["seed"]) != (row["name"], row["seed"])]
    machine = f"{os.cpu_count()} processors, {platform.machine()}"
    rows.append({**row, "machine": machine, "date": time.strftime("%Y-%m-%d"), "load": round(os.getloadavg()[2], 1)})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write() -> Path:
    """Write docs/results.md."""
    text = [
        "# Results",
        "Trainings on real data by `recipes/`, each row with the command that makes it again. The data is not part of "
        "foci: set `FOCI_DATA` to the folder that holds it.",
    ]
    for recipe, title in TITLES.items():
        rows = _rows(RESULTS / f"{recipe}.jsonl")
        if not rows:
            continue
        text += [f"## {title}", NOTES[recipe], _table(rows)]
        kinds = ("bleu_signature", "bleu_lower_signature", "chrf_signature")
        signatures = sorted({row[kind] for row in rows for kind in kinds})
        text.append("sacrebleu: " + "; ".join(f"`{signature}`" for signature in signatures))
        commands = {f"`{row['command']}`, {row['date']}, {row['machine']}, load average {row['load']}" for row in rows}
        text.append("\n".join(f"- {command}" for command in sorted(commands)))
    target = ROOT / "docs" / "results.md"
    target.write_text("\n\n".join(text) + "\n", encoding="utf-8")
    return target


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def _table(rows: list[dict[str, Any]]) -> str:
    head = ["model", "BLEU", "BLEU, lower-cased", "chrF", "perplexity", "entropy", "minutes", "epochs", "s / epoch",
            "tokens/s trained", "tokens/s decoded", "seed"]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        entropy = "" if row["alignment_entropy"] is None else f"{row['alignment_entropy']:.2f}"
        each = f"{60 * row['minutes'] / row['epochs']:.0f}" if row["epochs"] else ""
        figures = [f"{row[name]:.2f}" for name in ("bleu", "bleu_lower", "chrf", "perplexity")]
        speeds = [f"{row[f'tokens_per_second_{what}']:,.0f}" for what in ("trained", "decoded")]
        cells = [row["name"], *figures, entropy, f"{row['minutes']:.1f}", str(row["epochs"]), each, *speeds]
        cells.append(str(row["seed"]))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
