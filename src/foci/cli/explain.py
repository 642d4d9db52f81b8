"""`foci explain`: the description of a mechanism from its docstring, and a small worked example."""

from __future__ import annotations

import sys
import textwrap

from rich.console import Console
from rich.text import Text

NOTHING = Text()


def explain(name: str, /) -> None:
    """Explain one mechanism: its equation, paper, symbols and cost, code that builds it, and an example in numbers.

    Parameters
    ----------
    name
        A name that `foci list` shows, or a common other one: bahdanau, luong, transformer, han, …
    """
    from foci import catalog
    from foci.gallery import worked_example

    card = catalog.card(name)
    (name,) = (key for key, row in catalog.MECHANISMS.items() if row is card)
    aliases = sorted(alias for alias, key in catalog.ALIASES.items() if key == name)
    page = _Page()
    page.heading(name, f"{card.family} family" + (f"; also called {', '.join(aliases)}" if aliases else ""))
    page.text(card.summary, "In short")
    page.block("Equation", card.equation)
    page.pairs("Symbols", card.symbols)
    page.text(card.paper, "Paper", card.link)
    page.text(card.complexity, "Complexity")
    page.text(card.differs, "Differs from the paper")
    page.block("Call", worked_example.call(name, card))
    if card.variants:
        page.pairs("Variants", [(variant, catalog.as_code(options)) for variant, options in card.variants.items()])
    page.block("Code", worked_example.code(name, card).rstrip())
    page.heading("What this code computes", "with initial parameters, before training")
    for expression, tensor in worked_example.numbers(name, card):
        shape = f"({', '.join(map(str, tensor.shape))})"
        page.block(f"{expression}  {shape}", "\n".join(worked_example.lines(tensor)))


class _Page:
    """Prints headings, paragraphs and blocks: in bold and color on a terminal, plain elsewhere."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._width = min(self._console.width, 110) if sys.stdout.isatty() else 100

    def heading(self, title: str, remark: str) -> None:
        self._line(Text.assemble((title, "bold cyan"), f"  ({remark})"))
        self._line()

    def text(self, paragraph: str, title: str, *below: str) -> None:
        self.block(title, "\n".join([textwrap.fill(paragraph, self._width - 2), *below]))

    def pairs(self, title: str, pairs: list[tuple[str, str]]) -> None:
        width = max(len(left) for left, _ in pairs)
        self.block(title, "\n".join(f"{left.ljust(width)}  {right}" for left, right in pairs))

    def block(self, title: str, lines: str) -> None:
        """Print a title, and indented lines that are not wrapped: equations, code, numbers."""
        self._line(Text(title, style="bold"))
        self._line(Text(textwrap.indent(lines, "  ")))
        self._line()

    def _line(self, text: Text = NOTHING) -> None:
        self._console.print(text, soft_wrap=True)
