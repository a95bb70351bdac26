"""What tasks lose or gain with a whole layer disabled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from attnlib.plots import style
from attnlib.plots.drawing import Drawing, need
from attnlib.plots.labels import task_name
from attnlib.plots.panels import light_grid, n_columns, say_undefined, small_panels
from attnlib.plots.rows import OURS
from experiments.kovaleva2019.taskgrids import ordered_rows, told_number, truths


def layer_changes(
    table: pd.DataFrame, *, unit: str = "points", caption: str | None = None
) -> Drawing:
    """Change of every task's score with one whole layer disabled (Kovaleva 2019, Fig. 9).

    table  task, layer, change (disabled minus whole), low, high, significant (true or false)
    """
    need(table, "task", "layer", "change", "low", "high", "significant")
    rows = ordered_rows(table, "change", ["task", "layer"])
    rows["significant"] = truths(rows["significant"]) & rows["change"].notna()
    tasks = list(dict.fromkeys(rows["task"]))
    reach = rows[["change", "low", "high"]].abs().max(axis=1).groupby(rows["task"]).max()
    shared = bool(reach.max() <= 5 * reach.min())  # else the small ones would be flat
    clipped = 0
    with style.drawing():
        figure, panels = small_panels(len(tasks), height=1.8, sharey=shared)
        for panel, task in zip(panels, tasks, strict=True):
            part = rows[rows["task"] == task]
            clipped += _change_dots(panel, part, _ends(rows if shared else part))
            panel.set_title(task_name(task), fontsize=9)
            say_undefined(panel, part["change"])
        for panel in panels[:: n_columns(len(tasks))]:
            panel.set_ylabel(f"change, {unit}", fontsize=8)
        handles = panels[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=2, fontsize=8, **style.TIGHT)
    known = rows[rows["change"].notna()]
    size = min(10.0, known["change"].abs().max())  # one decimal at least
    told = [
        f"{told_number(row['change'], size)} ({task_name(row['task'])}, layer {int(row['layer'])})"
        for row in (known.loc[known["change"].idxmax()], known.loc[known["change"].idxmin()])
    ]
    rise = f"The largest rise is {told[0]}" if known["change"].max() > 0 else "Nothing rises"
    drop = f"the largest drop {told[1]}" if known["change"].min() < 0 else "nothing drops"
    text = (
        f"Change of the score with one whole layer disabled, in {unit}, with 95% intervals. "
        f"{rise}, {drop}. {rows['significant'].sum()} of {len(known)} changes are significant "
        f"(full dots).{f' Arrows: intervals go on beyond the axis ({clipped}).' if clipped else ''}"
        f"{'' if shared else ' Every task has its own axis.'}"
    )
    each = "; ".join(
        f"{task_name(str(task))} from {told_number(part['change'].min(), size)} to "
        f"{told_number(part['change'].max(), size)}, {part['significant'].sum()} significant"
        for task, part in known.groupby("task", sort=False)
    )
    return Drawing(figure, caption or text, f"Dots over layers. {text} By task: {each}.", rows)


def _ends(rows: pd.DataFrame) -> tuple[float, float]:
    """An axis that holds 0 and all dots, but not the ends of the few very wide intervals."""
    below, above = rows["change"] - rows["low"], rows["high"] - rows["change"]
    widest = 1.6 * float(pd.concat([below, above]).median())
    bottom = min(0.0, (rows["change"] - below.clip(upper=widest).fillna(0)).min())
    top = max(0.0, (rows["change"] + above.clip(upper=widest).fillna(0)).max())
    room = 0.08 * ((top - bottom) or 1.0)
    return bottom - room, top + room


def _change_dots(panel: Axes, rows: pd.DataFrame, ends: tuple[float, float]) -> int:
    """Dots with their intervals; how many ends of intervals lie beyond the axis."""
    panel.axhline(0, color=style.INK, lw=0.8, alpha=0.6)
    for sure, name in ((True, "significant"), (False, "not significant")):
        part = rows[rows["significant"] == sure]
        reach = (part["low"].clip(lower=ends[0]), part["high"].clip(upper=ends[1]))
        panel.vlines(part["layer"], *reach, color=OURS, lw=1.8, alpha=0.75 if sure else 0.45)
        dot: Any = {"ls": "none", "marker": "o", "ms": 4.5, "mec": OURS, "mew": 1.1, "label": name}
        panel.plot(part["layer"], part["change"], mfc=OURS if sure else "none", **dot)
    beyond = (rows.loc[rows["low"] < ends[0], "layer"], rows.loc[rows["high"] > ends[1], "layer"])
    for layers, end, marker in zip(beyond, ends, ("v", "^"), strict=True):
        for layer in layers:
            panel.plot(layer, end, marker, ms=4, mew=0, color=OURS, clip_on=False)
    every = np.arange(rows["layer"].min(), rows["layer"].max() + 1)
    panel.set(xlim=(every[0] - 0.6, every[-1] + 0.6), ylim=ends)
    panel.set_xticks(every[:: max(1, math.ceil(len(every) / 6))])
    panel.set_xlabel("layer", fontsize=8)
    panel.yaxis.set_major_locator(MaxNLocator(5))
    panel.tick_params(labelsize=7.5)
    light_grid(panel)
    return sum(map(len, beyond))
