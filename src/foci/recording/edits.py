"""The edits of one `foci.edit` block: which calls each of them changes, and whether it took effect."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from torch import Tensor, nn

from foci.errors import ConfigError, unknown_name
from foci.recording import changes
from foci.recording.changes import Attended, Change, Given, Heads, Positions, numbers_of
from foci.recording.missed import Calls as Watched
from foci.recording.tape import ROOT, spelled

Calls = int | Collection[int] | None
"""Numbers of the calls of a path in the block, the first being 0; None for all."""


@dataclass(eq=False)
class Edit:
    """One edit.

    Attributes:
        name: of the method, for messages.
        path: a path, or a pattern of paths.
        change: what it does to a call.
        calls: which calls of a path it changes.
        queries: the queries it was given by number.
        keys: the keys it was given by number.
        sizes: the most queries and keys that a call had.
        applied: how many calls it has changed.
        waits: what is wrong where it is not known yet which weights are those of a head.
        earlier: the paths of the attentions that were computed before it was made.
    """

    name: str
    path: str
    change: Change
    calls: Calls
    queries: list[int]
    keys: list[int]
    sizes: tuple[int, int] = (0, 0)
    applied: int = 0
    waits: Exception | None = None
    earlier: frozenset[str] = frozenset()

    def fits(self, path: str) -> bool:
        """Return whether the edit is of this path."""
        return path == self.path or fnmatch.fnmatchcase(path, self.path)

    def may_fit(self, path: str) -> bool:
        """Return whether the edit is of a module of this path, or may be of one of its weights: ``"path:read"``."""
        module, _, part = self.path.partition(":")
        return self.fits(path) or (bool(part) and fnmatch.fnmatchcase(path, module or ROOT))

    def takes(self, call: int) -> bool:
        """Return whether the edit is of the call of this number."""
        return self.calls is None or (call == self.calls if isinstance(self.calls, int) else call in self.calls)

    def apply(self, call: Attended) -> None:
        """Change a call."""
        self.change(call)
        self.sizes = max(self.sizes[0], call.length or call.shape[-2]), max(self.sizes[1], call.shape[-1])
        self.applied += 1


_TOO_LATE = "it was made after the model had been called. Make edits first, and call the model then."


@dataclass(eq=False)
class Edits:
    """What `foci.edit` returns: its methods add edits, which change the calls that follow.

    A path is one of `foci.record`, such as ``"encoder.layers.0.self_attn"``, or a pattern, such as ``"*"`` or
    ``"encoder.*"``. Edits are applied in the order in which they were added. Queries and keys are numbers of positions,
    a slice, or a boolean tensor ``(S,)`` or ``(B, S)``; those that a call does not have are not changed in it. Each
    method takes ``call``, the numbers of the calls of its path in the block; by default it changes all of them.

    Attributes:
        names: paths by further names, by which views call them; a path or pattern that fits no module may be of these.
    """

    _paths: dict[nn.Module, str]
    _watched: Watched
    _edits: list[Edit] = field(default_factory=list)
    _seen: dict[str, int] = field(default_factory=dict)  # path -> how many attentions it has computed in the block
    _returned: dict[str, None] = field(default_factory=dict)  # the paths of those that were computed without being seen
    _has_ended: bool = False  # the block
    names: Mapping[str, str] = field(default_factory=dict)

    def knock_out(self, path: str, head: Heads = None, *, call: Calls = None) -> None:
        """Let heads read nothing: their output, before any output projection, is 0. Default: all heads."""
        self._add("knock_out", path, changes.knock_out(head), call)

    def block(
        self, path: str, queries: Positions = None, keys: Positions = None, *, head: Heads = None, call: Calls = None
    ) -> None:
        """Keep queries from reading keys, as a mask does: the weights of the others are normalized again.

        A query with nothing left reads 0.
        """
        self._add("block", path, changes.block(queries, keys, head), call, queries, keys)

    def uniform(self, path: str, head: Heads = None, *, call: Calls = None) -> None:
        """Let each query read the mean of all values that it may read."""
        self._add("uniform", path, changes.uniform(head), call)

    def permute(
        self,
        path: str,
        seed: int = 0,
        *,
        order: Tensor | Sequence[int] | None = None,
        head: Heads = None,
        call: Calls = None,
    ) -> None:
        """Give the weights of each row to other positions among those that the row may read.

        Args:
            path: which attentions.
            seed: of the permutations, of which each row, head and call has its own.
            order: instead of random permutations, the position that each position's weight comes from, ``(…, S)``.
            head: which heads.
            call: which calls.
        """
        self._add("permute", path, changes.permute(seed, order, head), call)

    def weights(self, path: str, weights: Given, head: Heads = None, *, call: Calls = None) -> None:
        """Read with these weights instead.

        Args:
            path: which attentions.
            weights: a tensor or handle that broadcasts to the weights' shape, or a function from the weights that there
                are to others. They need not sum to 1, and are 0 where the model may not read.
            head: which heads.
            call: which calls.
        """
        self._add("weights", path, changes.given(weights, head), call)

    def scale(self, path: str, head: Heads, factor: float, *, call: Calls = None) -> None:
        """Multiply the weights of heads (None for all), and so their output, by a factor."""
        self._add("scale", path, changes.scale(factor, head), call)

    def zero_values(self, path: str, keys: Positions, *, head: Heads = None, call: Calls = None) -> None:
        """Let 0 be read in the place of the values of these keys, with unchanged weights."""
        self._add("zero_values", path, changes.zero_values(keys, head), call, None, keys)

    def _touches(self, module: nn.Module) -> bool:
        """Return whether an edit may be of an attention in this module or below it."""
        paths = [self._paths[part] for part in module.modules() if part in self._paths]
        return any(edit.may_fit(path) for edit in self._edits for path in paths)

    def _begin(self, modules: Sequence[nn.Module], again: bool, part: str = "") -> tuple[str, list[Edit]]:
        """Count a call within these modules; return the path of the innermost one of the model, and the edits.

        A call that is computed again is not counted, and has the edits of all calls of the path.
        """
        paths = [self._paths[module] for module in modules if module in self._paths]
        if not paths:
            return "", []
        path = paths[-1] + part
        fit = [edit for edit in self._edits if edit.fits(path)]
        if not again:
            number = self._seen.get(path, 0)
            self._seen[path] = number + 1
            return path, [edit for edit in fit if edit.takes(number)]
        for edit in fit:
            if edit.calls is not None:
                raise ConfigError(
                    f"edit: {edit.name} has call={edit.calls!r} for {path!r}, which runs again in the backward pass, "
                    "expected no call. Switch activation checkpointing off."
                )
        return path, fit

    def _check(self) -> None:
        """Raise an error if an edit had no effect, or named positions that no call had."""
        for edit in self._edits:
            reason = self._why_without_effect(edit)
            if reason is not None:
                raise ConfigError(f"edit: {edit.name} of {edit.path!r} had no effect: {reason}")

    def _why_without_effect(self, edit: Edit) -> str | None:
        if edit.applied:
            for what, numbers, size in zip(("query", "key"), (edit.queries, edit.keys), edit.sizes):
                for number in numbers:
                    if not -size <= number < size:
                        return f"no call had {what} {number}, expected 0 to {size - 1}."
            return None
        if edit.waits is not None:
            return f"no head was found by the shapes of what was read. {str(edit.waits).removeprefix('edit: ')}"
        called = {path: count for path, count in self._seen.items() if edit.fits(path)}
        if called:
            path = max(called, key=called.__getitem__)
            if edit.calls is None:
                return _TOO_LATE
            return f"call is {edit.calls!r}, and {path!r} had calls 0 to {called[path] - 1} in the block."
        if not self._watched.called:
            return "the model was not called in the block. Call it there: model(inputs)."
        paths = [path for path in self._paths.values() if edit.may_fit(path)]
        attended = sorted({*self._seen, *self._returned})
        known = f" Attentions were seen in: {', '.join(attended)}." if attended else ""
        if not any(path in self._watched.called for path in paths):
            return f"it was not called in the block.{known}"
        if any(path in self._returned for path in paths):
            if not edit.earlier.isdisjoint(paths):
                return _TOO_LATE
            made_of = [other for other in self._seen if any(_is_part(other, path) for path in paths)]
            if made_of:
                return f"nothing is read with these weights themselves. Edit {', '.join(made_of)}."
            return f"what this mechanism reads cannot be edited, only recorded.{known}"
        reasons = self._watched.missed(list(self._seen))
        reason = next((reasons[path] for path in paths if path in reasons), None)
        return f"{reason or 'no attention was seen in it itself'}.{known}"

    def _add(
        self,
        name: str,
        path: str,
        change: Change,
        calls: Calls,
        queries: Positions = None,
        keys: Positions = None,
    ) -> None:
        if self._has_ended:
            raise ConfigError(
                f"edit: {name} of {path!r} came after the end of the block, expected edits in it. Write both the edit "
                "and model(inputs) in the with-block."
            )
        earlier = frozenset({*self._seen, *self._returned})
        edit = Edit(name, spelled(path), change, calls, numbers_of(queries), numbers_of(keys), earlier=earlier)
        if any(edit.may_fit(known) for known in self._paths.values()):
            self._edits.append(edit)
            return
        meant = [replace(edit, path=self.names[name]) for name in self.names if edit.fits(name)]
        if not meant:
            # Of a large model all paths would be hundreds.
            attentions = [*self.names, *self._watched.attentions]
            kind = "path of an attention" if attentions else "path"
            raise unknown_name(kind, path, attentions or self._paths.values())
        self._edits += meant


def _is_part(path: str, whole: str) -> bool:
    """Return whether these are weights that the module of the other path, or one inside of it, reads with."""
    return path.startswith((f"{whole}:", f"{whole}.")) or (whole == ROOT and path != ROOT)
