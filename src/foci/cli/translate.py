"""`foci translate`: sentences through a run."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from foci.data.text import Fault, read_lines
from foci.errors import ConfigError, DataError
from foci.tasks import load
from foci.tasks.translate import Prediction, Search, Translator

_TOGETHER = 256
"""Sentences of a file that are translated before the first is printed."""


def translate(
    run: Path,
    /,
    *texts: str,
    file: Path | None = None,
    beam: int = 5,
    n_best: int = 1,
    length_penalty: float = 0.6,
    coverage_penalty: float = 0.0,
    no_repeat_ngram: int = 0,
    max_length: int | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float = 1.0,
    seed: int = 0,
    prefix: str | None = None,
    checkpoint: str = "auto",
    int8: bool = False,
    show: bool = False,
    json_output: bool = False,
) -> None:
    """Translate the sentences given, those of a file, or standard input, one a line.

    Parameters
    ----------
    run
        The folder that training wrote.
    texts
        Sentences; without any, and without a file, standard input is read.
    file
        A file of sentences, one a line (.gz and .xz too).
    beam
        Hypotheses kept side by side; 1 is greedy search.
    n_best
        How many translations of each sentence are printed, each with its score.
    length_penalty
        Above 0 favours longer translations.
    coverage_penalty
        Above 0 favours translations that have read all of the source.
    no_repeat_ngram
        No sequence of so many tokens comes twice.
    max_length
        Longest translation in tokens; twice the source and 20 more unless given.
    temperature
        Sample instead of searching: 1 draws as the model has it, less prefers the likely.
    top_k
        Sample among so many likeliest tokens.
    top_p
        Sample among the fewest tokens that are together this likely.
    seed
        Of the sampling.
    prefix
        What every translation begins with.
    checkpoint
        auto (averaged, else best), best, last, averaged, or the name of one.
    int8
        Use 8-bit integers in large layers: faster on a CPU.
    show
        Print the alignment under each translation.
    json_output
        Print one JSON object a sentence, with all translations and scores.
    """
    translator = load(run, checkpoint=checkpoint)
    if not isinstance(translator, Translator):
        raise ConfigError(f"{run}: is not a run of translation.")
    if texts and file is not None:
        raise ConfigError("sentences and --file are both given, expected one of them.")
    search = Search(
        beam=max(beam, n_best),
        n_best=n_best,
        length_penalty=length_penalty,
        coverage_penalty=coverage_penalty,
        no_repeat_ngram=no_repeat_ngram,
        max_length=max_length,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    translator = translator.quantised() if int8 else translator
    sentences = iter(texts) if texts else _lines(file)
    together = 1 if not texts and file is None and sys.stdin.isatty() else _TOGETHER
    while some := list(islice(sentences, together)):
        prefixes = None if prefix is None else [prefix] * len(some)
        for prediction in translator.predict(some, search=search, prefixes=prefixes, trace=show):
            _print(prediction, n_best, show, json_output)


def _lines(file: Path | None) -> Iterator[str]:
    if file is None:
        for line in sys.stdin:
            yield line.rstrip("\n")
        return
    for entry in read_lines(file):
        if isinstance(entry, Fault):
            raise DataError(str(entry))
        yield entry


def _print(prediction: Prediction, n_best: int, show: bool, as_json: bool) -> None:
    if as_json:
        found = [{"text": t.text, "score": t.score, "finished": t.finished} for t in prediction.translations]
        print(json.dumps({"source": prediction.source, "translations": found}, ensure_ascii=False), flush=True)
        return
    for translation in prediction.translations:
        print(f"{translation.score:9.4f}  {translation.text}" if n_best > 1 else translation.text, flush=True)
        if show and translation.trace is not None:
            translation.trace.print()
