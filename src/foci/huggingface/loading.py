"""A model and its tokenizer from a folder, or from the local cache by the name that they have on the Hugging Face Hub.

Nothing is downloaded, and no code from the folder runs.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from foci.errors import ConfigError, DataError, MissingPackageError
from foci.huggingface.grid_processor import GridProcessor
from foci.huggingface.options import ReadOptions

_SAYS = "lm_head"
"""Weights that tokens are generated with."""
_UNUSED = ("pooler", _SAYS, "score", "classifier")
"""Weights that attention does not depend on: a folder may lack them."""
_TOKENIZERS = ("tokenizer*", "vocab*", "*.model", "*.spm")
"""The files of which any tokenizer has at least one."""
_HEADS = {
    "ForCausalLM": "AutoModelForCausalLM",
    "LMHeadModel": "AutoModelForCausalLM",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForSequenceClassification": "AutoModelForSequenceClassification",
}
"""What models are called that say tokens or one class, and how they are loaded."""
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")
"""How models are named on the Hub: "gpt2", "google-bert/bert-base-uncased"."""


@dataclass(frozen=True, eq=False)
class Loaded:
    """A model in evaluation mode and its tokenizer."""

    model: Any
    tokenizer: Any
    processor: Any = None  # of text and images together

    @property
    def answers(self) -> bool:
        """Whether it has an encoder and a decoder, so that it always generates."""
        return bool(self.model.config.is_encoder_decoder)

    @property
    def is_causal(self) -> bool:
        """Whether it goes on with a text; most of these read only what is before a token."""
        return (
            self.processor is not None
            or bool(getattr(self.model.config, "is_decoder", False))
            or any(getattr(module, "is_causal", False) for module in self.model.modules())
        )

    @property
    def longest(self) -> int:
        """The maximum number of tokens."""
        positions = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return int(min(positions or sys.maxsize, self.tokenizer.model_max_length))


def load(name: str | Path, options: ReadOptions, *, for_score: bool = False) -> Loaded:
    """Return the model of this folder or name; of what is missing, say where to get it.

    Args:
        name: its folder, or its name on the Hub.
        options: how it is read.
        for_score: load what it says tokens or classes with, too, if its folder has that.
    """
    library = _library("transformers")
    library.logging.set_verbosity_error()
    library.logging.disable_progress_bar()
    folder = _folder(str(name))
    if not any(next(folder.glob(pattern), None) for pattern in _TOKENIZERS):  # transformers would make up an empty one
        raise DataError(f"{name}: has no tokenizer. Save it there too: tokenizer.save_pretrained(folder).")
    config = _part(library.AutoConfig, folder)
    tokenizer = _part(library.AutoTokenizer, folder)
    reads_images = type(config) in library.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING
    if options.image and not reads_images:
        raise ConfigError(f"{name}: {config.model_type} reads no images with its text. Leave image out.")
    processor = _processor(library, folder, config, tokenizer) if options.image else None
    kind = library.AutoModel if options.generate is None else library.AutoModelForCausalLM
    if for_score and options.generate is None:
        saved = (config.architectures or [""])[0]
        kind = getattr(library, next((auto for end, auto in _HEADS.items() if saved.endswith(end)), "AutoModel"))
    kind = library.AutoModelForSeq2SeqLM if config.is_encoder_decoder else kind
    if reads_images and (options.image or options.generate is not None):
        kind = library.AutoModelForImageTextToText
    model, found = _part(kind, folder, output_loading_info=True)
    says = options.generate is not None or config.is_encoder_decoder
    unused = [part for part in _UNUSED if not (says and part == _SAYS)]
    missing = sorted(key for key in found["missing_keys"] if not any(part in key for part in unused))
    if missing:
        print(
            f"foci: {name} lacks {len(missing)} weights of the model, such as {missing[0]}: they are random, and "
            "what is shown means little.",
            file=sys.stderr,
        )
    return Loaded(model.eval(), tokenizer, processor)


def _folder(name: str) -> Path:
    """Return the folder of this path, or that of the local cache with the files of this name."""
    folder = Path(name)
    if (folder / "config.json").is_file():
        return folder
    if folder.exists() or not _HUB_NAME.fullmatch(name):
        raise DataError(f"{name}: is no folder of a Hugging Face model (no config.json).")
    hub = _library("huggingface_hub")
    try:
        return Path(hub.snapshot_download(name, local_files_only=True))
    except (OSError, ValueError) as error:
        raise DataError(
            f"{name}: is no folder, and the local cache {hub.constants.HF_HUB_CACHE} has no model of this name. foci "
            f"downloads nothing. Where there is a network: hf download {name}. Or copy the model's folder to this "
            "machine and pass its path."
        ) from error


def _processor(library: Any, folder: Path, config: Any, tokenizer: Any) -> Any:
    """Return what puts images into texts; where its videos need torchvision, which is not there, for images alone."""
    try:
        return _part(library.AutoProcessor, folder)
    except DataError as error:
        images = _part(library.AutoImageProcessor, folder) if isinstance(error.__cause__, ImportError) else None
        if not hasattr(images, "merge_size"):
            raise
        return GridProcessor(images, tokenizer, tokenizer.convert_ids_to_tokens(config.image_token_id))


def _part(kind: Any, folder: Path, **options: Any) -> Any:
    try:
        return kind.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **options)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = re.split(r"\n|\.\s", str(error).strip(), maxsplit=1)[0]  # more is advice that does not fit here
        raise DataError(f"{folder}: {kind.__name__} of transformers cannot read it: {reason}") from error


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingPackageError("--hf needs transformers. Install it with: pip install transformers") from error
