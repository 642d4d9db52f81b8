"""Captions of images by soft and hard attention; each word has the regions that it looked at."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foci.data import BOS, EOS, PAD, UNK, TokenBatches, Tokenizer
from foci.data.batching import Sequences
from foci.data.images.features import ImageFeatures, cached_features, encode_images, fingerprint
from foci.data.images.files import GRAY, Images
from foci.decoding import DecoderInputs, Hypothesis
from foci.errors import CheckpointError, ConfigError, DataError
from foci.layers.token_loss import Targets, TokenLogits, TokenLoss
from foci.mechanisms.sampled import probabilities_of
from foci.metrics.attention import movement
from foci.metrics.captions import caption_scores
from foci.models.captioner import (
    SMALL,
    CaptionedImages,
    Captioner,
)
from foci.models.encoders.frozen import build_frozen_encoder
from foci.printable import printable
from foci.scripts import begins_spaceless
from foci.tasks.caption.batches import CaptionBatch, CaptionExamples, drawn_captions, image_batch
from foci.tasks.caption.config import BUILT_IN, CaptionConfig, CaptionOptions
from foci.tasks.caption.looks import Look, Looks, look, named_boxes, shapes_pointed_at, table_of_looks
from foci.tasks.caption.reader import CaptionedImage, read_captions, split_captions
from foci.tasks.frame.searching import quantized, search_from
from foci.tasks.frame.task import (
    Evaluation,
    Field,
    Log,
    NamedAxes,
    Prediction,
    Progress,
    Record,
    Shard,
    Splits,
    Task,
    token_axes,
)
from foci.training.objective import Batches, Loss
from foci.viz.trace import Axis, Trace
from foci.weights import Weights

_VALID, _TEST = 100, 300
"""Numbers of drawn scenes for validation and evaluation."""
_SMALL_SIZE, _FROZEN_SIZE = 48, 224
"""Height and width of images for the small network, and for a frozen one that does not say what it needs."""
_SPACE = "▁"
"""What a tokenizer's labels have instead of a space."""
_ENCODER_FILE = "image_encoder.json"


class FrozenEncoder(NamedTuple):
    """A frozen image encoder: its name, its checksum, and the shape of its features, ``(h, w, D)``."""

    name: str
    checksum: str
    shape: tuple[int, int, int]


class CaptionAssets(NamedTuple):
    """The tokenizer, and the frozen image encoder; None for the small network, which is trained with the rest."""

    tokenizer: Tokenizer
    encoder: FrozenEncoder | None

    def to_files(self) -> dict[str, str]:
        """Return both as JSON."""
        encoder = {"name": SMALL} if self.encoder is None else self.encoder._asdict()
        return {"tokenizer.json": self.tokenizer.to_text(), _ENCODER_FILE: json.dumps(encoder)}


class _HeldOut(NamedTuple):
    """Validation captions: in batches for the loss, and some of their images to be captioned."""

    batches: TokenBatches[CaptionBatch]
    images: Images | ImageFeatures
    references: list[tuple[str, ...]]
    tokenizer: Tokenizer


class Caption(Task):
    """The captioning task; see `foci.tasks.frame.task.Task`."""

    name: ClassVar[str] = "caption"
    Config: ClassVar[type[Any]] = CaptionConfig
    Options: ClassVar[type[Any]] = CaptionOptions
    EvaluateOptions: ClassVar[type[Any]] = CaptionOptions
    inputs: ClassVar[tuple[Field, ...]] = (Field("image", "image"),)
    targets: ClassVar[tuple[Field, ...]] = (Field("captions", "list"),)
    score: ClassVar[Literal["probability", "log-probability"]] = "log-probability"
    unit: ClassVar[str] = "tokens"
    metrics: ClassVar[Mapping[str, Literal["lower", "higher"]]] = {
        "loss": "lower",
        "perplexity": "lower",
        "exact": "higher",
        "bleu4": "higher",
        "cider_d": "higher",
        "rouge_l": "higher",
    }

    config: CaptionConfig

    # ---- data

    def read(self, log: Log) -> Splits:
        """Read and check the captions, and split them by image; images are decoded when they are batched."""
        data = self.config.data
        if data.path is None:
            return self._drawn(log)
        lists = {"train": data.train_images, "valid": data.valid_images, "test": data.test_images}
        others = {"valid": data.valid, "test": data.test}
        entries = self._read(data.path, log=log)
        if any(lists.values()):
            if missing := [name for name, path in lists.items() if path is None and others.get(name) is None]:
                raise ConfigError(f"data.{missing[0]}_images is not set, but others are. Name the images of each part.")
            parts = {name: self._read(data.path, only=path) for name, path in lists.items() if path is not None}
        else:
            shares = (0.0 if others[name] else getattr(data, f"{name}_share") for name in ("valid", "test"))
            valid_share, test_share = shares
            found = split_captions(entries, valid_share=valid_share, test_share=test_share, seed=data.split_seed)
            parts = found._asdict()
        parts |= {name: self._read(path) for name, path in others.items() if path is not None}
        train, valid, test = (parts.get(name, []) for name in ("train", "valid", "test"))
        if not valid or not train:
            raise DataError(
                f"{data.path}, line 1: of {len(entries)} images none is left to {'train on' if valid else 'validate'}. "
                f"Give captions of more images, change data.valid_share = {data.valid_share}, or name data.valid."
            )
        log(
            f"{len(train):,} images with {sum(len(one.captions) for one in train):,} captions to train on, "
            f"{len(valid):,} to validate, {len(test):,} to evaluate; the first is {printable(entries[0].image)!r} → "
            f"{printable(entries[0].captions[0])!r}"
        )
        return Splits(train, valid, test)

    def read_records(self, paths: Sequence[str]) -> Sequence[Record]:
        """Read captions in the form of the training data."""
        return [one._asdict() for path in paths for one in self._read(path)]

    def _read(self, path: str, *, only: str | None = None, log: Log | None = None) -> list[CaptionedImage]:
        data = self.config.data
        return read_captions(path, images=data.images, columns=data.columns, only=only, log=log)

    def _drawn(self, log: Log) -> Splits:
        data = self.config.data
        if data.builtin is None:
            log(f"no data is named: training on captions of {BUILT_IN:,} drawn scenes (data.builtin)")
        sizes = {"train": data.builtin or BUILT_IN, "valid": _VALID, "test": _TEST}
        made = [
            drawn_captions(size, split=split, seed=data.split_seed, language=data.language)
            for split, size in sizes.items()
        ]
        log("{train:,} drawn scenes to train on, {valid:,} to validate, {test:,} to evaluate".format(**sizes))
        return Splits(*made)

    def assets(self, splits: Splits, log: Log) -> CaptionAssets:
        """Train the tokenizer on the training captions, and try the frozen encoder if there is one."""
        chosen = self.config.tokenizer
        texts = [self._plain(text) for one in splits.train for text in one.captions]
        tokenizer = Tokenizer.train(texts, chosen.kind, chosen.size)
        if chosen.min_count > 1 and chosen.kind in ("words", "characters"):
            counts = Counter(number for ids in tokenizer.encode_many(texts) for number in ids if number != UNK)
            kept = sum(count >= chosen.min_count for count in counts.values())
            tokenizer = Tokenizer.train(texts, chosen.kind, max(4 + kept, 5))  # pieces come by their frequency
        log(f"a vocabulary of {len(tokenizer):,} tokens ({chosen.kind})")
        return CaptionAssets(tokenizer, self._describe_encoder())

    def _describe_encoder(self) -> FrozenEncoder | None:
        if self._encoder_name == SMALL:
            return None
        encoder = build_frozen_encoder(self._encoder_name)
        size = self._size(encoder)
        features = encode_images(np.full((1, size, size, 3), GRAY, np.uint8), encoder)
        _, down, across, dim = features.shape
        return FrozenEncoder(self._encoder_name, fingerprint(encoder), (down, across, dim))

    def load_assets(self, read: Callable[[str], str]) -> CaptionAssets:
        """Read the tokenizer and the description of the encoder."""
        tokenizer = Tokenizer.from_text(read("tokenizer.json"), "tokenizer.json")
        try:
            saved = json.loads(read(_ENCODER_FILE))
            if saved["name"] == SMALL:
                return CaptionAssets(tokenizer, None)
            down, across, dim = map(int, saved["shape"])
            return CaptionAssets(tokenizer, FrozenEncoder(saved["name"], saved["checksum"], (down, across, dim)))
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise CheckpointError(f"{_ENCODER_FILE}: does not describe an image encoder ({error}).") from error

    def _plain(self, text: str) -> str:
        """Return the text as it is tokenized: single spaces, and a space before the first word as before all others."""
        joined = " ".join(text.split())
        if self.config.tokenizer.lowercase:
            joined = joined.lower()
        return joined if begins_spaceless(joined) else f" {joined}"

    @property
    def _encoder_name(self) -> str:
        return str(self.config.model.resolved.get("encoder", SMALL))

    def _size(self, encoder: Any = None) -> int:
        """Height and width of the images."""
        own: int = getattr(encoder, "size", _SMALL_SIZE if encoder is None else _FROZEN_SIZE)
        return self.config.data.image_size or own

    def model(self, assets: CaptionAssets) -> nn.Module:
        """Build the model for this vocabulary and, with a frozen encoder, the size of its features."""
        return self.config.model.build(len(assets.tokenizer), assets.encoder.shape[-1] if assets.encoder else None)

    def named_axes(self, assets: CaptionAssets) -> NamedAxes:
        """Return which rows of the weights are tokens."""
        return token_axes("decoder", assets.tokenizer.labels(range(len(assets.tokenizer))))

    def batches(self, splits: Splits, assets: CaptionAssets, shard: Shard, log: Log) -> Batches:
        """Encode and batch the training captions, without those of unreadable images."""
        data = self.config.data
        examples = self._examples(list(splits.train), assets, log)
        return TokenBatches(
            examples,
            max_tokens=data.batch_size * max(data.max_words + 2, data.captions_together),
            max_examples=data.batch_size,
            seed=self.config.training.seed,
            workers=data.workers,
            **shard._asdict(),
        )

    def held_out(self, splits: Splits, assets: CaptionAssets, log: Log) -> _HeldOut:
        """Encode and batch the validation captions."""
        data, valid = self.config.data, list(splits.valid)
        examples = self._examples(valid, assets, log, "validation captions")
        some = [valid[number].captions for number in examples.images.kept[: data.valid_decoded]]
        return _HeldOut(self._in_order(examples), examples.images, some, assets.tokenizer)

    def _in_order(self, examples: CaptionExamples) -> TokenBatches[CaptionBatch]:
        size = self.config.data.batch_size
        return TokenBatches(examples, max_tokens=size * int(examples.lengths.max()), max_examples=size)

    def _images(
        self, names: Sequence[str], assets: CaptionAssets, log: Log | None = None, cached: bool = True
    ) -> Images | ImageFeatures:
        """Decode images, or get their features from the frozen encoder, with the help of the cache or without."""
        data = self.config.data
        if assets.encoder is None:
            return Images.load(names, self._size(), max_pixels=data.max_pixels, log=log)
        encoder = build_frozen_encoder(assets.encoder.name)
        if fingerprint(encoder) != assets.encoder.checksum:
            raise CheckpointError(
                f"the image encoder {assets.encoder.name!r} is not the one that this run was trained with: its "
                "weights have changed. Train again, or restore them."
            )
        if cached:
            folder = data.cache or _cache_folder(assets.encoder.checksum, self._size(encoder))
            return cached_features(
                names, encoder, folder, size=self._size(encoder), max_pixels=data.max_pixels, log=log
            )
        images = Images.load(names, self._size(encoder), max_pixels=data.max_pixels, log=log)
        made = [encode_images(images.pixels[start : start + 8], encoder) for start in range(0, len(images), 8)]
        array = np.concatenate(made) if made else np.zeros((0, *assets.encoder.shape), np.float16)
        return ImageFeatures(array, range(len(images)), images.kept, images.unreadable)

    def _examples(
        self, captioned: Sequence[CaptionedImage], assets: CaptionAssets, log: Log | None = None, what: str = "captions"
    ) -> CaptionExamples:
        data, tokenizer = self.config.data, assets.tokenizer
        images = self._images([one.image for one in captioned], assets, log)
        if captioned and not images.kept:
            raise DataError(f"none of the {len(captioned)} images can be read: {images.unreadable[0]}")
        texts = [
            (place, self._plain(text))
            for place, number in enumerate(images.kept)
            for text in captioned[number].captions
        ]
        whole = list(tokenizer.encode_many(text for _, text in texts))
        long = sum(len(ids) > data.max_words for ids in whole)
        if long and log is not None:
            log(f"{long:,} of {len(whole):,} {what} are cut to data.max_words = {data.max_words} tokens")
        sequences = Sequences((ids[: data.max_words] for ids in whole), len(tokenizer))
        return CaptionExamples(images, [place for place, _ in texts], sequences, together=data.captions_together)

    # ---- loss

    def loss(self, model: nn.Module, batch: CaptionBatch) -> Loss:
        """Return the cross-entropy, summed over the tokens, and the further terms of the model."""
        wanted = Targets(batch.target[:, 1:], self.config.label_smoothing, PAD)
        learned: TokenLoss = model(CaptionedImages(*batch[:2]), None, batch.target[:, :-1], wanted)
        terms = learned.terms or {}
        total = learned.loss + sum(terms.values(), torch.zeros_like(learned.loss))
        return Loss(
            total,
            batch.target_valid[:, 1:].sum(),
            {"nats": learned.loss.detach(), **{name: term.detach() for name, term in terms.items()}},
        )

    def validate(self, model: nn.Module, held_out: _HeldOut) -> dict[str, float]:
        """Return nats per token, their exponential, and the metrics of greedy captions of the first images."""
        loss, chosen = self._nats(model, held_out.batches), self.metrics
        options = CaptionOptions(beam=1, max_length=self.config.data.max_words)
        count = len(held_out.references)
        found = self._search(model, held_out.images, np.arange(count), options)
        texts = [held_out.tokenizer.decode(hypotheses[0].tokens).strip() for hypotheses in found]
        return {
            "loss": loss,
            "perplexity": float(np.exp(min(loss, 700.0))),
            **{name: value for name, value in self._text_metrics(texts, held_out.references).items() if name in chosen},
        }

    def _nats(self, model: nn.Module, batches: TokenBatches[CaptionBatch]) -> float:
        total, count = 0.0, 0
        device = next(model.parameters()).device
        for batch in batches.epoch(0):
            images, image_of, target = (part.to(device) for part in batch[:3])
            wanted = Targets(target[:, 1:], padding=PAD)
            learned: TokenLoss = model(CaptionedImages(images, image_of), None, target[:, :-1], wanted)
            total += float(learned.loss)
            count += int((target[:, 1:] != PAD).sum())
        return total / max(count, 1)

    def _text_metrics(self, texts: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
        """Metrics of captions against their references."""
        exact = [self._plain(text) in {self._plain(one) for one in wanted} for text, wanted in zip(texts, references)]
        return {"exact": float(np.mean(exact)), **caption_scores(texts, references)}

    # ---- predictions

    @torch.no_grad()
    def _search(
        self,
        model: nn.Module,
        images: Images | ImageFeatures,
        places: NDArray[np.int64],
        options: CaptionOptions,
        prefix: list[int] | None = None,
    ) -> Iterator[list[Hypothesis]]:
        """Yield the hypotheses of each of these images."""
        captioner, device = cast(Captioner, model), next(model.parameters()).device
        longest = options.max_length or max(self.config.data.max_words, options.min_length)
        options = replace(options, max_length=longest)
        size = max(1, options.batch_tokens // longest)
        for start in range(0, len(places), size):
            some = places[start : start + size]
            batch = image_batch(images, some).to(device)
            memory, state = captioner.start(batch, None)
            down, across = captioner.grid(batch.shape)
            valid = torch.ones(len(some), down * across, dtype=torch.bool, device=device)
            begin = DecoderInputs(memory, state, len(some), device, longest, valid)
            yield from search_from(captioner, begin, options, prefix, unknown=False)

    def predict(
        self,
        model: nn.Module,
        assets: CaptionAssets,
        records: Sequence[Record],
        options: CaptionOptions,
        trace: bool,
        progress: Progress,
    ) -> list[Prediction]:
        """Write captions; a trace has the regions that each word looked at."""
        images = self._images([record["image"] for record in records], assets, cached=False)
        return self._predictions(model, assets, images, records, options, trace, progress)

    def _predictions(
        self,
        model: nn.Module,
        assets: CaptionAssets,
        images: Images | ImageFeatures,
        records: Sequence[Record],
        options: CaptionOptions,
        trace: bool,
        progress: Progress,
    ) -> list[Prediction]:
        model = quantized(model) if options.int8 else model
        reasons = {one.name: one.reason for one in images.unreadable}
        readable = {*images.kept}
        found: dict[int, Prediction] = {}
        for number, record in enumerate(records):
            if number not in readable:
                note = f"the image cannot be read, so nothing was predicted: {reasons[record['image']]}"
                found[number] = Prediction(record, "", None, {"notes": [note]})
        progress(len(found))
        prefix = None if options.prefix is None else assets.tokenizer.encode(self._plain(options.prefix)).ids
        searched = self._search(model, images, np.arange(len(images)), options, prefix)
        for place, (number, hypotheses) in enumerate(zip(images.kept, searched)):
            picture = self._picture(images, place, records[number]["image"]) if trace else None
            batch = image_batch(images, np.array([place]))
            made = [self._prediction(model, assets, records[number], one, batch, picture) for one in hypotheses]
            found[number] = replace(made[0], alternatives=tuple(made[1:]))
            progress(1)
        return [found[number] for number in range(len(records))]

    def _picture(self, images: Images | ImageFeatures, place: int, name: str) -> NDArray[np.uint8]:
        """The image as a trace shows it."""
        if isinstance(images, Images):
            return np.array(images.pixels[place])
        shown = Images.load([name], self.config.data.image_size or _FROZEN_SIZE)
        return np.array(shown.pixels[0])

    def _prediction(
        self,
        model: nn.Module,
        assets: CaptionAssets,
        record: Record,
        hypothesis: Hypothesis,
        batch: Tensor,
        picture: NDArray[np.uint8] | None,
    ) -> Prediction:
        text = assets.tokenizer.decode(hypothesis.tokens).strip()
        details: dict[str, Any] = {"log_prob": hypothesis.log_prob, "finished": hypothesis.finished}
        if not hypothesis.finished:
            details["notes"] = ["the caption was cut at its greatest length (max_length)"]
        traced = None if picture is None else self._trace(model, assets, hypothesis, batch, picture, text)
        return Prediction(record, text, hypothesis.score, details, traced)

    def _trace(
        self,
        model: nn.Module,
        assets: CaptionAssets,
        hypothesis: Hypothesis,
        batch: Tensor,
        picture: NDArray[np.uint8],
        text: str,
    ) -> Trace:
        """The regions of each produced word, by teacher forcing, which equals those of the search."""
        produced = [*hypothesis.tokens, EOS] if hypothesis.finished else hypothesis.tokens
        grid = cast(Captioner, model).grid(batch.shape)
        attentions = self._maps(model, batch, [produced])
        axes = {
            "image": Axis.from_image(picture, grid),
            "words": Axis.from_tokens(self._labels(assets.tokenizer, produced), "caption"),
        }
        return Trace.from_handles(
            attentions,
            axes,
            axes_of=dict.fromkeys(attentions, ("words", "image")),
            text=text,
            metadata={"score": hypothesis.score, "log-probability": hypothesis.log_prob},
        )

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
            maps = {"decoder.probabilities": Weights.from_tensor(probabilities_of(maps["decoder.cross"])), **maps}
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
        predictions = self._predictions(model, assets, images, records, options, False, progress)
        texts = [predictions[number].output for number in images.kept]
        references = [captioned[number].captions for number in images.kept]
        loss = self._nats(model, self._in_order(examples))
        metrics: dict[str, float | int] = {
            "images": len(texts),
            "unreadable": len(records) - len(texts),
            **self._text_metrics(texts, references),
            "loss": loss,
            "perplexity": float(np.exp(min(loss, 700.0))),
            "different": len(set(texts)) / len(texts),
        }
        notes = {
            "exact_of": "the share of captions that equal a reference, but for spaces and, in small letters, case",
            "scores_of": "in per cent (CIDEr-D to 1,000), of words without case and punctuation, characters where a "
            "script has no spaces; bleu1 to bleu4 with the brevity penalty, and without it as in the paper",
            "moves_of": "how far the weights move from word to word: 0 if all words look at the same regions, 1 if no "
            "two neighbors share one",
        }
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
            plain = self._plain(one.captions[0])
            encoding = assets.tokenizer.encode(plain)
            batch = image_batch(images, np.array([place]))
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


def _cache_folder(checksum: str, size: int) -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "foci" / "features" / f"{checksum}-{size}"
