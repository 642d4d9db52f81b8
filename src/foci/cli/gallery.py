"""`foci gallery`: one picture per mechanism, and a page that shows them all."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foci.gallery import Scene


def gallery(*, out: Path = Path("gallery")) -> None:
    """Draw what every mechanism attends to in a small example, and a page with all the pictures.

    Parameters
    ----------
    out
        The folder for the pictures (NAME.png) and the page (index.html). Pictures of the same name are replaced.
    """
    import torch

    from foci.catalog import MECHANISMS
    from foci.files import write_text
    from foci.gallery import SCENES

    scenes = {}
    with torch.random.fork_rng(devices=[]):
        for name in MECHANISMS:
            scenes[name] = SCENES[name]()
            print(draw(name, scenes[name], out), flush=True)
    page = out / "index.html"
    write_text(page, index(scenes))
    print(f"{len(scenes)} pictures; to see them all, open {page.resolve()}")


def draw(name: str, scene: Scene, folder: Path) -> Path:
    """Save one scene as ``folder/name.png``."""
    from foci.viz import heatmap

    return heatmap(
        scene.weights.detach(),
        folder / f"{name}.png",
        rows=scene.rows,
        columns=scene.columns,
        panels=scene.panels,
        texts=scene.texts,
        row_axis=scene.row_axis,
        column_axis=scene.column_axis,
        title=name,
        scale=scene.scale,
        across=scene.across,
    )


def index(scenes: dict[str, Scene]) -> str:
    """Return the page: each picture with its equation and caption. It loads only the pictures beside it."""
    from foci.catalog import MECHANISMS

    sections = []
    for name, scene in scenes.items():
        card = MECHANISMS[name]
        sections.append(
            _SECTION.format(
                name=escape(name),
                family=escape(card.family),
                summary=_prose(card.summary),
                equation=escape(card.equation),
                caption=_prose(scene.caption),
                paper=_prose(card.paper),
            )
        )
    links = " ".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in scenes)
    return _PAGE.format(links=links, sections="".join(sections))


def _prose(text: str) -> str:
    """Text as HTML; names that stand between backticks are set as code."""
    return re.sub(r"`+([^`]+)`+", r"<code>\1</code>", escape(text))


_SECTION = """
<section id="{name}">
<h2>{name} <small>{family}</small></h2>
<p>{summary}</p>
<pre>{equation}</pre>
<figure>
<img src="{name}.png" alt="Heat map of the weights of {name}" loading="lazy">
<figcaption>{caption}</figcaption>
</figure>
<p class="paper">{paper}</p>
</section>
"""

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>foci: the gallery</title>
<style>
:root {{
  color-scheme: light dark;
  --back: #fbfbfa; --text: #1d1d1f; --soft: #5c5c63; --line: #dedee2; --code: #f0f0f2; --link: #1f5fa8;
}}
@media (prefers-color-scheme: dark) {{
  :root {{ --back: #17181b; --text: #ececee; --soft: #a3a3ab; --line: #34353a; --code: #232429; --link: #8ab8f2; }}
}}
body {{
  margin: 0 auto; max-width: 60rem; padding: 2rem 1rem;
  background: var(--back); color: var(--text); font: 16px/1.55 system-ui, sans-serif;
}}
a {{ color: var(--link); }}
nav a {{ display: inline-block; margin-right: 0.7rem; }}
section {{ border-top: 1px solid var(--line); margin-top: 2.5rem; padding-top: 0.5rem; }}
h2 small {{ color: var(--soft); font-weight: normal; }}
pre, code {{ background: var(--code); }}
code {{ padding: 0 0.25rem; border-radius: 4px; }}
pre {{ padding: 0.7rem 1rem; overflow-x: auto; border-radius: 6px; }}
figure {{ margin: 1rem 0; }}
img {{ display: block; max-width: 100%; height: auto; background: white; border-radius: 6px; }}
figcaption {{ margin-top: 0.6rem; }}
.paper {{ color: var(--soft); font-size: 0.9rem; }}
</style>
</head>
<body>
<h1>foci: the gallery</h1>
<p>One small worked example for each mechanism, computed by the mechanism itself.
Darker is more; hatched is exactly 0.</p>
<nav>{links}</nav>
{sections}
</body>
</html>
"""
