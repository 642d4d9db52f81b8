"""One process or many: where the model runs, and how gradients are combined.

Under ``torchrun`` each process finds its rank by itself; without it there is one process and one device. On CPUs
processes communicate over gloo, on GPUs over NCCL.

For elastic restarts start torchrun with ``TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1``: without it the restarted workers
sometimes wait forever for keys of the first ones (pytorch issue 135712).
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from itertools import chain
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy
from lightning_fabric.strategies.model_parallel import ModelParallelStrategy
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

from foci.errors import ConfigError, FociError, TrainingError
from foci.training.deferred import Deferred
from foci.training.options import TrainingOptions


@contextmanager
def launched(options: TrainingOptions) -> Iterator[Fabric]:
    """Run `launch`, and destroy the process group at the end. A lost connection is raised as a `TrainingError`.

    Garbage is collected after it because gloo's threads otherwise end one process in eight with SIGABRT (pytorch
    issue 190489).
    """
    try:
        fabric = launch(options)
        if fabric.device.type == "cpu":
            _keep_freed_memory(not shards(fabric))
        yield fabric
    except RuntimeError as error:
        if isinstance(error, FociError) or not (isinstance(error, torch.distributed.DistError) or "gloo" in str(error)):
            raise
        raise TrainingError(
            f"process {os.environ.get('RANK')}: the connection to the other processes is lost "
            f"({str(error).splitlines()[0]}). If one of them has ended, its message says why. Otherwise the network is "
            f"interrupted, or one needed longer for a step than training.distributed_timeout = "
            f"{options.distributed_timeout:g} seconds. Then resume the run from its last checkpoint."
        ) from error
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
        gc.collect()


def _keep_freed_memory(keep: bool) -> None:
    """Configure glibc to keep freed memory for the next step, or to return that of every large tensor to the system.

    It stays so for the rest of the process. Kept memory saves time: otherwise every large tensor is new memory that the
    system clears page by page, which took a third of the time of a training step of a small Transformer. But shards are
    gathered and freed again in every step, and glibc's heap, full of holes between them, grew to twice the memory that
    was in use.
    """
    trim_threshold, mmap_threshold, mmap_max = -1, -3, -4  # of malloc.h
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:  # other C libraries do not have it
        mallopt(mmap_max, 0 if keep else 2**16)
        mallopt(mmap_threshold, 2**17)  # set at all, it no longer grows with what is freed
        mallopt(trim_threshold, 2**31 - 1 if keep else 2**17)


def launch(options: TrainingOptions) -> Fabric:
    """Return this process's device and rank: ``fabric.device``, ``fabric.global_rank``, ``fabric.world_size``."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return _fabric(options, devices=1)
    # set by torch's elastic agent
    shares_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if shares_store and os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0") != "0" and os.environ.get("RANK") == "0":
        print(
            "warning: restarts can hang. Start torchrun with TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1.",
            file=sys.stderr,
            flush=True,
        )
    processes = int(os.environ["LOCAL_WORLD_SIZE"])
    timeout = timedelta(seconds=options.distributed_timeout)
    strategy: DDPStrategy | ModelParallelStrategy
    if options.strategy == "fsdp":
        world = int(os.environ["WORLD_SIZE"])
        strategy = ModelParallelStrategy(shard, data_parallel_size=world, tensor_parallel_size=1, timeout=timeout)
    else:
        strategy = DDPStrategy(find_unused_parameters=options.find_unused_parameters, timeout=timeout)
    nodes = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
    fabric = _fabric(options, devices=processes, num_nodes=nodes, strategy=strategy)
    fabric.launch()
    return fabric


def launch_agents(fabric: Fabric) -> list[str]:
    """Return what identifies this launch of torchrun on all nodes: an id of each agent; none without torchrun.

    An agent starts the workers of a node, and starts them again after a failure: its id has its process id and the
    time since when it runs. All processes must call this.
    """
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return []
    try:
        stat = Path(f"/proc/{os.getppid()}/stat").read_text(encoding="utf-8")
        since = stat.rpartition(")")[2].split()[19]
    except (OSError, IndexError):  # not Linux
        since = ""
    agents = [""] * fabric.world_size
    own = f"{os.environ['TORCHELASTIC_RUN_ID']}/{platform.node()}/{os.getppid()}/{since}"
    torch.distributed.all_gather_object(agents, own)
    return sorted({*agents})


@contextmanager
def others_waiting(fabric: Fabric, options: TrainingOptions) -> Iterator[None]:
    """Let the first process work inside the block; the others wait at its end, however long that takes.

    Meanwhile the first one shows several times within ``distributed_timeout`` that it is there: without that a long
    validation could not be told from a lost connection.

    Raises:
        TrainingError: on the others, if the work has failed on the first one.
    """
    if fabric.world_size == 1:
        yield
        return
    is_gloo = torch.distributed.get_backend() == "gloo"
    timeout = timedelta(seconds=options.distributed_timeout)
    group = None if is_gloo else torch.distributed.new_group(backend="gloo", timeout=timeout)

    def show(state: float) -> float:
        """Return what the first process shows."""
        shown = torch.tensor(state)
        torch.distributed.all_reduce(shown, group=group)
        return float(shown)

    if fabric.global_rank == 0:
        with _shown_at_work(show, options.distributed_timeout / 4):
            yield
    else:
        yield
        while (state := show(0.0)) == _WORKING:
            pass
        if state == _FAILED:
            raise TrainingError(
                f"process {fabric.global_rank}: the first process has failed. Its message, beside this one, says why."
            )
    if group is not None:
        torch.distributed.destroy_process_group(group)


_DONE, _WORKING, _FAILED = 0.0, 1.0, 2.0


@contextmanager
def _shown_at_work(show: Callable[[float], float], interval: float) -> Iterator[None]:
    ended = threading.Event()
    lost: list[RuntimeError] = []

    def keep_showing() -> None:
        try:
            while not ended.wait(interval):
                show(_WORKING)
        except RuntimeError as error:
            lost.append(error)

    thread = threading.Thread(target=keep_showing, daemon=True)
    thread.start()
    try:
        yield
    except BaseException:
        ended.set()
        thread.join()
        with suppress(RuntimeError):  # the others have ended: what failed here is told
            show(_FAILED)
        raise
    ended.set()
    thread.join()
    if lost:
        raise lost[0]
    show(_DONE)


def _fabric(options: TrainingOptions, **given: Any) -> Fabric:
    try:
        return Fabric(accelerator=options.device, **given)
    except (RuntimeError, ValueError) as error:  # a device that is unknown or not there
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise ConfigError(
            f"training.device is {options.device!r}, which cannot be used here ({reason}). Use cpu or auto."
        ) from error


def shards(fabric: Fabric) -> bool:
    """Return whether the strategy shards models."""
    return isinstance(fabric.strategy, ModelParallelStrategy)


def distribute(fabric: Fabric, module: nn.Module, deferred: Deferred | None = None) -> nn.Module:
    """Return the module on its device, as the strategy runs it: itself, a DDP wrapper around it, or itself in shards.

    Fabric's own `setup_module` would copy each dataclass in the model's outputs, the handles on attention weights
    among them; the strategy alone does not.

    Args:
        fabric: this process's device and rank.
        module: the module; one in shards is returned as it is.
        deferred: the block in which the module was built, if it is to be sharded and its weights have no memory yet.
    """
    if not isinstance(fabric.strategy, ModelParallelStrategy):
        module.to(fabric.device)
        return fabric.strategy.setup_module(module)
    if is_sharded(module):
        return module
    if deferred is None:
        for tensor in module.state_dict(keep_vars=True).values():  # as DDP does: take the first process's weights
            value = tensor.data.to(fabric.device)
            torch.distributed.broadcast(value, 0)
            tensor.data.copy_(value)
    return shard(module, fabric.strategy.device_mesh, deferred)


def shard(module: nn.Module, mesh: DeviceMesh, deferred: Deferred | None = None) -> nn.Module:
    """Shard a model with FSDP2: the members of its outermost module lists one by one, and then the rest.

    A member that shares a parameter with the rest of the model stays with the rest. What has no memory yet is
    initialized just before it is sharded, so that no process ever holds the whole model.
    """
    ranks = mesh["data_parallel"]
    for part in chain(_blocks(module), [module]):
        if deferred is not None:
            deferred.fill(part)
        fully_shard(part, mesh=ranks)
    return module


def _blocks(module: nn.Module) -> Iterator[nn.Module]:
    uses: dict[nn.Parameter, int] = {}
    for _, parameter in module.named_parameters(remove_duplicate=False):
        uses[parameter] = uses.get(parameter, 0) + 1
    for block in (block for members in _outermost_lists(module) for block in members):
        own = list(block.named_parameters(remove_duplicate=False))
        within = {parameter: sum(p is parameter for _, p in own) for _, parameter in own}
        if own and all(uses[parameter] == count for parameter, count in within.items()):
            yield block


def _outermost_lists(module: nn.Module) -> Iterator[nn.ModuleList]:
    for child in module.children():
        if isinstance(child, nn.ModuleList):
            yield child
        else:
            yield from _outermost_lists(child)


def synchronized(model: nn.Module, now: bool) -> AbstractContextManager[None]:
    """Return whether the backward pass inside reduces gradients over processes; only for the last batch of a step."""
    for part in model.modules():
        if isinstance(part, FSDPModule):
            part.set_requires_gradient_sync(now, recurse=False)
    if isinstance(model, DistributedDataParallel) and not now:
        return model.no_sync()
    return nullcontext()


def autocast(fabric: Fabric, options: TrainingOptions) -> torch.autocast:
    """Return the context in which losses and metrics are computed."""
    return torch.autocast(fabric.device.type, dtype=torch.bfloat16, enabled=options.precision == "bfloat16")


def is_sharded(module: nn.Module) -> bool:
    """Return whether the model was sharded by `shard`."""
    return isinstance(module, FSDPModule)


@contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """Gather a sharded model inside the block, so that all of its methods can be called, not only its forward pass.

    All processes must run the same calls: FSDP2 learns from each one what to fetch ahead in the next backward pass.
    """
    parts = [part for part in module.modules() if isinstance(part, FSDPModule)]
    for part in parts:
        part.unshard()
        part.set_reshard_after_forward(False, recurse=False)
    yield
    for part in parts:
        part.reshard()
        part.set_reshard_after_forward(part is not module, recurse=False)
