"""`foci.check`: the contract that all mechanisms of foci keep, tried on a part or a mechanism of one's own."""

from __future__ import annotations

from typing import Any

import torch

from foci.contract.laws import COMPILED, FIRST, LAWS, Broken, Law, NotTried
from foci.contract.report import Finding, Report
from foci.contract.subject import Kind, Subject, subject_of
from foci.errors import FociError


def check(
    part: Any,
    kind: Kind | None = None,
    *,
    query_dim: int | None = None,
    key_dim: int | None = None,
    value_dim: int | None = None,
    channels: int | None = None,
    input_dim: int | None = None,
    compile: bool = False,
) -> Report:
    """Try the contract on a score, normalizer, focus or stage of your own, or on a mechanism.

    A part is tried in `foci.Attention`, a mechanism is a module called like one of the five families (docs/design.md).
    Nothing is changed: copies are tried, and torch's random state is as before. It takes seconds.

    Args:
        part: what is tried.
        kind: "score", "normalizer", "focus" or "stage", or the family of a mechanism: "attend", "pool", "pair",
            "memory" or "map". Default: by the names of its arguments; a focus has those of a score.
        query_dim: size of the query it takes. Default: its attribute of this name or model_dim, else 6; so are the
            others, which are the query's if they are not there.
        key_dim: size of the key.
        value_dim: size of the value.
        channels: channels of the features of a map.
        input_dim: size of the input of a memory.
        compile: also try `torch.compile`, which takes longer.

    Returns:
        A report that prints what holds, what fails and how to mend it, and what could not be tried; true if nothing
        fails.

    Raises:
        ConfigError: it is no such part: it cannot be called like one, or its kind is unknown.

    Example:
        >>> import torch
        >>> report = check(lambda scores, mask: scores.softmax(dim=-1))
        >>> bool(report), report.failing[0].law
        (False, 'masked positions change nothing, and have weight 0')
    """
    given = {
        "query_dim": query_dim,
        "key_dim": key_dim,
        "value_dim": value_dim,
        "channels": channels,
        "input_dim": input_dim,
    }
    subject = subject_of(part, kind, given)
    with torch.random.fork_rng(), torch.enable_grad():
        first = _found(FIRST, subject)
        laws = (*LAWS, COMPILED) if compile else LAWS
        if first.status == "fails":
            others = [Finding(law.name, "not tried", "it cannot be called.") for law in laws]
        else:
            others = _named_once([_found(law, subject) for law in laws])
    return Report(subject.title, (first, *others))


def _named_once(findings: list[Finding]) -> list[Finding]:
    """Return the findings, in which an error that keeps several laws from being tried is that of the first one."""
    seen: set[str] = set()
    shown = []
    for one in findings:
        again = one.status == "fails" and one.reason in seen
        shown.append(Finding(one.law, "not tried", "the same error as above.") if again else one)
        seen.add(one.reason)
    return shown


def _found(law: Law, subject: Subject) -> Finding:
    try:
        law.attempt(subject)
    except NotTried as reason:
        return Finding(law.name, "not tried", str(reason))
    except Broken as reason:
        return Finding(law.name, "fails", str(reason), law.fix)
    except FociError as error:  # which says how to fix it
        return Finding(law.name, "fails", str(error))
    except Exception as error:  # noqa: BLE001 (whatever a part of one's own raises)
        text = " ".join(str(error).split())
        return Finding(law.name, "fails", f"{type(error).__name__}: {text[:300]}", law.fix)
    return Finding(law.name, "holds")
