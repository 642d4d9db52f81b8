"""`python -m recipes.aligner [--out runs]`: train the aligner of words on the Hansards, and keep its row.

Two models, one for each direction, trained alone and without gold; the same command resumes what was stopped.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from pathlib import Path

import torch

import foci
from foci.data import Pair, open_corpus
from foci.data.pairs import read_pairs
from foci.metrics.alignments import agreement, symmetrize, transposed
from foci.models.word_aligner import WordAligner
from foci.tasks.translate.word_links import (
    HIDDEN_DIM,
    Batches,
    Direction,
    aligner_batches,
    read_links,
    word_nats,
    word_tokenizers,
)
from foci.training.objective import Loss
from recipes import data, report
from recipes.alignments import JOINED, WAYS, rates, read_test
from recipes.table import RECIPES

NAMES = {"WordAligner, each direction alone": False, "WordAligner, words of both directions": True}
"""The rows, and whether each direction is read with the words' probabilities of the other one."""
LOOKED_AT = 5
"""While the model was made, every fifth gold sentence was looked at; the others are measured apart as well."""
OPTIONS = {
    "max_steps": 800,
    "learning_rate": 1e-2,
    "schedule": "cosine",
    "warmup": 50,
    "eval_every": 400,
    "device": "cpu",
}


Trained = tuple[Direction, float | None]
"""A direction, and the processor time of its training; None of one that was resumed."""


class Likelihood:
    """Minus the log-likelihood of the targets' words."""

    def __init__(self, held_out: Batches) -> None:
        self.held_out = held_out

    def loss(self, model: torch.nn.Module, batch: tuple[torch.Tensor, ...]) -> Loss:
        """Return the nats of a batch."""
        return Loss(word_nats(model, batch), int((batch[1] > 0).sum()))

    def validate(self, model: torch.nn.Module) -> Mapping[str, float]:
        """Return the nats per word of the held-out pairs, words among those of their batch."""
        losses = [self.loss(model, batch) for batch in self.held_out.epoch(0)]
        return {"loss": sum(float(one.total) for one in losses) / sum(int(one.count) for one in losses)}


def train(out: Path, way: str, seed: int) -> Trained:
    """Train or resume one direction; return it and the processor time."""
    pairs = {
        part: read_pairs(open_corpus(out / f"hansards.{way}.{part}.tsv", columns=(0, 1))) for part in ("train", "valid")
    }
    source, target = tokenizers = word_tokenizers(pairs["train"])
    batches = {part: aligner_batches(some, tokenizers, seed) for part, some in pairs.items()}
    arguments = {"source_vocabulary": len(source), "target_vocabulary": len(target), "hidden_dim": HIDDEN_DIM}
    torch.manual_seed(seed)
    folder, began = out / f"hansards-aligner-{way}-{seed}", time.process_time()
    resume = (folder / "config.json").exists()
    foci.fit(
        WordAligner(**arguments),
        Likelihood(batches["valid"]),
        batches["train"],
        out=folder,
        options={**OPTIONS, "seed": seed},
        arguments=arguments,
        resume=resume,
    )
    spent = None if resume else time.process_time() - began
    return Direction(foci.load(folder, model=WordAligner, checkpoint="last"), tokenizers), spent


def main() -> None:
    """Train both directions, measure them alone and joined, and write the report."""
    parser = argparse.ArgumentParser(prog="python -m recipes.aligner", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs"), help="folder for the runs")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    data.set_variables(options.out)
    data.prepare_hansards(options.out)
    pairs, gold = read_test(options.out)
    turned = [Pair(pair.target, pair.source) for pair in pairs]
    trained = {way: train(options.out, way, options.seed) for way in WAYS}
    spent = [seconds for _, seconds in trained.values()]
    others = [number for number in range(len(gold)) if number % LOOKED_AT]
    for name, together in NAMES.items():
        both = [
            read_links(trained[way][0], some, trained[back][0].model if together else None)
            for way, back, some in zip(WAYS, reversed(WAYS), (pairs, turned))
        ]
        both[1] = list(map(transposed, both[1]))
        found = dict(zip(WAYS, both))
        for method in JOINED:
            found[method] = [symmetrize(one, other, method) for one, other in zip(*both)]
        row = {
            "name": f"{name}, seed {options.seed}" if options.seed else name,
            "seed": options.seed,
            "steps": OPTIONS["max_steps"],
            "whole": True,
            **({} if None in spent else {"cpu_seconds": sum(map(float, filter(None, spent)))}),
            "agreement": round(agreement(*both), 4),
            **{name: rates(some, gold) for name, some in found.items()},
            "others": {
                name: rates([some[number] for number in others], [gold[number] for number in others])
                for name, some in found.items()
            },
            "command": f"python -m recipes.aligner --seed {options.seed} --out runs",
        }
        report.add("hansards", row)
        print(json.dumps(row))
    print(f"wrote {report.write(RECIPES)}")


if __name__ == "__main__":
    main()
