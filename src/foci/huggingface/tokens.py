"""Tokens of Hugging Face tokenizers: ids of texts and chats, and ids as the labeled positions of an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from foci.errors import ConfigError
from foci.viz.axis import Axis
from foci.viz.words import BEGINS, Word, words_of_labels, words_of_spans


class Encoded(NamedTuple):
    """What goes into a model: ids and mask, ``(1, L)``, and what text each token stands for, where that is known.

    Of a model that reads images too, there are these, and more inputs.
    """

    inputs: dict[str, Tensor]
    text: str
    spans: list[tuple[int, int]] | None
    images: Sequence[Any] = ()


def encoded(tokenizer: Any, text: str, *, is_chat: bool = False) -> Encoded:
    """Return the tokens of a text; a chat has its special tokens already."""
    kept = tokenizer(
        text,
        return_tensors="pt",
        return_token_type_ids=False,
        return_offsets_mapping=tokenizer.is_fast,
        add_special_tokens=not is_chat,
    )
    spans = [tuple(span) for span in kept["offset_mapping"][0].tolist()] if "offset_mapping" in kept else None
    if not kept["input_ids"].shape[1]:
        raise ConfigError(f"the text {text!r} has no tokens for this model.")
    inputs = {name: kept[name].long() for name in ("input_ids", "attention_mask") if name in kept}
    return Encoded(inputs, text, spans)


def in_chat(tokenizer: Any, content: str | list[dict[str, str]], system: str | None) -> str:
    """Return what a model reads that is asked something in a chat.

    Args:
        tokenizer: with the chat template; of a model that reads images too, its processor.
        content: what the user says.
        system: what the system says before, if anything.
    """
    if not getattr(tokenizer, "chat_template", None):
        raise ConfigError(
            "--chat: the tokenizer of this model has no chat template, as models have that were trained for chats. "
            "Leave --chat out: the text is then read as it is."
        )
    said: list[dict[str, Any]] = [{"role": "user", "content": content}]
    if system is not None:
        own: Any = system if isinstance(content, str) else [{"type": "text", "text": system}]
        said.insert(0, {"role": "system", "content": own})
    try:
        return str(tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True))
    except Exception as error:  # templates are programs of their own, and raise what they like
        raise ConfigError(f"--chat: the chat template of this model does not accept these messages: {error}") from error


def axis_of(tokenizer: Any, ids: Tensor, title: str, encoded: Encoded | None = None) -> Axis:
    """Return the ids of one text, ``(L,)``, as an axis that knows its words and special tokens.

    Args:
        tokenizer: that the ids are of.
        ids: of the tokens.
        title: of the axis.
        encoded: what these tokens, or the first of them, were made of; it tells words more exactly than labels.
    """
    labels = labels_of(tokenizer, ids)
    special = special_of(tokenizer, ids)
    return Axis("tokens", tuple(labels), title, words=_words(labels, special, encoded), special=tuple(special))


def _words(labels: list[str], special: Sequence[int], encoded: Encoded | None) -> tuple[Word, ...]:
    if encoded is None or encoded.spans is None:
        return words_of_labels(labels, set(special))
    spans = [(0, 0) if place in special else span for place, span in enumerate(encoded.spans)]
    count = len(spans)
    rest = words_of_labels(labels[count:], {place - count for place in special})
    return (*words_of_spans(encoded.text, spans, labels[:count]), *rest)


def special_of(tokenizer: Any, ids: Tensor) -> list[int]:
    """Return the positions of special tokens; an unknown word is none."""
    added = tokenizer.added_tokens_decoder
    special = {number for number in added if added[number].special} | {*tokenizer.all_special_ids}
    special -= {tokenizer.unk_token_id}
    return [place for place, number in enumerate(ids.tolist()) if number in special]


def labels_of(tokenizer: Any, ids: Tensor) -> list[str]:
    """Return tokens as readable text: ▁ at the start of a word, and bytes of incomplete characters as ⟨E7⟩."""
    labels = []
    for number, piece in zip(ids.tolist(), tokenizer.convert_ids_to_tokens(ids.tolist())):
        if number in tokenizer.all_special_ids or piece is None:  # a model may have more ids than its tokenizer
            labels.append(f"#{number}" if piece is None else piece)
            continue
        text = tokenizer.convert_tokens_to_string([piece])
        if "\N{REPLACEMENT CHARACTER}" in text:
            text = _spelled(piece) or text
        labels.append(f"▁{text.lstrip(' ')}" if piece.startswith(BEGINS) else text or piece)
    return labels


def _spelled(piece: str) -> str:
    """Return a piece of bytes with those that are no whole character written as numbers; empty if it is none."""
    if len(piece) == 6 and piece.startswith("<0x"):
        return f"⟨{piece[3:5]}⟩"
    table = _byte_alphabet()
    if not all(character in table for character in piece):
        return ""
    raw = bytes(table[character] for character in piece)
    text = raw.decode("utf-8", errors="surrogateescape")
    return "".join(f"⟨{ord(one) - 0xDC00:02X}⟩" if "\udc80" <= one <= "\udcff" else one for one in text)


def _byte_alphabet() -> dict[str, int]:
    """Return the bytes by the characters that byte-level BPE writes them with.

    Printable characters of Latin-1 stand for themselves, the other bytes, in order, for those from U+0100 on.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + place): byte for place, byte in enumerate(others)}
