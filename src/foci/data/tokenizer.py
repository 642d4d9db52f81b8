"""Text to token ids and back, in any script: byte pairs, unigrams, bytes, characters or words, learned from any text.

The first four ids of every vocabulary are the symbols ``<pad> <bos> <eos> <unk>``. They never represent text: a
sentence that contains ``<pad>`` is cut at the brackets and decodes to itself.

Text is not normalized. A space belongs to the piece that follows it, so that decoding is exact, also for Chinese,
Japanese or Thai, which have no spaces. Byte pairs, unigrams and bytes contain the 256 bytes: a character that was not
in the training text is encoded as bytes, and every text decodes to itself. Characters and words have no bytes: unseen
ones become ``<unk>``.
"""

from __future__ import annotations

import codecs
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from foci.data.word_splitter import rule_of_texts
from foci.errors import ConfigError, DataError, MissingPackageError, unknown_name
from foci.files import read_text, write_text
from foci.scripts import ATTACHED, SPACELESS

if TYPE_CHECKING:
    import tokenizers

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SYMBOLS = ("<pad>", "<bos>", "<eos>", "<unk>")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
KINDS = ("bpe", "unigram", "bytes", "characters", "words")

# Letters, digits and other signs never share a piece. So no piece can look like a symbol or a byte, and a number
# is encoded digit by digit, so that a model can copy unseen numbers.
_PIECES = r" ?[\p{L}\p{M}]+| ?\p{N}| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s"
# In scripts without spaces between words each character with its marks is a word; a flag or a joined emoji is one sign.
_MARKS = rf"[\p{{M}}{ATTACHED}]*"
_SPACELESS = f"[{SPACELESS}]{_MARKS}(?:(?<=[\u1039\u17d2])[{SPACELESS}]{_MARKS})*"  # Burmese and Khmer stack letters
_SIGN = r"[^\s\p{L}\p{M}\p{N}]"
_SIGNS = f"(?:[\U0001f1e6-\U0001f1ff]{{2}}|{_SIGN}){_MARKS}(?:(?<=\u200d){_SIGN}{_MARKS})*"
_WORDS = rf" ?{_SPACELESS}| ?[\p{{L}}\p{{M}}&&[^{SPACELESS}]]+| ?\p{{N}}| ?{_SIGNS}|\s+(?!\S)|\s"
# Where such a script comes with spaces between words, it stays segmented.
_SEGMENTED = rf" ?[\p{{L}}\p{{M}}]+| ?\p{{N}}| ?{_SIGNS}|\s+(?!\S)|\s"
_CHARACTERS = r"[\s\S]"

_COVERAGE = 0.9995  # of all characters of the training text; the rare rest is encoded as bytes
_LONGEST_PIECE = 16
_CHUNK = 1000  # texts passed to the library at once
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class Encoding(NamedTuple):
    """The ids of a text, their pieces, and the character range of each piece."""

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]


class Tokenizer:
    """A vocabulary, and the rules that split text into it. Made by `train` or `load`; saved as one JSON file.

    Example:

        >>> tokenizer = Tokenizer.train(["low lower lowest", "new newer newest"], kind="bpe", size=300)
        >>> encoding = tokenizer.encode("the newest  word: 新")
        >>> tokenizer.decode(encoding.ids)
        'the newest  word: 新'
        >>> tokenizer.labels(tokenizer.encode("new lower").ids)
        ['ne', 'w', '▁lo', 'wer']
    """

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        vocabulary = tokenizer.get_vocab(with_added_tokens=False)
        self._pieces = sorted(vocabulary, key=vocabulary.__getitem__)
        self._texts = [_text_of(number, piece) for number, piece in enumerate(self._pieces)]

    @classmethod
    def train(cls, texts: Iterable[str], kind: str, size: int) -> Tokenizer:
        """Learn a vocabulary of at most ``size`` pieces; the same texts give the same vocabulary.

        Args:
            texts: any number of texts. They are read twice, so a generator is kept in memory as a list; give
                an object that can be iterated again (see `foci.data.pairs`) for more text than that.
            kind: ``bpe``, ``unigram``, ``bytes``, ``characters`` or ``words``; Chinese and others that come with spaces
                between words stay segmented by ``words``.
            size: with the symbols, and for ``bpe`` and ``unigram`` with the 256 bytes; ``bytes`` are always 260.
        """
        if kind not in KINDS:
            raise unknown_name("kind of tokenizer", kind, KINDS)
        fixed = SYMBOLS + BYTES if kind in ("bpe", "unigram") else SYMBOLS
        if size <= len(fixed) and kind != "bytes":
            bytes_too = " and 256 bytes, with which unseen characters are spelled" if len(fixed) > 4 else ""
            raise ConfigError(
                f"Tokenizer.train: size is {size}, expected at least {len(fixed) + 1} for {kind!r}: the vocabulary "
                f"holds 4 symbols{bytes_too}. Some thousand are usual."
            )
        texts = list(texts) if isinstance(texts, Iterator) else texts
        counts = _count_characters(texts)
        if not counts:
            raise DataError("Tokenizer.train: the corpus holds no text. Is the right file or field being read?")
        if kind == "bytes":
            return cls(_bytes())
        if kind == "bpe":
            return cls(_train_bpe(_without_rare(texts, counts, size - len(fixed)), size))
        if kind == "unigram":
            return cls(_train_unigram(_without_rare(texts, counts, size - len(fixed)), size))
        if kind == "characters":
            return cls(_train_words(texts, _CHARACTERS, size))
        return cls(_train_words(texts, _SEGMENTED if rule_of_texts(texts) == "spaces" else _WORDS, size))

    def __len__(self) -> int:
        return len(self._pieces)

    @property
    def note(self) -> str:
        """What is to be said of the words beside their kind: nothing, or that they are those between spaces."""
        segmented = json.loads(self._tokenizer.to_str())["pre_tokenizer"]["pattern"]["Regex"] == _SEGMENTED
        return ", as the texts are segmented" if segmented else ""

    @property
    def pieces(self) -> list[str]:
        """The pieces of the vocabulary without symbols and bytes; words and characters come by their frequency."""
        return [piece for piece in self._pieces[len(SYMBOLS) :] if not _is_byte(piece)]

    def encode(self, text: str) -> Encoding:
        """Return ids, pieces and character offsets of one text, without BOS and EOS."""
        encoded = self._tokenizer.encode(_encodable(text), add_special_tokens=False)
        return Encoding(encoded.ids, encoded.tokens, encoded.offsets)

    def encode_many(self, texts: Iterable[str]) -> Iterator[list[int]]:
        """Return only the ids of many texts, in order: much faster than one by one."""
        remaining = iter(texts)
        while chunk := [_encodable(text) for text in islice(remaining, _CHUNK)]:
            for encoded in self._tokenizer.encode_batch_fast(chunk, add_special_tokens=False):
                yield encoded.ids

    def encodings(self, texts: Iterable[str]) -> Iterator[Encoding]:
        """Return what `encode` does of many texts, in order."""
        remaining = iter(texts)
        while chunk := [_encodable(text) for text in islice(remaining, _CHUNK)]:
            for encoded in self._tokenizer.encode_batch(chunk, add_special_tokens=False):
                yield Encoding(encoded.ids, encoded.tokens, encoded.offsets)

    def id_of(self, piece: str) -> int | None:
        """Return the id of a piece of text; None if it is not in the vocabulary, as symbols and bytes never are."""
        number: int | None = self._tokenizer.token_to_id(piece)
        return None if number is None or number < len(SYMBOLS) else number

    def decode(self, ids: Iterable[int], own: Sequence[str] = ()) -> str:
        """Return the text of these ids, without ``<pad>``, ``<bos>``, ``<eos>``; ``<unk>`` and partial bytes are �.

        Ids from the size of the vocabulary on are the pieces ``own``; see `foci.data.copy_ids`.
        """
        size = len(self)
        parts = (own[n - size].encode() if self._known(n, len(own)) >= size else self._texts[n] for n in ids)
        return b"".join(parts).decode("utf-8", errors="replace")

    def text_stream(self) -> Callable[[int], str]:
        """Return a function from the next id to the text it completes, which is empty inside of a character."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return lambda number: decoder.decode(self._texts[self._known(number)])

    def labels(self, ids: Iterable[int], own: Sequence[str] = ()) -> list[str]:
        """Return one readable label for each id, for pictures; different ids have different labels.

        Ids from the size of the vocabulary on are the pieces ``own``.
        """
        size = len(self)
        return [_label(own[n - size] if self._known(n, len(own)) >= size else self._pieces[n]) for n in ids]

    def to_text(self) -> str:
        """Return the tokenizer as JSON, in the format of the tokenizers library."""
        text: str = self._tokenizer.to_str(pretty=True)
        return text

    @classmethod
    def from_text(cls, text: str, origin: str) -> Tokenizer:
        """Parse the result of `to_text`; ``origin`` is for messages."""
        library = _library()
        try:
            _check_parts(json.loads(text))
            tokenizer = library.Tokenizer.from_str(text)
        except Exception as error:  # the library raises nothing more precise
            raise DataError(
                f"{origin}: not a tokenizer that foci wrote, or a damaged one ({error}). Train it again."
            ) from error
        names = tuple(tokenizer.id_to_token(number) for number in range(len(SYMBOLS)))
        if names != SYMBOLS:
            raise DataError(
                f"{origin}: the first ids stand for {', '.join(map(str, names))}, expected {', '.join(SYMBOLS)}. "
                "This is a tokenizer of another program: train one with Tokenizer.train."
            )
        return cls(tokenizer)

    def save(self, path: str | Path) -> None:
        """Write the tokenizer to one JSON file."""
        write_text(Path(path), self.to_text())

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Read a file written by `save`."""
        try:
            saved = read_text(path)
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{path}: the tokenizer cannot be read ({error}).") from error
        return cls.from_text(saved, str(path))

    def _known(self, number: int, further: int = 0) -> int:
        size = len(self._pieces) + further
        if not 0 <= number < size:
            raise DataError(f"Tokenizer: id {number} is not in the vocabulary, expected 0 to {size - 1}.")
        return number


def _check_parts(saved: Any) -> None:
    """Raise unless the file has only the parts that foci writes: others could contain any regular expression."""
    pattern = saved["pre_tokenizer"]["pattern"]["Regex"]
    if pattern not in (_PIECES, _WORDS, _SEGMENTED, _CHARACTERS):
        raise ValueError("its regular expression is not one of foci's")
    for name in ("normalizer", "post_processor", "truncation", "padding"):
        if saved.get(name) is not None:
            raise ValueError(f"it has a {name}")
    if saved.get("added_tokens"):
        raise ValueError("it has added tokens")


def _library() -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise MissingPackageError("tokenizers need tokenizers. Install it with: pip install 'foci[text]'") from error
    return tokenizers


def _count_characters(texts: Iterable[str]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(_encodable(text))
    return counts


def _encodable(text: str) -> str:
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise DataError("Tokenizer: the text holds half a surrogate pair, which is no character. Decode it again.")
    return text


class _Rare(dict[int, str]):
    """A table for `str.translate`: characters of the alphabet stay, the others become a space."""

    def __missing__(self, number: int) -> str:
        return " "


def _without_rare(texts: Iterable[str], counts: Counter[str], room: int) -> Iterator[str]:
    """Yield the texts with only the characters of the vocabulary, at most ``room`` of them."""
    wanted = _COVERAGE * counts.total()
    alphabet = _Rare()
    covered = 0
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if covered >= wanted or len(alphabet) == room:
            break
        alphabet[ord(character)] = character
        covered += count
    if len(alphabet) == len(counts):
        return iter(texts)
    # The space that replaces a rare character must not take a place in the vocabulary.
    alphabet.setdefault(ord(" "), " ")
    if len(alphabet) > room:
        del alphabet[next(reversed([number for number in alphabet if number != ord(" ")]))]
    return (text.translate(alphabet) for text in texts)


def _train(model: Any, trainer: Any, texts: Iterable[str], pattern: str) -> dict[str, Any]:
    library = _library()
    tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = _cut(pattern)
    tokenizer.train_from_iterator(texts, trainer)
    learnt: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
    return learnt


def _train_bpe(texts: Iterable[str], size: int) -> tokenizers.Tokenizer:
    library = _library()
    fixed = SYMBOLS + BYTES
    trainer = library.trainers.BpeTrainer(
        vocab_size=size - len(fixed), min_frequency=2, max_token_length=_LONGEST_PIECE, show_progress=False
    )
    learnt = _train(library.models.BPE(), trainer, texts, _PIECES)
    pieces = sorted(learnt["vocab"], key=learnt["vocab"].__getitem__)
    vocabulary = {piece: number for number, piece in enumerate([*fixed, *pieces])}
    merges = [(left, right) for left, right in learnt["merges"]]
    model = library.models.BPE(vocabulary, merges, unk_token=SYMBOLS[UNK], byte_fallback=True)
    return _assemble(model, _PIECES)


def _bytes() -> tokenizers.Tokenizer:
    """Every character is spelled in bytes."""
    vocabulary = {piece: number for number, piece in enumerate(SYMBOLS + BYTES)}
    return _assemble(_library().models.BPE(vocabulary, [], unk_token=SYMBOLS[UNK], byte_fallback=True), _CHARACTERS)


def _train_unigram(texts: Iterable[str], size: int) -> tokenizers.Tokenizer:
    library = _library()
    fixed = SYMBOLS + BYTES
    trainer = library.trainers.UnigramTrainer(
        vocab_size=size - len(fixed), max_piece_length=_LONGEST_PIECE, show_progress=False
    )
    learnt = _train(library.models.Unigram(), trainer, texts, _PIECES)["vocab"]
    # The library sums in the order of a hash table, which changes from run to run: the last digits of its scores are
    # random, and so is the order of its small bonuses for characters that it had not kept.
    # In a tiny vocabulary they are not even finite.
    known = [(piece, score or 0.0) for piece, score in learnt]
    floor = round(min(score for _, score in known), 6)
    bonuses = floor + 1e-4 * (len(known) + 1)
    scores = {p: floor if len(p) == 1 and score < bonuses else round(score, 6) for p, score in known}
    # It may also learn a few more pieces than requested; characters are removed last.
    kept = sorted(scores, key=lambda piece: (len(piece) > 1, -scores[piece], piece))[: size - len(fixed)]
    pieces = sorted(((piece, scores[piece]) for piece in kept), key=lambda item: (-item[1], item[0]))
    model = library.models.Unigram([*((name, 0.0) for name in fixed), *pieces], UNK, True)
    return _assemble(model, _PIECES)


def _train_words(texts: Iterable[str], pattern: str, size: int) -> tokenizers.Tokenizer:
    library = _library()
    trainer = library.trainers.WordLevelTrainer(vocab_size=size - len(SYMBOLS), min_frequency=0, show_progress=False)
    learnt = _train(library.models.WordLevel(), trainer, texts, pattern)["vocab"]
    vocabulary = {piece: number for number, piece in enumerate([*SYMBOLS, *sorted(learnt, key=learnt.__getitem__)])}
    return _assemble(library.models.WordLevel(vocabulary, SYMBOLS[UNK]), pattern)


def _assemble(model: Any, pattern: str) -> tokenizers.Tokenizer:
    """Return the trained model without the library's special tokens, which would be found inside ordinary text."""
    library = _library()
    tokenizer: tokenizers.Tokenizer = library.Tokenizer(model)
    tokenizer.pre_tokenizer = _cut(pattern)
    tokenizer.decoder = library.decoders.Sequence([library.decoders.ByteFallback(), library.decoders.Fuse()])
    return tokenizer


def _cut(pattern: str) -> Any:
    library = _library()
    return library.pre_tokenizers.Split(library.Regex(pattern), "isolated")


def _text_of(number: int, piece: str) -> bytes:
    if number == UNK:
        return _REPLACEMENT.encode()
    if number < len(SYMBOLS):
        return b""
    return bytes([int(piece[3:5], 16)]) if _is_byte(piece) else piece.encode()


def _is_byte(piece: str) -> bool:
    return re.fullmatch(r"<0x[0-9A-F]{2}>", piece) is not None


_VISIBLE = {" ": "▁", "\n": "↵", "\t": "⇥", "\r": "␍"}


def _label(piece: str) -> str:
    if piece in SYMBOLS:
        return piece
    if _is_byte(piece):
        return f"⟨{piece[3:5]}⟩"
    label = "".join(map(_visible, piece))
    # A mark alone is drawn on a circle, as Unicode's own charts do.
    return f"◌{label}" if unicodedata.combining(piece[0]) or unicodedata.category(piece[0]) == "Mn" else label


def _visible(character: str) -> str:
    if character in _VISIBLE:
        return _VISIBLE[character]
    if character.isprintable():
        return character
    return f"⟨U+{ord(character):04X}⟩"
