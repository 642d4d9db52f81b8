"""Applications: one file each, registered in the table below.

The table holds strings, so that the command line lists the tasks without importing torch. From a row come every
command, `foci.train`, `foci.load`, the demo and the contract tests (tests/contract/test_every_task.py).
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """Where a task is defined, and what it does, in one line."""

    where: str
    summary: str


TASKS = {
    "translate": Row("foci.tasks.translate.task:Translate", "Translate sentences; trained on sentence pairs."),
    "summarize": Row("foci.tasks.summarize.task:Summarize", "Summarize texts; trained on texts with their summaries."),
    "classify": Row("foci.tasks.classify.task:Classify", "Classify documents; trained on documents with labels."),
    "classify_images": Row(
        "foci.tasks.classify_images.task:ClassifyImages", "Classify images; trained on images with labels."
    ),
    "vqa": Row("foci.tasks.vqa.task:Vqa", "Answer questions about images; trained on images, questions and answers."),
    "caption": Row("foci.tasks.caption.task:Caption", "Write captions of images; trained on images with captions."),
    "tag": Row(
        "foci.tasks.tag.task:Tag", "Tag words: named entities, slots, parts of speech; trained on tagged sentences."
    ),
    "entail": Row("foci.tasks.entail.task:Entail", "Label pairs of sentences: entailment, contradiction or neutral."),
    "cloze": Row(
        "foci.tasks.cloze.task:Cloze", "Fill the blank of a question about a document; trained on such questions."
    ),
    "generate": Row("foci.tasks.generate.task:Generate", "Generate text; trained on plain text."),
    "transcribe": Row(
        "foci.tasks.transcribe.task:Transcribe", "Transcribe speech; trained on recordings with transcripts."
    ),
    "memorize": Row("foci.tasks.memorize.task:Memorize", "Solve problems that need a memory; made as they are needed."),
}
"""Name -> row."""
