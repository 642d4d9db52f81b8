import itertools
import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_model
from small_training import Small
from torch import nn

from foci.errors import CheckpointError, ConfigError
from foci.training import checkpoint
from foci.training.checkpoint import Checkpoints, Saved, Writers, average, load, load_weights, verify
from foci.training.named_tensors import optimizer_tensors, put_optimizer_tensors, put_weights, weights


@pytest.fixture(autouse=True)
def quick_disk(monkeypatch):
    """Flushing is for power cuts, which no test makes, and takes most of the time."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def store_with(folder, *steps, save_total_limit=9, best=None):
    store = Checkpoints(folder, save_total_limit=save_total_limit)
    for step in steps:
        torch.manual_seed(step)
        model, ties = weights(Small())
        saved = Saved(model, ties, {"exp_avg/first.weight": torch.ones(2)}, {}, {"best": best, "step": step})
        store.save(step, saved)
    return store


def same(left, right):
    return all(torch.equal(a, b) for a, b in zip(left.state_dict().values(), right.state_dict().values()))


def test_weights_come_back_and_ties_stay_tied(tmp_path):
    path = store_with(tmp_path, 4).path(4)
    torch.manual_seed(4)
    wanted, model = Small(), Small()
    assert not same(wanted, model)
    assert load_weights(model, path)["step"] == 4
    assert same(wanted, model)
    assert model.decode.weight is model.encode.weight
    assert sum(name.endswith("code.weight") for name in load(path).model) == 1
    other = Small()
    load_model(other, path / "model.safetensors")  # safetensors' own reader takes the file too
    assert same(wanted, other)


def test_nothing_but_safetensors_and_json(tmp_path):
    path = store_with(tmp_path, 4).path(4)
    names = {"model.safetensors", "optimizer.safetensors", "random.safetensors", "state.json"}
    assert set(os.listdir(path)) == names
    assert os.listdir(tmp_path) == [path.name]


def test_all_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    events = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: events.append(Path(os.readlink(f"/proc/self/fd/{descriptor}"))))
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda path, to: (events.append("rename"), rename(path, to)))
    store_with(tmp_path, 4)
    before, after = events[: events.index("rename")], events[events.index("rename") + 1 :]
    temporary = tmp_path / ".tmp-step-00000004"
    assert set(before) == {temporary, *(temporary / path.name for path in (tmp_path / "step-00000004").iterdir())}
    assert len(before) == 5
    assert after == [tmp_path]


def test_views_and_parts_of_one_memory_are_saved_whole(tmp_path):
    model = nn.Module()
    memory = torch.arange(12.0).view(3, 4)
    model.register_buffer("all", memory)
    model.register_buffer("turned", memory.mT)
    model.register_buffer("row", memory[1])
    tensors, ties = weights(model)
    store = Checkpoints(tmp_path)
    store.save(1, Saved(tensors, ties, {}, {}, {"best": None}))
    back = load(store.path(1)).model
    assert torch.equal(back["turned"], memory.mT)
    assert torch.equal(back["row"], memory[1])


def test_only_tensors():
    class Extra(nn.Module):
        def get_extra_state(self):
            return {"a": 1}

        def set_extra_state(self, state):
            pass

    with pytest.raises(CheckpointError, match="_extra_state is a dict; only tensors can be saved"):
        weights(Extra())


def damage_flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def damage_cut(path):
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "random.safetensors", "state.json"])
@pytest.mark.parametrize("damage", [damage_flip, damage_cut, os.remove])
def test_damage_is_found_and_the_one_before_taken(tmp_path, name, damage):
    store = store_with(tmp_path, 1, 2, 3)
    damage(store.path(3) / name)
    with pytest.raises(CheckpointError) as error:
        verify(store.path(3))
    assert str(store.path(3) / name) in str(error.value)
    assert "remove the folder step-00000003" in str(error.value)
    said = []
    assert store.newest_good(said.append) == store.path(2)
    assert len(said) == 1
    assert name in said[0]
    assert "Resuming from" in said[0]
    assert [path.name for path in store.all()] == ["step-00000001", "step-00000002"]
    assert (tmp_path / "step-00000003.damaged").is_dir()


def test_changed_number_in_the_state_is_found(tmp_path):
    store = store_with(tmp_path, 5)
    file = store.path(5) / "state.json"
    content = json.loads(file.read_text())
    content["step"] = 6
    file.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="state.json: was changed after it was written"):
        verify(store.path(5))


def test_all_damaged(tmp_path):
    store = store_with(tmp_path, 1, 2)
    for step in (1, 2):
        damage_cut(store.path(step) / "model.safetensors")
    with pytest.raises(CheckpointError, match="step-00000002/model.safetensors: has .* bytes, but"):
        store.newest_good(print)
    assert len(store.all()) == 2


def test_none_at_all(tmp_path):
    assert Checkpoints(tmp_path / "none").newest_good(print) is None
    with pytest.raises(CheckpointError, match="no checkpoint here"):
        Checkpoints(tmp_path / "none").best()


def test_last_and_best_are_kept(tmp_path):
    store = store_with(tmp_path, 1, 2, 3, 4, 5, save_total_limit=2, best=2)
    assert [path.name for path in store.all()] == ["step-00000002", "step-00000004", "step-00000005"]
    assert store.best() == store.path(2)


def test_steps_of_nine_digits_follow_those_of_eight(tmp_path):
    store = store_with(tmp_path, 99_999_999, 100_000_000, save_total_limit=1)
    assert store.all() == [store.path(100_000_000)]
    assert store.newest_good(print) == store.path(100_000_000)
    (tmp_path / "step-²").mkdir()  # a digit to str.isdigit, but no number
    assert store_with(tmp_path, 100_000_001).all() == [store.path(100_000_000), store.path(100_000_001)]


def save(store, step, best):
    """Save the best step beside whole weights."""
    model, ties = weights(Small())
    return store.save(step, Saved(model, ties, {}, {}, {"best": best, "step": step}))


def test_the_best_of_every_kept_checkpoint_is_kept(tmp_path):
    """A new best one is not that of the checkpoint before, from which a run goes on if the newest is damaged."""
    store = Checkpoints(tmp_path, save_total_limit=2)
    for step, best in ((1, 1), (2, 1), (3, 1), (4, 4)):
        save(store, step, best)
    assert store.all() == [store.path(step) for step in (1, 3, 4)]
    damage_cut(store.path(4) / "model.safetensors")
    assert store.newest_good(lambda text: None) == store.path(3)
    assert store.best() == store.path(1)
    shutil.rmtree(store.path(1))  # as the message about a damaged one says
    assert store.best() == store.path(3)


def test_multiples_of_the_interval_are_kept_to_be_averaged(tmp_path):
    store = Checkpoints(tmp_path, average_last=2, save_every=3)
    for step in (1, 3, 5, 6, 7, 9, 10, 11):
        save(store, step, None)
    assert store.all() == [store.path(step) for step in (6, 9, 11)]
    assert store.to_average() == [store.path(6), store.path(9)]


def test_an_average_ends_with_the_next_checkpoint(tmp_path):
    store = store_with(tmp_path, 1, 2)
    averaged = store.save_average(store.all(), {"best": None})
    assert averaged.exists()
    save(store, 3, None)
    assert not averaged.exists()


@pytest.mark.parametrize("renames", [1, 2, 3])
def test_a_kill_while_a_checkpoint_is_replaced_loses_none(tmp_path, renames, monkeypatch):
    """A run that is resumed after its last step saves that step again, with its validation."""
    store = store_with(tmp_path, 1)
    save(store, 2, None)
    done = []
    rename = Path.rename

    def killed(path, to):
        done.append(rename(path, to))
        if len(done) == renames:
            os._exit(0)

    if (process := os.fork()) == 0:
        monkeypatch.setattr(Path, "rename", killed)
        save(store, 2, 2)
        os._exit(0)
    os.waitpid(process, 0)
    store.tidy()
    assert store.newest_good(print) == store.path(2)
    assert {path.name for path in tmp_path.iterdir()} == {"step-00000001", "step-00000002"}


def test_half_written_ones_are_no_checkpoints(tmp_path):
    store = store_with(tmp_path, 1)
    (tmp_path / ".tmp-step-00000002-77").mkdir()
    (tmp_path / ".tmp-step-00000002-77" / "model.safetensors").write_bytes(b"half")
    assert store.newest_good(print) == store.path(1)
    store.tidy()
    assert os.listdir(tmp_path) == ["step-00000001"]


def test_average(tmp_path):
    store = store_with(tmp_path, 1, 2, 3)
    paths = store.all()
    mean = average(paths)
    files = [load(path).model for path in paths]
    for name, value in mean.items():
        if value.is_floating_point():
            wanted = sum(file[name].double() for file in files) / 3
            assert torch.equal(value, wanted.float())
    model = Small()
    assert load_weights(model, store.save_average(paths, {"best": None}))["average_of"][0] == "step-00000001"
    assert torch.equal(model.decode.weight, mean["encode.weight"])
    with pytest.raises(ConfigError, match="no checkpoint given"):
        average([])


def test_other_model(tmp_path):
    path = store_with(tmp_path, 1).path(1)
    model = Small()
    model.first = nn.Linear(7, 5)
    with pytest.raises(CheckpointError, match=r"first.weight has shape \(5, 3\), but the model's has \(5, 7\)"):
        load_weights(model, path)
    message = "missing weight, bias. unknown decode.bias, encode.bias, encode.weight and 9 more"
    with pytest.raises(CheckpointError, match=message):
        load_weights(nn.Linear(2, 3), path)


def test_state_that_json_cannot_say(tmp_path):
    with pytest.raises(CheckpointError, match="state_dict.* of the batches must consist of numbers"):
        Checkpoints(tmp_path).save(1, Saved({}, {}, {}, {}, {"best": None, "data": torch.ones(1)}))


def test_numbers_as_keys_do_not_look_like_damage(tmp_path):
    store = Checkpoints(tmp_path)
    store.save(1, Saved({}, {}, {}, {}, {"best": None, "data": {2: (1, 2), 10: 0}}))
    assert verify(store.path(1))["data"] == {"2": [1, 2], "10": 0}


def test_optimizer_state_comes_back(tmp_path):
    def optimized(model):
        return torch.optim.Adam([{"params": [model.last.bias]}, {"params": [model.first.weight]}], lr=0.1)

    model, fresh = Small(), Small()
    first, second = optimized(model), optimized(fresh)
    for _ in range(3):
        model(torch.randn(4, 3))[0].square().sum().backward()
        first.step()
    put_weights(fresh, weights(model)[0], tmp_path)
    values = {name: value.clone() for name, value in optimizer_tensors(model, first).items()}
    assert set(values) == {f"{w}/{p}" for w in ("step", "exp_avg", "exp_avg_sq") for p in ("last.bias", "first.weight")}
    put_optimizer_tensors(fresh, second, values, tmp_path)
    for one, optimizer in ((model, first), (fresh, second)):
        one.zero_grad()
        one(torch.ones(4, 3))[0].square().sum().backward()
        optimizer.step()
    assert same(model, fresh)
    with pytest.raises(CheckpointError, match="unknown nobody"):
        put_optimizer_tensors(fresh, second, {"step/nobody": torch.ones(())}, tmp_path)


def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch):
    store = store_with(tmp_path, 1)

    def full(*given, **options):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("foci.training.checkpoint.save_file", full)
    with pytest.raises(CheckpointError, match=r"step-00000002: the checkpoint cannot be written \(I/O error: No space"):
        store_with(tmp_path, 2)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert verify(store.path(1))["step"] == 1


def test_files_of_a_checkpoint_can_be_read_by_the_same_people(tmp_path):
    path = store_with(tmp_path, 1).path(1)
    modes = {file.name: file.stat().st_mode & 0o777 for file in path.iterdir()}
    assert len(modes) == 4
    assert set(modes.values()) == {path.stat().st_mode & 0o666}


def test_equal_states_are_equal_bytes(tmp_path):
    one, other = (store_with(tmp_path / name, 1).path(1) for name in "ab")
    for file in one.iterdir():
        assert file.read_bytes() == (other / file.name).read_bytes()


# ---- several processes, here threads


class Meeting:
    """Where threads gather values. One of them may die before a meeting, and the others then fail to meet it."""

    def __init__(self, number, dies=None):
        self.number, self.dies = number, dies
        self.barrier = threading.Barrier(number, timeout=20)
        self.values = [None] * number

    def writer(self, rank):
        met = itertools.count()

        def gather(value):
            if self.dies == (rank, next(met)):
                self.barrier.abort()
            self.values[rank] = value
            self.barrier.wait()
            values = [*self.values]
            self.barrier.wait()
            return values

        return Writers(rank, self.number, gather)

    def save(self, store, step, seed):
        """Save a model in parts of rows, unevenly; return the whole model and the errors of the threads."""
        torch.manual_seed(seed)
        model, ties = weights(Small())
        whole = {"exp_avg/first.weight": torch.randn(5, 3), **{f"m/{name}": value for name, value in model.items()}}

        def part(values, rank):
            split = {k: value.tensor_split(self.number)[rank].clone() for k, value in values.items() if value.dim() > 0}
            return split | ({} if rank else {k: value for k, value in values.items() if value.dim() == 0})

        def write(rank):
            saved = Saved(part(model, rank), ties, part(whole, rank), {}, {"best": None, "step": step})
            return store.save(step, saved, self.writer(rank))

        with ThreadPoolExecutor(self.number) as pool:
            done = [pool.submit(write, rank) for rank in range(self.number)]
        return model, whole, [one.exception() for one in done]


@pytest.mark.parametrize("number", [2, 3, 7])
def test_parts_of_several_processes_are_joined(tmp_path, number):
    store = Checkpoints(tmp_path)
    model, optimizer, errors = Meeting(number).save(store, 4, seed=4)
    assert errors == [None] * number
    path = store.path(4)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
    assert len([*path.glob("model-*.safetensors")]) == len([*path.glob("optimizer-*.safetensors")]) == number
    assert verify(path)["step"] == 4
    for found, expected in ((load(path).model, model), (load(path).optimizer, optimizer)):
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], value) for name, value in expected.items())
    torch.manual_seed(4)
    wanted, one = Small(), Small()
    load_weights(one, path)
    assert same(wanted, one)
    store_with(tmp_path, 5)  # by one process alone
    assert load_weights(one, store.save_average([path, store.path(5)], {"best": None}))["average_of"][0] == path.name


@pytest.mark.parametrize("part", ["model-00001", "model-00002", "optimizer-00002"])
@pytest.mark.parametrize("damage", ["removed", "changed", "cut", "other"])
def test_damage_of_any_part_is_found(tmp_path, part, damage):
    store = store_with(tmp_path, 1)
    store.save_total_limit = 9
    for step in (2, 3):
        Meeting(2).save(store, step, seed=step)
    file = store.path(3) / f"{part}-of-00002.safetensors"
    content = file.read_bytes()
    if damage == "removed":
        file.unlink()
    elif damage == "other":
        file.write_bytes((store.path(2) / file.name).read_bytes())
    else:
        file.write_bytes(content[:-3] if damage == "cut" else content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    with pytest.raises(CheckpointError, match=file.name):
        verify(store.path(3))
    messages = []
    assert store.newest_good(messages.append) == store.path(2)
    assert file.name in messages[0]


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("met", [0, 1, 2])
def test_a_process_that_dies_leaves_a_whole_checkpoint_or_none(tmp_path, monkeypatch, rank, met):
    store = store_with(tmp_path, 1)
    store.save_total_limit = 9
    Meeting(3).save(store, 2, seed=2)
    with monkeypatch.context() as killed:
        killed.setattr(checkpoint.shutil, "rmtree", lambda *given, **options: None)
        *_, errors = Meeting(3, dies=(rank, met)).save(store, 3, seed=3)
    assert met == 2 or len([*tmp_path.glob(".tmp-*")]) == 1
    assert all(isinstance(error, threading.BrokenBarrierError) for error in errors)
    store.tidy()
    assert [path.name for path in store.all()] == [path.name for path in sorted(tmp_path.iterdir())]
    for path in store.all():
        verify(path)
    assert {1, 2} <= {verify(path)["step"] for path in store.all()}
    model, _, errors = Meeting(2).save(store, 3, seed=5)  # by another number of processes, in place of what is there
    assert errors == [None, None]
    assert all(torch.equal(load(store.path(3)).model[name], value) for name, value in model.items())


def test_a_part_that_cannot_be_written_is_an_error_of_all_processes(tmp_path, monkeypatch):
    store = store_with(tmp_path, 1)
    write = checkpoint.save_file

    def full(tensors, file, **options):
        if "00002-of" in file.name:
            raise SafetensorError("No space left on device")
        write(tensors, file, **options)

    monkeypatch.setattr(checkpoint, "save_file", full)
    *_, errors = Meeting(3).save(store, 2, seed=2)
    assert all("step-00000002: the checkpoint cannot be written (No space" in str(error) for error in errors)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


def test_reading_a_checkpoint_keeps_little_of_its_files(tmp_path, monkeypatch):
    """Files that were read count as memory of the process until they are closed."""
    monkeypatch.setattr(checkpoint, "_MAPPED", 50)
    opened = []
    open_one = checkpoint._opened
    monkeypatch.setattr(checkpoint, "_opened", lambda file: (opened.append(file.name), open_one(file))[1])
    store = store_with(tmp_path, 1)
    values = {**load(store.path(1)).model}
    torch.manual_seed(1)
    assert all(torch.equal(values[name], value) for name, value in weights(Small())[0].items())
    assert opened.count("model.safetensors") > 5
