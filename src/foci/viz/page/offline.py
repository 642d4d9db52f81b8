"""Pages that are one HTML file: style, script and data lie inside, and the page's policy lets nothing else run or load.

Data are text: the scripts set them by `textContent`, and the JSON has no ``<`` that could end its element.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from importlib.resources import files

from foci.viz.page.html import escaped

_STATIC = files("foci.viz.page") / "static"


def offline_page(
    name: str, scripts: Sequence[str], title: str, payload: object, blocks: Sequence[str] = (), body: str = ""
) -> str:
    """Return the HTML of a page.

    Args:
        name: of its body, ``static/name.html``, which stands in ``static/frame.html``.
        scripts: the parts of its script, ``static/part.js``, each of which may use those before it.
        title: of the document.
        payload: what the script reads, as JSON, from the element ``trace``.
        blocks: base64, each in an element of its own: ``block-0``, ``block-1``, ….
        body: HTML above the views, in which all text is escaped.
    """
    style = _static("page.css")
    script = '"use strict";\n(() => {\n' + "\n".join(_static(f"{part}.js") for part in scripts) + "})();\n"
    policy = (
        f"default-src 'none'; script-src '{_fingerprint(script)}'; style-src '{_fingerprint(style)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    if "<audio " in body:  # a recording lies inside of the page
        policy += "; media-src data:"
    parts = {
        "policy": policy,
        "title": escaped(title[:200]),
        "style": style,
        "body": body,
        "trace": json.dumps(payload, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"),
        "blocks": "\n".join(
            f'<script type="application/octet-stream" id="block-{number}">{block}</script>'
            for number, block in enumerate(blocks)
        ),
        "script": script,
    }
    frame = _static("frame.html").replace("{{page}}", _static(f"{name}.html"))
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], frame)


def is_static(name: str) -> bool:
    """Return whether there is a file ``static/name``."""
    return _STATIC.joinpath(name).is_file()


def _static(name: str) -> str:
    return _STATIC.joinpath(name).read_text(encoding="utf-8")


def _fingerprint(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")
