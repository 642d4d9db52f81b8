"""`foci evaluate`: the figures of a run on held-out data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from foci.cli.progress import counting
from foci.data import check, open_corpus
from foci.data.documents import read_documents
from foci.errors import ConfigError
from foci.tasks import load
from foci.tasks.classify import Classifier
from foci.tasks.memorise import Memoriser
from foci.tasks.translate import Search, Translator
from foci.viz.curves import plot_curves
from foci.viz.heatmap import heatmap


def evaluate(
    run: Path,
    /,
    *,
    source: str | None = None,
    target: str | None = None,
    picture: Path | None = None,
    beam: int | None = None,
    length_penalty: float | None = None,
    lowercase: bool = False,
    tokenize: str | None = None,
    checkpoint: str = "auto",
    int8: bool = False,
    lengths: str | None = None,
    sequences: int | None = None,
    plot: Path | None = None,
    json_output: bool = False,
) -> None:
    """Tell how well a run does on data it has not seen.

    Of a translator: BLEU and chrF with their signatures, perplexity; needs --source. Of a classifier: accuracy, macro
    F1 and which classes are taken for which; without --source, on what its training kept out. Of a run of memorise:
    bits a sequence at each length.

    Parameters
    ----------
    run
        The folder that training wrote.
    source
        The source sentences, one a line; or one .tsv or .jsonl file with both sides. Of a classifier: documents.
    target
        Their translations.
    picture
        Of a classifier: draw which classes are taken for which to this .png, .svg or .pdf file.
    beam
        Hypotheses kept side by side, 5 unless given; 1 is greedy search.
    length_penalty
        Above 0 favours longer translations; 0.6 unless given.
    lowercase
        Compare without case.
    tokenize
        sacrebleu's tokeniser (13a, zh, char, ja-mecab, …); chosen by the script of the translations unless given.
    checkpoint
        auto (averaged, else best), best, last, averaged, or the name of one.
    int8
        Use 8-bit integers in large layers.
    lengths
        Of memorise: the lengths to try, such as 10,20,40; the greatest of the training unless given.
    sequences
        Of memorise: how many sequences of each length; 100 unless given.
    plot
        Of memorise: a picture of the error against the length; .png, .svg or .pdf.
    json_output
        Print JSON instead of a table: an object, or a list of one for each length.
    """
    loaded = load(run, checkpoint=checkpoint)
    of_translators = {
        "beam": beam,
        "length-penalty": length_penalty,
        "lowercase": lowercase or None,
        "tokenize": tokenize,
        "int8": int8 or None,
        "target": target,
    }
    if isinstance(loaded, Memoriser):
        _refuse(run, of_translators | {"source": source, "picture": picture})
        _memoriser(loaded, _numbers(lengths), 100 if sequences is None else sequences, plot, json_output)
        return
    _refuse(run, {"lengths": lengths, "sequences": sequences, "plot": plot})
    if isinstance(loaded, Classifier):
        _refuse(run, of_translators)
        _classifier(loaded, source, picture, json_output)
        return
    if not isinstance(loaded, Translator):
        raise ConfigError(f"{run}: foci evaluate does not know this task yet.")
    _refuse(run, {"picture": picture})
    if source is None:
        raise ConfigError("--source is missing: the sentences to translate, and --target, their translations.")
    translator = loaded
    corpus = open_corpus(source, target)
    pairs = check(corpus)
    given = {"beam": beam, "length_penalty": length_penalty}
    search = Search(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
    with counting("translating", pairs) as progress:
        figures = (translator.quantised() if int8 else translator).evaluate(
            list(corpus), search=search, tokenize=tokenize, lowercase=lowercase, progress=progress
        )
    if json_output:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:16} {value if isinstance(value, str) else f'{value:.4g}'}")


def _memoriser(run: Memoriser, lengths: list[int], sequences: int, plot: Path | None, json_output: bool) -> None:
    rows = []
    with counting("recalling", max(len(lengths), 1)) as progress:
        for length in lengths or [run.problem.max_length]:
            rows += run.evaluate([length], sequences=sequences)
            progress(1)
    if plot is not None:
        curves: dict[str, list[tuple[int | float, int | float]]] = {
            "bits (cost)": [(row.length, row.bits) for row in rows],
            "wrong bits": [(row.length, row.wrong_bits) for row in rows],
        }
        if rows[0].optimal_bits is not None:
            curves["bits of the best estimator"] = [(row.length, row.optimal_bits or 0.0) for row in rows]
        plot_curves(curves, plot, across="length", up="a sequence", title=run.config.data.problem)
    if json_output:
        print(json.dumps([row._asdict() for row in rows]))
        return
    told = [row._asdict() for row in rows]
    columns = [name for name in told[0] if any(row[name] is not None for row in told)]
    print("  ".join(f"{name:>12}" for name in columns))
    for row in told:
        print("  ".join(f"{row[name]:>12.4g}" for name in columns))


def _numbers(text: str | None) -> list[int]:
    try:
        return [] if text is None else [int(part) for part in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--lengths is {text!r}, expected whole numbers with commas, as in 10,20,40.") from error


def _refuse(run: Path, flags: Mapping[str, object]) -> None:
    """What means nothing for this run is not silently ignored."""
    for name, value in flags.items():
        if value is not None:
            raise ConfigError(f"{run}: --{name} means nothing for this kind of run.")


def _classifier(classifier: Classifier, source: str | None, picture: Path | None, as_json: bool) -> None:
    data = classifier.config.data
    documents = classifier.held_out() if source is None else read_documents(source, text=data.text, label=data.label)
    figures: dict[str, Any] = dict(classifier.evaluate(documents))
    if source is None and data.planted is not None and classifier.attends:
        figures |= {f"attention on the {name}": share for name, share in classifier.evidence().items()}
    labels, confusion = figures["labels"], figures["confusion"]
    if picture is not None:
        heatmap(
            confusion,
            picture,
            rows=labels,
            columns=labels,
            texts=[[str(number) for number in row] for row in confusion],
            row_axis="class",
            column_axis="taken for",
            scale="documents",
        )
    if as_json:
        print(json.dumps(figures, ensure_ascii=False))
        return
    for name, value in figures.items():
        if isinstance(value, float):
            print(f"{name:26} {value:.4g}")
    table = Table("class \\ taken for", *map(escape, labels))
    for label, row in zip(labels, confusion):
        table.add_row(escape(label), *map(str, row))
    Console().print(table)
