"""The model of tasks that read one text and write another: any encoder with any decoder with any attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from foci.errors import unknown_name
from foci.models.options.decoders import DecoderOptions, RecurrentDecoderOptions
from foci.models.options.seq2seq import SEQ2SEQ_KINDS, Seq2SeqOptions, seq2seq_preset
from foci.models.options.text_encoders import RecurrentTextEncoderOptions, TextEncoderOptions
from foci.settings import settings

_RADIUS = 10
"""D of Luong's windows, as in the paper."""


@settings
class Seq2SeqModelConfig(Seq2SeqOptions):
    """Which model: an encoder, a decoder, and the attention of the decoder to the text."""

    kind: Literal["transformer", "rnn", "conv", "abs"] = "rnn"
    """Shorthand for the kinds of encoder and decoder; abs is the attention-based summarizer of Rush (2015)."""
    preset: Literal[
        "tiny",
        "small",
        "base",
        "pointer",
        "sutskever",
        "cho",
        "rnnsearch",
        "luong",
        "luong_local",
        "see",
        "wmt_en_de",
        "paper",
    ] = "tiny"
    """The sizes of both parts by name, of which each kind has some; pointer also copies, see is See (2017)."""
    encoder: Annotated[TextEncoderOptions, Field(discriminator="kind")] = RecurrentTextEncoderOptions()
    """The encoder of the source."""
    decoder: Annotated[DecoderOptions, Field(discriminator="kind")] = RecurrentDecoderOptions()
    """The decoder of the target."""


def seq2seq_tables(model: Mapping[str, Any], kind: str, preset: str) -> dict[str, Any]:
    """Return the options that kind, preset and kinds of the parts stand for.

    Args:
        model: the given settings of the model.
        kind: the default kind.
        preset: the default preset.
    """
    tables = {"kind": model.get("kind", kind), "preset": model.get("preset", preset)}
    if tables["kind"] not in SEQ2SEQ_KINDS:
        raise unknown_name("kind of model", tables["kind"], SEQ2SEQ_KINDS)
    given = {
        name: part if isinstance(part := model.get(name), Mapping) else {}
        for name in ("encoder", "decoder", "attention")
    }
    encoder, decoder = SEQ2SEQ_KINDS[tables["kind"]]
    tables |= seq2seq_preset(
        str(tables["preset"]), str(given["encoder"].get("kind", encoder)), str(given["decoder"].get("kind", decoder))
    )
    if given["decoder"].get("variant") in ("sutskever", "cho"):
        tables["attention"] = {}
    if given["attention"].get("focus") in ("local_m", "local_p"):
        tables["attention"] = {"radius": _RADIUS, **tables["attention"]}
    return tables
