"""`foci predict`: the classes of documents by a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from foci.errors import ConfigError, DataError
from foci.tasks import load
from foci.tasks.classify import Classifier, Prediction


def predict(
    run: Path,
    /,
    *texts: str,
    file: list[Path] | None = None,
    checkpoint: str = "auto",
    show: bool = False,
    page: Path | None = None,
    json_output: bool = False,
) -> None:
    """Tell the class of the documents given, of files, or of standard input, each as a whole.

    Parameters
    ----------
    run
        The folder that training wrote.
    texts
        Documents; without any, and without a file, standard input is one document.
    file
        A file with one document; may be given several times.
    checkpoint
        auto (averaged, else best), best, last, averaged, or the name of one.
    show
        Print the document with its sentences and words shaded by the attention they had.
    page
        Write that of the first document as a page to this .html file.
    json_output
        Print one JSON object a document, with the probability of every class.
    """
    classifier = load(run, checkpoint=checkpoint)
    if not isinstance(classifier, Classifier):
        raise ConfigError(f"{run}: is not a run of classification.")
    if texts and file:
        raise ConfigError("documents and --file are both given, expected one of them.")
    documents = list(texts) or ([_read(path) for path in file] if file else [sys.stdin.read()])
    predictions = classifier.predict(documents, trace=show or page is not None)
    for prediction in predictions:
        _print(prediction, show, json_output)
    if page is not None and predictions[0].trace is not None:
        print(f"wrote {predictions[0].trace.save_html(page)}", file=sys.stderr)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataError(f"{path}: cannot be opened ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: byte {error.start + 1} is not UTF-8. Convert it: iconv -f OLD -t UTF-8.") from error


def _print(prediction: Prediction, show: bool, as_json: bool) -> None:
    if as_json:
        found = {"label": prediction.label, "probabilities": prediction.probabilities}
        print(json.dumps(found, ensure_ascii=False), flush=True)
        return
    print(f"{prediction.probability:6.1%}  {prediction.label}", flush=True)
    if show and prediction.trace is not None and prediction.trace.attentions:
        prediction.trace.print()
