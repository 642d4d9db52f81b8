"""Every choice of every option of every model, on a task's smallest data: one batch, its halves, and half precision.

The gradient of the halves is that of the whole batch, so that accumulated batches and several processes learn what one
does; in bfloat16 it is nearly the same, so that every choice can be trained in every precision.
"""

import dataclasses
import types
from typing import Annotated, Literal, Union, get_args, get_origin, get_type_hints

import pytest
import torch

from foci.data.batching import DummyBatch
from foci.errors import ConfigError, FociError
from foci.settings import describe, to_tables
from foci.tasks import TASKS
from foci.tasks.frame import config as configs
from foci.tasks.frame.task import Shard, find, silent

SIZES = {"model_dim": 16, "hidden_dim": 16, "embedding_dim": 8, "num_heads": 2, "num_layers": 1, "dropout": 0.0}
"""Of the tables of other kinds than that of the smallest settings."""
ALONE = {"attention": {}, "sharpening": None, "share_embeddings": False}
"""What fits the kind of the table beside it, and is given up with that."""


def types_of(hint):
    """The members of a union, without what annotates them."""
    if get_origin(hint) is Annotated:
        return types_of(get_args(hint)[0])
    if get_origin(hint) in (Union, types.UnionType):
        return [one for part in get_args(hint) for one in types_of(part)]
    return [hint]


def choices_of(table, prefix):
    """Yield the settings that another choice needs, by their dotted paths: one option at a time, and of each kind."""
    names = {one.name for one in dataclasses.fields(table)}
    for name, hint in get_type_hints(type(table), include_extras=True).items():
        if name not in names - {"kind", "preset"}:
            continue
        path, now = prefix + name, getattr(table, name)
        tables = [one for one in types_of(hint) if dataclasses.is_dataclass(one)]
        alone = {prefix + other: value for other, value in ALONE.items() if other in names - {name}}
        if tables:
            yield from of_kinds(tables, now, path, alone)
            continue
        for one in types_of(hint):
            values = get_args(one) if get_origin(one) is Literal else [not now] if one is bool else []
            yield from ({path: value} for value in values if value != now)


def of_kinds(tables, now, path, alone):
    yield from choices_of(now, f"{path}.")
    for table in tables:
        kind = getattr(table, "kind", None)
        if len(tables) > 1 and kind != getattr(now, "kind", None):
            known = {one.name for one in dataclasses.fields(table)}
            start = {"kind": kind, **{name: size for name, size in SIZES.items() if name in known}}
            other = {**alone, **{f"{path}.{name}": value for name, value in start.items()}}
            yield {path: {}, **other}
            try:
                begun = table(**start)
            except ConfigError:  # it needs more than sizes
                continue
            yield from ({path: {}, **other, **more} for more in choices_of(begun, f"{path}."))


def gradient(task, model, batches, precision=torch.float32):
    """The mean loss, and its gradient in one row."""
    model.zero_grad(set_to_none=True)
    total, count = 0.0, 0.0
    for batch in batches:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == torch.bfloat16):
            loss = task.loss(model, batch)
        loss.total.backward()
        total, count = total + float(loss.total.detach()), count + float(loss.count)
    grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
    return torch.tensor(total / count), torch.cat([grad.flatten() for grad in grads]) / count


def distance(one, other):
    """The relative difference of the losses, and that of the gradients."""
    return tuple(float((a - b).norm() / b.norm().clamp(min=1e-6)) for a, b in zip(one, other))


def compared(task, splits, assets):
    """Return what went wrong with a choice, "" for nothing."""
    torch.manual_seed(0)
    model = task.model(assets).train()
    task.begin_step(1)
    streams = (task.batches(splits, assets, shard, silent) for shard in (Shard(), Shard(0, 2), Shard(1, 2)))
    # Not a batch of one row, which has no halves.
    whole, *halves = next(them for them in zip(*streams) if not any(isinstance(one, DummyBatch) for one in them))
    wanted = gradient(task, model, [whole])
    again = gradient(task, model, [whole])
    half = gradient(task, model, [whole], torch.bfloat16)
    if not all(bool(value.isfinite().all()) for value in (*wanted, *half)):
        return "not finite"
    if max(distance(wanted, again)) > 1e-5:  # it draws random numbers
        return ""
    parts, bounds = distance(gradient(task, model, halves), wanted), distance(half, wanted)
    if parts[0] > 1e-4 or parts[1] > 1e-3:
        return f"halves: loss and gradient differ by {parts[0]:.2g} and {parts[1]:.2g}"
    if bounds[0] > 0.05 or bounds[1] > 0.4:
        return f"bfloat16: loss and gradient differ by {bounds[0]:.2g} and {bounds[1]:.2g}"
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_every_choice_of_a_model_trains_in_halves_and_in_half_precision(name):
    kind = find(name)
    small = configs.configure(kind.Config, kind.Config.smallest, "test")
    dropouts = [one.path for one in describe(small) if "dropout" in one.path]
    tables = configs.put(to_tables(small), dict.fromkeys(dropouts, 0.0))
    start = kind(configs.configure(kind.Config, tables, "test"))
    splits = start.read(silent)
    assets = start.assets(splits, silent)
    hints = get_type_hints(kind.Config, include_extras=True)
    changes = [{}]
    for table in ("model", "coverage", "tagging"):
        if table in hints:
            changes += of_kinds(types_of(hints[table]), getattr(start.config, table), table, {})
    wrong, tried = {}, 0
    for change in changes:
        try:
            task = kind(configs.configure(kind.Config, configs.put(tables, change), "test"))
            what = compared(task, splits, assets)
        except FociError:  # choices that do not go together
            continue
        except RuntimeError as error:
            what = repr(error)
        tried += 1
        if what:
            wrong[str(change)] = what
    assert wrong == {}
    assert tried > len(changes) / 2
