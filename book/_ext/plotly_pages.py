"""Sphinx extension: plotly figures that play in a page without a kernel and without a network.

A figure becomes inert JSON inside the page; `_static/rove-plot.js` draws it with the one copy of
plotly.js that `offline_pages` puts beside the pages.
"""

from __future__ import annotations

import base64
import copy
import html
import json
from itertools import chain
from typing import Any

from docutils import nodes
from myst_nb.core import render

PLOTLY = "application/vnd.plotly.v1+json"

# Above this many numbers a page's heatmaps are kept to 8 bits each, which is what their colours
# show: 64 x 64 x 20 stops then weigh 110 kB instead of 440. Smaller ones keep their digits.
PACK_ABOVE = 4096


class PlotlyRenderer:
    """A myst-nb MIME renderer: a plotly figure as one inert JSON block."""

    mime_priority_overrides = (("html", PLOTLY, 1),)

    @staticmethod
    def handle_mime(
        renderer: render.NbElementRenderer, data: render.MimeData, inline: bool
    ) -> list[nodes.Element] | None:
        """Return the figure's node, or None for what others render."""
        if inline or data.mime_type != PLOTLY:
            return None
        return [
            nodes.raw(
                text=figure_html(data.content),
                format="html",
                classes=["output"],
            )
        ]


def figure_html(figure: dict[str, Any]) -> str:
    """The HTML of a figure, described in words by its layout's `meta.alt`."""
    figure = copy.deepcopy(figure)  # the notebook's own output stays as it is
    layout = figure["layout"]
    layout.pop("template", None)  # the page has its own, light and dark
    meta = layout.get("meta") or {}
    if not meta.get("alt"):
        raise ValueError(
            "a figure in the book has no alt text; draw it with rove_lab.figures, or set "
            'figure.update_layout(meta={"alt": "what it shows, in words"})'
        )
    traces, frames = figure["data"], figure.get("frames", [])
    moving = list(chain.from_iterable(frame["data"] for frame in frames))
    scale = pack([trace for trace in chain(traces, moving) if trace["type"] == "heatmap"])
    spec = {"data": traces, "layout": layout, "frames": frames, "scale": scale}
    # A "<" could end the script element early.
    text = json.dumps(spec, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    alt = html.escape(meta["alt"])
    height = int(layout["height"])
    return (
        f'<div class="rove-plot" role="figure" aria-label="{alt}" style="min-height:{height}px">'
        f'<script type="application/json">{text}</script>'
        f"<noscript><p>This figure needs JavaScript. What it shows: {alt}</p></noscript></div>"
    )


def pack(heatmaps: list[dict[str, Any]]) -> float | None:
    """Replace many heatmaps' rows by 8-bit codes in base64; return what one step stands for."""
    shown = [trace for trace in heatmaps if isinstance(trace.get("z"), list)]
    values = [v for trace in shown for row in trace["z"] for v in row if v is not None]
    if len(values) <= PACK_ABOVE:
        return None
    # Rounded up, so that the largest value keeps the largest code.
    step = float(f"{max(map(abs, values)) / 127 * 1.00001:.6g}") or 1.0
    for trace in shown:
        # -128, which no value reaches, stands for a gap.
        codes = [-128 if v is None else round(v / step) for row in trace["z"] for v in row]
        packed = base64.b64encode(bytes(code & 0xFF for code in codes)).decode()
        trace["z"] = {"codes": packed, "columns": len(trace["z"][0])}
    return step


def setup(app: Any) -> dict[str, Any]:
    """Put the renderer before myst-nb's own; it has no other door for a project's renderer."""
    own = render.load_mime_renders
    if PlotlyRenderer not in own():
        render.load_mime_renders = lambda: [PlotlyRenderer, *own()]
    return {"parallel_read_safe": True, "parallel_write_safe": True}
