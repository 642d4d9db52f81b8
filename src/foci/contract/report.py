"""What `foci.check` found: law by law, what holds, what fails and what could not be tried."""

from __future__ import annotations

import textwrap
from collections import Counter
from dataclasses import dataclass
from typing import Literal

Status = Literal["holds", "fails", "not tried"]


@dataclass(frozen=True)
class Finding:
    """What was found of one law.

    Attributes:
        law: what is to hold.
        status: whether it does.
        reason: what was seen, or why it could not be tried; empty where the law holds.
        fix: how it can be mended; empty where the reason says so.
    """

    law: str
    status: Status
    reason: str = ""
    fix: str = ""


@dataclass(frozen=True, repr=False)
class Report:
    """What `foci.check` found: it prints itself, and is true if nothing fails.

    Attributes:
        subject: what was tried, and as what.
        findings: one for each law.
    """

    subject: str
    findings: tuple[Finding, ...]

    def __bool__(self) -> bool:
        return not self.failing

    @property
    def failing(self) -> tuple[Finding, ...]:
        """The findings of what fails."""
        return tuple(one for one in self.findings if one.status == "fails")

    def __repr__(self) -> str:
        counts = Counter(one.status for one in self.findings)
        shown = ", ".join(f"{counts[status]} {word}" for status, word in _COUNTED.items() if counts[status])
        lines = [f"{self.subject}: {shown}"]
        for one in self.findings:
            lines.append(f"  {one.status:<9}  {one.law}")
            lines += [textwrap.indent(textwrap.fill(text, 100), " " * 13) for text in (one.reason, one.fix) if text]
        return "\n".join(lines)


_COUNTED: dict[Status, str] = {"holds": "hold", "fails": "fail", "not tried": "not tried"}
