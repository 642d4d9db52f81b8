"""The tables of docs/results.md, and the metrics that only they need."""

from __future__ import annotations

import resource
import time
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import torch

import foci
from foci.data.tokenizer import Tokenizer
from foci.metrics.attention import Movement, entropy, movement
from foci.models.options.words import POOLINGS
from foci.tasks.frame.predictor import Predictor
from foci.tasks.frame.task import Evaluation, Prediction
from foci.tasks.memorize.problems import PROBLEMS
from foci.training.run_folder import read_metrics
from foci.viz.figure.curves import plot_curves
from recipes import intervals, report
from recipes.recipe import Row

POOLING_NAMES = {
    "hierarchical": "hierarchical attention (HAN)",
    "attention": "attention, one level",
    "mean": "mean of all words",
    "last": "last states",
}
MODEL_NAMES = {"ntm": "Neural Turing Machine", "lstm": "LSTM"}
SHOWN = 60
"""Length of the copied sequence whose memory is drawn."""


def markdown(head: list[str], lines: list[list[str]]) -> str:
    """Return a table."""
    rule = "|" + "---|" * len(head)
    return "\n".join([f"| {' | '.join(head)} |", rule, *(f"| {' | '.join(line)} |" for line in lines)])


def share_cell(values: list[float], count: float, digits: int = 2) -> str:
    """Return the mean of a share over the seeds, its deviation, and the interval for so many examples."""
    low, high = intervals.of_share(min(fmean(values), 1.0), count)
    deviation = f" ± {100 * stdev(values):.2f}" if len(values) > 1 else ""
    return f"{100 * fmean(values):.{digits}f} %{deviation} [{100 * low:.1f}, {100 * high:.1f}]"


def interval_cell(row: Row, name: str, scale: float = 1.0, digits: int = 1) -> str:
    """Return the interval of a metric that was measured on parts of the examples; nothing for older rows."""
    found = row.get("intervals", {}).get(name)
    return "" if found is None else f" [{scale * found[0]:.{digits}f}, {scale * found[1]:.{digits}f}]"


# ---- translation


SEARCH = {"beam_size": 5, "length_penalty": 1.0}


def measure_translator(
    run: Predictor, evaluation: Evaluation, records: list[Row] | None, search: Row | None = None
) -> Row:
    """Return lower-cased BLEU, the speed of greedy decoding and of traces, and the entropy of the alignment."""
    records = [dict(record) for record in run.held_out()] if records is None else records
    lower = run.evaluate(records, options={**(SEARCH if search is None else search), "lowercase": True})
    sources = [record["source"] for record in records]
    started = time.perf_counter()
    produced = run.predict(sources[:200], options={"beam_size": 1}, trace=True)
    traced = time.perf_counter() - started
    started = time.perf_counter()
    greedy = run.predict(sources, options={"beam_size": 1})
    seconds = time.perf_counter() - started
    tokenizer: Tokenizer = run.assets.target_tokenizer  # type: ignore[attr-defined]
    tokens = sum(len(row) for row in tokenizer.encode_many(one.output for one in greedy))
    return {
        "tokens_per_second_decoded": tokens / seconds,
        "seconds_for_200_traces": traced,
        "alignment_entropy": alignment_entropy(produced),
        "bleu_lower": lower.metrics["bleu"],
        "bleu_lower_signature": lower.notes["bleu_signature"],
    }


def measure_default_translator(run: Predictor, evaluation: Evaluation, records: list[Row] | None) -> Row:
    """Return the same with the search by default, and BLEU of the validation pairs, also of greedy search."""
    splits = run.task.read(lambda text: None)
    valid = [pair._asdict() for pair in splits.valid]
    found = {beam: run.evaluate(valid, options={"beam_size": beam}).metrics["bleu"] for beam in (1, 5)}
    chosen = {"valid_bleu": found[5], "valid_bleu_greedy": found[1]}
    return {**measure_translator(run, evaluation, records, search={}), **chosen}


def alignment_entropy(predictions: list[Prediction]) -> float | None:
    """Return the mean entropy, in nats, of a generated token's attention over the source; None without attention."""
    rows = [one.trace.alignment() for one in predictions if one.trace is not None and one.trace.attentions]
    return float(np.concatenate([entropy(row) for row in rows]).mean()) if rows else None


def translation_table(rows: list[Row]) -> str:
    """Return the rows of translators, with sacrebleu's signatures below."""
    chosen = any("valid_bleu" in row for row in rows)
    head = ["model", "BLEU", "BLEU, lower-cased", "chrF", "perplexity", "entropy",
            *(["validation BLEU", "greedy"] if chosen else []), "minutes", "epochs", "s / epoch", "tokens/s trained",
            "tokens/s decoded", "seed"]  # fmt: skip
    lines = []
    for row in rows:
        nats = "" if row["alignment_entropy"] is None else f"{row['alignment_entropy']:.2f}"
        each = f"{60 * row['minutes'] / row['epochs']:.0f}" if row["epochs"] else ""
        metrics = [
            f"{row[name]:.2f}{interval_cell(row, name)}" for name in ("bleu", "bleu_lower", "chrf", "perplexity")
        ]
        speeds = [f"{speed:,.0f}" for speed in (_trained_per_second(row), row["tokens_per_second_decoded"])]
        valid = [f"{row[name]:.2f}" for name in ("valid_bleu", "valid_bleu_greedy") if chosen]
        cells = [row["name"], *metrics, nats, *valid, f"{row['minutes']:.1f}", str(row["epochs"]), each, *speeds]
        lines.append([*cells, str(row["seed"])])
    kinds = ("bleu_signature", "bleu_lower_signature", "chrf_signature")
    signatures = sorted({row[kind] for row in rows for kind in kinds})
    return markdown(head, lines) + "\n\nsacrebleu: " + "; ".join(f"`{signature}`" for signature in signatures)


def _trained_per_second(row: Row) -> float:
    if "tokens_per_second_trained" in row:  # rows of earlier recipes
        return float(row["tokens_per_second_trained"])
    return float(row["count_trained"] / max(60 * row["minutes"], 1e-9))


# ---- documents


def measure_classifier(run: Predictor, evaluation: Evaluation, records: list[Row] | None) -> Row:
    """Return how the run pools."""
    return {"pooling": run.config.model.pooling}


def labels_table(rows: list[Row]) -> str:
    """Return the mean over the seeds, and their standard deviation."""
    by_pooling: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_pooling[row["pooling"]].append(row)
    head = ["model", "accuracy", "macro F1", "documents evaluated", "minutes each", "seeds"]
    lines = []
    for pooling in [name for name in POOLINGS if name in by_pooling]:
        some = by_pooling[pooling]
        metrics = [
            share_cell([row["accuracy"] for row in some], some[0]["documents"]),
            _with_deviation([100 * row["macro_f1"] for row in some]),
        ]
        further = [f"{some[0]['documents']:.0f}", f"{fmean(row['minutes'] for row in some):.1f}", str(len(some))]
        lines.append([POOLING_NAMES[pooling], *metrics, *further])
    return markdown(head, lines)


def small_documents_table(rows: list[Row]) -> str:
    """Return the accuracies of the vote, of the baseline, and of both that vote alone, by the seeds' mean."""
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_name[row["name"]].append(row)
    names = ("accuracy", "linear_accuracy", "ngram_accuracy", "network_accuracy")
    lines = [
        [
            name,
            *(share_cell([row[one] for row in some], some[0]["documents"]) for one in names),
            _with_deviation([100 * row["ece"] for row in some]),
            f"{fmean(row['minutes'] for row in some):.1f}",
            str(len(some)),
        ]
        for name, some in by_name.items()
    ]
    head = [
        "data",
        "accuracy by default",
        "TF-IDF, logistic regression",
        "n-gram classifier alone",
        "network alone",
        "ECE",
        "minutes each",
        "seeds",
    ]
    return markdown(head, lines)


def evidence_table(rows: list[Row]) -> str:
    """Return the table of the attention on the deciding sentence and word."""
    head = ["model", "accuracy", "attention on the sentence", "on the word", "minutes", "seed"]
    lines = []
    for row in rows:
        shares = [row.get(f"attention_on_{what}") or row.get(f"on_{what}") or 0.0 for what in ("sentence", "word")]
        metrics = [
            share_cell([row["accuracy"]], row["documents"], 1),
            *(f"{100 * float(share):.1f} %" for share in shares),
        ]
        lines.append([POOLING_NAMES[row["pooling"]], *metrics, f"{row['minutes']:.1f}", str(row["seed"])])
    return markdown(head, lines)


def _with_deviation(values: list[float]) -> str:
    return f"{fmean(values):.2f} %" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


# ---- images


def measure_image_classifier(run: Predictor, evaluation: Evaluation, records: list[Row] | None) -> Row:
    """Return the number of parameters, the processor time of a step per image, and how maps fall on objects."""
    size, batch = run.config.data.image_size, 64
    images = torch.zeros(batch, 3, size, size, dtype=torch.uint8)
    times = []
    for _ in range(12):
        started = time.process_time()
        run.model(images).logits.sum().backward()
        times.append(time.process_time() - started)
    maps = evaluation.tables.get("maps")
    return {
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "milliseconds_per_image": 1000 * min(times) / batch,
        **({"maps": [list(row) for row in maps.rows]} if maps else {}),
    }


def images_table(rows: list[Row]) -> str:
    """Return the mean over the seeds of each network, and what it has more than the plain one."""
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_name[row["name"]].append(row)
    plain = by_name.get("plain", rows)
    least = min(row["milliseconds_per_image"] for row in plain)
    head = ["blocks", "accuracy", "macro F1", "parameters", "added", "ms per image", "added", "minutes each", "seeds"]
    lines = []
    for name, some in by_name.items():
        metrics = [
            share_cell([row["accuracy"] for row in some], some[0]["images"]),
            _with_deviation([100 * row["macro_f1"] for row in some]),
        ]
        parameters = some[0]["parameters"]
        spent = min(row["milliseconds_per_image"] for row in some)
        added = [
            f"{parameters:,}",
            f"{parameters / plain[0]['parameters'] - 1:.1%}",
            f"{spent:.2f}",
            f"{spent / least - 1:.0%}",
        ]
        lines.append([name, *metrics, *added, f"{fmean(row['minutes'] for row in some):.1f}", str(len(some))])
    return markdown(head, lines)


def places_table(rows: list[Row]) -> str:
    """Return accuracy, and pointing and the share inside of each map."""
    head = ["blocks", "accuracy", "map", "pointing", "inside", "minutes", "seed"]
    lines = []
    for row in rows:
        for number, (name, pointing, inside) in enumerate(row["maps"]):
            first = [row["name"], share_cell([row["accuracy"]], row["images"], 1)] if number == 0 else ["", ""]
            last = [f"{row['minutes']:.1f}", str(row["seed"])] if number == 0 else ["", ""]
            lines.append([*first, name, f"{100 * pointing:.1f} %", f"{100 * inside:.1f} %", *last])
    return markdown(head, lines)


def measure_answerer(run: Predictor, evaluation: Evaluation, records: list[Row] | None) -> Row:
    """Return the number of parameters, the metrics of each hop, and the accuracy by the kind of question."""
    given = [dict(record) for record in run.held_out()] if records is None else records
    answers = run.predict([{name: record[name] for name in ("image", "question")} for record in given])
    kinds: dict[str, list[bool]] = defaultdict(list)
    for record, answer in zip(given, answers):
        kinds[" ".join(record["question"].split()[:2])].append(answer.output == record["answer"])
    hops = evaluation.tables.get("hops")
    return {
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "kinds": {kind: fmean(right) for kind, right in sorted(kinds.items())},
        **({"hops": [list(row) for row in hops.rows]} if hops else {}),
    }


def answers_table(rows: list[Row]) -> str:
    """Return the accuracy, of all questions and by their first words, and where each hop looked."""
    kinds = sorted({kind for row in rows for kind in row["kinds"]})
    places = any("hops" in row for row in rows)
    head = ["model", "accuracy", *(f"“{kind} …”" for kind in kinds), *(["pointing", "inside"] if places else []),
            "questions", "parameters", "minutes", "seed"]  # fmt: skip
    lines = []
    for row in rows:
        shares = [
            share_cell([row["accuracy"]], row["questions"], 1),
            *(f"{100 * row['kinds'].get(kind, 0.0):.1f} %" for kind in kinds),
        ]
        looked = [
            ", ".join(f"{100 * hop[column]:.0f} %" for hop in row.get("hops", []))
            for column in ((1, 2) if places else ())
        ]
        further = [f"{row['questions']:,}", f"{row['parameters']:,}", f"{row['minutes']:.1f}", str(row["seed"])]
        lines.append([row["name"], *shares, *looked, *further])
    return markdown(head, lines)


# ---- captions


MAPS_MEASURED = 200
"""Captions whose maps are measured."""


def measure_captioner(run: Predictor, evaluation: Evaluation, records: list[Row] | None) -> Row:
    """Return the metrics of the validation images, how maps move in produced captions, and the memory of training."""
    splits = run.task.read(lambda text: None)
    options = {"beam_size": 5}
    valid = run.evaluate([one._asdict() for one in splits.valid], options=options)
    records = [{"image": one.image} for one in splits.test]
    started = time.perf_counter()
    traced = run.predict(records[:MAPS_MEASURED], options=options, trace=True)
    seconds = time.perf_counter() - started
    moves: dict[str, list[Movement]] = defaultdict(list)
    for one in traced:
        if one.trace is not None:
            for name in one.trace.attentions:
                moves[name].append(movement(one.trace.alignment(name)))
    return {
        "valid_bleu4": valid.metrics["bleu4"],
        "valid_cider_d": valid.metrics["cider_d"],
        "movement": {
            name: {
                "variation": fmean(one.variation for one in some),
                "changed": fmean(one.changed for one in some),
            }
            for name, some in moves.items()
        },
        "milliseconds_per_traced_image": 1000 * seconds / len(traced),
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "own_megabytes": _own_megabytes(),
        "examples": [[Path(one.inputs["image"]).name, one.output] for one in traced[:5]],
    }


def _own_megabytes() -> float:
    """The memory of the process without pages of mapped files, which the system takes back when it needs them."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def captions_table(rows: list[Row]) -> str:
    """Return the metrics of captions, and how the maps move from word to word."""
    head = ["attention", "BLEU-1", "2", "3", "4", "BLEU-4, no penalty", "CIDEr-D", "ROUGE-L", "length",
            "BLEU-4, validation", "maps move by", "another region", "minutes", "epochs", "memory", "seed"]  # fmt: skip
    lines = []
    for row in rows:
        names = ("bleu1", "bleu2", "bleu3", "bleu4", "bleu4_no_penalty", "cider_d", "rouge_l")
        metrics = [f"{row[name]:.1f}{interval_cell(row, name)}" for name in names]
        moved = row["movement"].get("decoder.cross", {"variation": 0.0, "changed": 0.0})
        further = [
            f"{row['length_ratio']:.2f}",
            f"{row['valid_bleu4']:.1f}",
            f"{moved['variation']:.2f}",
            f"{moved['changed']:.0%}",
            f"{row['minutes']:.1f}",
            f"{row['epochs']}",
            f"{row['own_megabytes']:,.0f} MB",
        ]
        lines.append([row["name"], *metrics, *further, str(row["seed"])])
    return markdown(head, lines)


# ---- tags


def measure_tagger(run: Predictor, evaluation: Evaluation, records: list[Row] | None) -> Row:
    """Return the metrics of the validation sentences, which chose the checkpoint, and the speed of tagging."""
    sentences = [record["text"] for record in run.held_out()]
    words = evaluation.metrics["words"]
    started = time.perf_counter()
    run.predict(sentences)
    seconds = time.perf_counter() - started
    splits = run.task.read(lambda text: None)
    valid = run.evaluate([sentence.to_record() for sentence in splits.valid])
    chosen = {
        f"valid_{name}": valid.metrics[name] for name in ("f1", "accuracy", "intent_accuracy") if name in valid.metrics
    }
    return {**chosen, "words_per_second_tagged": words / seconds}


def spans_table(rows: list[Row]) -> str:
    """Return the mean over the seeds of each model, and their standard deviation."""
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_name[row["name"]].append(row)
    intents = any("intent_accuracy" in row for row in rows)
    head = ["model", "span F1", "macro F1", "token accuracy", *(["intent", "sentence"] if intents else []), "ECE",
            "validation F1", "sentences/s trained", "words/s tagged", "minutes each", "seeds"]  # fmt: skip
    names = ["f1", "macro_f1", "accuracy", *(["intent_accuracy", "exact"] if intents else []), "ece", "valid_f1"]
    lines = []
    for name, some in by_name.items():
        counts = {"accuracy": "words", "intent_accuracy": "sentences", "exact": "sentences"}
        metrics = [
            share_cell([row[figure] for row in some], some[0][counts[figure]])
            if figure in counts
            else _with_deviation([100 * float(row[figure]) for row in some]) + interval_cell(some[0], figure, 100)
            for figure in names
        ]
        speeds = [
            f"{fmean(_trained_per_second(row) for row in some):,.0f}",
            f"{fmean(row['words_per_second_tagged'] for row in some):,.0f}",
        ]
        lines.append([name, *metrics, *speeds, f"{fmean(row['minutes'] for row in some):.1f}", str(len(some))])
    return markdown(head, lines)


# ---- entailment


def measure_entailer(run: Predictor, evaluation: Evaluation, records: list[Row] | None) -> Row:
    """Return the accuracy on the validation pairs, which chose the checkpoint, and the number of parameters."""
    splits = run.task.read(lambda text: None)
    valid = run.evaluate([pair._asdict() for pair in splits.valid])
    learned = sum(parameter.numel() for parameter in run.model.parameters() if parameter.requires_grad)
    return {"valid_accuracy": valid.metrics["accuracy"], "parameters": learned}


def entailment_table(rows: list[Row]) -> str:
    """Return the mean over the seeds of each model, their standard deviation, and the baselines of the same pairs."""
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_name[row["name"]].append(row)
    head = ["model", "accuracy", "macro F1", "validation accuracy", "majority label", "naive Bayes, hypothesis alone",
            "pairs evaluated", "pairs/s trained", "minutes each", "seeds"]  # fmt: skip
    lines = []
    for name, some in by_name.items():
        metrics = [
            share_cell([row["accuracy"] for row in some], some[0]["pairs"]),
            *(_with_deviation([100 * row[figure] for row in some]) for figure in ("macro_f1", "valid_accuracy")),
        ]
        baselines = [f"{100 * fmean(row[figure] for row in some):.2f} %" for figure in ("majority", "hypothesis_bayes")]
        speed = f"{fmean(_trained_per_second(row) for row in some):,.0f}"
        further = [f"{some[0]['pairs']:,}", speed, f"{fmean(row['minutes'] for row in some):.1f}", str(len(some))]
        lines.append([name, *metrics, *baselines, *further])
    return markdown(head, lines)


# ---- summaries


def measure_summarizer(run: Predictor, evaluation: Evaluation, records: list[Row] | None) -> Row:
    """Return the number of parameters, and ROUGE-1 of the validation texts, which chose the checkpoint."""
    metrics = [line for line in read_metrics(Path(run.path) / "metrics.jsonl") if line["kind"] == "valid"]
    return {
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "valid_rouge1": max(line["rouge1"] for line in metrics),
    }


def summary_table(rows: list[Row]) -> str:
    """Return the rows of models, with their baselines below."""
    kinds = ("rouge1", "rouge2", "rougeL")
    head = ["model", "ROUGE-1", "ROUGE-2", "ROUGE-L", "max 1 / 2 / L", "mean 1 / 2 / L", "novel 2-grams", "perplexity",
            "bits per character", "validation ROUGE-1", "minutes", "steps", "seed"]  # fmt: skip

    def several(row: Row, prefix: str, way: str) -> str:
        names = [f"{prefix}{kind}_{way}" for kind in kinds]
        return " / ".join(f"{row[name]:.1f}" for name in names) if names[0] in row else ""

    lines = []
    for row in rows:
        metrics = [f"{row[kind]:.2f}{interval_cell(row, kind)}" for kind in kinds]
        bits = f"{row['bits_per_character']:.2f}" if "bits_per_character" in row else ""
        further = [f"{100 * row['novel_2grams']:.0f} %", f"{row['perplexity']:.1f}", bits, f"{row['valid_rouge1']:.2f}"]
        ways = [several(row, "", way) for way in ("max", "mean")]
        lines.append(
            [row["name"], *metrics, *ways, *further, f"{row['minutes']:.1f}", str(row["steps"]), str(row["seed"])]
        )
    for name, title in (("lead", "the first sentence"), ("oracle", "the best sentence (knows the references)")):
        metrics = [f"{rows[0][f'{name}_{kind}']:.2f}" for kind in kinds]
        ways = [several(rows[0], f"{name}_", way) for way in ("max", "mean")]
        lines.append([title, *metrics, *ways, *[""] * 7])
    return markdown(head, lines)


# ---- cloze reading


def measure_reader(run: Predictor, evaluation: Evaluation, records: list[Row] | None) -> Row:
    """Return the metrics of each kind of question, those of the validation questions, and the speed of reading."""
    table = evaluation.tables["kinds"]
    splits = run.task.read(lambda text: None)
    valid = run.evaluate([question._asdict() for question in splits.valid])
    questions = run.held_out()
    started = time.perf_counter()
    run.predict(questions)
    seconds = time.perf_counter() - started
    return {
        "kinds": [dict(zip(table.columns, row)) for row in table.rows],
        "valid_accuracy": valid.metrics["accuracy"],
        "questions_per_second_answered": len(questions) / seconds,
    }


def reading_table(rows: list[Row]) -> str:
    """Return the mean over the seeds of each model for each kind of question, and their standard deviation."""
    by_name: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_name[row["name"]].append(row)
    kinds = [(at["kind"], at["questions"]) for at in rows[0]["kinds"]]
    head = ["reader", *(f"{kind} ({count:,})" for kind, count in kinds), "all", "among the best 3", "validation",
            "questions/s trained", "answered", "minutes each", "seeds"]  # fmt: skip
    lines = []
    for name, some in by_name.items():
        each = [
            share_cell([row["kinds"][number]["accuracy"] for row in some], count)
            for number, (_, count) in enumerate(kinds)
        ]
        whole = share_cell([row["accuracy"] for row in some], some[0]["questions"])
        further = [[100 * row[figure] for row in some] for figure in ("accuracy_at_3", "valid_accuracy")]
        speeds = [
            f"{fmean(_trained_per_second(row) for row in some):,.0f}",
            f"{fmean(row['questions_per_second_answered'] for row in some):,.0f}",
        ]
        minutes = f"{fmean(row['minutes'] for row in some):.1f}"
        lines.append([name, *each, whole, *map(_with_deviation, further), *speeds, minutes, str(len(some))])
    baseline = [f"{100 * at['most_frequent']:.2f} %" for at in rows[0]["kinds"]]
    lines.insert(0, ["most frequent candidate", *baseline, f"{100 * rows[0]['most_frequent']:.2f} %", *[""] * 6])
    return markdown(head, lines)


# ---- memory


def measure_memory(run: Predictor, evaluation: Evaluation, records: list[Row] | None) -> Row:
    """Return the metrics of each length."""
    table = evaluation.tables["lengths"]
    config = run.config
    return {
        "problem": config.data.problem.kind,
        "model": config.model.kind,
        "preset": config.model.preset,
        "batch_size": config.data.batch_size,
        "trained_to": config.data.problem.max_length,
        "lengths": [dict(zip(table.columns, row)) for row in table.rows],
    }


def memory_table(rows: list[Row]) -> str:
    """Return a line for each problem, model and length."""
    head = ["problem", "model", "length", "wrong bits", "of", "bits (cost)", "best possible", "perfect", "minutes",
            "sequences trained on", "seed"]  # fmt: skip
    lines = []
    for row in sorted(rows, key=lambda row: ([*PROBLEMS].index(row["problem"]), row["model"] != "ntm", row["seed"])):
        for number, at in enumerate(row["lengths"]):
            length = str(at["length"]) + ("" if at["length"] <= row["trained_to"] else " (beyond training)")
            best = "0" if at["optimal_bits"] is None else f"{at['optimal_bits']:.1f}"
            metrics = [f"{at['wrong_bits']:.2f}", f"{at['of_bits']:.0f}", f"{at['bits']:.2f}", best]
            further = [f"{row['minutes']:.1f}", f"{row.get('batch_size', 16) * row['steps']:,}", str(row["seed"])]
            name = [row["problem"], MODEL_NAMES[row["model"]]] if number == 0 else ["", ""]
            perfect = share_cell([at["perfect"]], at["sequences"], 1)
            lines.append([*name, length, *metrics, perfect, *(further if number == 0 else [""] * 3)])
    return markdown(head, lines)


def draw_memory(rows: list[Row]) -> None:
    """Draw error against length of all models on copy, and the memory of the first Neural Turing Machine."""
    images = report.ROOT / "docs" / "images"
    copying = [row for row in rows if row["problem"] == "copy"]
    curves = {
        f"{row['model'].upper()}, seed {row['seed']}": [(at["length"], at["wrong_bits"]) for at in row["lengths"]]
        for row in copying
    }
    plot_curves(curves, images / "memory-lengths.png", across="length", up="wrong bits per sequence", title="copy")
    # Of runs on other machines only the rows exist.
    runs = [row["run"] for row in copying if row["model"] == "ntm" and Path(row["run"]).exists()]
    if runs:
        (prediction,) = foci.load(runs[0]).predict([SHOWN], trace=True)
        if prediction.trace is not None:
            prediction.trace.plot(images / "memory-tape.png")


# ---- language models


def language_table(rows: list[Row]) -> str:
    """Return the rows in the order they were measured: CPU time, tokens read, and the metrics of the held-out text."""
    lines = [
        [
            row["name"],
            f"{row['cpu_seconds'] / 60:.1f}" if "cpu_seconds" in row else f"{row['minutes']:.1f}",
            f"{row['steps']:,}",
            f"{row['count_trained'] / 1e6:.2f}",
            f"{row['parameters'] / 1e6:.2f}",
            f"{row['nats']:.4f}{interval_cell(row, 'nats', digits=3)}",
            f"{row['bits_per_byte']:.4f}",
        ]
        for row in rows
    ]
    head = ["model", "minutes", "steps", "M characters read", "M parameters", "nats", "bits per byte"]
    return markdown(head, lines)


def measure_language(run: Predictor, evaluation: Evaluation, records: list[Row] | None) -> Row:
    """Return the number of parameters."""
    return {"parameters": sum(parameter.numel() for parameter in run.model.parameters())}
