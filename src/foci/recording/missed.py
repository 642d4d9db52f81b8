"""Which modules look like attention and were not recorded, and why."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from foci.recording.written_out import Softmax

_ATTENTION = re.compile(r"attention|attn", re.IGNORECASE)
_RECURRENT = re.compile(
    r"mamba|rwkv|delta_?net|deltaattention|retention|retnet|hgrn|rglru|recurrentblock|lightningattention|"
    r"linear_?attention|gatedlinear|mlstm|slstm|selectivescan|ssm",
    re.IGNORECASE,
)
"""Classes whose weights nobody computes: a state is updated at each step."""
_PARTS = re.compile(
    r"norm|dropout|embed|output|intermediate|mlp|feed_?forward|rotary|bias|mask|structure|router|experts", re.IGNORECASE
)
"""Helpers of an attention, which have no weights of their own."""
_DECAYS = frozenset({"A_log", "time_decay"})
"""Parameters of recurrent states, whatever their class is called: what the state loses at each step."""

_READS = re.compile(r"softmax|scaled_dot_product_attention|_native_multi_head_attention")
"""What the graph of a module of TorchScript calls if it attends."""

_SCRIPT = "TorchScript: its code cannot be watched; record the model it was made from"
_NOT_CALLED = "it was not called in the block"
_STATE = "no attention weights: recurrent state"
_DIFFERENCE = "recorded are its softmaxes; it reads with a difference of two, which tape.difference(path) returns"
_PARTLY = "recorded are only some columns of its weights; it reads the others in another way"
_UNREAD = "its softmax was not multiplied with values in a way that is recognized"
_UNSEEN = "neither a softmax nor a call of a known attention was seen in it"

_NOTHING = "No attention was recorded"


@dataclass(eq=False)
class Calls:
    """What a block saw of its model: the classes of its modules, and what was called.

    Attributes:
        classes: each module's path -> the name of its class.
        scripts: the paths of modules of TorchScript.
        unseen: the paths of those among them whose code takes a softmax or attends.
        recurrent: the paths of modules that update a state.
        called: the paths of the modules that were called.
        subtracting: the paths of modules that read with a difference of softmaxes.
        softmaxes: the softmaxes that the model's own code took, with the path of the module.
    """

    classes: dict[str, str] = field(default_factory=dict)
    scripts: set[str] = field(default_factory=set)
    unseen: set[str] = field(default_factory=set)
    recurrent: set[str] = field(default_factory=set)
    called: set[str] = field(default_factory=set)
    subtracting: set[str] = field(default_factory=set)
    softmaxes: list[tuple[Softmax, str]] = field(default_factory=list)

    def watch(self, module: nn.Module, path: str) -> None:
        """Take note of a module of the model."""
        name = self.classes[path] = getattr(module, "original_name", type(module).__name__)
        if _RECURRENT.search(name) and not _PARTS.search(name):
            self.recurrent.add(path)
        elif not _DECAYS.isdisjoint(dict(module.named_parameters(recurse=False))) and not _PARTS.search(name):
            # A gate may hold them for the attention that it is a part of.
            outer = _ATTENTION.search(self.classes.get(_parent(path), ""))
            self.recurrent.add(_parent(path) if outer else path)
        if isinstance(module, torch.jit.ScriptModule):
            self.scripts.add(path)
            if _READS.search(str(getattr(module, "inlined_graph", ""))):
                self.unseen.add(path)

    def missed(self, recorded: Sequence[str]) -> dict[str, str]:
        """Return the reason for each module that looks like attention and has no weights on the tape."""
        seen = {path.partition(":")[0] for path in recorded}
        parents = {_parent(path) for path in seen}
        found = {}
        for path, name in self.classes.items():
            reason = self._reason(path, name, seen, parents)
            if reason is not None:
                found[path] = reason
        # Of nested ones the innermost is named.
        return {path: reason for path, reason in found.items() if not any(_is_inside(other, path) for other in found)}

    @property
    def attentions(self) -> list[str]:
        """The paths of the modules that look like attention by the names of their classes."""
        return [path for path, name in self.classes.items() if _is_attention(name)]

    def why_empty(self) -> str:
        """Return why nothing was recorded."""
        if not self.called:
            if self.scripts:
                return f"{_NOTHING}: the model is of TorchScript, whose code cannot be watched. Record the nn.Module."
            return f"{_NOTHING}: the model was not called in the with-block. Call it there: model(inputs)."
        if self.unseen:
            return (
                f"{_NOTHING}: the attention of {max(self.unseen, key=len)!r} is TorchScript, whose code cannot be "
                "watched. Record the nn.Module that it was made from."
            )
        unread = sorted({path for softmax, path in self.softmaxes if not softmax.was_read})
        if unread:
            return (
                f"{_NOTHING}: the model takes a softmax in {unread[0]!r}, but does not multiply values with it in "
                "a way that is recognized. Compute its attention with foci.attend, or pass its weights to "
                "foci.Trace.from_handles."
            )
        states = [path for path, reason in self.missed(()).items() if reason == _STATE]
        if states:
            more = f" and {len(states) - 1} more" if len(states) > 1 else ""
            return f"{_NOTHING}: {states[0]!r}{more} read by a recurrent state, which has no attention weights."
        return (
            f"{_NOTHING}: in the model were seen neither torch's attention, nor foci's, nor a softmax that values are "
            "multiplied with. Weights that it computes in another way can be passed to foci.Trace.from_handles."
        )

    def _reason(self, path: str, name: str, seen: set[str], parents: set[str]) -> str | None:
        if path in self.subtracting:
            return _DIFFERENCE
        if path in self.unseen:
            return _SCRIPT
        recurrent = path in self.recurrent
        if not recurrent and not _is_attention(name):
            return None
        if path in seen or any(_is_inside(other, path) for other in seen):
            partly = path in seen and any(place == path for softmax, place in self.softmaxes if softmax.is_partly_read)
            return _PARTLY if partly else None
        if path in self.scripts or any(_is_inside(path, script) for script in self.scripts):
            return _SCRIPT
        if path not in self.called:
            return _NOT_CALLED
        if recurrent:
            return _STATE
        if _parent(path) in seen:
            return None  # a part of one that was recorded
        if any(_is_inside(path, other) and _ATTENTION.search(self.classes.get(other, "")) for other in seen):
            return None
        unread = any(
            place == path or _is_inside(place, path) for softmax, place in self.softmaxes if not softmax.was_read
        )
        return _UNREAD if unread else _UNSEEN


def _is_attention(name: str) -> bool:
    """Return whether a class of this name looks like attention."""
    return _ATTENTION.search(name) is not None and _PARTS.search(name) is None


def _parent(path: str) -> str:
    return path.rpartition(".")[0] or "."


def _is_inside(path: str, outer: str) -> bool:
    """Return whether a module lies in another one."""
    return path != outer and (outer == "." or path.startswith(f"{outer}."))
