"""Traces of models in the format of Hugging Face: a folder on this machine, its own tokenizer, and `foci.record`.

    encoder only, decoder only    one pass over the text: each token attends to the text, or to the tokens before it
    encoder and decoder           the model's own search generates the target; then one pass over text and target
                                  records what the search attended to

Attentions are named as in foci: ``encoder.0.self``, ``decoder.0.self``, ``decoder.0.cross``. Nothing is downloaded, and
no code from the folder runs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foci.errors import ConfigError, DataError, MissingPackageError
from foci.recording import Recording, record
from foci.viz.trace import Axis, Trace

_WORD_BEGINS = ("Ġ", "▁")
"""How tokenizers mark a piece that a space goes before."""
_UNUSED = ("pooler", "lm_head", "score", "classifier")
"""Weights that attention does not depend on: a folder may lack them."""
_TOKENIZERS = ("tokenizer*", "vocab*", "*.model", "*.spm")
"""The files of which any tokenizer has at least one."""
_CROSS = ("cross", "encoder_attn", "EncDecAttention")
"""What modules of transformers that attend from decoder to encoder are called."""
_AXES = {
    "encoder.{}.self": ("source", "source"),
    "decoder.{}.self": ("target", "input"),
    "decoder.{}.cross": ("target", "source"),
}
"""An attention's name, with a place for the layer's number -> which axes attend to which."""


def read(folder: Path, texts: Sequence[str]) -> Iterator[Trace]:
    """What the model in the folder attends to in each text."""
    if not (folder / "config.json").is_file():
        raise DataError(f"{folder}: is no folder of a Hugging Face model (no config.json).")
    if not any(next(folder.glob(pattern), None) for pattern in _TOKENIZERS):  # transformers would make up an empty one
        raise DataError(f"{folder}: has no tokenizer. Save it there too: tokenizer.save_pretrained(folder).")
    library = _library()
    library.logging.set_verbosity_error()
    library.logging.disable_progress_bar()
    config = _load(library.AutoConfig, folder)
    tokenizer = _load(library.AutoTokenizer, folder)
    answers = bool(config.is_encoder_decoder)
    kind = library.AutoModelForSeq2SeqLM if answers else library.AutoModel
    model, found = _load(kind, folder, output_loading_info=True)
    missing = sorted(name for name in found["missing_keys"] if not any(part in name for part in _UNUSED))
    if missing:
        print(
            f"foci: {folder} lacks {len(missing)} weights of the model, such as {missing[0]}: they are random, and "
            "what is shown means little.",
            file=sys.stderr,
        )
    model.eval()
    for text in texts:
        inputs = _encoded(tokenizer, text, _longest(config, tokenizer))
        yield (_answered if answers else _only_read)(model, tokenizer, text, inputs)


@torch.no_grad()
def _only_read(model: Any, tokenizer: Any, text: str, inputs: dict[str, Tensor]) -> Trace:
    with record(model, detach=True) as tape:
        model(**inputs)
    handles = {f"{_stack(model)}.{number}.self": weights for number, weights in enumerate(_seen(tape).values())}
    axes = {"source": Axis.from_tokens(_labels(tokenizer, inputs["input_ids"]), "text")}
    axes_of = dict.fromkeys(handles, ("source", "source"))
    return Trace.from_handles(handles, axes, axes_of, text=text, metadata={"model": model.config.model_type})


@torch.no_grad()
def _answered(model: Any, tokenizer: Any, text: str, inputs: dict[str, Tensor]) -> Trace:
    produced = model.generate(**inputs, max_new_tokens=_longest_answer(model, inputs), do_sample=False)
    target = produced[:, :-1]  # the decoder reads its own input, which is one token behind what it produces
    with record(model, detach=True) as tape:
        model(**inputs, decoder_input_ids=target, use_cache=False)
    encoder = _prefix(model, model.get_encoder())
    handles, axes_of, counts = {}, {}, dict.fromkeys(_AXES, 0)
    for path, weights in _seen(tape).items():
        if path.startswith(encoder):
            kind = "encoder.{}.self"
        else:
            kind = "decoder.{}.cross" if any(word in path for word in _CROSS) else "decoder.{}.self"
        name = kind.format(counts[kind])
        counts[kind] += 1
        handles[name], axes_of[name] = weights, _AXES[kind]
    axes = {
        "source": Axis.from_tokens(_labels(tokenizer, inputs["input_ids"]), "source"),
        "target": Axis.from_tokens(_labels(tokenizer, produced[:, 1:]), "target"),
        "input": Axis.from_tokens(_labels(tokenizer, target), "target so far"),
    }
    answer = tokenizer.decode(produced[0], skip_special_tokens=True)
    return Trace.from_handles(handles, axes, axes_of, text=answer, metadata={"model": model.config.model_type})


def _seen(tape: Recording) -> Recording:
    if not tape:
        raise DataError(f"of this model nothing can be shown. {tape.why_empty}")
    return tape


def _stack(model: Any) -> str:
    """Return what foci calls the layers of a model that has only one side."""
    causal = getattr(model.config, "is_decoder", False) or any(
        getattr(module, "is_causal", False) for module in model.modules()
    )
    return "decoder" if causal else "encoder"


def _prefix(model: Any, part: Any) -> str:
    return next(f"{path}." for path, module in model.named_modules() if module is part)


def _longest(config: Any, tokenizer: Any) -> int:
    """Return the model's maximum number of tokens."""
    return int(min(getattr(config, "max_position_embeddings", None) or sys.maxsize, tokenizer.model_max_length))


def _longest_answer(model: Any, inputs: dict[str, Tensor]) -> int:
    """Return the length limit of foci's own search, twice the source plus 20, within the decoder's positions."""
    positions = getattr(model.config, "max_position_embeddings", None) or sys.maxsize
    return int(min(2 * inputs["input_ids"].shape[1] + 20, positions - 1))


def _encoded(tokenizer: Any, text: str, longest: int) -> dict[str, Tensor]:
    encoded = tokenizer(text, return_tensors="pt", return_token_type_ids=False)
    count = encoded["input_ids"].shape[1]
    if not count:
        raise ConfigError(f"the text {text!r} has no tokens for this model.")
    if count > longest:
        raise ConfigError(f"the text has {count} tokens, but the model reads at most {longest}. Shorten it.")
    return {name: encoded[name].long() for name in ("input_ids", "attention_mask") if name in encoded}


def _labels(tokenizer: Any, ids: Tensor) -> list[str]:
    """Return the tokens of one row as readable text: bytes decoded to letters, and ▁ at the start of a word."""
    labels = []
    for piece in tokenizer.convert_ids_to_tokens(ids[0].tolist()):
        if piece in tokenizer.all_special_tokens:
            labels.append(piece)
            continue
        text = tokenizer.convert_tokens_to_string([piece])
        labels.append(f"▁{text.lstrip(' ')}" if piece.startswith(_WORD_BEGINS) else text or piece)
    return labels


def _load(kind: Any, folder: Path, **options: Any) -> Any:
    try:
        return kind.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **options)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = re.split(r"\n|\.\s", str(error).strip(), maxsplit=1)[0]  # more is advice that does not fit here
        raise DataError(f"{folder}: {kind.__name__} of transformers cannot read it: {reason}") from error


def _library() -> Any:
    try:
        return import_module("transformers")
    except ImportError as error:
        raise MissingPackageError("--hf needs transformers. Install it with: pip install transformers") from error
