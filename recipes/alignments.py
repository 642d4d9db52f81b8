"""Word alignments of the Hansards: what attentions are measured by, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import foci
from foci.data import Pair, open_corpus
from foci.data.pairs import read_pairs
from foci.errors import ConfigError
from foci.metrics.alignments import alignment_scores, parse_gold, symmetrize, transposed
from foci.metrics.attention import Links, format_pharaoh
from foci.names import Symmetrization
from foci.tasks.frame.predictor import Predictor
from foci.tasks.frame.task import Evaluation
from foci.tasks.translate.aligning import AlignmentReader, Reading, align_both
from foci.tasks.translate.config import AlignOptions
from foci.tasks.translate.word_links import own_links
from recipes import data
from recipes.recipe import Row
from recipes.tables import markdown

WAYS = ("en-fr", "fr-en")
JOINED: tuple[Symmetrization, ...] = ("intersection", "grow-diag-final-and")
_BASELINES = [
    ("diagonal", "", "53.1", "", "", ""),
    ("IBM model 1, 5 iterations", "", "36.6", "32.0", "24.9", ""),
    ("eflomal 2.0.0", "", "8.8", "8.5", "7.4", ""),
]
"""Computed on the same 25,447 pairs (SOURCE.md beside the data): name, then the columns of AER."""


LINK_STEPS = 800
"""Of the aligners of words whose links lead the guided attentions."""


def prepare(out: Path) -> None:
    """Write the pairs of both directions, and the links of their words that guided attentions are led along."""
    data.prepare_hansards(out)
    files = {way: out / f"hansards.{way}.links" for way in WAYS}
    if all(path.exists() for path in files.values()):
        return
    pairs = read_pairs(open_corpus(out / "hansards.en-fr.train.tsv", columns=(0, 1)))
    found = own_links(pairs, steps=LINK_STEPS, longest=30, seed=0, log=print)
    for way, path in files.items():
        some = found if way == "en-fr" else list(map(transposed, found))
        path.write_text(format_pharaoh(some) + "\n", encoding="utf-8")


def read_test(folder: Path) -> tuple[list[Pair], list[Links]]:
    """Return the test pairs, English first, and their gold links."""
    pairs = read_pairs(open_corpus(folder / "hansards.en-fr.test.tsv", columns=(0, 1)))
    sizes = [(len(pair.source.split()), len(pair.target.split())) for pair in pairs]
    gold = folder / "hansards.gold.txt"
    return pairs, parse_gold(gold.read_text(encoding="utf-8").splitlines(), sizes, str(gold))


def rates(found: Sequence[Links], gold: Sequence[Links]) -> Row:
    """Return AER, precision and recall in percent."""
    scores = alignment_scores(found, gold)
    return {name: round(100 * float(getattr(scores, name)), 2) for name in ("aer", "precision", "recall")}


def measure_alignments(run: Predictor, evaluation: Evaluation, records: list[Row] | None) -> Row:
    """Return the error rates of every way to read a run's attention, and joined with that of the other direction.

    The other direction is measured with the second of both runs, once the first is trained.
    """
    way = next(way for way in WAYS if f"-{way}-" in Path(run.path).name)
    pairs, gold = read_test(Path(run.path).parent)
    return {
        "readings": {
            str(reading): rates(found, gold) for reading, found in _all_readings(run, pairs, way, "weights").items()
        },
        "gradient": {
            str(reading): rates(found, gold) for reading, found in _all_readings(run, pairs, way, "gradient").items()
        },
        "default": str(_default(run, pairs, way)),
        **_both(run, pairs, gold, way, AlignOptions()),
        "both_gradient": _both(run, pairs, gold, way, AlignOptions(method="gradient")),
    }


def _all_readings(run: Predictor, pairs: Sequence[Pair], way: str, method: str) -> dict[Reading, list[Links]]:
    """Return the links of all test pairs, English first, of every attention, head and step; none without gradients."""
    options = AlignOptions(method=method)  # type: ignore[arg-type]
    reader = AlignmentReader(run.task, run.model, run.assets, options)  # type: ignore[arg-type]
    try:
        every = reader.every(_turned(pairs, way))
    except ConfigError:  # local-m and local-p
        return {}
    return {
        reading: [transposed(one[reading]) if way == "fr-en" else one[reading] for one in every] for reading in every[0]
    }


def _default(run: Predictor, pairs: Sequence[Pair], way: str) -> Reading | None:
    found: Reading | None = run.align(_turned(pairs[:1], way))[0].read
    return found


def _turned(pairs: Sequence[Pair], way: str) -> list[dict[str, str]]:
    order = (0, 1) if way == "en-fr" else (1, 0)
    return [{"source": pair[order[0]], "target": pair[order[1]]} for pair in pairs]


def _both(run: Predictor, pairs: Sequence[Pair], gold: Sequence[Links], way: str, options: AlignOptions) -> Row:
    """Return the rates of both directions, read where they agree most, and joined; nothing without the other run."""
    path = Path(run.path)
    other = path.with_name(path.name.replace(f"-{way}-", f"-{WAYS[way == WAYS[0]]}-"))
    if not (other / "checkpoints").exists() or not any((other / "checkpoints").iterdir()):
        return {}
    if options.method == "gradient" and "local-" in path.name:  # their weights have no gradient
        return {}
    runs = {way: run, WAYS[way == WAYS[0]]: foci.load(other)}
    there, back, share = align_both(runs["en-fr"], runs["fr-en"], _turned(pairs, "en-fr"), options, lambda done: None)
    joined: dict[str, Any] = {
        method: rates([symmetrize(one.links, two.links, method) for one, two in zip(there, back)], gold)
        for method in JOINED
    }
    return {
        "chosen": [str(there[0].read), str(back[0].read)],
        "agreement": round(share, 4),
        "en-fr": rates([one.links for one in there], gold),
        "fr-en": rates([one.links for one in back], gold),
        **joined,
    }


def alignments_table(rows: list[Row]) -> str:
    """Return a line for each system: the rates of both directions and of both joined, over its seeds."""
    systems: dict[str, dict[str, list[Row]]] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        name, _, way = row["name"].removesuffix(f", seed {row['seed']}").rpartition(", ")
        whole = f"{name}, {way}" if name else way
        systems.setdefault(name if way in WAYS else whole, {}).setdefault(way, []).append(row)
    head = ["system", "steps, each direction", "seeds", "BLEU, en-fr and fr-en", "en-fr", "fr-en", "∩",
            "grow-diag-final-and", "en-fr, one step later", "en-fr × gradient", "∩ × gradient",
            "grow-diag-final-and × gradient", "read, by agreement", "processor minutes"]  # fmt: skip
    lines = [[name, steps, "", "", *cells, *[""] * 6] for name, steps, *cells in _BASELINES]
    for name, ways in sorted(systems.items(), key=_kind):
        lines.append(_line(name, ways))
    several = {row["name"]: layers_table(row) for row in rows if len(row.get("readings", {})) > 2 and row["seed"] == 0}
    return "\n\n".join(
        [
            markdown(head, lines),
            *(f"Every layer and head of {name}, seed 0:\n\n{table}" for name, table in several.items()),
        ]
    )


def _kind(system: tuple[str, Any]) -> int:
    """Return the place of a system: translators, guided ones, aligners."""
    return 2 if system[0].startswith("WordAligner") else int("guided" in system[0])


def _line(name: str, ways: dict[str, list[Row]]) -> list[str]:
    rows = [row for some in ways.values() for row in some]
    joined = [row for row in rows if "intersection" in row]
    both = [row["both_gradient"] for row in joined if row.get("both_gradient")]
    first, default = ways.get("en-fr", []), rows[0].get("default", "")
    alone = {
        way: [row[way] for row in joined] or [row["readings"][row["default"]] for row in ways.get(way, [])]
        for way in WAYS
    }
    chosen = dict.fromkeys(reading for row in joined for reading in row.get("chosen", []))
    minutes = [[row["cpu_seconds"] / 60 for row in some if "cpu_seconds" in row] for some in ways.values()]
    return [
        name,
        f"{rows[0]['steps']:,}",
        str(len({row["seed"] for row in rows})),
        " and ".join(_mean([row["bleu"] for row in some]) for some in ways.values() if "bleu" in some[0]),
        *(_cell(alone[way]) for way in WAYS),
        *(_cell([row[method] for row in joined]) for method in JOINED),
        _cell([found for row in first if (found := row.get("readings", {}).get(f"{default}, one step later"))]),
        _cell([found for row in first if (found := row.get("gradient", {}).get(default))]),
        *(_cell([row[method] for row in both]) for method in JOINED),
        " and ".join(chosen) or (f"{default} (default)" if default else ""),
        " + ".join(f"{fmean(some):.1f}" for some in minutes if some),
    ]


def _mean(values: Sequence[float]) -> str:
    """Return the mean of some seeds, and their deviation."""
    return f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")


def _cell(found: Sequence[Row]) -> str:
    if not found:
        return ""
    precision, recall = (fmean(row[name] for row in found) for name in ("precision", "recall"))
    return f"{_mean([row['aer'] for row in found])} ({precision:.0f} / {recall:.0f})"


def layers_table(row: Row) -> str:
    """Return the error rate of every layer and head of a run: of the step itself, one later, and times the gradient."""
    names = [name for name in row["readings"] if not name.endswith("one step later")]
    lines = [
        [
            name,
            _cell([row["readings"][name]]),
            _cell([row["readings"][f"{name}, one step later"]]),
            _cell([row["gradient"][name]] if name in row["gradient"] else []),
        ]
        for name in names
    ]
    return markdown(["attention", "the step that predicts the word", "one step later", "× gradient"], lines)
