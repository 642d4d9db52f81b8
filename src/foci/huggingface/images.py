"""Images in the prompt of a model that reads text and images as one sequence.

Where each token of an image stands for a patch, its axis has the picture and the grid; where it does not, since a
resampler mixes the patches or rows of them have ends, its tokens have numbers.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foci.errors import ConfigError, DataError, MissingPackageError
from foci.huggingface.loading import Loaded
from foci.huggingface.tokens import Encoded, axis_of
from foci.viz.axis import Axis

_MIXES = re.compile("perceiver|resampler|q-?former", re.IGNORECASE)
"""Classes of modules after which a token is no patch."""
_AROUND = ("<|vision_start|>", "<|vision_end|>")
"""What stands around an image for the models of Qwen."""


def opened(paths: Sequence[str | Path]) -> list[Any]:
    """Return the images of files."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingPackageError("images need Pillow. Install it with: pip install 'foci[vision]'") from error
    found = []
    for path in paths:
        try:
            found.append(Image.open(path).convert("RGB"))
        except OSError as error:
            raise DataError(f"{path}: is no image that can be read ({error}).") from error
    return found


def encoded_with_images(loaded: Loaded, text: str, images: Sequence[Any], *, is_chat: bool) -> Encoded:
    """Return what the model reads of a text and images; those that the text does not place stand before it."""
    processor, token = loaded.processor, _image_token(loaded)
    texts = [text] if token in text else [text, _placeholder(processor, token) * len(images) + text]
    further: dict[str, Any] = {"add_special_tokens": False} if is_chat else {}  # a chat has its special tokens already
    for number, each in enumerate(texts, start=1):
        try:
            kept = processor(text=each, images=list(images), return_tensors="pt", **further)
        except (ValueError, TypeError, IndexError, StopIteration) as error:
            if number == len(texts):
                raise ConfigError(f"--image: the processor of this model does not accept the input: {error}") from error
            continue
        if (kept["input_ids"] == _image_id(loaded)).any():
            return Encoded({name: given for name, given in kept.items() if name != "labels"}, each, None, images)
    raise ConfigError("--image: the processor of this model puts no image into the text. Is it one that reads images?")


def _image_token(loaded: Loaded) -> str:
    begin = getattr(
        loaded.processor, "boi_token", None
    )  # what stands for an image in a text, where that has an own token
    if begin is not None:
        return str(begin)
    token = getattr(loaded.processor, "image_token", None)
    return str(getattr(token, "content", token) or loaded.tokenizer.convert_ids_to_tokens(_image_id(loaded)))


def _image_id(loaded: Loaded) -> int:
    config = loaded.model.config
    found = getattr(config, "image_token_id", None) or getattr(config, "image_token_index", None)
    if found is None:
        raise ConfigError(
            f"--image: {config.model_type} does not read images and text as one sequence. Leave the image out, or name "
            "another model."
        )
    return int(found)


def _placeholder(processor: Any, token: str) -> str:
    known = processor.tokenizer.get_vocab()
    return token.join(_AROUND) if all(each in known for each in _AROUND) else token


def mixed_axis(loaded: Loaded, ids: Tensor, prompt: Encoded) -> Axis:
    """Return the axis of one sequence: a part for each stretch of the prompt's text, each image, and the answer.

    Args:
        loaded: the model.
        ids: of the prompt and what was generated after it.
        prompt: what the model was given.
    """
    size = prompt.inputs["input_ids"].shape[1]
    if not prompt.images:
        parts = [axis_of(loaded.tokenizer, ids[:size], "prompt", prompt)]
    else:
        is_image = (ids[:size] == _image_id(loaded)).tolist()
        runs = [(of_image, len(list(run))) for of_image, run in groupby(is_image)]
        pictures = iter(_pictures(loaded, prompt, [length for of_image, length in runs if of_image]))
        ends = list(accumulate(length for _, length in runs))
        parts = [
            next(pictures) if of_image else axis_of(loaded.tokenizer, ids[end - length : end], "text")
            for (of_image, length), end in zip(runs, ends)
        ]
    if len(ids) > size:
        parts.append(axis_of(loaded.tokenizer, ids[size:], "answer"))
    return Axis.from_parts(parts, "sequence")


def _pictures(loaded: Loaded, prompt: Encoded, sizes: Sequence[int]) -> list[Axis]:
    """Return an axis for each run of image tokens."""
    names = [f"image {number}" if len(sizes) > 1 else "image" for number in range(1, len(sizes) + 1)]
    shown = [] if _mixes_patches(loaded.model) else _patches(loaded, prompt)
    if len(shown) == len(sizes):
        grids = [_grid(size, patches) for size, (_, patches) in zip(sizes, shown)]
        if all(grid is not None for grid in grids):
            return [Axis.from_image(pixels, grid, name) for (pixels, _), grid, name in zip(shown, grids, names) if grid]
    print(
        f"foci: {loaded.model.config.model_type}: its image tokens are no grid of patches; they are shown as numbers.",
        file=sys.stderr,
    )
    return [Axis.numbered("regions", size, name) for size, name in zip(sizes, names)]


def _mixes_patches(model: Any) -> bool:
    return any(_MIXES.search(type(module).__name__) for module in model.modules())


def _patches(loaded: Loaded, prompt: Encoded) -> list[tuple[NDArray[np.uint8], tuple[int, int]]]:
    """Return the pictures as the model sees them, each with the patches that its encoder makes of it: down, across."""
    processor = loaded.processor.image_processor
    inputs = prompt.inputs
    grids = inputs.get("image_grid_thw")
    if grids is not None:  # the image as a whole, in another size
        return [(np.asarray(image), (down, across)) for image, (_, down, across) in zip(prompt.images, grids.tolist())]
    pixels, side = inputs.get("pixel_values"), getattr(loaded.model.config.vision_config, "patch_size", None)
    if pixels is None or pixels.dim() < 4 or pixels.shape[-3] != 3 or not isinstance(side, int):
        return []
    tiles = pixels.reshape(-1, *pixels.shape[-3:]).float()
    if processor.do_normalize:
        mean, std = (torch.tensor(each).view(3, 1, 1) for each in (processor.image_mean, processor.image_std))
        tiles = tiles * std + mean
    seen = (tiles * (255 if processor.do_rescale else 1)).round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()
    return [(tile, (tile.shape[0] // side, tile.shape[1] // side)) for tile in seen]


def _grid(size: int, patches: tuple[int, int]) -> tuple[int, int] | None:
    """Return the grid of an image's tokens, each of which is a patch or a square of several; None if there is none.

    Example:
        >>> _grid(16, (4, 4)), _grid(12, (6, 8)), _grid(10, (4, 4))
        ((4, 4), (3, 4), None)
    """
    down, across = patches
    together = math.isqrt(down * across // size)
    if together and down % together == across % together == 0 and down * across == size * together**2:
        return down // together, across // together
    return None
