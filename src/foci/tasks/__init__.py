"""Applications: one folder each, registered in the table below.

The table holds strings, so that the command line lists the tasks without importing torch. From a row come every
command, `foci.train`, `foci.load`, the demo and the contract tests (tests/contract/test_every_task.py).
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A task: its class in foci.tasks.<name>.task (its settings are <title>Config in .config), and what it does."""

    title: str
    summary: str


TASKS = {
    "translate": Row("Translate", "Translate sentences; trained on sentence pairs."),
    "summarize": Row("Summarize", "Summarize texts; trained on texts with their summaries."),
    "classify": Row("Classify", "Classify documents; trained on documents with labels."),
    "classify_images": Row("ClassifyImages", "Classify images; trained on images with labels."),
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
