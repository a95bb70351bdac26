"""The ledger as a page: every claim in one table that a reader can filter, and bars of verdicts."""

from __future__ import annotations

import html
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from bookkit.pagetables import BADGES, number_text, paper_name
from bookkit.papers import load_paper

Row = Mapping[str, Any]

HEAD = """# The ledger of claims

Every table row, figure and numbered finding of the papers: what the paper says, what we measured,
and the verdict. The rules were written down before the runs. A *phenomenon*, to which any model can
be held, decides; the paper's own value is judged only on the paper's own model.

- **reproduced**: the phenomenon holds, and at both ends of the 95% interval, too;
- **partly**: it holds, but not at both ends, or our value is off on the paper's own model;
- **not reproduced**: it does not hold here;
- **not comparable**: the quantity is undefined for this model and data;
- **absent**: this edition does not measure it; point at the verdict to see why.
"""

# The table is whole without the script; the script only hides rows.
SCRIPT = r"""
(() => {
  const box = document.querySelector('.attn-ledger'), rows = [...box.querySelectorAll('tbody tr')];
  const words = box.querySelector('input'), told = box.querySelector('[role=status]');
  const buttons = [...box.querySelectorAll('button[data-kind]')];
  const texts = rows.map(row => row.textContent.toLowerCase());
  const chosen = kind => buttons.filter(one => one.dataset.kind === kind &&
    one.getAttribute('aria-pressed') === 'true').map(one => one.dataset.value);
  const filter = () => {
    const papers = chosen('paper'), verdicts = chosen('verdict');
    const asked = words.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    rows.forEach((row, i) => {
      const fits = (!papers.length || papers.includes(row.dataset.paper)) &&
        (!verdicts.length || verdicts.includes(row.dataset.verdict)) &&
        asked.every(word => texts[i].includes(word));
      row.hidden = !fits; left += fits;
    });
    told.textContent = `${left} of ${rows.length} claims`;
    const state = new URLSearchParams();
    papers.forEach(one => state.append('paper', one));
    verdicts.forEach(one => state.append('verdict', one));
    if (words.value.trim()) state.set('words', words.value.trim());
    history.replaceState(null, '', '#' + state);  // from disk only the fragment may change
  };
  const state = new URLSearchParams(location.search || location.hash.slice(1));
  buttons.forEach(one => {
    if (state.getAll(one.dataset.kind).includes(one.dataset.value))
      one.setAttribute('aria-pressed', 'true');
    one.onclick = () => {
      one.setAttribute('aria-pressed', String(one.getAttribute('aria-pressed') !== 'true'));
      filter();
    };
  });
  words.value = state.get('words') || '';
  words.oninput = filter;
  box.querySelector('.clear').onclick = () => {
    buttons.forEach(one => one.setAttribute('aria-pressed', 'false'));
    words.value = ''; filter();
  };
  box.querySelector('.filters').hidden = false;
  filter();
})();
"""


def ledger_page(rows: Sequence[Row], chapters: Collection[str] | None = None) -> str:
    """The page: rules, filters, and a row for every claim.

    chapters  the papers whose chapters are in the book: only these are linked; None: all
    """
    linked = {row["paper"] for row in rows} if chapters is None else set(chapters)
    return f"{HEAD}\n{raw(_ledger(rows, linked))}"


def verdict_bars(rows: Sequence[Row], *, ledger: str = "ledger.html") -> str:
    """HTML: for each paper a bar of its verdicts; each part leads to those claims in the ledger."""
    lines = []
    for paper in dict.fromkeys(row["paper"] for row in rows):
        own = [row for row in rows if row["paper"] == paper]
        parts = []
        for verdict, (kind, sign) in BADGES.items():
            n = sum(row["verdict"] == verdict for row in own)
            if n:
                where = f"{ledger}?paper={paper}&amp;verdict={verdict.replace(' ', '+')}"
                told = f"{paper_name(paper)}: {n} of {len(own)} {verdict}"
                parts.append(
                    f'<a class="{kind}" style="flex-grow:{n}" href="{where}" title="{told}" '
                    f'aria-label="{told}"><i aria-hidden="true">{sign}</i> {n}</a>'
                )
        lines.append(
            f'<div class="line"><span>{paper_name(paper)}</span>'
            f'<div class="bar">{"".join(parts)}</div></div>'
        )
    legend = " ".join(
        f'<span class="{kind}"><i aria-hidden="true">{sign}</i> {verdict}</span>'
        for verdict, (kind, sign) in BADGES.items()
        if any(row["verdict"] == verdict for row in rows)
    )
    return f'<div class="attn-verdicts">{"".join(lines)}<p class="legend">{legend}</p></div>'


def raw(text: str) -> str:
    """HTML in a MyST page."""
    return f"```{{raw}} html\n{text}\n```\n"


def _ledger(rows: Sequence[Row], linked: Collection[str]) -> str:
    names = ("claim", "paper", "ours", "95% interval", "phenomenon", "verdict", "deviations")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    body = "".join(_row(row, linked) for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return (
        f'<div class="attn-ledger"><div class="filters" hidden>{_filters(rows)}</div>'
        f'<div class="attn-table attn-claims">{table}</div></div><script>{SCRIPT}</script>'
    )


def _filters(rows: Sequence[Row]) -> str:
    groups = []
    for kind in ("paper", "verdict"):
        values = list(dict.fromkeys(row[kind] for row in rows))
        if kind == "verdict":
            values = [verdict for verdict in BADGES if verdict in values]
        buttons = "".join(
            f'<button type="button" data-kind="{kind}" data-value="{value}" aria-pressed="false">'
            f"{paper_name(value) if kind == 'paper' else value} "
            f"<b>{sum(row[kind] == value for row in rows)}</b></button>"
            for value in values
        )
        groups.append(f'<div role="group" aria-label="by {kind}">{buttons}</div>')
    search = (
        '<label>with the words <input type="search" placeholder="det, [SEP], Table 1 …"></label>'
    )
    clear = '<button type="button" class="clear">show all</button>'
    told = f'<span role="status" aria-live="polite">{len(rows)} claims</span>'
    return f'{"".join(groups)}<div class="last">{search}{clear}{told}</div>'


def _row(row: Row, linked: Collection[str]) -> str:
    kind, sign = BADGES[row["verdict"]]
    reason = html.escape(str(row.get("reason") or ""), quote=True)
    chapter = paper_name(row["paper"])
    if row["paper"] in linked:
        chapter = f'<a href="../notebooks/{row["paper"]}.html">{chapter}</a>'
    cells = {
        "paper": _said(row),
        "ours": _text(row["ours"]),
        "95% interval": _interval(row),
        "phenomenon": html.escape(row["phenomenon"]),
        "verdict": (
            f'<span class="badge {kind}" title="{reason}"><i aria-hidden="true">{sign}</i> '
            f"{row['verdict']}</span>"
        ),
        "deviations": _deviations(row),
    }
    claim = f'{chapter}, {html.escape(row["where"])} <span class="quiet">{row["id"]}</span>'
    rest = "".join(f'<td data-name="{name}">{cell}</td>' for name, cell in cells.items())
    return (
        f'<tr data-paper="{row["paper"]}" data-verdict="{row["verdict"]}">'
        f'<th scope="row" data-name="claim">{claim}</th>{rest}</tr>'
    )


def _said(row: Row) -> str:
    value = row["paper_value"]
    if value is None:
        return "–"
    return number_text(float(value)) if isinstance(value, int | float) else html.escape(str(value))


def _text(value: float | None) -> str:
    return "–" if value is None else number_text(value)


def _interval(row: Row) -> str:
    if row["low"] is None or row["high"] is None:
        return "–"
    return f"{number_text(row['low'])} to {number_text(row['high'])}"


def _deviations(row: Row) -> str:
    """The codes of what we do differently; the sentence behind a code shows when one points."""
    known = load_paper(row["paper"]).deviations
    return " ".join(
        f'<abbr title="{html.escape(known.get(code, ""), quote=True)}">{code}</abbr>'
        for code in row["deviations"]
    )
