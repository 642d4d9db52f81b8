"""`foci evaluate`: the figures of a run on held-out data."""

from __future__ import annotations

import json
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
from foci.tasks.translate import Search, Translator
from foci.viz.heatmap import heatmap


def evaluate(
    run: Path,
    /,
    *,
    source: str | None = None,
    target: str | None = None,
    picture: Path | None = None,
    beam: int = 5,
    length_penalty: float = 0.6,
    lowercase: bool = False,
    tokenize: str | None = None,
    checkpoint: str = "auto",
    int8: bool = False,
    json_output: bool = False,
) -> None:
    """Tell how well a run does on data it has not seen.

    Of a translator: BLEU and chrF with their signatures, perplexity. Of a classifier: accuracy, macro F1 and which
    classes are taken for which; without --source, on what its training kept out.

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
        Hypotheses kept side by side; 1 is greedy search.
    length_penalty
        Above 0 favours longer translations.
    lowercase
        Compare without case.
    tokenize
        sacrebleu's tokeniser (13a, zh, char, ja-mecab, …); chosen by the script of the translations unless given.
    checkpoint
        auto (averaged, else best), best, last, averaged, or the name of one.
    int8
        Use 8-bit integers in large layers.
    json_output
        Print one JSON object instead of a table.
    """
    translator = load(run, checkpoint=checkpoint)
    if isinstance(translator, Classifier):
        _evaluate_classifier(translator, source, picture, json_output)
        return
    if not isinstance(translator, Translator):
        raise ConfigError(f"{run}: foci evaluate does not know this task yet.")
    if source is None:
        raise ConfigError("--source is missing: the sentences to translate.")
    corpus = open_corpus(source, target)
    pairs = check(corpus)
    search = Search(beam=beam, length_penalty=length_penalty)
    with counting("translating", pairs) as progress:
        figures = (translator.quantised() if int8 else translator).evaluate(
            list(corpus), search=search, tokenize=tokenize, lowercase=lowercase, progress=progress
        )
    if json_output:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:16} {value if isinstance(value, str) else f'{value:.4g}'}")


def _evaluate_classifier(classifier: Classifier, source: str | None, picture: Path | None, as_json: bool) -> None:
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
