"""`foci evaluate`: the figures of a run on held-out data."""

from __future__ import annotations

import json
from pathlib import Path

from foci.cli.progress import counting
from foci.data import check, open_corpus
from foci.errors import ConfigError
from foci.tasks import load
from foci.tasks.translate import Search, Translator


def evaluate(
    run: Path,
    /,
    *,
    source: str,
    target: str | None = None,
    beam: int = 5,
    length_penalty: float = 0.6,
    lowercase: bool = False,
    tokenize: str | None = None,
    checkpoint: str = "auto",
    int8: bool = False,
    json_output: bool = False,
) -> None:
    """Tell how well a run does on pairs it has not seen: BLEU and chrF with their signatures, perplexity.

    Parameters
    ----------
    run
        The folder that training wrote.
    source
        The source sentences, one a line; or one .tsv or .jsonl file with both sides.
    target
        Their translations.
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
    if not isinstance(translator, Translator):
        raise ConfigError(f"{run}: foci evaluate does not know this task yet.")
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
