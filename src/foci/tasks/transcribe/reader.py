"""Manifests: which recording says what.

    .jsonl   {"audio": "a.wav", "text": "yes no"}        one object per line; the names of the fields can be chosen
    .tsv     a.wav<TAB>yes no                            two columns, by number or by the names in the first line;
    .csv     path;sentence                               those of Common Voice and others are known
    a folder with Kaldi's wav.scp (id path) and text (id words)

A relative path is relative to the manifest, or to the folder clips beside it, as in Common Voice. A line that cannot be
used is a `Fault` with file and line; whether the recordings themselves can be used is seen when they are read
(`foci.tasks.transcribe.data`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from foci.data.audio.files import Utterance
from foci.data.builtin.morse import is_morse
from foci.data.lines import Fault, each, ending_of, read_examples, read_lines
from foci.data.pairs import Columns, Pair, TableFile
from foci.data.tables import JSON, first_names, name_of
from foci.errors import ConfigError, DataError

_AUDIO = ("audio", "path", "audio_filepath", "audio_path", "file_name", "file", "wav")
_TEXT = ("text", "sentence", "transcript", "transcription")
"""Usual names of the columns of recordings and of what is said in them."""


def read_manifest(path: str | Path, columns: Columns | None = None) -> list[Utterance]:
    """Return the utterances of a manifest.

    Args:
        path: a .jsonl or .tsv file (also .gz, .xz), or a folder with wav.scp and text.
        columns: of a table, or fields of a JSONL file. Default: those with usual names, such as audio and text, path
            and sentence (Common Voice), or audio_filepath and text (NeMo); of a table without them the first two.

    Raises:
        DataError: it cannot be read; the message names the first line that cannot be used.
    """
    path = Path(path)
    if path.is_dir():
        if columns is not None:
            raise ConfigError(f"{path}: a folder with wav.scp and text has no columns. Leave them out.")
        return read_examples(path / "text", _kaldi(path), "utterances")
    if ending_of(path) not in (".tsv", ".txt", ".csv", *JSON):
        raise ConfigError(
            f"{path}: ends in {ending_of(path) or 'no ending'}, expected a manifest, .jsonl, .tsv or .csv (also .gz, "
            ".xz), or a folder with Kaldi's wav.scp and text."
        )
    pairs = TableFile(path, columns or usual_columns(path)).entries()
    spoken = each(pairs, lambda pair: Utterance(beside_manifest(path, pair.source), pair.target))
    return read_examples(path, spoken, "utterances")


def usual_columns(path: Path) -> Columns:
    """Return the columns of recordings and texts by their usual names, or by default.

    Raises:
        DataError: the first line of a table seems to have other names.
    """
    names = first_names(path)
    audio, text = (name_of(column, names) for column in (_AUDIO, _TEXT))
    if audio is not None and text is not None:
        return audio, text
    if ending_of(path) in JSON:
        return "audio", "text"
    if len(names) > 1 and not (is_morse(names[0]) or Path(names[0]).suffix or (path.parent / names[0]).exists()):
        chosen = ",".join(names[:2])
        raise DataError(
            f"{path}, line 1: {names[0]!r} is no recording. If the line has the names of columns, set data.columns "
            f"(--columns) to those of recordings and texts, such as {chosen}."
        )
    return 0, 1


def beside_manifest(manifest: Path, audio: str) -> str:
    """Return the path of a recording, or the name of a sound that has no file."""
    if is_morse(audio):
        return audio
    path, clip = manifest.parent / audio, manifest.parent / "clips" / audio
    return str(clip if not path.exists() and clip.exists() else path)


def _kaldi(folder: Path) -> Iterator[Utterance | Fault]:
    for name in ("wav.scp", "text"):
        if not (folder / name).is_file():
            raise DataError(f"{folder}: has no {name}, expected Kaldi's wav.scp and text in it, or name a manifest.")
    if (folder / "segments").exists():
        raise DataError(
            f"{folder / 'segments'}: segments of longer recordings are not read. Cut the recordings into one file each."
        )
    paths: dict[str, str] = {}
    for number, entry in enumerate(_keyed(folder / "wav.scp", "path"), start=1):
        if isinstance(entry, Fault):
            yield entry
        elif entry.source in paths:
            yield Fault(folder / "wav.scp", number, "repeated id", f"the id {entry.source!r} was on a line before.")
        elif entry.target.endswith("|"):
            reason = f"{entry.source!r} is made by a command, which is not run. Write the recordings to files."
            yield Fault(folder / "wav.scp", number, "command", reason)
        else:
            paths[entry.source] = str(folder / entry.target)
    for number, entry in enumerate(_keyed(folder / "text", "words"), start=1):
        if isinstance(entry, Fault):
            yield entry
        elif entry.source not in paths:
            reason = f"the utterance {entry.source!r} is not in wav.scp."
            yield Fault(folder / "text", number, "unknown utterance", reason)
        else:
            yield Utterance(paths[entry.source], entry.target)


def _keyed(path: Path, what: str) -> Iterator[Pair | Fault]:
    """Yield the id and the rest of each line."""
    for number, line in enumerate(read_lines(path), start=1):
        if isinstance(line, Fault):
            yield line
            continue
        if not line.strip():
            yield Fault(path, number, "empty line", f"the line is empty, expected an id and {what}. Remove the line.")
            continue
        key, *rest = line.split(maxsplit=1)  # by spaces or tabs, as Kaldi does
        if not rest:
            yield Fault(path, number, "short line", f"has no {what} after the id {key!r}.")
        else:
            yield Pair(key, rest[0].strip())
