r"""A figure with a slider, shown as its place allows: plotly's slider, or one with a kernel behind.

A page of the book has no kernel, so there the figure plays its own frames. In Jupyter and in Colab
the same figure comes with a slider and a play button of ipywidgets, where ipywidgets is installed.
"""

from __future__ import annotations

from typing import Any, final

from rove_lab.notebook import where

try:
    import plotly.graph_objects as go
except ImportError as error:
    raise ImportError(
        'the figures are drawn with plotly, which is missing: pip install "rove-lab[figures]"'
    ) from error

__all__ = ["LiveFigure", "go"]  # `go` is plotly, for the modules that draw

_PLAY_MS = 300  # between stops: the kernel draws each of them anew


@final
class LiveFigure(go.Figure):  # type: ignore[misc]  # plotly has no types
    """A plotly figure with a slider whose display in a live notebook is driven by the kernel.

    Everything else is plotly's: ``show()``, ``write_html`` and ``to_json`` keep frames and slider,
    and it copies and pickles, for all that it knows stands in its layout and frames.

    Args:
        args: As for ``plotly.graph_objects.Figure``.

    Example:
        >>> from rove_lab.figures import Slider, lines
        >>> curves, words = {"RoVE": [[1, 0], [1, 1]]}, {"x_axis": "x", "y_axis": "y", "alt": "A."}
        >>> figure = lines([0, 1], curves, slider=Slider("t", [0, 1]), **words)
        >>> figure.at(1).data[0].y
        (1.0, 1.0)
    """

    def at(self, stop: int) -> go.Figure:
        """The figure as it stands at one stop, counted from 0, without a slider.

        Every stop has the same layout, so nothing jumps from one to the next.

        Raises:
            IndexError: If there is no such stop.
        """
        if not 0 <= stop < len(self.frames):
            raise IndexError(
                f"expected a stop from 0 to {len(self.frames) - 1}, got {stop}; the figure's "
                "frames are its stops"
            )
        figure = go.Figure(self.data, self.layout)
        frame = self.frames[stop]
        for index, trace in zip(frame.traces, frame.data, strict=True):
            figure.data[index].update(trace.to_plotly_json(), overwrite=True)
        room = (self.layout.meta or {}).get("slider_room", 0)
        figure.update_layout(height=self.layout.height - room, margin_b=self.layout.margin.b - room)
        figure.layout.sliders = figure.layout.updatemenus = ()
        return figure

    def _ipython_display_(self) -> None:
        """What IPython calls to show the figure: as a cell's last value, or by ``display``."""
        moves = len(self.frames) and len(self.layout.sliders) == 1
        # A renderer that opens a browser or draws a picture has no data for an Output to show.
        live = moves and where() in {"colab", "jupyter"} and self._repr_mimebundle_()
        box = _widgets(self) if live else None
        if box is None:
            super()._ipython_display_()
        else:
            from IPython.display import display

            display(box)


def _widgets(figure: LiveFigure) -> Any:
    """The figure over a slider and a play button; None where ipywidgets is not installed."""
    try:
        import ipywidgets
    except ImportError:
        return None
    (slider,) = figure.layout.sliders
    labels = [step.label for step in slider.steps]
    # An Output shows what any front end can show. A FigureWidget would need an extension there,
    # another one for each major version of plotly.
    output = ipywidgets.Output()
    select = ipywidgets.SelectionSlider(
        options=[(label, stop) for stop, label in enumerate(labels)],
        value=slider.active,
        description=slider.currentvalue.prefix.removesuffix(": "),
        style={"description_width": "initial"},
        layout={"flex": "1 1 auto", "max_width": "40em"},
    )
    play = ipywidgets.Play(
        value=slider.active, min=0, max=len(labels) - 1, interval=_PLAY_MS, show_repeat=False
    )
    ipywidgets.link((play, "value"), (select, "value"))

    def draw(stop: int) -> None:
        # Set as a whole: no gap to flicker in. Captured, by `with output`, it would make nbclient
        # (nbconvert --execute) answer the kernel while it waits for it, and miss the reply.
        data = figure.at(stop)._repr_mimebundle_()
        output.outputs = ({"output_type": "display_data", "data": data, "metadata": {}},)

    select.observe(lambda change: draw(change["new"]), names="value")
    draw(slider.active)
    return ipywidgets.VBox([output, ipywidgets.HBox([play, select])])
