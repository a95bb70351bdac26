"""The head viewer in a live notebook: type a sentence, see the heads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from attnlib.errors import AttnlibError
from attnlib.metrics.registry import Metric
from attnlib.models import Encoder, load_encoder
from attnlib.plots.viewer import METRICS, view

TEXT = "The keeper of the lighthouse wrote a letter to her brother, who lived far inland."


def live(
    model: str | Path | Encoder = "e5-small",
    text: str = TEXT,
    pair: str = "",
    *,
    beside: str | Path | Encoder | None = None,
    metrics: Sequence[str | Metric] = METRICS,
    max_length: int | None = None,
    device: str = "auto",
) -> Any:
    """Two text boxes, the second for a pair, above the viewer; Enter or leaving a box reads anew.

    What is shown is the fragment that a saved page holds. What cannot be read is said in a
    sentence, in the place of the viewer.
    """
    widgets = _widgets()
    encoders = [
        one if isinstance(one, Encoder) else load_encoder(one, device=device)
        for one in (model, beside)
        if one is not None
    ]
    wide = widgets.Layout(width="100%", max_width="46rem")
    boxes = [
        widgets.Text(value=value, placeholder=hint, continuous_update=False, layout=wide)
        for value, hint in ((text, "a sentence"), (pair, "a second sentence, if you like"))
    ]
    shown = widgets.Output()

    def show(change: Any = None) -> None:
        first, second = (box.value for box in boxes)
        try:
            page = view(
                encoders[0],
                (first, second),
                beside=encoders[1] if len(encoders) > 1 else None,
                metrics=metrics,
                max_length=max_length,
            )
        except AttnlibError as error:
            shown.outputs = (_output(**{"text/plain": str(error)}),)
        else:
            told = f"Heads of {encoders[0].name}"
            html = page._repr_html_()
            shown.outputs = (_output(**{"text/html": html, "text/plain": told}),)

    for box in boxes:
        box.observe(show, names="value")
    show()
    return widgets.VBox([*boxes, shown])


def _output(**data: str) -> dict[str, Any]:
    """What a cell would show, as the widget keeps it: no race between clearing and showing."""
    return {"output_type": "display_data", "data": data, "metadata": {}}


def _widgets() -> Any:
    try:
        import ipywidgets
    except ImportError:
        raise AttnlibError(
            "a live view needs ipywidgets, which is not installed. Run `pip install ipywidgets`, "
            "or use attnlib.view()."
        ) from None
    return ipywidgets
