"""Captions of images by soft and hard attention; each word has the regions that it looked at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foci.data import BOS, EOS, PAD, UNK, TokenBatches, Tokenizer
from foci.data.batching import Sequences
from foci.data.images.drawn import Scene
from foci.data.images.features import ImageFeatures, cached_features, encode_images, fingerprint
from foci.data.images.files import GRAY, Images, same_pixels
from foci.data.splits import PARTS, Parts, file_key
from foci.decoding import DecoderInputs, Hypothesis
from foci.errors import CheckpointError, ConfigError, DataError
from foci.files import cache_folder
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss
from foci.metrics.attention import movement
from foci.metrics.boxes import Box
from foci.metrics.captions import caption_scores
from foci.models.captioner import SMALL, CaptionedImages, Captioner, build_captioner
from foci.models.encoders.frozen import build_frozen_encoder
from foci.models.options.images import FrozenAnnotationOptions
from foci.probing.subject import Source
from foci.tasks.caption.batches import CaptionBatch, CaptionExamples, drawn_captions
from foci.tasks.caption.config import BUILT_IN, CaptionConfig, CaptionOptions
from foci.tasks.caption.looks import Look, Looks, look, named_boxes, shapes_pointed_at, table_of_looks
from foci.tasks.caption.neighbors import keep_neighbors, nearest_captions
from foci.tasks.caption.reader import CaptionedImage, read_captions
from foci.tasks.frame.assets import Assets
from foci.tasks.frame.file_task import shortened
from foci.tasks.frame.probing.images import erasable_image
from foci.tasks.frame.seq2seq_task import LENGTH_PENALTY, Seq2SeqTask, search_from
from foci.tasks.frame.task import Evaluation, Field, Log, NamedAxes, Progress, Record, Shard, Splits, token_axes
from foci.training.objective import Batches, Loss
from foci.viz.trace import Axis, Trace
from foci.weights import Weights

_SMALL_SIZE, _FROZEN_SIZE = 48, 224
"""Height and width of images for the small network, and for a frozen one that does not say what it needs."""
_SPACE = "▁"
"""What a tokenizer's labels have instead of a space."""


class ImageEncoder(NamedTuple):
    """An image encoder: its name and, of a frozen one, its checksum and the shape of its features, ``(h, w, D)``."""

    name: str
    checksum: str = ""
    shape: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True)
class CaptionAssets(Assets):
    """The tokenizer, and the image encoder."""

    tokenizer: Tokenizer
    image_encoder: ImageEncoder

    @property
    def frozen(self) -> ImageEncoder | None:
        """The frozen image encoder; None for the small network, which is trained with the rest."""
        return None if self.image_encoder.name == SMALL else self.image_encoder


_PENALTIES = (LENGTH_PENALTY, 0.0, 1.0, 1.5, 2.0)
"""Length penalties that are tried on validation images, the default first."""
_FITTED = 50
"""Validation images that they are tried on."""


class _Sources:
    """Decoded images, or their features, the names of all images that were given, and which of them can be read."""

    def __init__(self, images: Images | ImageFeatures, names: list[str]) -> None:
        self.images, self.names, self.kept = images, names, np.array(list(images.kept), dtype=np.int64)

    def batch(self, numbers: Sequence[int]) -> Tensor:
        """Return the images with these numbers, which can be read."""
        return self.images.grids(np.searchsorted(self.kept, numbers))


class _HeldOut(NamedTuple):
    """Validation captions: in batches for the loss, and some of their images to be captioned."""

    batches: TokenBatches[CaptionBatch]
    sources: _Sources
    references: dict[int, tuple[str, ...]]
    assets: CaptionAssets


class Caption(Seq2SeqTask):
    """The image captioning task."""

    name: ClassVar[str] = "caption"
    Config: ClassVar[type[Any]] = CaptionConfig
    Options: ClassVar[type[Any]] = CaptionOptions
    EvaluateOptions: ClassVar[type[Any]] = CaptionOptions
    Assets: ClassVar[type[Any]] = CaptionAssets
    inputs: ClassVar[tuple[Field, ...]] = (Field("image", "image"),)
    targets: ClassVar[tuple[Field, ...]] = (Field("captions", "list"),)
    baseline_types: ClassVar[Mapping[str, Any]] = {"neighbors": dict[str, Any]}
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {
        **Seq2SeqTask.metrics,
        **dict.fromkeys(("exact", "bleu4", "cider_d", "rouge_l"), "higher"),
    }
    noun: ClassVar[str] = "images with captions"
    about: ClassVar[str] = "content"
    produces: ClassVar[str] = "caption"
    answer_axis: ClassVar[str] = "words"
    builtin_sizes: ClassVar[tuple[int, int, int]] = (BUILT_IN, 100, 300)

    config: CaptionConfig
    _trained: Images | ImageFeatures | None = None
    """The training images, once they are read."""

    # ---- data

    def read_file(self, path: str, log: Log | None = None, *, only: str | None = None) -> list[CaptionedImage]:
        """Read captions, of the images that ``only`` lists; images are decoded when they are batched."""
        data = self.config.data
        return read_captions(path, images=data.images, columns=data.columns, only=only, log=log)

    def split(self, examples: list[CaptionedImage], log: Log) -> Parts:
        """Split by lists of images, as the file says if it does, or else by the content of the images."""
        data = self.config.data
        lists = {"train": data.train_images, "valid": data.valid_images, "test": data.test_images}
        if not any(lists.values()):
            if not any(one.part for one in examples):
                return super().split(examples, log)
            if data.group is not None:
                raise ConfigError("data.group is set, but the file says which part each image is in. Leave it out.")
            return Parts(*([one for one in examples if (one.part or "train") == part] for part in PARTS))
        others = {"valid": data.valid, "test": data.test}
        if missing := [name for name, path in lists.items() if path is None and others.get(name) is None]:
            raise ConfigError(f"data.{missing[0]}_images is not set, but others are. Name the images of each part.")
        path = cast("str", data.path)
        return Parts(*([] if only is None else self.read_file(path, only=only) for only in lists.values()))

    def key(self, example: CaptionedImage) -> str:
        """Return the content of the image."""
        return file_key(example.image)

    def twins(self, examples: Sequence[CaptionedImage]) -> list[str | None]:
        """Return the pixels of images that differ in their bytes alone."""
        return same_pixels([one.image for one in examples], max_pixels=self.config.data.max_pixels)

    def show(self, example: CaptionedImage) -> str:
        """Return the image and its first caption."""
        return shortened(example.image, example.captions[0])

    def read_builtin(self, size: int, part: str) -> list[CaptionedImage]:
        """Return drawn scenes with their captions."""
        data = self.config.data
        return drawn_captions(size, split=part, seed=data.split_seed, language=data.language)

    def assets(self, splits: Splits, log: Log) -> CaptionAssets:
        """Train the tokenizer on the training captions, and try the frozen encoder if there is one."""
        chosen = self.config.tokenizer
        texts = [self.plain(text) for one in splits.train for text in one.captions]
        tokenizer = Tokenizer.train(texts, chosen.kind, chosen.size)
        if chosen.min_count > 1 and chosen.kind in ("words", "characters"):
            counts = Counter(number for ids in tokenizer.encode_many(texts) for number in ids if number != UNK)
            kept = sum(count >= chosen.min_count for count in counts.values())
            tokenizer = Tokenizer.train(texts, chosen.kind, max(4 + kept, 5))  # pieces come by their frequency
        log(f"a vocabulary of {len(tokenizer):,} tokens ({chosen.kind}{tokenizer.note})")
        return CaptionAssets(tokenizer, self._describe_encoder())

    def _describe_encoder(self) -> ImageEncoder:
        if self._encoder_name == SMALL:
            return ImageEncoder(SMALL)
        encoder = build_frozen_encoder(self._encoder_name)
        size = self._size(encoder)
        features = encode_images(np.full((1, size, size, 3), GRAY, np.uint8), encoder)
        _, down, across, dim = features.shape
        return ImageEncoder(self._encoder_name, fingerprint(encoder), (down, across, dim))

    @property
    def _encoder_name(self) -> str:
        encoder = self.config.model.encoder
        return encoder.network if isinstance(encoder, FrozenAnnotationOptions) else SMALL

    def _size(self, encoder: Any = None) -> int:
        """Height and width of the images."""
        own: int = getattr(encoder, "size", _SMALL_SIZE if encoder is None else _FROZEN_SIZE)
        return self.config.data.image_size or own

    def model(self, assets: CaptionAssets) -> nn.Module:
        """Build the model for this vocabulary and, with a frozen encoder, the size of its features."""
        feature_dim = assets.frozen.shape[-1] if assets.frozen else None
        return build_captioner(len(assets.tokenizer), feature_dim, self.config.model)

    def named_axes(self, assets: CaptionAssets) -> NamedAxes:
        """Return which rows of the weights are tokens."""
        return token_axes("decoder", assets.tokenizer.labels(range(len(assets.tokenizer))))

    def batches(self, splits: Splits, assets: CaptionAssets, shard: Shard, log: Log) -> Batches:
        """Encode and batch the training captions, without those of unreadable images."""
        data = self.config.data
        examples = self._examples(list(splits.train), assets, log)
        self._trained = examples.images
        most = data.batch_size * max(data.max_words + 2, data.captions_together)
        return TokenBatches(examples, **self.batching(shard, most, data.batch_size))

    def count_baselines(self, splits: Splits) -> dict[str, Any]:
        """Return the training images with their first captions, of which the most similar ones are compared with."""
        if self._trained is None:
            return {}
        train: list[CaptionedImage] = list(splits.train)
        return {"neighbors": keep_neighbors(self._trained, [train[one].captions[0] for one in self._trained.kept])}

    def held_out(self, splits: Splits, assets: CaptionAssets, log: Log) -> _HeldOut:
        """Encode and batch the validation captions."""
        data, valid = self.config.data, list(splits.valid)
        examples = self._examples(valid, assets, log, "validation captions")
        references = {number: valid[number].captions for number in examples.images.kept[: data.valid_decoded]}
        sources = _Sources(examples.images, [one.image for one in valid])
        return _HeldOut(self._in_order(examples), sources, references, assets)

    def _in_order(self, examples: CaptionExamples) -> TokenBatches[CaptionBatch]:
        size = self.config.data.batch_size
        return TokenBatches(examples, max_tokens=size * int(examples.lengths.max()), max_examples=size)

    def _images(
        self, names: Sequence[str], assets: CaptionAssets, log: Log | None = None, cached: bool = True
    ) -> Images | ImageFeatures:
        """Decode images, or get their features from the frozen encoder, with the help of the cache or without."""
        data = self.config.data
        if assets.frozen is None:
            return Images.load(names, self._size(), max_pixels=data.max_pixels, log=log)
        encoder = build_frozen_encoder(assets.frozen.name)
        if fingerprint(encoder) != assets.frozen.checksum:
            raise CheckpointError(
                f"the image encoder {assets.frozen.name!r} is not the one that this run was trained with: its "
                "weights have changed. Train again, or restore them."
            )
        if cached:
            folder = data.cache or cache_folder("features", f"{assets.frozen.checksum}-{self._size(encoder)}")
            return cached_features(
                names, encoder, folder, size=self._size(encoder), max_pixels=data.max_pixels, log=log
            )
        images = Images.load(names, self._size(encoder), max_pixels=data.max_pixels, log=log)
        made = [encode_images(images.pixels[start : start + 8], encoder) for start in range(0, len(images), 8)]
        array = np.concatenate(made) if made else np.zeros((0, *assets.frozen.shape), np.float16)
        return ImageFeatures(array, range(len(images)), images.kept, images.unreadable)

    def _examples(
        self, captioned: Sequence[CaptionedImage], assets: CaptionAssets, log: Log | None = None, what: str = "captions"
    ) -> CaptionExamples:
        data, tokenizer = self.config.data, assets.tokenizer
        images = self._images([one.image for one in captioned], assets, log)
        if captioned and not images.kept:
            raise DataError(f"none of the {len(captioned)} images can be read: {images.unreadable[0]}")
        texts = [
            (place, self.plain(text)) for place, number in enumerate(images.kept) for text in captioned[number].captions
        ]
        encoded = list(tokenizer.encode_many(text for _, text in texts))
        long = sum(len(ids) > data.max_words for ids in encoded)
        if long and log is not None:
            log(f"{long:,} of {len(encoded):,} {what} are cut to data.max_words = {data.max_words} tokens")
        sequences = Sequences((ids[: data.max_words] for ids in encoded), len(tokenizer))
        return CaptionExamples(images, [place for place, _ in texts], sequences, together=data.captions_together)

    # ---- loss and metrics

    def learn(self, model: nn.Module, batch: CaptionBatch, smoothing: float = 0.0) -> TokenLoss:
        """Return the cross-entropy of a batch, and what else the model gives for it."""
        targets = Targets(batch.target[:, 1:], smoothing, PAD)
        learned: TokenLoss = model(CaptionedImages(*batch[:2]), None, batch.target[:, :-1], targets)
        return learned

    def loss(self, model: nn.Module, batch: CaptionBatch) -> Loss:
        """Return the cross-entropy, summed over the tokens, and the further terms of the model."""
        learned = self.learn(model, batch, self.config.label_smoothing)
        terms = learned.terms or {}
        total = learned.loss + sum(terms.values(), torch.zeros_like(learned.loss))
        return Loss(
            total,
            batch.target_valid[:, 1:].sum(),
            {"nats": learned.loss.detach(), **{name: term.detach() for name, term in terms.items()}},
        )

    def validate(self, model: nn.Module, held_out: _HeldOut) -> dict[str, float]:
        """Return nats per token, their exponential, and the metrics of greedy captions of the first images."""
        options = self.limited(CaptionOptions(beam_size=1, max_length=self.config.data.max_words))
        texts, references = [], held_out.references
        for numbers in self._in_batches([*references], options):
            for number, found in zip(numbers, self.search(model, held_out.sources, numbers, options)):
                texts.append(self.decode(held_out.assets, held_out.sources, number, found[0].tokens))
        metrics = self.nats(model, held_out.batches) | self._text_metrics(texts, [*references.values()])
        named = {name: value for name, value in metrics.items() if name in self.metrics}
        return {**named, "calibration/length_penalty": self._fit_length(model, held_out)}

    def _fit_length(self, model: nn.Module, held_out: _HeldOut) -> float:
        """Return the length penalty with the best captions of some validation images; of equal ones the default."""
        references = dict(islice(held_out.references.items(), _FITTED))
        scores = {}
        for penalty in _PENALTIES:
            options = self.limited(CaptionOptions(length_penalty=penalty))
            texts = [
                self.decode(held_out.assets, held_out.sources, number, one[0].tokens)
                for numbers in self._in_batches([*references], options)
                for number, one in zip(numbers, self.search(model, held_out.sources, numbers, options))
            ]
            scores[penalty] = self._text_metrics(texts, [*references.values()])["cider_d"]
        return max(_PENALTIES, key=lambda penalty: scores[penalty])

    def _text_metrics(self, texts: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
        """Metrics of captions against their references."""
        exact = [self.plain(text) in {self.plain(one) for one in targets} for text, targets in zip(texts, references)]
        return {"exact": float(np.mean(exact)), **caption_scores(texts, references)}

    # ---- predictions

    def limited(self, options: CaptionOptions) -> CaptionOptions:
        """Return the options with the greatest length of a caption, and the length penalty that was fitted."""
        longest = options.max_length or max(self.config.data.max_words, options.min_length)
        fitted = self.calibration.get("length_penalty") if options.length_penalty is None else options.length_penalty
        return replace(options, max_length=longest, length_penalty=fitted)

    def encode_sources(self, assets: CaptionAssets, records: Sequence[Record]) -> _Sources:
        """Decode the images, without the help of the cache."""
        names = [record["image"] for record in records]
        return _Sources(self._images(names, assets, cached=False), names)

    def unusable(self, sources: _Sources) -> dict[int, str]:
        """Return why images cannot be read."""
        reasons = {one.name: one.reason for one in sources.images.unreadable}
        missing = sorted({*range(len(sources.names))} - {*sources.kept.tolist()})
        note = "the image cannot be read, so nothing was predicted"
        return {number: f"{note}: {reasons[sources.names[number]]}" for number in missing}

    def together(self, sources: _Sources, options: CaptionOptions) -> Iterator[list[int]]:
        """Yield the numbers of readable images in their order."""
        return self._in_batches(sources.kept.tolist(), options)

    def _in_batches(self, numbers: list[int], options: CaptionOptions) -> Iterator[list[int]]:
        size = max(1, options.batch_tokens // cast("int", options.max_length))
        return (numbers[start : start + size] for start in range(0, len(numbers), size))

    @torch.no_grad()
    def search(
        self,
        model: nn.Module,
        sources: _Sources,
        numbers: Sequence[int],
        options: CaptionOptions,
        prefix: list[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each of these images."""
        captioner, device = cast(Captioner, model), next(model.parameters()).device
        batch = sources.batch(numbers).to(device)
        memory, state = captioner.start(batch, None)
        down, across = captioner.grid(batch.shape)
        valid = torch.ones(len(numbers), down * across, dtype=torch.bool, device=device)
        start = DecoderInputs(memory, state, len(numbers), device, cast("int", options.max_length), valid)
        return search_from(captioner, start, options, prefix, unknown=False)

    def decode(self, assets: CaptionAssets, sources: _Sources, number: int, tokens: Sequence[int]) -> str:
        """Return the text of produced tokens."""
        return assets.tokenizer.decode(tokens).strip()

    def trace(
        self,
        model: nn.Module,
        assets: CaptionAssets,
        sources: _Sources,
        number: int,
        hypothesis: Hypothesis,
        text: str,
    ) -> Trace:
        """Return the regions of each produced word, by teacher forcing, which equals those of the search."""
        produced = [*hypothesis.tokens, EOS] if hypothesis.finished else hypothesis.tokens
        batch = sources.batch([number])
        attentions = self._maps(model, batch, [produced])
        axes = {
            "image": Axis.from_image(self._picture(sources, number), cast(Captioner, model).grid(batch.shape)),
            "words": Axis.from_tokens(self._labels(assets.tokenizer, produced), "caption"),
        }
        return Trace.from_handles(
            attentions,
            axes,
            axes_of=dict.fromkeys(attentions, ("words", "image")),
            text=text,
            metadata={"score": hypothesis.score, "log-probability": hypothesis.log_prob},
        )

    def erasable(
        self, model: nn.Module, sources: _Sources, trace: Trace, record: Record
    ) -> tuple[tuple[Any, Any], Mapping[str, Source]]:
        """Return the image, or its features, and its regions."""
        images = sources.batch([0]).to(next(model.parameters()).device)

        def boxes(scene: Scene) -> list[Box]:
            return [shape.box for shape in scene.shapes]

        values, regions = erasable_image(images, trace.axes["image"], record, boxes)
        return (values, None), {"image": regions}

    def _picture(self, sources: _Sources, number: int) -> NDArray[np.uint8]:
        """The image as a trace shows it."""
        if isinstance(sources.images, Images):
            return np.array(sources.images.pixels[np.searchsorted(sources.kept, number)])
        shown = Images.load([sources.names[number]], self.config.data.image_size or _FROZEN_SIZE)
        return np.array(shown.pixels[0])

    def _labels(self, tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
        """What stands above the map of each token; of words without the mark of the space before them."""
        labels = tokenizer.labels(ids)
        if self.config.tokenizer.kind != "words":
            return labels
        return [label.removeprefix(_SPACE) or label for label in labels]

    def _maps(self, model: nn.Module, batch: Tensor, produced: Sequence[Sequence[int]]) -> dict[str, Weights]:
        """The weights over the regions when each of these tokens is produced, ``(B, T, S)``, by the attention's name.

        Hard attention also has the probabilities of the regions.
        """
        device = next(model.parameters()).device
        longest = max(map(len, produced))
        rows = [[BOS, *ids, *[PAD] * (longest - len(ids))][:longest] for ids in produced]
        predicted: TokenLogits = model(batch.to(device), None, torch.tensor(rows, dtype=torch.long, device=device))
        maps = {name: one for name, one in predicted.attentions.items() if name.endswith("cross")}
        if "decoder.cross" in maps and maps["decoder.cross"].log_prob is not None:
            maps = {"decoder.probabilities": maps["decoder.cross"].probabilities, **maps}
        return maps

    def evaluate(
        self,
        model: nn.Module,
        assets: CaptionAssets,
        records: Sequence[Record],
        options: CaptionOptions,
        progress: Progress,
    ) -> Evaluation:
        """Return how well captions agree with their references; of drawn scenes, also where words look."""
        captioned = [CaptionedImage(record["image"], tuple(record["captions"])) for record in records]
        examples = self._examples(captioned, assets)
        images = examples.images
        sources = _Sources(images, [record["image"] for record in records])
        predictions = self.predict_from(model, assets, sources, records, options, False, progress)
        texts = [predictions[number].output for number in images.kept]
        references = [captioned[number].captions for number in images.kept]
        scored = [self.plain(text) for captions in references for text in captions]
        likelihood = self.likelihood(model, assets, self._in_order(examples), scored, examples.sequences)
        metrics: dict[str, float | int] = {
            "images": len(texts),
            "unreadable": len(records) - len(texts),
            **self._text_metrics(texts, references),
            "loss": likelihood.nats,
            **likelihood.to_metrics(),
            "different": len(set(texts)) / len(texts),
        }
        notes = {
            "exact_of": "the share of captions that equal a reference, but for spaces and, in small letters, case",
            "scores_of": "in per cent (CIDEr-D to 1,000), of words without case and punctuation, characters where a "
            "script has no spaces; bleu1 to bleu4 with the brevity penalty, and without it as in the paper",
            "moves_of": "how far the weights move from word to word: 0 if all words look at the same regions, 1 if no "
            "two neighbors share one",
            **likelihood.notes(),
        }
        if options.length_penalty is None and "length_penalty" in self.calibration:
            fitted = self.calibration["length_penalty"]
            notes["length_penalty"] = f"{fitted:g}, of {_PENALTIES} the best for validation images"
        if "neighbors" in self.baselines:
            nearest = self._text_metrics(nearest_captions(images, self.baselines["neighbors"]), references)
            metrics |= {f"nearest_{name}": nearest[name] for name in ("exact", "bleu4", "cider_d", "rouge_l")}
            notes["baselines"] = "nearest_…: the caption of the training image that looks most alike"
        tables = {}
        looks = self._looks(model, assets, images, captioned)
        if looks.moves:
            metrics["moves"] = float(np.mean(looks.moves))
        if looks.words:
            tables["words"] = table_of_looks(looks.words)
            *_, (_, _, pointing, inside, _) = tables["words"].rows
            metrics |= {"pointing": pointing, "pointing_shapes": shapes_pointed_at(looks.words), "inside": inside}
            notes["pointing_of"] = (
                "colors and shapes in the references of drawn scenes, read word by word; pointing: the largest weight "
                "lies in the box of the shape that is named; inside: the share of the weights in it; pointing_shapes: "
                "the share of named shapes that one of their words points at"
            )
        return Evaluation(metrics, notes, tables)

    def expected(self, record: Record) -> str:
        """Return the first reference."""
        return str(record["captions"][0])

    def _looks(
        self,
        model: nn.Module,
        assets: CaptionAssets,
        images: Images | ImageFeatures,
        captioned: Sequence[CaptionedImage],
    ) -> Looks:
        """Where the words of each image's first reference look."""
        moves: list[float] = []
        words: list[Look] = []
        for place, number in enumerate(images.kept):
            one = captioned[number]
            plain = self.plain(one.captions[0])
            encoding = assets.tokenizer.encode(plain)
            batch = images.grids(np.array([place]))
            handles = self._maps(model, batch, [encoding.ids[: self.config.data.max_words]])
            last = [handle.dense()[0] for name, handle in handles.items() if name.endswith("cross")][-1]
            maps = (last.mean(dim=0) if last.dim() == 3 else last).float().cpu().numpy()
            moves.append(movement(maps).variation)
            shift, grid = len(plain) - len(one.captions[0]), cast(Captioner, model).grid(batch.shape)
            for mention, box in named_boxes(one):
                for row, (start, end) in zip(maps, encoding.offsets):
                    if start < mention.end + shift and mention.start + shift < end:
                        words.append(look(row.reshape(grid), box, (number, mention.shape), mention.what))
        return Looks(moves, words)
