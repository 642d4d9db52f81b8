"""Tinyshakespeare: what a language model of foci learns in the CPU time that nanoGPT's configuration for a CPU takes.

    python -m benchmarks.shakespeare [--only ROW …] [--seconds S] [--seed S] [--out FOLDER]

First GPT-2 in plain PyTorch (`benchmarks/plain_gpt.py`) takes 2,000 steps of 12 windows of 64 characters with nanoGPT's
learning rates; its processor time is the budget of ours, which `foci.train` trains with as many steps as fit. What each
ingredient brings is then measured in a quarter of that time, ours included. All are evaluated on the last 55,770
characters, the second half of what is not trained on, each predicted from at least half a context. One thread, one
process.
Rows are kept in recipes/results/shakespeare.jsonl.
"""

from __future__ import annotations

import argparse
import json
import lzma
import math
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from recipes import data, intervals, report
from recipes.recipe import CONFIGS
from recipes.run import measure_intervals

import foci
from benchmarks.plain_gpt import PlainGPT, Sizes, optimizer, rate_at, train_step
from foci.decoding import windows
from foci.tasks.frame import config as configs
from foci.tasks.frame.task import Shard
from foci.tasks.generate.task import Generate
from foci.training.optim import make_optimizer

STEPS, BATCH = 2000, 12
PLAIN = "GPT-2 in plain PyTorch, nanoGPT's settings"
OURS = "foci"
QUARTER = "a quarter of the time: "

ROWS: dict[str, dict[str, Any]] = {
    OURS: {},
    "AdamW instead of Muon": {
        "training.optimizer": "adamw",
        "training.weight_decay": 0.1,
        "training.betas": [0.9, 0.99],
        "training.learning_rate": 3e-3,
    },
    "LSTM": {"model": {"kind": "recurrent"}, "training.learning_rate": 5e-3, "training.optimizer": "adamw"},
    "LSTM with attention over its history": {
        "model": {"kind": "history"},
        "training.learning_rate": 5e-3,
        "training.optimizer": "adamw",
    },
    "float32 instead of bfloat16": {"training.precision": "float32"},
    "learned positions": {"model.positions": "learned"},
    "ALiBi": {"model.positions": "alibi"},
    "sinusoids": {"model.positions": "sinusoidal", "model.scale_embeddings": True},
    "without QK-norm": {"model.qk_norm": False},
    "GELU instead of relu²": {"model.activation": "gelu"},
    "a context of 64": {"data.context": 64, "data.batch_size": 32},
    "residual branches that do not start at 0": {"model.zero_residual": False},
    "with RMSNorm": {"model.rms_norm": True},
    "with a soft-cap of 15": {"model.logit_cap": 15.0},
    "with a tied output": {"model.tie_output": True},
}
"""What differs from recipes/configs/shakespeare.toml, by the names of the rows."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.shakespeare", description=__doc__.splitlines()[0])
    made.add_argument("--only", action="append", metavar="ROW", choices=[*ROWS])
    made.add_argument("--seconds", type=float, help="the budget; the baseline is not trained then")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--out", type=Path, default=Path("runs/shakespeare"))
    return made


def main() -> None:
    """Train the rows that are asked for."""
    asked = parser().parse_args()
    torch.set_num_threads(1)
    data.set_variables(asked.out)
    data.split_shakespeare(asked.out)
    with lzma.open(data.folder("tinyshakespeare") / "input.txt.xz", "rt", encoding="utf-8") as file:
        text = file.read()
    budget = asked.seconds
    if budget is None:
        row = plain(text, asked.seed)
        budget = row["cpu_seconds"]
        _keep(row, f'--only "{OURS}"')
        _keep(ours(OURS, {}, budget, asked.seed, asked.out), f'--only "{OURS}"')
    for name in asked.only or ROWS:
        row = ours(name, ROWS[name], budget / 4, asked.seed, asked.out)
        _keep({**row, "name": QUARTER + name}, f'--only "{name}" --seconds {budget:.0f}')


def _keep(row: dict[str, Any], options: str) -> None:
    """Store a row, with the command that measures it alone."""
    command = f"python -m benchmarks.shakespeare {options} --seed {row['seed']} --out runs/shakespeare"
    report.add("shakespeare", {**row, "command": command})
    print(json.dumps(row), flush=True)


def plain(text: str, seed: int) -> dict[str, Any]:
    """Train the baseline; return its row."""
    torch.manual_seed(seed)
    characters = sorted(set(text))
    numbers = {character: number for number, character in enumerate(characters)}
    ids = torch.tensor([numbers[character] for character in text])
    cut = int(len(ids) * 0.9)
    model = PlainGPT(Sizes(len(characters)))
    adam = optimizer(model)
    context = model.sizes.context
    began = time.process_time()
    for step in range(STEPS):
        for group in adam.param_groups:
            group["lr"] = rate_at(step, STEPS)
        starts = torch.randint(cut - context, (BATCH,))
        rows = torch.stack([ids[start : start + context + 1] for start in starts.tolist()])
        train_step(model, adam, rows[:, :-1], rows[:, 1:])
    seconds = time.process_time() - began
    return {
        "name": PLAIN,
        "seed": seed,
        "steps": STEPS,
        "cpu_seconds": seconds,
        "count_trained": STEPS * BATCH * context,
        "parameters": sum(one.numel() for one in model.parameters()),
        **_evaluated(model.eval(), ids, (cut + len(ids)) // 2),
    }


@torch.no_grad()
def _evaluated(model: PlainGPT, ids: torch.Tensor, cut: int) -> dict[str, Any]:
    """Nats of each character from ``cut`` on; the first is predicted from the one before."""
    context = model.sizes.context
    held_out = ids[cut:]
    nats: list[float] = []
    for window in windows(len(held_out), context, context // 2):
        row = ids[cut + window.begin - 1 : cut + window.end]
        logs = model(row[:-1].unsqueeze(0))[0].log_softmax(dim=-1)
        found = logs.gather(1, row[1:].unsqueeze(1)).squeeze(1)
        nats += (-found[window.new - window.begin :]).tolist()
    mean = float(np.mean(nats))
    parts = [float(part.mean()) for part in np.array_split(nats, intervals.PARTS)]
    return {
        "characters": len(held_out),
        "nats": mean,
        "bits_per_byte": mean / math.log(2),
        "intervals": {"nats": intervals.of_parts(mean, parts)},
    }


def ours(name: str, changes: Mapping[str, Any], budget: float, seed: int, out: Path) -> dict[str, Any]:
    """Train one of ours in this CPU time; return its row."""
    tables = configs.put(configs.read_toml(CONFIGS / "shakespeare.toml"), {"training.seed": seed})
    tables = configs.put(tables, changes)
    steps = max(20, int(budget / seconds_per_step(tables)))
    warmup = min(int(tables["training"].get("warmup", 0)), steps // 4)
    tables = configs.put(tables, {"training.max_steps": steps, "training.warmup": warmup, "training.eval_every": None})
    folder = out / name.replace(" ", "-").replace(":", "").replace("²", "2").lower()
    shutil.rmtree(folder, ignore_errors=True)
    began = time.process_time()
    summary = foci.train("generate", tables, out=folder, log=lambda text: None)
    seconds = time.process_time() - began
    run = foci.load(folder, checkpoint="last")
    metrics = run.evaluate().metrics
    return {
        "name": name,
        "seed": seed,
        "steps": summary.step,
        "cpu_seconds": seconds,
        "count_trained": summary.count,
        "parameters": sum(one.numel() for one in run.model.parameters()),
        **{key: metrics[key] for key in ("characters", "nats", "bits_per_byte")},
        "intervals": measure_intervals(run, ("nats",), metrics, None, {}),
    }


def seconds_per_step(tables: Mapping[str, Any], steps: int = 24) -> float:
    """The CPU time of a training step, what `foci.training.engine` does for one."""
    torch.manual_seed(0)
    task = Generate(configs.configure(Generate.Config, tables, "shakespeare"))
    splits = task.read(lambda text: None)
    assets = task.assets(splits, lambda text: None)
    model = task.model(assets).train()
    adam = make_optimizer(model, task.config.training)
    stream = iter(task.batches(splits, assets, Shard(), lambda text: None))
    times = []
    for _ in range(steps):
        began = time.process_time()
        adam.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=task.config.training.precision == "bfloat16"):
            loss = task.loss(model, next(stream))
        loss.total.backward()
        gradients = [one.grad for one in model.parameters() if one.grad is not None]
        torch._foreach_div_(gradients, float(loss.count) + float(torch.nn.utils.get_total_norm(gradients)))
        adam.step()
        times.append(time.process_time() - began)
    return float(np.median(times[4:]))


if __name__ == "__main__":
    main()
