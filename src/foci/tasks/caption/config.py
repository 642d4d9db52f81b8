"""The settings of captions: of a training, and of the search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt
from pydantic import Field

from foci.files import MAX_PIXELS, FilePath
from foci.models.options.decoders import RecurrentDecoderOptions, TransformerDecoderOptions
from foci.models.options.images import AnnotationOptions, CaptionerOptions, GridAnnotationOptions, captioner_preset
from foci.settings import settings
from foci.tasks.frame.config import Promise, TaskConfig, kind_of
from foci.tasks.frame.data_settings import DATA_FLAGS, HeldOutData
from foci.tasks.frame.search_options import SearchOptions
from foci.training.options import TrainingOptions

COLUMNS = (("image", "filename", "file_name"), ("caption", "captions", "sentence", "text"))
"""The columns, or JSON fields, of image and caption: the first of these names that a file has."""
BUILT_IN = 4500
"""Number of drawn scenes to train on without data."""


@settings
class DataConfig(HeldOutData):
    """Images with their captions: a file of captions and a folder of images, or drawn scenes."""

    path: FilePath | None = None
    """The captions: Flickr8k's token.txt, Karpathy's .json, .tsv, .csv or .jsonl (also .gz, .xz). Without data,
    captions of drawn scenes are used."""
    images: FilePath | None = None
    """The folder of the images. Default: that of the file with the captions."""
    columns: tuple[int | str | tuple[str, ...], int | str | tuple[str, ...]] = COLUMNS
    """Columns (by their names, or by their numbers from 0) or fields of image and caption."""
    train_images: FilePath | None = None
    """A file with the names of the images to train on, one per line; the other images of `path` are left out."""
    valid_images: FilePath | None = None
    """The same for the images of `path` that validate."""
    test_images: FilePath | None = None
    """The same for the images of `path` that are held out to evaluate."""
    valid_share: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Where the file does not say it: the share of the images that are held out to validate."""
    test_share: Annotated[float, Ge(0), Lt(1)] = 0.1
    """Where the file does not say it: the share of the images that are held out to evaluate, and never trained on."""
    builtin: Annotated[int, Ge(2)] | None = None
    """Train on this many drawn scenes instead: two or three colored shapes on a noisy canvas."""
    language: Literal["en", "zh"] = "en"
    """The language of captions of drawn scenes."""
    image_size: Annotated[int, Ge(4)] | None = None
    """Height and width that images are scaled to fit into. Default: 48, or what a frozen encoder needs."""
    max_pixels: Annotated[int, Ge(1)] = MAX_PIXELS
    """Images with more pixels are left out before they are decoded."""
    cache: FilePath | None = None
    """The folder that keeps the features of a frozen encoder. Default: one in ~/.cache/foci."""
    max_words: Annotated[int, Ge(1)] = 50
    """Longer captions are cut to this many tokens in training; they are counted."""
    captions_together: Annotated[int, Ge(1)] = 5
    """Largest number of captions of one image in one batch."""
    valid_decoded: Annotated[int, Ge(1)] = 200
    """How many validation images are captioned, greedily, for the metrics that choose the best checkpoint."""
    batch_size: Annotated[int, Ge(1)] = 32
    """Images per batch, each with its captions."""


@settings
class TokenizerConfig:
    """How captions are split: learned from the training captions, kept in the run."""

    kind: Literal["bpe", "unigram", "characters", "words"] = "words"
    """Words are characters in scripts without spaces; all kinds work in any script."""
    size: Annotated[int, Ge(5), Le(1_000_000)] = 10_000
    """Largest size of the vocabulary."""
    min_count: Annotated[int, Ge(1)] = 1
    """How often a word, or a character, must occur to be in the vocabulary."""
    lowercase: bool = True
    """Read and write small letters only. I becomes i, in Turkish too."""


@settings
class ModelConfig(CaptionerOptions):
    """Which model."""

    preset: Literal["tiny", "base", "xu"] = "base"
    """The sizes of the model by name; xu has those of a model for photographs, with a recurrent decoder."""
    encoder: Annotated[AnnotationOptions, Field(discriminator="kind")] = GridAnnotationOptions()
    """The encoder of the image."""
    decoder: Annotated[RecurrentDecoderOptions | TransformerDecoderOptions, Field(discriminator="kind")] = (
        RecurrentDecoderOptions()
    )
    """The decoder of the caption."""


@settings
class CaptionConfig(TaskConfig):
    """All settings of a training."""

    flags = {
        **DATA_FLAGS,
        "images": "data.images",
        "language": "data.language",
        "size": "data.image_size",
        "encoder": "model.encoder.kind",
        "decoder": "model.decoder.kind",
        "attention": "model.attention.normalize",
        "preset": "model.preset",
    }
    demo = {
        "data": {"builtin": BUILT_IN},
        "model": {"preset": "tiny"},
        "training": {
            "max_steps": 2600,
            "optimizer": "muon",  # with adam, which of 2,600 steps finds the shapes hangs on the seed, or none does
            "learning_rate": 0.01,
            "schedule": "cosine",
            "warmup": 50,
            "eval_every": 650,
            "metric_for_best_model": "exact",
        },
    }
    promise = Promise("exact", 0.97, 0.03)
    smallest = {
        "data": {"builtin": 12, "image_size": 16, "batch_size": 4, "valid_decoded": 3, "max_words": 12},
        "model": {"preset": "tiny", "decoder": {"hidden_dim": 16, "embedding_dim": 8}, "encoder": {"hidden_dim": 8}},
        "training": {"max_steps": 8, "eval_every": 4, "warmup": 2, "learning_rate": 0.02, "metrics_every": 1},
    }  # fmt: skip

    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    label_smoothing: Annotated[float, Ge(0), Lt(1)] = 0.0
    """Share of the target probability that is distributed over all words."""
    training: TrainingOptions = TrainingOptions(
        max_epochs=20, patience=8, warmup=50, eval_every=200, metric_for_best_model="cider_d", greater_is_better=True
    )

    @classmethod
    def model_preset(cls, model: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options that kind and preset of the model stand for."""
        preset = str(model.get("preset", "base"))
        return captioner_preset(preset, kind_of(model, "encoder", "grid"), kind_of(model, "decoder", "recurrent"))


@settings
class CaptionOptions(SearchOptions):
    """How captions are searched for."""

    beam_size: Annotated[int, Ge(1)] = 3
    max_length: Annotated[int, Ge(1)] | None = None
    """Longest caption in tokens. Default: data.max_words of the run."""
    batch_tokens: Annotated[int, Gt(0)] = 2048
    """Images per batch times the longest caption."""
