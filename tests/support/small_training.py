"""A small model to train: tied weights, dropout, masked targets.

As a script it trains under python or torchrun; several trainings, one after the other, are separated by "then". With
"serve" as its only argument it forks for every line of its standard input, a JSON list of arguments, which saves
importing torch each time. Its answers are lines: the process's id, and at its end a JSON object with its exit ``code``
and ``output``.
"""

import argparse
import dataclasses
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from foci.training.devices import launch, launch_agents, launched
from foci.training.engine import run_training
from foci.training.objective import Loss
from foci.training.options import TrainingOptions
from foci.training.run_folder import RunFolder


@dataclasses.dataclass(frozen=True)
class Handle:
    """Like a handle on attention weights: a frozen record that must not be copied."""

    source: torch.Tensor


class Small(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Linear(3, 5)
        self.layers = nn.ModuleList(nn.Linear(5, 5) for _ in range(2))
        self.encode = nn.Linear(5, 5)
        self.decode = nn.Linear(5, 5)
        self.decode.weight = self.encode.weight
        self.last = nn.Linear(5, 1)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, inputs):
        hidden = self.first(inputs)
        for layer in self.layers:
            hidden = self.dropout(torch.tanh(layer(hidden)))
        hidden = self.decode(torch.tanh(self.encode(hidden)))
        return self.last(hidden).squeeze(-1), Handle(hidden)

    def other_call(self, inputs):
        """A method other than `forward`, as in step-by-step decoding."""
        return Small.forward(self, inputs)[0]


class Numbers:
    """Batches of made-up numbers; some targets are not scored. With ``parts`` each batch has this many pieces."""

    def __init__(self, rank: int = 0, world: int = 1, parts: int = 1) -> None:
        self.rank, self.world, self.parts, self.position = rank, world, parts, 0

    def __iter__(self):
        while True:
            batch, part = divmod(self.position, self.parts)
            self.position += 1
            inputs, targets, counts = make(batch, rows=13)
            share = slice(self.rank * self.parts + part, None, self.world * self.parts)
            yield inputs[share], targets[share], counts[share]

    def state_dict(self):
        return {"epoch": self.position // (7 * self.parts), "position": self.position}

    def load_state_dict(self, state):
        self.position = state["position"]


def make(seed: int, rows: int):
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(rows, 3, generator=generator)
    return inputs, torch.sin(inputs.sum(-1)), torch.rand(rows, generator=generator) > 0.4


class Fitting:
    """The objective. ``at_loss`` is called with the number of the batch."""

    def __init__(self, dropout: float = 0.0, at_loss=None) -> None:
        torch.manual_seed(3)
        self.model = Small(dropout)
        self.noise = dropout > 0
        self.at_loss = at_loss
        self.calls = 0
        self.values = []

    def loss(self, model, batch):
        inputs, targets, counts = batch
        self.calls += 1
        predicted, _ = model(inputs)
        if self.noise:
            targets = targets + 0.1 * random.gauss(0, 1) + 0.1 * float(np.random.standard_normal())
        wrong = (predicted.float() - targets) * counts
        loss = Loss(wrong.square().sum(), counts.sum(), {"absolute": wrong.detach().abs().sum()})
        return loss if self.at_loss is None else self.at_loss(self.calls, loss)

    def validate(self, model):
        inputs, targets, _ = make(10**6, rows=31)
        torch.rand(3), random.random(), np.random.rand()
        mean = (model.other_call(inputs) - targets).square().mean()
        return {"loss": float(mean.detach()), "training": float(model.training)}


def weights_digest(module: nn.Module) -> str:
    joined = b"".join(value.detach().numpy().tobytes() for value in module.state_dict().values())
    return hashlib.sha256(joined).hexdigest()


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("run", type=Path)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--strategy", default="ddp")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--save-every", type=int, default=3)
    parser.add_argument("--parts", type=int, default=1)
    parser.add_argument("--delay", type=float, default=0.0)
    parser.add_argument("--die-at", type=int, default=0, help="the last process kills itself here, once")
    parser.add_argument("--resume", action="store_true")
    return parser.parse_args(arguments)


def options_of(arguments: argparse.Namespace) -> TrainingOptions:
    return TrainingOptions(
        max_steps=arguments.steps, gradient_accumulation_steps=arguments.parts, save_every=arguments.save_every,
        eval_every=5, metrics_every=1, learning_rate=0.01, schedule="inverse_sqrt", warmup=4, max_grad_norm=0.5,
        strategy=arguments.strategy, device="cpu", average_last=2, log_seconds=0.2,
    )  # fmt: skip


def train(arguments: argparse.Namespace, fabric) -> None:
    rank, world = fabric.global_rank, fabric.world_size

    def at_loss(calls, loss):
        time.sleep(arguments.delay)
        first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
        if first and calls == arguments.die_at and rank == world - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return loss

    objective = Fitting(arguments.dropout, at_loss)
    batches = Numbers(rank, world, arguments.parts)
    with RunFolder(
        arguments.run,
        vars(arguments) | {"run": ""},
        resume=arguments.resume,
        main=rank == 0,
        launch=launch_agents(fabric),
    ) as run:
        summary = run_training(objective.model, objective, batches, options_of(arguments), run, fabric=fabric)
    if rank == 0:
        print("RESULT", arguments.run, summary.reason, summary.step, flush=True)


def main(arguments: Sequence[str]) -> None:
    torch.set_num_threads(1)
    texts: list[list[str]] = [[]]
    for argument in arguments:
        if argument == "then":
            texts.append([])
        else:
            texts[-1].append(argument)
    first, *others = map(parsed, texts)
    with launched(options_of(first)) as fabric:
        train(first, fabric)
        for other in others:
            train(other, launch(options_of(other)))


def serve() -> None:
    for line in sys.stdin:
        with tempfile.TemporaryFile() as file:
            process = os.fork()
            if process == 0:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                main(json.loads(line))
                sys.stderr.flush()
                os._exit(0)
            print(process, flush=True)
            _, status = os.waitpid(process, 0)
            file.seek(0)
            answer = {"code": os.waitstatus_to_exitcode(status), "output": file.read().decode(errors="replace")}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        serve()
    else:
        main(sys.argv[1:])
