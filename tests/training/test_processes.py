"""Real processes: torchrun, kill -9, elastic restarts."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import foci_cli
from foci.tasks import TASKS
from foci.training.checkpoint import Checkpoints, load, verify
from foci.training.run_folder import read_metrics

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
SCRIPT, SEVERAL = SUPPORT / "small_training.py", SUPPORT / "several_commands.py"
SEVERAL_PROCESSES = SUPPORT / "several_processes.py"
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

pytestmark = pytest.mark.slow


def command(*arguments, processes=0, restarts=0):
    launcher = [sys.executable]
    if processes:
        launcher += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
        launcher += [f"--max-restarts={restarts}"]
    return [*launcher, *map(str, arguments)]


def started(*arguments, **launch):
    """Run to the end, and return what was printed and what was told beside it."""
    done = subprocess.run(command(*arguments, **launch), env=ENVIRONMENT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


class Forks:
    """Trainings in processes of their own, forked from one that has imported torch."""

    def __init__(self, server):
        self.server = server

    def start(self, *arguments):
        """Start a training, and return the number of its process."""
        print(json.dumps([*map(str, arguments)]), file=self.server.stdin, flush=True)
        return int(self.server.stdout.readline())

    def end(self):
        """Wait for the end of the training, and return the exit code and the output."""
        answer = json.loads(self.server.stdout.readline())
        return answer["code"], answer["output"]

    def train(self, run, *arguments, result="max_steps 20"):
        self.start(run, *arguments)
        code, output = self.end()
        assert code == 0, output
        assert f"RESULT {run} {result}" in output


@pytest.fixture(scope="module")
def forks():
    with subprocess.Popen(
        command(SCRIPT, "serve"), env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        yield Forks(server)
        server.stdin.close()


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def losses(run):
    return [(line["kind"], line["step"], line["loss"]) for line in read_metrics(run / "metrics.jsonl")]


def last_weights(run):
    return {**load(Checkpoints(run / "checkpoints").all()[-1]).model}


def assert_same_losses(one, other):
    assert [line[:2] for line in losses(one)] == [line[:2] for line in losses(other)]
    assert [line[2] for line in losses(one)] == pytest.approx([line[2] for line in losses(other)], rel=1e-4)


def assert_same_curve(one, other):
    assert_same_losses(one, other)
    torch.testing.assert_close(last_weights(one), last_weights(other), rtol=1e-3, atol=1e-5)


@pytest.fixture(scope="module")
def alone(tmp_path_factory, forks):
    run = tmp_path_factory.mktemp("runs") / "alone"
    forks.train(run)
    assert len([line for line in losses(run) if line[0] == "train"]) == 20
    return run


TOGETHER = {
    "seeds": ["--dropout", 0.3, "--steps", 2],
    **{f"{strategy} {parts}": ["--strategy", strategy, "--parts", parts]
       for strategy in ("ddp", "fsdp") for parts in (1, 2)},
    "begun by ddp": ["--strategy", "ddp", "--steps", 10],
    "begun by fsdp": ["--strategy", "fsdp", "--steps", 10],
}  # fmt: skip
"""Trainings on two processes, by the names of their folders."""


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """The folder of the trainings on two processes: torchrun takes far longer to start than they take."""
    folder = tmp_path_factory.mktemp("together")
    trainings = [[folder / name, *arguments] for name, arguments in TOGETHER.items()]
    trainings += [[folder / "begun by ddp", "--strategy", "fsdp", "--resume"]]
    told, _ = started(SCRIPT, *trainings[0], *(part for one in trainings[1:] for part in ("then", *one)), processes=2)
    results = [line.removeprefix(f"RESULT {folder}/") for line in told.splitlines() if line.startswith("RESULT")]
    steps = [2, 20, 20, 20, 20, 10, 10]
    assert results == [
        *(f"{name} max_steps {count}" for name, count in zip(TOGETHER, steps)), "begun by ddp max_steps 20",
    ]  # fmt: skip
    return folder


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("parts", [1, 2])
def test_two_processes_learn_what_one_learns(together, alone, strategy, parts):
    assert_same_curve(alone, together / f"{strategy} {parts}")


def test_in_shards_each_process_writes_its_part(together):
    path = Checkpoints(together / "fsdp 1" / "checkpoints").all()[-1]
    parts = {name: [load_file(path / f"{name}-0000{part}-of-00002.safetensors") for part in (1, 2)]
             for name in ("model", "optimizer")}  # fmt: skip
    assert {file.name for file in path.glob("*.safetensors")} == {
        "random.safetensors", *(f"{name}-0000{part}-of-00002.safetensors" for name in parts for part in (1, 2)),
    }  # fmt: skip
    whole = load(path)
    rows = [len(part["first.weight"]) for part in parts["model"]]
    assert rows == [3, 2]
    for name, (first, second) in parts.items():
        joined = getattr(whole, name)
        assert first.keys() == joined.keys()
        assert {key for key in first.keys() - second.keys() if key != "seen" and not key.startswith("step/")} == set()
        assert torch.equal(joined[key := next(iter(second))], torch.cat([first[key], second[key]]))
    # the file for everyone else is the average
    assert (path.parent / "averaged" / "model.safetensors").exists()


def test_every_process_draws_random_numbers_of_its_own(together):
    """Two processes with one seed would drop the same units of their halves of each batch."""
    saved = load_file(Checkpoints(together / "seeds" / "checkpoints").all()[-1] / "random.safetensors")
    for kind in ("torch", "python", "numpy"):
        assert not torch.equal(saved[f"0/{kind}"], saved[f"1/{kind}"])


@pytest.mark.parametrize(("before", "after"), [("ddp", "fsdp"), ("fsdp", None)])
def test_resuming_with_other_processes(together, forks, tmp_path, alone, before, after):
    """Checkpoints do not depend on the number of processes."""
    run = together / f"begun by {before}"
    if after is None:
        shutil.copytree(run, tmp_path / "run")
        run = tmp_path / "run"
        forks.train(run, "--resume")
    assert_same_curve(alone, run)


def test_kill_9_loses_nothing_but_the_last_steps(tmp_path, forks):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    shape = ("--dropout", 0.3, "--save-every", 2, "--steps", 60)
    forks.train(whole, *shape, result="max_steps 60")
    chance = random.Random(5)
    steps = [0]
    for attempt in range(6):
        known = {path.name for path in Checkpoints(cut / "checkpoints").all()}
        process = forks.start(cut, *shape, "--delay", 0.02, *(["--resume"] if attempt else []))
        deadline = time.monotonic() + 120
        while {path.name for path in Checkpoints(cut / "checkpoints").all()} <= known and is_running(process):
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.25))
        if is_running(process):
            os.kill(process, signal.SIGKILL)
        code, output = forks.end()
        if code != -signal.SIGKILL:
            assert code == 0, output
            break
        checkpoints = Checkpoints(cut / "checkpoints").all()
        assert all(verify(path) for path in checkpoints)  # every one that can be seen is whole
        steps.append(verify(checkpoints[-1])["step"])
        assert steps[-1] > steps[-2]
    assert len(steps) > 3
    forks.train(cut, *shape, "--resume", result="max_steps 60")
    one, other = last_weights(whole), last_weights(cut)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert losses(whole) == losses(cut)


def test_killed_worker_is_restarted_by_elastic(tmp_path, alone):
    told, said = started(SCRIPT, tmp_path / "two", "--die-at", 12, processes=2, restarts=2)
    assert f"RESULT {tmp_path / 'two'} max_steps 20" in told
    assert "resuming from" in said
    assert "step-00000010, step 10" in said
    assert_same_curve(alone, tmp_path / "two")


MODELS = {
    "transformer": (["model_dim=8", "num_heads=2", "hidden_dim=12", "num_layers=2"], ["share_embeddings=true"]),
    "rnn": (["embedding_dim=6", "hidden_dim=8"], []),
    "conv": (["layers=[[8, 3], [8, 3]]"], ["encoder.embedding_dim=6"]),
}
"""Options of both the encoder and the decoder, and further ones."""


def translator(folder, model, strategy):
    """The command that trains a translator, for the texts in the folder."""
    both, further = MODELS[model]
    settings = [f"model.{part}.{option}" for part in ("encoder", "decoder") for option in (*both, "dropout=0.0")]
    settings += [f"model.{option}" for option in further]
    settings += [
        "tokenizer.kind=words",
        "tokenizer.size=50",
        "tokenizer.shared=true",
        "guidance.weight=0.5",
        "guidance.aligner_steps=10",
    ]
    settings += ["data.batch_tokens=90", "training.max_steps=5", "training.eval_every=5", "training.metrics_every=1"]
    settings += [f"training.strategy={strategy}"]
    arguments = ["train", "translate", "--data", folder / "source", "--target", folder / "target"]
    arguments += ["--model", model, *(part for setting in settings for part in ("--set", setting))]
    return [*map(str, arguments), "--out", str(folder / f"{model} {strategy}")]


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """The folder of translators that were trained in shards."""
    folder = tmp_path_factory.mktemp("translators")
    words = ["red", "blue", "green", "house", "tree"]
    draw = random.Random(0)
    lines = [" ".join(draw.choices(words, k=draw.randint(1, 5))) for _ in range(40)]
    for side in ("source", "target"):
        (folder / side).write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "stores").mkdir()
    commands = json.dumps([translator(folder, model, "fsdp") for model in MODELS])
    told, _ = started(SEVERAL, folder / "stores", commands, processes=2)
    assert told.count("trained (max_steps)") == len(MODELS)
    return folder


@pytest.mark.parametrize("model", MODELS)
def test_a_translator_in_shards_on_two_processes_is_that_of_one(shards, model, capsys):
    command = translator(shards, model, "ddp")
    assert foci_cli.main(command) == 0
    assert capsys.readouterr().out.count("trained (max_steps)") == 1
    # Not the weights: a key's bias has no gradient but rounding, which Adam makes large.
    assert_same_losses(shards / f"{model} ddp", shards / f"{model} fsdp")


def test_every_process_takes_part_in_every_step_of_every_task(tmp_path):
    """One row for two processes: without a row of its own one of them would communicate differently, and abort.

    The last two: what the first process does alone may take longer than the timeout, and may fail.
    """
    done = subprocess.run(
        [sys.executable, SEVERAL_PROCESSES, tmp_path],
        env=ENVIRONMENT | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = list(map(json.loads, done.stdout.splitlines()))
    assert len(rows) == len(TASKS) + 2
    assert [row for row in rows if not row["held"]] == [], done.stderr


def test_two_nodes(tmp_path, monkeypatch):
    """A killed worker of the second node goes on with the run; behind a cut link both nodes end with a message."""
    monkeypatch.syspath_prepend(str(ROOT))
    from recipes.faults import lost_node
    from recipes.nodes import NoNamespacesError

    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    try:
        row = lost_node(tmp_path, restarts=1)
    except NoNamespacesError as error:
        pytest.skip(f"two network namespaces are needed, which root can make: {error}")
    assert row["held"], row


def test_a_restart_does_not_take_another_run_for_its_own(tmp_path):
    """torchrun restarts a worker whose first attempt was refused: the restart must be refused as well."""
    out = tmp_path / "run"
    arguments = ["train", "memorize", "--preset", "tiny", "--set", "training.max_steps=2", "--out", str(out)]
    assert foci_cli.main(arguments) == 0
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
