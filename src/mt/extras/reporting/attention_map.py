"""Attention maps: each row a token of the translation, each column a token of the source.

PNG and SVG show one text, its layers and heads averaged or each on its own; HTML shows any number of texts, with a
choice of layer and head.
"""

import html
import json
import warnings
from collections.abc import Sequence
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mt.console import log
from mt.data.tokenizer import SPACE
from mt.decoding.attention_weights import Attention, is_text
from mt.errors import InputError
from mt.extras.reporting.html import web_file
from mt.storage import atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PAGE, STYLE, SCRIPT = map(web_file, ("attention.html", "attention.css", "attention.js"))
SUFFIXES = (".png", ".svg", ".html")
_MAX_GRID = 64  # maps in an image; more would be illegible
_MAX_LABELS = 60  # tokens; more labels would overlap


def check_drawable(path: Path, by_head: bool, texts: Sequence[str]) -> None:
    """Check the options before anything is translated; `texts` is empty if they are not known yet.

    Raises:
        InputError: an unknown suffix, `by_head` for HTML, which always has every head, or texts that `draw` refuses.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise InputError(f"--attention {path}: must end in {', '.join(SUFFIXES)}")
    if by_head and suffix == ".html":
        raise InputError("--by-head is for images", "leave it out: the page shows every layer and head")
    if texts:
        _check_number(path, sum(any(map(str.isalnum, text)) for text in texts))


def draw(path: Path, attentions: Sequence[Attention], by_head: bool) -> None:
    """Write an image or a page, by the suffix of the path; InputError for nothing to draw, or too much for an image."""
    _check_number(path, len(attentions), " (a text that is too long for the model counts as several)")
    suffix = path.suffix.lower()
    if suffix == ".html":
        atomic.write_text(path, attention_page(attentions))
    else:
        atomic.write_bytes(path, attention_image(attentions[0], suffix.removeprefix("."), by_head))


def _check_number(path: Path, number: int, note: str = "") -> None:
    if number == 0:
        raise InputError(f"--attention {path}: a text without letters and digits has no attention to draw")
    if number > 1 and path.suffix.lower() != ".html":
        message = f"--attention {path}: an image shows one text, and there are {number}{note}"
        raise InputError(message, "write a .html file instead")


def attention_image(attention: Attention, kind: str, by_head: bool = False) -> bytes:
    """Return the content of a PNG or SVG file; `by_head` draws every layer (row) and head (column), not their mean."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    weights = attention.weights if by_head else attention.weights.mean(dim=(0, 1), keepdim=True)
    layers, heads = weights.shape[:2]
    if layers * heads > _MAX_GRID:
        raise InputError(f"{layers} layers of {heads} heads are too many for an image", "write a .html file instead")
    scale = 0.45 if by_head else 1
    width = min(0.32 * len(attention.source) + 1.6, 16) * scale
    height = min(0.32 * len(attention.target) + 1.2, 16) * scale
    content = BytesIO()
    # Text stays text, dollar signs included.
    with warnings.catch_warnings(record=True) as caught, rc_context({"svg.fonttype": "none", "text.parse_math": False}):
        warnings.simplefilter("always")
        figure = Figure(figsize=(width * heads + 0.4, height * layers + 0.4), dpi=110, layout="constrained")
        axes: Any = figure.subplots(layers, heads, squeeze=False)
        for layer, head in product(range(layers), range(heads)):
            _draw_map(axes[layer, head], attention, weights[layer, head], labels=not by_head)
            if by_head:
                axes[layer, head].set_title(f"layer {layer + 1}, head {head + 1}", fontsize=8)
        figure.savefig(content, format=kind)
    if kind == "png" and any("missing from font" in str(warning.message) for warning in caught):
        log.warning("the font of images lacks some of these characters; write a .html or .svg file instead")
    return content.getvalue()


def _draw_map(axes: "Axes", attention: Attention, weights: Any, labels: bool) -> None:
    axes.imshow(weights.numpy(), cmap="viridis", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    if not labels or max(len(attention.source), len(attention.target)) > _MAX_LABELS:
        axes.set_xticks([])
        axes.set_yticks([])
        return
    source, target = ([_label(token) for token in tokens] for tokens in (attention.source, attention.target))
    axes.set_xticks(range(len(source)), source, rotation=60, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(target)), target)
    axes.xaxis.tick_top()


def _label(token: str) -> str:
    """Return a token without its marker of a space."""
    return token if token == SPACE else token.removeprefix(SPACE)


def attention_page(attentions: Sequence[Attention]) -> str:
    """Return a self-contained page with the maps of each text."""
    return _PAGE.replace("STYLE", STYLE).replace("SCRIPT", SCRIPT).replace("MAPS", map_element(attentions))


def map_element(attentions: Sequence[Attention]) -> str:
    """Return the HTML element of the maps; a page with it needs `STYLE` and `SCRIPT`."""
    data = [
        {
            "text": "".join(filter(is_text, attention.source)).replace(SPACE, " ").strip(),
            "source": [_label(token) for token in attention.source],
            "target": [_label(token) for token in attention.target],
            "weights": (attention.weights * 100).round().int().tolist(),  # a colour shows no more than hundredths
        }
        for attention in attentions
    ]
    text = html.escape(json.dumps(data, ensure_ascii=False, separators=(",", ":")), quote=True)
    return f'<div class="attention" data-maps="{text}"><noscript>The maps need JavaScript.</noscript></div>'
