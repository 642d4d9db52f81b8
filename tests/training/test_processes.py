"""Real processes: torchrun, kill -9, elastic restarts."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from foci.training import Checkpoints, read_metrics, verify

SCRIPT = Path(__file__).parents[1] / "support" / "small_training.py"
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

pytestmark = pytest.mark.slow


def command(run, *arguments, processes=0, restarts=0):
    launcher = [sys.executable]
    if processes:
        launcher += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        launcher += [f"--max-restarts={restarts}"]
    return [*launcher, str(SCRIPT), str(run), *map(str, arguments)]


def train(run, *arguments, processes=0, restarts=0, result="max_steps 20"):
    done = subprocess.run(
        command(run, *arguments, processes=processes, restarts=restarts),
        env=ENVIRONMENT, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"RESULT {result}" in done.stdout
    return done.stderr


def losses(run):
    return [(line["kind"], line["step"], line["loss"]) for line in read_metrics(run / "metrics.jsonl")]


def last_weights(run):
    return load_file(Checkpoints(run / "checkpoints").all()[-1] / "model.safetensors")


def assert_same_losses(one, other):
    assert [line[:2] for line in losses(one)] == [line[:2] for line in losses(other)]
    assert [line[2] for line in losses(one)] == pytest.approx([line[2] for line in losses(other)], rel=1e-4)


def assert_same_curve(one, other):
    assert_same_losses(one, other)
    torch.testing.assert_close(last_weights(one), last_weights(other), rtol=1e-3, atol=1e-5)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "alone"
    train(run)
    assert len([line for line in losses(run) if line[0] == "train"]) == 20
    return run


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("parts", [1, 2])
def test_two_processes_learn_what_one_learns(tmp_path, alone, strategy, parts):
    train(tmp_path / "two", "--strategy", strategy, "--parts", parts, processes=2)
    assert_same_curve(alone, tmp_path / "two")


def test_every_process_draws_random_numbers_of_its_own(tmp_path):
    """Two processes with one seed would drop the same units of their halves of each batch."""
    train(tmp_path / "two", "--dropout", 0.3, "--steps", 2, processes=2, result="max_steps 2")
    saved = load_file(Checkpoints(tmp_path / "two" / "checkpoints").all()[-1] / "random.safetensors")
    for kind in ("torch", "python", "numpy"):
        assert not torch.equal(saved[f"0/{kind}"], saved[f"1/{kind}"])


@pytest.mark.parametrize(("before", "after"), [("ddp", "fsdp"), ("fsdp", None)])
def test_resuming_with_other_processes(tmp_path, alone, before, after):
    """Checkpoints do not depend on the number of processes."""
    run = tmp_path / "run"
    train(run, "--strategy", before, "--steps", 10, processes=2, result="max_steps 10")
    if after is None:
        train(run, "--resume")
    else:
        train(run, "--resume", "--strategy", after, processes=2)
    assert_same_curve(alone, run)


def test_kill_9_loses_nothing_but_the_last_steps(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    shape = ("--dropout", 0.3, "--checkpoint-every", 2, "--steps", 60)
    train(whole, *shape, result="max_steps 60")
    chance = random.Random(5)
    steps = [0]
    for attempt in range(6):
        process = subprocess.Popen(
            command(cut, *shape, "--delay", 0.02, *(["--resume"] if attempt else [])),
            env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        known = {path.name for path in Checkpoints(cut / "checkpoints").all()}
        deadline = time.monotonic() + 120
        while {path.name for path in Checkpoints(cut / "checkpoints").all()} <= known and process.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.25))
        if process.poll() is not None:
            break
        process.send_signal(signal.SIGKILL)
        process.wait()
        checkpoints = Checkpoints(cut / "checkpoints").all()
        assert all(verify(path) for path in checkpoints)  # every one that can be seen is whole
        steps.append(verify(checkpoints[-1])["step"])
        assert steps[-1] > steps[-2]
    assert len(steps) > 3
    train(cut, *shape, "--resume", result="max_steps 60")
    one, other = last_weights(whole), last_weights(cut)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert losses(whole) == losses(cut)


def test_killed_worker_is_restarted_by_elastic(tmp_path, alone):
    said = train(tmp_path / "two", "--die-at", 12, processes=2, restarts=2)
    assert "resuming from" in said
    assert "step-00000010, step 10" in said
    assert_same_curve(alone, tmp_path / "two")


TWO = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
MODELS = {
    "transformer": ["model_dim=8", "num_heads=2", "hidden_dim=12", "num_layers=2", "share_embeddings=true"],
    "rnn": ["embedding_dim=6", "hidden_dim=8"],
    "conv": ["embedding_dim=6", "encoder_layers=[[8, 3], [8, 3]]", "decoder_layers=[[8, 3], [8, 3]]"],
}


@pytest.mark.parametrize("model", MODELS)
def test_a_translator_in_shards_on_two_processes_is_that_of_one(tmp_path, model):
    words = ["red", "blue", "green", "house", "tree"]
    draw = random.Random(0)
    lines = [" ".join(draw.choices(words, k=draw.randint(1, 5))) for _ in range(40)]
    for side in ("source", "target"):
        (tmp_path / side).write_text("\n".join(lines) + "\n", encoding="utf-8")
    settings = [f"model.{option}" for option in MODELS[model]]
    settings += ["model.dropout=0.0", "tokeniser.kind=words", "tokeniser.size=50", "tokeniser.shared=true"]
    settings += ["data.max_tokens=90", "training.max_steps=5", "training.valid_every=5", "training.metrics_every=1"]
    arguments = ["train", "translate", "--source", tmp_path / "source", "--target", tmp_path / "target"]
    arguments += ["--model", model, *(part for setting in settings for part in ("--set", setting))]
    for name, launcher, strategy in (("one", [], "ddp"), ("shards", TWO, "fsdp")):
        done = subprocess.run(
            [sys.executable, *launcher, "-m", "foci_cli", *map(str, arguments), "--set",
             f"training.strategy={strategy}", "--out", str(tmp_path / name)],
            env=ENVIRONMENT, capture_output=True, text=True, timeout=240,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("trained (max_steps)") == 1
    # Not the weights: a key's bias has no gradient but rounding, which Adam makes large.
    assert_same_losses(tmp_path / "one", tmp_path / "shards")


def test_a_restart_does_not_take_another_run_for_its_own(tmp_path):
    """torchrun restarts a worker whose first attempt was refused: the restart must be refused as well."""
    out = tmp_path / "run"
    arguments = ["train", "memorise", "--preset", "tiny", "--set", "training.max_steps=2", "--out", str(out)]
    first = subprocess.run(
        [sys.executable, "-m", "foci_cli", *arguments], env=ENVIRONMENT, capture_output=True, text=True
    )
    assert first.returncode == 0, first.stderr
    before = {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=1", "--max-restarts=1"]
    changed = [*arguments, "--set", "training.seed=5"]
    done = subprocess.run(
        [sys.executable, *launcher, "-m", "foci_cli", *changed],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode != 0
    assert done.stderr.count("holds a run, and nothing is overwritten") == 2
    assert {path.relative_to(out): path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
