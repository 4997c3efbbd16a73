"""Pictures of attention: each row a token of the translation, each column a token of the source.

PNG and SVG show one text, its layers and heads averaged or each on its own; HTML shows any number, to choose there.
"""

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mt.data.tokenizer import SPACE
from mt.decoding.attention_weights import Attention
from mt.errors import InputError
from mt.storage import atomic

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".png", ".svg", ".html")
_LARGEST_GRID = 64  # maps in a picture; more could not be told apart
_LABELLED = 60  # tokens beyond which labels would hide one another


def check_drawable(path: Path, by_head: bool, texts: Sequence[str] = ()) -> None:
    """Refuses what cannot be drawn, before anything is translated.

    Args:
        path: where the picture is to be.
        by_head: whether it is to show every layer and head.
        texts: what is to be translated, as far as it is known.

    Raises:
        InputError: its name ends otherwise, or it is a page, which has every head in any case; or there is nothing to
            draw, or too much for a picture.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"--attention {path}: must end in {', '.join(SUFFIXES)}")
    if by_head and path.suffix.lower() == ".html":
        raise InputError("--by-head is for pictures", "leave it out: the page shows every layer and head")
    drawn = [text for text in texts if text.strip()]
    if texts and not drawn:
        raise _empty(path)
    if len(drawn) > 1 and path.suffix.lower() != ".html":
        raise _too_many(path, len(drawn))


def draw(path: Path, attentions: Sequence[Attention], by_head: bool = False) -> None:
    """Writes a picture or a page.

    Args:
        path: its ending says which.
        attentions: of the texts; a picture shows one.
        by_head: a picture shows every layer and head instead of their mean.

    Raises:
        InputError: there is nothing to draw, or too much for a picture.
    """
    if not attentions:
        raise _empty(path)
    if path.suffix.lower() == ".html":
        atomic.write_text(path, page(attentions))
        return
    if len(attentions) > 1:
        raise _too_many(path, len(attentions), " (a text that is too long for the model is several)")
    atomic.write_bytes(path, picture(attentions[0], path.suffix.lower().removeprefix("."), by_head))


def _empty(path: Path) -> InputError:
    return InputError(f"--attention {path}: an empty text has no attention to draw")


def _too_many(path: Path, number: int, why: str = "") -> InputError:
    return InputError(
        f"--attention {path}: a picture shows one text, and there are {number}{why}", "write a .html instead"
    )


def picture(attention: Attention, kind: str, by_head: bool = False) -> bytes:
    """A picture as the content of a file.

    Args:
        attention: what to draw.
        kind: png or svg.
        by_head: every layer (row) and head (column) instead of their mean.
    """
    from matplotlib.figure import Figure

    layers, heads = attention.weights.shape[:2] if by_head else (1, 1)
    if layers * heads > _LARGEST_GRID:
        raise InputError(f"{layers} layers of {heads} heads are too many for a picture", "write a .html instead")
    width = min(0.32 * len(attention.source) + 1.6, 16) * (0.45 if by_head else 1)
    height = min(0.32 * len(attention.target) + 1.2, 16) * (0.45 if by_head else 1)
    figure = Figure(figsize=(width * heads + 0.4, height * layers + 0.4), dpi=110, layout="constrained")
    axes = figure.subplots(layers, heads, squeeze=False)
    if not by_head:
        _draw_one(axes[0][0], attention, attention.mean, labels=True)
    else:
        for layer in range(layers):
            for head in range(heads):
                # Many small maps have no room for every token; the outer ones are enough to find one's way.
                _draw_one(axes[layer][head], attention, attention.weights[layer, head], labels=False)
                axes[layer][head].set_title(f"layer {layer + 1}, head {head + 1}", fontsize=8)
    content = BytesIO()
    figure.savefig(content, format=kind)
    return content.getvalue()


def _draw_one(axes: "Axes", attention: Attention, weights: Any, labels: bool) -> None:
    axes.imshow(weights.numpy(), cmap="viridis", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    if not labels or max(len(attention.source), len(attention.target)) > _LABELLED:
        axes.set_xticks([])
        axes.set_yticks([])
        return
    # A $ would begin mathematics.
    source, target = (
        [_shown(token).replace("$", r"\$") for token in each] for each in (attention.source, attention.target)
    )
    axes.set_xticks(range(len(source)), source, rotation=60, ha="left", rotation_mode="anchor")
    axes.set_yticks(range(len(target)), target)
    axes.xaxis.tick_top()


def _shown(token: str) -> str:
    """A token as a reader knows it: without the marker of a space where it is part of a word."""
    return token if token == SPACE else token.removeprefix(SPACE)


def page(attentions: Sequence[Attention]) -> str:
    """A self-contained page: the mean, or any layer and head, of each text."""
    return _PAGE.replace("MAPS", maps(attentions))


def maps(attentions: Sequence[Attention]) -> str:
    """The part of a page that shows the maps: to be put into any page together with `STYLE` and `SCRIPT`."""
    data = [
        {
            "text": "".join(one.source[1:-1]).replace(SPACE, " ").strip(),
            "source": [_shown(token) for token in one.source],
            "target": [_shown(token) for token in one.target],
            # Hundredths are all that a colour can show.
            "weights": (one.weights * 100).round().int().tolist(),
        }
        for one in attentions
    ]
    text = html.escape(json.dumps(data, ensure_ascii=False, separators=(",", ":")), quote=True)
    return f'<div class="attention" data-maps="{text}"></div>'


_WEB = files("mt.extras.reporting") / "web"
STYLE, SCRIPT = ((_WEB / name).read_text(encoding="utf-8") for name in ("attention.css", "attention.js"))
_PAGE = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Attention</title>
<link rel="icon" href="data:,">
<style>{STYLE}</style>
</head>
<body>
<h1>Attention of the translation to its source</h1>
MAPS
<script>{SCRIPT}</script>
</body>
</html>
"""
