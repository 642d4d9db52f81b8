"""Applications: one folder each, registered in the table below; other packages add theirs.

The table holds strings, so that the command line lists the tasks without importing torch. From a row come every
command, `foci.train`, `foci.load`, the demo and the contract tests (tests/contract/test_every_task.py).
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import NamedTuple

from foci.errors import ConfigError, UnknownNameError, unknown_name

GROUP = "foci.tasks"
"""The group of entry points by which a package names its tasks."""


class Row(NamedTuple):
    """A task: its class in foci.tasks.<name>.task (its settings are <title>Config in .config), and what it does.

    ``home`` names the class of a task of another package, as in ``"my_package.task:Mine"``.
    """

    title: str
    summary: str
    home: str = ""


TASKS = {
    "translate": Row("Translate", "Translate sentences; trained on sentence pairs."),
    "summarize": Row("Summarize", "Summarize texts; trained on texts with their summaries."),
    "classify": Row("Classify", "Classify documents; trained on documents with labels."),
    "classify_images": Row("ClassifyImages", "Classify images; trained on images with labels."),
    "detect": Row("Detect", "Find objects in images; trained on images with boxes around them."),
    "vqa": Row("Vqa", "Answer questions about images; trained on images, questions and answers."),
    "caption": Row("Caption", "Write captions of images; trained on images with captions."),
    "tag": Row("Tag", "Tag words: named entities, slots, parts of speech; trained on tagged sentences."),
    "entail": Row("Entail", "Label pairs of sentences: entailment, contradiction or neutral."),
    "cloze": Row("Cloze", "Fill the blank of a question about a document; trained on such questions."),
    "generate": Row("Generate", "Generate text; trained on plain text."),
    "transcribe": Row("Transcribe", "Transcribe speech; trained on recordings with transcripts."),
    "memorize": Row("Memorize", "Solve problems that need a memory; data is generated on the fly."),
}
"""Name -> row."""

CALLED = {
    "asr": "transcribe",
    "automatic_speech_recognition": "transcribe",
    "captioning": "caption",
    "chunking": "tag",
    "classification": "classify",
    "detection": "detect",
    "document_classification": "classify",
    "fill_mask": "cloze",
    "gpt": "generate",
    "image_captioning": "caption",
    "image_classification": "classify_images",
    "image_to_text": "caption",
    "language_model": "generate",
    "language_modeling": "generate",
    "language_modelling": "generate",
    "llm": "generate",
    "lm": "generate",
    "machine_comprehension": "cloze",
    "machine_translation": "translate",
    "mnli": "entail",
    "mt": "translate",
    "named_entity_recognition": "tag",
    "natural_language_inference": "entail",
    "ner": "tag",
    "nli": "entail",
    "nmt": "translate",
    "ntm": "memorize",
    "object_detection": "detect",
    "part_of_speech": "tag",
    "pos": "tag",
    "pos_tagging": "tag",
    "qa": "cloze",
    "question_answering": "cloze",
    "reading_comprehension": "cloze",
    "rte": "entail",
    "sentiment": "classify",
    "sentiment_analysis": "classify",
    "sequence_labeling": "tag",
    "slot_filling": "tag",
    "slu": "tag",
    "snli": "entail",
    "speech": "transcribe",
    "speech_recognition": "transcribe",
    "speech_to_text": "transcribe",
    "stt": "transcribe",
    "summarization": "summarize",
    "text2text_generation": "translate",
    "text_classification": "classify",
    "text_generation": "generate",
    "token_classification": "tag",
    "topic_classification": "classify",
    "transcription": "transcribe",
    "translation": "translate",
    "visual_question_answering": "vqa",
}
"""What people call a task -> its name, which an error suggests."""


def register(name: str, home: str, summary: str = "") -> None:
    """Add a task of another package: `foci.train`, `foci.load` and what is run in this process know it then.

    For the commands, and for every process in which the package is installed, name it in its pyproject.toml::

        [project.entry-points."foci.tasks"]
        mine = "my_package.task:Mine"

    Args:
        name: its name, as in ``foci train NAME``; that of the class too.
        home: the module and the class, derived from `foci.tasks.frame.task.Task`, with a colon between them.
        summary: what it does, in one sentence.
    """
    TASKS[name] = _row(name, home, summary, TASKS)


def every() -> dict[str, Row]:
    """Return all tasks: those of foci, those that were registered, and those of installed packages."""
    found = dict(TASKS)
    for one in entry_points(group=GROUP):
        package = f"Of the package {one.dist.name}." if one.dist is not None else ""
        if one.name not in found or found[one.name].home != one.value:  # a package may also register it
            found[one.name] = _row(one.name, one.value, package, found)
    return found


def row_of(name: str) -> Row:
    """Return the row of a task; the error for an unknown name suggests similar ones, and what others call it."""
    if name in TASKS:
        return TASKS[name]
    known = every()
    if name in known:
        return known[name]
    meant = CALLED.get(name.lower().replace("-", "_").replace(" ", "_"))
    if meant is not None:
        raise UnknownNameError(f"unknown task {name!r}. Did you mean {meant!r}? All: {', '.join(sorted(known))}.")
    raise unknown_name("task", name, known)


def _row(name: str, home: str, summary: str, known: dict[str, Row]) -> Row:
    module, colon, title = home.partition(":")
    if not module or not colon or not title.isidentifier():
        raise ConfigError(f"the task {name!r} has the class {home!r}, expected one as in 'my_package.task:Mine'.")
    if name in known and known[name].home != home:
        owner = known[name].home or "foci"
        raise ConfigError(f"the task {name!r} of {home!r} has the name of one of {owner}. Give it another.")
    return Row(title, summary, home)
