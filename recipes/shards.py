"""`python -m recipes.shards [--layers L] [--processes N …]`: the memory of each process, with ddp and with fsdp.

Trains a Transformer for three steps, with a trial of the longest batch, validations and checkpoints, once for each
strategy and number of processes on this machine. Printed is the peak of the resident memory (VmHWM) of the process
that had most of all.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import foci
import foci.tasks.frame.train
import foci.training.engine
from recipes.tables import markdown

STRATEGIES = ("ddp", "fsdp")


def main() -> None:
    """Measure, and print a table; under torchrun, train as one of the processes that are measured."""
    parser = argparse.ArgumentParser(prog="python -m recipes.shards", description=__doc__)
    parser.add_argument("--layers", type=int, default=6, help="of the encoder, and of the decoder")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.layers, *options.worker)
        return
    with tempfile.TemporaryDirectory() as folder:
        peaks = {
            (strategy, number): measured(options.layers, strategy, number, Path(folder) / f"{strategy}-{number}")
            for number in options.processes
            for strategy in STRATEGIES
        }
    lines = [[str(number), *(peaks[strategy, number] for strategy in STRATEGIES)] for number in options.processes]
    print(markdown(["processes", *(f"{strategy}, MB per process" for strategy in STRATEGIES)], lines))


def measured(layers: int, strategy: str, number: int, folder: Path) -> str:
    """Return the largest peak of the processes, and what they had before they built a model."""
    folder.mkdir()
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={number}"]
    worker = ["-m", "recipes.shards", "--layers", str(layers), "--worker", strategy, str(folder)]
    subprocess.run([*launcher, *worker], check=True)
    found = [tuple(map(int, file.read_text().split())) for file in folder.glob("*.peak")]
    return f"{max(peak for _, peak in found):,} ({max(before for before, _ in found):,} without a model)"


def work(layers: int, strategy: str, folder: str) -> None:
    """Train as one process, and write down its peaks."""
    before = peak()
    depth = {part: {"num_layers": layers} for part in ("encoder", "decoder")}
    tables = {
        "data": {"builtin": 200, "languages": "en-de", "batch_tokens": 200},
        "tokenizer": {"kind": "characters", "shared": True},
        "model": {"kind": "transformer", "preset": "base", "share_embeddings": True, **depth},
        "training": {"max_steps": 3, "eval_every": 2, "save_every": 2, "strategy": strategy, "device": "cpu"},
    }
    foci.train("translate", tables, out=Path(folder) / "run")
    (Path(folder) / f"{os.environ['RANK']}.peak").write_text(f"{before} {peak()}")


def peak() -> int:
    """Return the peak of this process's resident memory so far, in MB."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    kilobytes = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))
    return int(kilobytes) * 1024 // 10**6


if __name__ == "__main__":
    main()
