"""Recordings of the real speech corpora as manifests: AN4 (cepstra), spoken digits joined to strings, yes and no."""

from __future__ import annotations

import json
import random
import tarfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy import ndarray

from foci.data.audio.files import Sound, Utterance, read_sound, write_sound
from recipes.data import folder

DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
UNSEEN = "theo"
"""The speaker of the digits who is kept out of training."""
TIMES = "times.json"
"""The file beside the manifests of joined digits: for each part and string, the second at which every digit ends."""
LONGEST = 8
"""Digits of the longest strings that the experiment on length trains on."""
STRINGS = {1: 100, 2: 60, 3: 60, 5: 60}
"""How many strings it is tested with, by how many times that length they have."""
_SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
_LONG = 7
"""Digits of the longest strings of the recipe."""
_GOES_ON = 2 / 3
"""How likely a string of the experiment on length goes on after each digit."""
_JOINED = 400
"""Strings of yes and no that are joined from the words of the training recordings."""
_HELD_OUT_SPEAKERS = 8
"""Speakers of AN4's training part that are validated with."""


def prepare_an4(out: Path) -> None:
    """Unpack the cepstra of AN4; some of the training speakers validate, the official test part tests."""
    target = out / "an4"
    if target.exists():
        return
    source, unfinished = folder("an4"), out / ".an4"
    unfinished.mkdir(parents=True, exist_ok=True)
    with tarfile.open(source / "an4_mfcc.tar.xz") as archive:
        for member, raw in _files(archive, ".mfc"):
            (unfinished / Path(member).name).write_bytes(raw)
    found: dict[str, list[Utterance]] = {"train": [], "valid": [], "test": []}
    for part in ("train", "test"):
        said = (source / "etc" / f"an4_{part}.transcription").read_text(encoding="utf-8").splitlines()
        for line in said:
            text, _, name = line.strip().rpartition(" ")
            name = name.strip("()")
            words = " ".join(word for word in text.split() if not word.startswith("<"))
            found[part].append(Utterance(f"{name}.mfc", words))
    speakers = sorted({_speaker(one) for one in found["train"]})
    held_out = set(random.Random(0).sample(speakers, _HELD_OUT_SPEAKERS))
    found["valid"] = [one for one in found["train"] if _speaker(one) in held_out]
    found["train"] = [one for one in found["train"] if _speaker(one) not in held_out]
    _write_manifests(unfinished, found)
    unfinished.replace(target)


def prepare_fsdd(out: Path) -> None:
    """Join spoken digits to strings: of seen speakers from recordings of both official parts, and of an unseen one."""
    target = out / "fsdd"
    if target.exists():
        return
    unfinished = out / ".fsdd"
    recordings = _digits(unfinished)
    chance = random.Random(0)
    seen = [speaker for speaker in _SPEAKERS if speaker != UNSEEN]
    made = {
        "train": _strings(recordings, seen, range(10, 50), 3000, (1, _LONG), chance),
        "valid": _strings(recordings, seen, range(5, 10), 200, (1, _LONG), chance),
        "test": _strings(recordings, seen, range(5), 300, (1, _LONG), chance),
        "unseen": _strings(recordings, [UNSEEN], range(50), 300, (1, _LONG), chance),
        "short": _strings(recordings, seen, range(10, 50), 3000, _forgetful, chance),
        "short_valid": _strings(recordings, seen, range(5, 10), 200, _forgetful, chance),
        **{
            f"times{factor}": _strings(recordings, seen, range(5), strings, (factor * LONGEST,) * 2, chance)
            for factor, strings in STRINGS.items()
        },
    }
    found: dict[str, list[Utterance]] = {}
    ends: dict[str, list[list[float]]] = {}
    for part, strings in made.items():
        found[part] = []
        ends[part] = []
        for number, (text, samples, seconds) in enumerate(strings):
            name = f"{part}-{number:04}.flac"
            write_sound(unfinished / name, Sound(samples, 8000))
            found[part].append(Utterance(name, text))
            ends[part].append(seconds)
    _write_manifests(unfinished, found)
    (unfinished / TIMES).write_text(json.dumps(ends), encoding="utf-8")
    unfinished.replace(target)


def prepare_yesno(out: Path) -> None:
    """Unpack the recordings of eight words each: half of them train and validate, half test.

    The words of the training recordings are also joined anew: from 25 transcripts a decoder learns those by heart.
    """
    target = out / "yesno"
    if target.exists():
        return
    unfinished = out / ".yesno"
    unfinished.mkdir(parents=True, exist_ok=True)
    utterances = []
    with tarfile.open(folder("yesno") / "waves_yesno.tar.xz") as archive:
        for member, raw in _files(archive, ".wav"):
            name = Path(member).name
            (unfinished / name).write_bytes(raw)
            utterances.append(
                Utterance(name, " ".join("yes" if sign == "1" else "no" for sign in Path(name).stem[::2]))
            )
    utterances.sort()
    random.Random(0).shuffle(utterances)
    parts = {"train": utterances[:25], "valid": utterances[25:30], "test": utterances[30:]}
    parts["train"] += _joined_anew(unfinished, parts["train"])
    _write_manifests(unfinished, parts)
    unfinished.replace(target)


def _joined_anew(where: Path, utterances: list[Utterance]) -> list[Utterance]:
    """Write strings of one to eight words that are cut out of these recordings; return them."""
    spoken: list[tuple[str, ndarray]] = []
    for one in utterances:
        words, sound = one.text.split(), read_sound(where / one.audio)
        spoken += zip(words, _cut_at_pauses(sound, len(words)))
    rate, chance, found = sound.rate, random.Random(1), []
    for number in range(_JOINED):
        chosen = [chance.choice(spoken) for _ in range(chance.randint(1, 8))]
        name = f"joined-{number:03}.flac"
        write_sound(where / name, Sound(np.concatenate([samples for _, samples in chosen]), rate))
        found.append(Utterance(name, " ".join(word for word, _ in chosen)))
    return found


def _cut_at_pauses(sound: Sound, count: int) -> list[ndarray]:
    """Cut a recording of ``count`` words between them; return nothing where no loudness tells so many apart."""
    frame = sound.rate // 100
    frames = sound.samples[: len(sound.samples) // frame * frame].reshape(-1, frame)
    loudness = np.convolve((frames**2).mean(axis=1), np.hanning(21), mode="same")
    for threshold in np.quantile(loudness, 0.9) * np.geomspace(0.5, 0.01, 50):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], (loudness > threshold).astype(int), [0]])))
        if len(edges) == 2 * count:
            pauses = edges[1:-1].reshape(-1, 2)
            return np.split(sound.samples, pauses.mean(axis=1).astype(int) * frame)
    return []


def _files(archive: tarfile.TarFile, ending: str) -> Iterator[tuple[str, bytes]]:
    for member in archive:
        file = archive.extractfile(member) if member.name.endswith(ending) else None
        if file is not None:
            yield member.name, file.read()


def _digits(unfinished: Path) -> dict[tuple[str, int], list[ndarray]]:
    """Return the recordings of each speaker and digit, in the order of their numbers."""
    unfinished.mkdir(parents=True, exist_ok=True)
    found: dict[tuple[str, int], dict[int, ndarray]] = {}
    scratch = unfinished / ".one.wav"
    with tarfile.open(folder("fsdd") / "recordings.tar.xz") as archive:
        for member, raw in _files(archive, ".wav"):
            digit, speaker, number = Path(member).stem.split("_")
            scratch.write_bytes(raw)
            found.setdefault((speaker, int(digit)), {})[int(number)] = read_sound(scratch).samples
    scratch.unlink()
    return {key: [recordings[number] for number in sorted(recordings)] for key, recordings in found.items()}


def _strings(
    recordings: dict[tuple[str, int], list[ndarray]],
    speakers: list[str],
    numbers: range,
    count: int,
    lengths: tuple[int, int] | Callable[[random.Random], int],
    chance: random.Random,
) -> Iterator[tuple[str, ndarray, list[float]]]:
    """Yield strings of digits, each of one speaker, with pauses of up to 0.2 s between them.

    Each comes with the second at which every digit ends, its pause included.
    """
    for _ in range(count):
        speaker = chance.choice(speakers)
        length = lengths(chance) if callable(lengths) else chance.randint(*lengths)
        digits = [chance.randrange(10) for _ in range(length)]
        pieces = []
        for digit in digits:
            pause = np.zeros(int(8000 * chance.uniform(0.02, 0.2)), np.float32)
            pieces += [recordings[speaker, digit][chance.choice(numbers)], pause]
        ends = np.cumsum([len(piece) for piece in pieces])[1::2] / 8000
        yield " ".join(DIGITS[digit] for digit in digits), np.concatenate(pieces), ends.round(3).tolist()


def _forgetful(chance: random.Random) -> int:
    """Return a length whose end cannot be told by counting: after each digit a string goes on with the same chance.

    Were all lengths as frequent, a decoder would learn to count, and to stop after the longest.
    """
    while True:
        length = 1
        while chance.random() < _GOES_ON:
            length += 1
        if length <= LONGEST:
            return length


def _speaker(utterance: Utterance) -> str:
    return Path(utterance.audio).stem.split("-")[1]


def _write_manifests(where: Path, parts: dict[str, list[Utterance]]) -> None:
    for part, utterances in parts.items():
        lines: Iterable[str] = (json.dumps(one._asdict()) + "\n" for one in utterances)
        (where / f"{part}.jsonl").write_text("".join(lines), encoding="utf-8")
