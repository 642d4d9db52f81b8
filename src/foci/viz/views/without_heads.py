"""What a model answers without each of its heads, as a table: the heads whose answer is another one stand first."""

from __future__ import annotations

from foci.viz.heads.answers import answers_of, own_answer
from foci.viz.page.html import safe
from foci.viz.selection import Selection
from foci.viz.trace import Trace


def fits(selection: Selection) -> bool:
    """Return False: it shows no attention."""
    return False


def page(trace: Trace) -> str:
    """Return the answers as HTML; nothing where a trace has none.

    Example:
        >>> from foci.viz.heads.answers import Answer, with_answers
        >>> trace = Trace.from_arrays([[1.0]], ["das"], ["the"])
        >>> page(trace)
        ''
        >>> print(page(with_answers(trace, Answer("the"), {"attention:0": Answer("the"), "attention:1": Answer("a")})))
        <details class="reading without"><summary data-name="without each head">without each head</summary>
        <table>
        <tr><th scope="row"><span data-name="all heads">all heads</span></th><td dir="auto">the</td></tr>
        <tr><th scope="row">attention:1</th><td dir="auto"><b>a</b></td></tr>
        <tr><th scope="row">attention:0</th><td dir="auto">the</td></tr>
        </table></details>
    """
    found = answers_of(trace)
    if not found:
        return ""
    lines = [
        '<details class="reading without"><summary data-name="without each head">without each head</summary>',
        "<table>",
    ]
    lines.append(_row('<span data-name="all heads">all heads</span>', safe(str(own_answer(trace)))))
    for head, answer, is_other in found:
        lines.append(_row(safe(head), f"<b>{safe(str(answer))}</b>" if is_other else safe(str(answer))))
    return "\n".join([*lines, "</table></details>"])


def _row(head: str, answer: str) -> str:
    return f'<tr><th scope="row">{head}</th><td dir="auto">{answer}</td></tr>'
