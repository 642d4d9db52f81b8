"""Morse code as sound, without a download: messages keyed at varied speeds, pitches, noise, fading and hand jitter.

    morse:CQ DE FOCI        names the sound of a message wherever a sound file could be named
    morse/7:CQ DE FOCI      the same message keyed by another hand, under other conditions

All conditions are drawn from the message and the number after the stroke, so that a name always gives the same samples.
A dot lasts 1.2 / speed seconds (speed in words per minute), a dash three dots, the gap inside of a letter one, between
letters three, and between words seven.
"""

from __future__ import annotations

import hashlib
import random
import re
from string import ascii_uppercase, digits
from typing import NamedTuple

import numpy as np

from foci.data.audio.files import Sound, Utterance
from foci.errors import ConfigError, DataError, check_positive, unknown_name

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789?/="
_SIGNS = (
    *(".-", "-...", "-.-.", "-..", ".", "..-.", "--.", "....", "..", ".---", "-.-", ".-..", "--"),
    *("-.", "---", ".--.", "--.-", ".-.", "...", "-", "..-", "...-", ".--", "-..-", "-.--", "--.."),
    *("-----", ".----", "..---", "...--", "....-", ".....", "-....", "--...", "---..", "----."),
    *("..--..", "-..-.", "-...-"),
)
CODE = dict(zip(_LETTERS, _SIGNS, strict=True))
RATE = 8000
SPLITS = ("train", "valid", "test")
PREFIX = re.compile(r"morse(?:/(\d{1,9}))?:", re.ASCII)
LONGEST_MESSAGE = 1000

_WORDS = (
    *("CQ", "DE", "QTH", "QRM", "QSL", "QSO", "QRZ", "RST", "73", "88", "HW?", "TNX", "FER", "CALL", "NAME", "ANT"),
    *("WX", "RAIN", "WIND", "SUN", "COLD", "SHIP", "PORT", "NORTH", "SOUTH", "EAST", "WEST", "HELP", "OVER", "GOOD"),
    *("DAY", "NIGHT", "TIME", "RADIO", "KEY", "WAVE", "BAND", "JAZZ", "FOX", "QUIZ", "VEX", "LOG", "BOX", "YES", "NO"),
)
_RAMP = 0.005
"""Seconds in which a tone rises and falls, so that it does not click."""


class Keying(NamedTuple):
    """The conditions under which a message is keyed and heard.

    Attributes:
        speed: words per minute.
        pitch: of the tone, in hertz.
        noise: deviation of the noise; the tone's is 0.7.
        fading: how much the tone fades, from 0 (not) to 1 (vanishes at times), and how often per second.
        jitter: deviation of each duration, as a share of it.
    """

    speed: float
    pitch: float
    noise: float
    fading: tuple[float, float]
    jitter: float


def is_morse(address: str) -> bool:
    """Return whether a text names a sound of this module rather than a file."""
    return PREFIX.match(address) is not None


def keying(seed: int, message: str) -> Keying:
    """Return the conditions of a message."""
    chance = _chance("keying", seed, message)
    return Keying(
        speed=chance.uniform(20.0, 32.0),
        pitch=chance.uniform(400.0, 1000.0),
        noise=0.02 * 15.0 ** chance.random(),  # from 0.02 to 0.3: 31 to 7 dB below the tone
        fading=(chance.uniform(0.0, 0.6), chance.uniform(0.1, 0.6)),
        jitter=chance.uniform(0.0, 0.1),
    )


class Message(NamedTuple):
    """A message that ``morse:MESSAGE`` names, and the characters of it that have no code and are left out."""

    seed: int
    text: str
    left_out: str


def message_of(address: str) -> Message:
    """Return the message that ``morse:MESSAGE`` names.

    Raises:
        DataError: no character of it has a code, or it is too long.

    Example:
        >>> message_of("morse/3:sos!")
        Message(seed=3, text='SOS', left_out='!')
    """
    found = PREFIX.match(address)
    if found is None:
        raise ConfigError(f"morse: the sound is called {address!r}, expected morse:MESSAGE.")
    given = address[found.end() :].upper()
    text = " ".join("".join(letter for letter in given if letter in CODE or letter.isspace()).split())
    if not text or len(text) > LONGEST_MESSAGE:
        raise DataError(
            f"morse: {len(text)} characters of the message have a code, expected 1 to {LONGEST_MESSAGE} of {_LETTERS}."
        )
    left_out = dict.fromkeys(letter for letter in given if letter not in CODE and not letter.isspace())
    return Message(int(found[1] or 0), text, "".join(left_out))


def sound_of(address: str) -> Sound:
    """Return the sound that ``morse:MESSAGE`` names.

    Example:
        >>> sound = sound_of("morse:SOS")
        >>> sound.rate, 1.0 < sound.seconds < 4.0
        (8000, True)
    """
    seed, text, _ = message_of(address)
    return render(text, keying(seed, text), seed)


def render(message: str, key: Keying, seed: int = 0) -> Sound:
    """Return a message as sound; the same arguments give the same samples."""
    chance = np.random.default_rng(_chance("render", seed, message).getrandbits(64))
    dot = 1.2 / key.speed
    marks: list[tuple[bool, float]] = [(False, 0.1 + 0.3 * chance.random())]
    for letter in message:
        if letter == " ":
            marks.append((False, 4 * dot))  # with the gaps of the letters on both sides it is seven
            continue
        for sign in CODE[letter]:
            marks += [(True, dot if sign == "." else 3 * dot), (False, dot)]
        marks.append((False, 2 * dot))
    marks.append((False, 0.1 + 0.3 * chance.random()))
    # No hand is so unsteady that a dash becomes a dot.
    factors = 1 + key.jitter * chance.standard_normal(len(marks)).clip(-2.5, 2.5)
    lengths = [max(1, int(RATE * seconds * factor)) for (_, seconds), factor in zip(marks, factors)]
    gate = np.repeat([float(on) for on, _ in marks], lengths)
    ramp = np.hanning(2 + int(2 * _RAMP * RATE))
    gate = np.convolve(gate, ramp / ramp.sum(), mode="same")
    time = np.arange(len(gate)) / RATE
    depth, frequency = key.fading
    fade = 1 - depth * (0.5 - 0.5 * np.cos(2 * np.pi * (frequency * time + chance.random())))
    tone = np.sin(2 * np.pi * (key.pitch * time + chance.random()))
    samples = 0.5 * (gate * fade * tone + key.noise * chance.standard_normal(len(gate)))
    return Sound(samples.clip(-1, 1).astype(np.float32), RATE)


def morse_messages(split: str, size: int, *, seed: int = 0, most_words: int = 3) -> list[Utterance]:
    """Return messages of one to ``most_words`` words, call signs and numbers, each with the name of its sound.

    The split of a message depends on the message alone: what is trained on is never validated or evaluated with.

    Args:
        split: "train", "valid" or "test".
        size: number of messages, all different.
        seed: of the choice.
        most_words: the largest number of words.

    Example:
        >>> [one.audio == f"morse:{one.text}" for one in morse_messages("test", 2)]
        [True, True]
    """
    check_positive("morse_messages", size=size, most_words=most_words)
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    chance = _chance("messages", seed, split)
    found: dict[str, None] = {}
    while len(found) < size:
        message = " ".join(_word(chance) for _ in range(chance.randint(1, most_words)))
        if _split_of(message) == split:
            found.setdefault(message)
    prefix = f"morse/{seed}:" if seed else "morse:"
    return [Utterance(f"{prefix}{message}", message) for message in found]


def _word(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.3:
        return chance.choice(_WORDS)
    if kind < 0.4:  # a call sign
        letters = chance.choices(ascii_uppercase, k=4)
        return "".join([*letters[:2], chance.choice(digits), *letters[2:]])
    if kind < 0.5:
        return "".join(chance.choices(digits, k=chance.randint(1, 4)))
    # Any characters, and many short ones: the rarer ones are learned from these.
    return "".join(chance.choices(_LETTERS, k=min(chance.randint(1, 5), chance.randint(1, 5))))


def _split_of(message: str) -> str:
    share = int.from_bytes(hashlib.sha256(message.encode()).digest()[:4]) / (1 << 32)
    return "test" if share < 0.1 else "valid" if share < 0.2 else "train"


def _chance(*parts: object) -> random.Random:
    """Return a generator that depends on these values alone."""
    return random.Random(hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "surrogatepass")).digest())
