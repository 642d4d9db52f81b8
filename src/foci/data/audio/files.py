"""Sound files as samples: wav, flac, ogg, mp3 and all else that libsndfile reads, at any rate, mono or stereo.

A file is read in blocks and never beyond the longest duration that the caller allows, whatever its header claims: a few
kilobytes of FLAC can expand to gigabytes of silence. Whatever makes a file unusable is an `AudioError` with a kind of
two words, by which unusable files are counted.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from foci.data.splits import same_content
from foci.errors import DataError, MissingPackageError
from foci.files import open_regular

LOWEST_RATE, HIGHEST_RATE = 1_000, 768_000
"""Samples per second that a header may claim."""
SOUND_ENDINGS = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aif", ".aiff", ".aifc", ".au", ".sph")
"""Endings of names, in lower case, by which recordings are found in a folder."""
MOST_CHANNELS = 32
_BLOCK = 1 << 16
"""Samples of each channel that are decoded at a time."""
_SHORT_CHUNK = re.compile(r"^\s*(?:data|SSND) : (\d+) \(should be (\d+)\)", re.MULTILINE)
_UNKNOWN_LENGTH = 0x7FFF0000
"""Bytes; headers that claim about 2 or 4 GB mean that the length was not known."""
_SILENCE = 1e-4
"""A recording is silent where no sample is louder, on a scale from −1 to 1: about three steps of 16 bits."""


class AudioError(DataError):
    """A recording that cannot be used; ``kind`` is why, in two or three words."""

    def __init__(self, where: str, kind: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.kind = kind


class Utterance(NamedTuple):
    """A recording, by the path of its file or another name of it, and what is said in it."""

    audio: str
    text: str


class Sound(NamedTuple):
    """Samples of one channel, from −1 to 1, and their number per second."""

    samples: Float[ndarray, " N"]
    rate: int

    @property
    def seconds(self) -> float:
        """The duration."""
        return len(self.samples) / self.rate


class Header(NamedTuple):
    """What a sound file claims of itself; ``seconds`` is infinite where it does not say.

    ``present`` is the share of the claimed bytes that the file has; less than 1 where it was cut off.
    """

    rate: int
    channels: int
    seconds: float
    present: float = 1.0


def read_header(path: str | Path) -> Header:
    """Return what the header of a sound file claims, after checking that it is not absurd.

    Raises:
        AudioError: the file is missing, no sound file, or has an absurd header.
    """
    with _opened(path) as file:
        return _header(path, file)


def read_sound(path: str | Path, *, max_seconds: float = 4 * 3600.0) -> Sound:
    """Read a sound file whole; arguments and errors are those of `stream_sound`."""
    blocks = list(stream_sound(path, max_seconds=max_seconds))
    return Sound(np.concatenate([block.samples for block in blocks]), blocks[0].rate)


def stream_sound(path: str | Path, *, max_seconds: float = 4 * 3600.0) -> Iterator[Sound]:
    """Yield a sound file in blocks; several channels are averaged.

    Args:
        path: the file.
        max_seconds: more is never decoded: a longer file is an error.

    Raises:
        AudioError: the file is missing, broken, empty, longer than ``max_seconds``, or has an absurd header.
    """
    with _opened(path) as file:
        header = _header(path, file)
        if header.seconds < math.inf and header.seconds > max_seconds:
            raise _too_long(path, header.seconds, max_seconds)
        most = math.ceil(max_seconds * header.rate)
        count = 0
        for block in _blocks(path, file):
            count += len(block)
            if count > most:
                raise _too_long(path, math.inf, max_seconds)
            if not np.isfinite(block).all():
                raise AudioError(str(path), "broken file", "has samples that are not finite. Convert it again.")
            yield Sound(block.mean(axis=1, dtype=np.float32), header.rate)
    if count == 0:
        raise AudioError(str(path), "empty file", "has no samples, expected a recording.")


def same_samples(paths: Sequence[str]) -> list[str | None]:
    """Return one key for all files of other bytes that have the same samples, such as a WAV and a FLAC of a recording.

    Only recordings whose headers claim the same duration are decoded. None is the key of all others.
    """
    return same_content(paths, _claimed, _sample_digest)


def _claimed(path: str) -> tuple[int, float] | None:
    try:
        header = read_header(path)
    except AudioError:
        return None  # it is reported when it is read
    return header.rate, round(header.seconds, 3)


def _sample_digest(path: str) -> str | None:
    digest = hashlib.blake2b(digest_size=16)
    try:
        for block in stream_sound(path):
            digest.update(block.samples.tobytes())
    except AudioError:
        return None
    return digest.hexdigest()


def file_size(path: str | Path) -> int:
    """Return the number of bytes of a file that can be read.

    Raises:
        AudioError: it is missing, out of reach, or no regular file.
    """
    try:
        with open_regular(path) as file:
            return os.fstat(file.fileno()).st_size
    except (FileNotFoundError, NotADirectoryError, ValueError) as error:  # ValueError for a name with a zero byte
        raise AudioError(str(path), "missing file", "there is no such file.") from error
    except OSError as error:
        raise AudioError(str(path), "unreadable file", f"cannot be opened ({error.strerror}).") from error


def check_audible(where: str, loudest: float) -> None:
    """Raise an AudioError for a recording of silence; ``loudest`` is its largest absolute sample."""
    if loudest <= _SILENCE:
        raise AudioError(where, "silent file", f"is silent: its loudest sample is {loudest:.1e} of 1.")


def write_sound(path: str | Path, sound: Sound) -> Path:
    """Write a sound file of 16 bits; the format goes by the ending, such as .wav or .flac."""
    library = _library()
    try:
        library.write(str(path), np.clip(sound.samples, -1.0, 1.0), sound.rate, subtype="PCM_16")
    except (OSError, library.LibsndfileError, TypeError, ValueError) as error:
        raise DataError(f"{path}: cannot be written ({error}).") from error
    return Path(path)


def _header(path: str | Path, file: Any) -> Header:
    """Check a header: what it claims decides how much is read."""
    rate, channels, frames = int(file.samplerate), int(file.channels), int(file.frames)
    if not LOWEST_RATE <= rate <= HIGHEST_RATE or not 1 <= channels <= MOST_CHANNELS:
        raise AudioError(
            str(path),
            "absurd header",
            f"claims {rate:,} samples per second in {channels} channels, expected {LOWEST_RATE:,} to {HIGHEST_RATE:,} "
            f"and at most {MOST_CHANNELS}. Convert it again.",
        )
    known = 0 <= frames < 1 << 62  # libsndfile gives 2**63 - 1 where a stream does not say
    return Header(rate, channels, frames / rate if known else math.inf, _present(file.extra_info))


def _present(parsed: str) -> float:
    """Return the share of the claimed samples that a wav or aiff file has, by what libsndfile says while parsing it."""
    found = _SHORT_CHUNK.search(parsed)
    claimed, present = (int(found[1]), int(found[2])) if found else (0, 0)
    # A program that writes to a pipe cannot know the length and claims the largest one: nothing is missing there.
    return present / claimed if 0 <= present < claimed < _UNKNOWN_LENGTH else 1.0


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    library = _library()
    if file_size(path) == 0:
        raise AudioError(str(path), "empty file", "is empty, expected a recording.")
    try:
        # As bytes, since a name need not be text in the encoding of the system; Windows has text only.
        file = library.SoundFile(str(path) if os.name == "nt" else os.fsencode(path))
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raise AudioError(
            str(path), "broken file", f"is no sound file that can be read ({error}). Convert it to wav or flac."
        ) from error
    with file:
        yield file


def _blocks(path: str | Path, file: Any) -> Iterator[ndarray]:
    while True:
        try:
            block = file.read(_BLOCK, dtype="float32", always_2d=True)
        except (OSError, RuntimeError) as error:
            raise AudioError(str(path), "broken file", f"cannot be decoded ({error}). Convert it again.") from error
        if len(block) == 0:
            return
        yield block


def _too_long(path: str | Path, seconds: float, max_seconds: float) -> AudioError:
    length = f"lasts {seconds:,.1f} s" if seconds < math.inf else "goes on after its end"
    return AudioError(
        str(path), "over-long file", f"{length}, expected at most {max_seconds:g} s. Cut it, or raise the limit."
    )


def _library() -> Any:
    try:
        import soundfile
    except (ImportError, OSError) as error:  # OSError where libsndfile itself is missing
        raise MissingPackageError("sound files need soundfile. Install it with: pip install 'foci[audio]'") from error
    return soundfile
