"""Cloze questions: a document, a question with a blank, candidates and the answer, from files of many forms.

    .jsonl          {"document": …, "question": …, "candidates": ["a", "b"], "answer": "a", "kind": …}
    1 sentence      the Children's Book Test: numbered sentences, then "21 question TAB answer TAB TAB a|b|c"
    1 ||| sentence  People's Daily and Children's Fairy Tales (Cui et al., 2016): at last "n ||| question ||| answer"
                    CMRC 2017: at last "<qid_n> ||| question"; the answers are in NAME.answer beside NAME.doc_query

All may be compressed (.gz, .xz). Candidates may be left out: then every word of the document is one. The sentences of a
document stand on lines of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from foci.data.lines import Fault, ending_of, read_examples, read_lines
from foci.data.tables import JSON, json_objects
from foci.errors import DataError, near_names
from foci.tasks.cloze.config import BLANK

BAR = "|"
"""Stands between candidates where they are one text."""
_LONGEST = 1_000_000
_NUMBERED = re.compile(r"(\d+)\s(.*)", re.DOTALL)


class ClozeQuestion(NamedTuple):
    """A question about a document; ``candidates`` have ``|`` between them, and are empty where all words are."""

    document: str
    question: str
    candidates: str
    answer: str
    kind: str = ""


def read_cloze(path: str | Path, *, blank: str = BLANK, needs_blank: bool = True) -> list[ClozeQuestion]:
    """Read cloze questions; the form follows from the name and the first line of the file, as the module says.

    Args:
        path: the file.
        blank: how the file writes the blank.
        needs_blank: whether a question without a blank is a mistake.

    Raises:
        DataError: the first mistake, with its file and line, and how many there are.
    """
    path = Path(path)
    if ending_of(path) in JSON:
        entries = _objects(path)
    elif "|||" in next((line for line in read_lines(path, _LONGEST) if isinstance(line, str) and line.strip()), ""):
        entries = _bars(path)
    else:
        entries = _numbered(path)
    checked = (_checked(entry, blank if needs_blank else "", path) for entry in entries)
    return [question for _, question in read_examples(path, checked, "questions")]


_Placed = tuple[int, ClozeQuestion]
"""A question, and the line that it is on."""


def _checked(entry: _Placed | Fault, blank: str, path: Path) -> _Placed | Fault:
    if isinstance(entry, Fault):
        return entry
    line, question = entry
    try:
        check_question(question, blank)
    except DataError as error:
        return Fault(path, line, "unusable question", str(error))
    return entry


def check_question(question: ClozeQuestion, blank: str) -> None:
    """Raise a DataError if a field is empty, the blank is missing or the answer is not among the candidates."""
    for name in ("document", "question", "answer"):
        if not getattr(question, name).strip():
            raise DataError(f"the {name} is empty.")
    if blank and blank not in question.question:
        raise DataError(
            f"the question has no blank {blank!r}. Name another blank (data.blank), or set data.needs_blank = false."
        )
    names = candidates_of(question.candidates)
    if question.candidates and question.answer.strip() not in names:
        raise DataError(f"the answer {question.answer!r} is not among the candidates: {', '.join(names[:20])}.")


def candidates_of(text: str) -> list[str]:
    """Return the different candidates of a text with ``|`` between them.

    Example:
        >>> candidates_of("ball | king|ball")
        ['ball', 'king']
    """
    return list(dict.fromkeys(name.strip() for name in text.split(BAR) if name.strip()))


# ---- the Children's Book Test


def _numbered(path: Path) -> Iterator[_Placed | Fault]:
    sentences: list[str] = []
    faulty = False
    begun = 1
    for number, line in enumerate([*read_lines(path, _LONGEST), ""], start=1):
        if isinstance(line, Fault):
            yield line
            faulty = True
            continue
        if not line.strip():
            if sentences and not faulty:
                reason = "the sentences from here on have no question, expected a line with a tab: question, answer, …"
                yield Fault(path, begun, "no question", reason)
            sentences, faulty = [], False
            continue
        found = _NUMBERED.fullmatch(line)
        if found is None:
            reason = "expected a number and a sentence (Children's Book Test), 'n ||| sentence', or a .jsonl file."
            yield Fault(path, number, "no number", reason)
            faulty = True
        elif "\t" not in found[2]:
            begun = begun if sentences else number
            sentences.append(found[2].strip())
        else:
            cells = [cell.strip() for cell in found[2].split("\t")]
            if faulty:
                pass
            elif len(cells) != 4:
                reason = f"the question has {len(cells)} columns, expected question, answer, an empty one, candidates."
                yield Fault(path, number, "other number of columns", reason)
            else:
                yield number, ClozeQuestion("\n".join(sentences), cells[0], cells[3], cells[1])
            sentences, faulty = [], False


# ---- People's Daily, CMRC 2017


def _bars(path: Path) -> Iterator[_Placed | Fault]:
    sentences: list[str] = []
    answers: dict[str, str] | Fault | None = None
    for number, line in enumerate(read_lines(path, _LONGEST), start=1):
        if isinstance(line, Fault):
            yield line
            continue
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("|||")]
        is_question = cells[0].startswith("<qid")
        if is_question and answers is None:
            answers = _answers(path)
            if isinstance(answers, Fault):
                yield answers
        if len(cells) == 2 and not is_question:
            sentences.append(cells[1])
            continue
        if is_question and isinstance(answers, dict) and cells[0] not in answers:
            yield Fault(path, number, "no answer", f"the file of answers has none for {cells[0]!r}.")
        elif is_question and len(cells) == 2:
            answer = answers[cells[0]] if isinstance(answers, dict) else ""
            if answer:
                yield number, ClozeQuestion("\n".join(sentences), cells[1], "", answer)
        elif len(cells) == 3 and not is_question:
            yield number, ClozeQuestion("\n".join(sentences), cells[1], "", cells[2])
        else:
            reason = f"has {len(cells)} parts, expected 'n ||| sentence', 'n ||| question ||| answer' or '<qid> ||| …'."
            yield Fault(path, number, "other number of parts", reason)
        sentences = []
    if sentences:
        yield Fault(path, number, "no question", "the file ends without a question after its last sentences.")


def _answers(path: Path) -> dict[str, str] | Fault:
    """The answers of CMRC's questions, which are in a file of their own."""
    name = path.name.replace("doc_query", "answer")
    beside = [path.with_name(name.removesuffix(end) + other) for end in (".xz", ".gz", "") for other in ("", ".xz")]
    found = next((file for file in beside if file.is_file() and file != path), None)
    if found is None:
        return Fault(path, 1, "no answers", f"the questions have no answers, expected {name} beside the file.")
    answers: dict[str, str] = {}
    for number, line in enumerate(read_lines(found, _LONGEST), start=1):
        if isinstance(line, Fault):
            return line
        question, bars, answer = (part.strip() for part in line.partition("|||"))
        if line.strip() and not (bars and answer):
            return Fault(found, number, "no answer", "expected '<qid_n> ||| answer'.")
        answers[question] = answer
    return answers


# ---- JSONL


def _objects(path: Path) -> Iterator[_Placed | Fault]:
    for entry in json_objects(path):
        if isinstance(entry, Fault):
            yield entry
            continue
        try:
            yield entry.line, from_record(entry.content)
        except DataError as error:
            yield Fault(path, entry.line, "unusable question", str(error))


def from_record(record: Any) -> ClozeQuestion:
    """Return the question of a JSON object; candidates may be a list or a text with ``|`` between them.

    Raises:
        DataError: a field is missing or of another kind.
    """
    if not isinstance(record, dict):
        raise DataError(f"a JSON {type(record).__name__}, expected an object.")
    for name in ("document", "question", "answer"):
        if name not in record:
            raise DataError(f"no field {name!r}. {near_names(name, record)}")
    values = {name: record.get(name, "") for name in ClozeQuestion._fields}
    if isinstance(values["candidates"], list | tuple):
        values["candidates"] = joined(values["candidates"])
    for name, value in values.items():
        if not isinstance(value, str):
            raise DataError(f"field {name!r} is a {type(value).__name__}, expected a text.")
    return ClozeQuestion(**{name: value.strip() for name, value in values.items()})


def joined(candidates: Sequence[Any]) -> str:
    """Return a list of candidates as one text.

    Raises:
        DataError: one of them is no text, or holds the sign that stands between them.
    """
    for name in candidates:
        if not isinstance(name, str) or BAR in name:
            raise DataError(f"a candidate is {name!r}, expected a text without {BAR!r}, which stands between them.")
    return BAR.join(candidates)
