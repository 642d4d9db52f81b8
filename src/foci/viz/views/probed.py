"""Whether what was read mattered: what `foci.probe` found of each attention and head, and the verdict in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from foci.viz.page.html import safe
from foci.viz.selection import Selection
from foci.viz.trace import Trace

_FIRST = "comprehensiveness"
_LANGUAGES = ("en", "zh")
_TITLES = ("Did it matter?", "看过的内容起作用了吗？")
_HEADS = ("heads, by how much the answer changes without what they read", "各头，按抹去所关注的内容后答案的变化排序")
_SHOWN = 3
"""Attentions that are listed at once; those without which the answer changes most come first."""
_OTHERS = ("{} more", "另有 {} 个")
_CHANCE = ("chance", "随机")
_INPUTS = ("over {} inputs, with 95 % intervals", "{} 个输入，附 95% 置信区间")
_INPUT = ("of this input alone: {} input", "仅此 {} 个输入")


def fits(selection: Selection) -> bool:
    """Return False: it shows no attention."""
    return False


def page(trace: Trace) -> str:
    """Return what a probe found as HTML; nothing for a trace without one.

    Example:
        >>> found = {"comprehensiveness": [0.25, None, None]}
        >>> row = {"name": "words", "head": None, "measures": found, "chance": {}, "words": {"en": "No.", "zh": "否。"}}
        >>> trace = Trace.from_arrays([[1.0]], ["das"], ["the"])
        >>> page(trace), ">words</b>" in page(trace.with_probe({"inputs": 1, "rows": [row], "said": {}}))
        ('', True)
    """
    if trace.probe is None:
        return ""
    rows = trace.probe["rows"]
    if len({row.get("source") for row in rows}) > 1:  # an image and a question: gradient × input is of each of them
        rows = [{**row, "name": f"{row['name']} · {row['source']}"} for row in rows]
    names = sorted((row for row in rows if row["head"] is None), key=_above_chance, reverse=True)
    first = next((row for row in names if row["name"] in trace.attentions), None)  # not gradient × input
    lines = [
        f'<details class="reading probed"><summary>{_both(_TITLES)} <small>',
        _counted(int(trace.probe["inputs"])),
        "</small>",
        f'<span class="first">{_verdict(first)}</span>' if first else "",
        "</summary>",
    ]
    for place, row in enumerate(names):
        if place == _SHOWN:
            count = len(names) - _SHOWN
            lines.append(f"<details><summary>{_both([one.format(count) for one in _OTHERS])}</summary>")
        heads = [one for one in rows if one["name"] == row["name"] and one["head"] is not None]
        lines += _attention(row, heads, trace.probe.get("said", {}))
    return "\n".join([*lines, "</details>" * (1 + (len(names) > _SHOWN))])


def _above_chance(row: Mapping[str, Any]) -> float:
    """Return how much more than chance the answer changes without what was read."""
    return float(row["measures"][_FIRST][0]) - float(row["chance"].get(_FIRST, 0.0))


def _verdict(row: Mapping[str, Any]) -> str:
    name, words = safe(row["name"]), _both([row["words"][language] for language in _LANGUAGES])
    return f'<b data-name="{name}">{name}</b> {words}'


def _attention(
    row: Mapping[str, Any], heads: Sequence[Mapping[str, Any]], said: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """Yield the verdict of an attention, and below it, closed, all its measures and its heads."""
    yield f'<details dir="auto"><summary>{_verdict(row)}</summary><table>'
    for name, measure in row["measures"].items():
        chance = f"{_both(_CHANCE)} {row['chance'][name]:.3f}" if name in row["chance"] else ""
        yield (
            f'<tr><th scope="row">{_both(said.get(name, (name, name)))}</th><td>{_number(measure)}</td>'
            f"<td>{chance}</td></tr>"
        )
    yield "</table>"
    if heads:
        yield f"<p>{_both(_HEADS)}</p><table>"
        for one in sorted(heads, key=_above_chance, reverse=True):
            words = _both([one["words"][language] for language in _LANGUAGES])
            yield (
                f'<tr><th scope="row">{int(one["head"])}</th><td>{_number(one["measures"][_FIRST])}</td>'
                f"<td>{_both(_CHANCE)} {one['chance'].get(_FIRST, 0.0):.3f}</td><td>{words}</td></tr>"
            )
        yield "</table>"
    yield "</details>"


def _number(measure: Sequence[float | None]) -> str:
    value, low, high = measure
    text = f"{value:.3f}"
    return text if low is None else f"{text} <small>[{low:.3f}, {high:.3f}]</small>"


def _counted(count: int) -> str:
    return _both([one.format(count) for one in (_INPUT if count == 1 else _INPUTS)])


def _both(texts: Sequence[str]) -> str:
    """Return a text in both languages, of which the page shows the one it is in."""
    return "".join(f'<span class="in-{name}">{safe(text)}</span>' for name, text in zip(_LANGUAGES, texts))
