"""Text and images for models of Qwen's kind, where their own processor needs torchvision for videos.

An image in the text is one token, which is repeated for each square of ``merge_size²`` patches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class GridProcessor:
    """Puts images into a text, as the model's own processor does.

    Args:
        image_processor: of the model; it gives patches in a row, and their grid.
        tokenizer: of the model.
        image_token: what stands for an image.
    """

    def __init__(self, image_processor: Any, tokenizer: Any, image_token: str) -> None:
        self.image_processor, self.tokenizer, self.image_token = image_processor, tokenizer, image_token
        self.chat_template = tokenizer.chat_template

    def apply_chat_template(self, said: list[dict[str, Any]], **options: Any) -> str:
        """Return what the model reads in a chat."""
        return str(self.tokenizer.apply_chat_template(said, **options))

    def __call__(self, text: str, images: Sequence[Any], return_tensors: str, **options: Any) -> dict[str, Any]:
        """Return the inputs of the model."""
        first, *others = text.split(self.image_token)
        if len(others) != len(images):
            raise ValueError(f"there are {len(images)} images, but {len(others)} places for them in the text")
        seen = self.image_processor(list(images), return_tensors=return_tensors)
        sizes = seen["image_grid_thw"].prod(-1) // self.image_processor.merge_size**2
        whole = first + "".join(self.image_token * int(size) + other for size, other in zip(sizes, others))
        kept = self.tokenizer(whole, return_tensors=return_tensors, return_token_type_ids=False, **options)
        is_image = kept["input_ids"] == self.tokenizer.convert_tokens_to_ids(self.image_token)
        return {**kept, **seen, "mm_token_type_ids": is_image.long()}
