"""Slides of a chapter, made from its executed notebook: headings, figures, captions, verdicts."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attnlib.errors import AttnlibError
from bookkit.claims import LEDGER
from bookkit.pagetables import BADGES
from bookkit.teach.exercises import LEVELS, of_chapter
from bookkit.teach.plainmyst import Words, papers_of, plain_markdown, quoted_numbers
from bookkit.teach.slidepage import page
from bookkit.teach.slidesource import HEADING, Picture, Verdict, discussion, one_line, pictures

LONGEST_AFTER = 330  # letters of the paragraph that follows what the paper asked
MOST_VERDICTS = 4  # beneath a figure; the others stand in the notes
MOST_FAILED = 6
LONGEST_LEAD = 130  # letters of a sentence that a slide shows as it is

_WHERE = re.compile(r"\s*\(((?:Sec|Fig|Table|Tables|Eq)[^)]*)\)\s*$")
_BOX = re.compile(r'viewBox="([^"]+)"')


class SlidesError(AttnlibError):
    """A notebook of which no slides can be made."""


def write_slides(
    executed: Path, target: Path, *, bibliography: Path, teaching: Path | None = None
) -> Path:
    """Write the slides of an executed chapter.

    teaching  the chapter's page for teachers, from which the discussion questions come
    """
    book = json.loads(executed.read_text(encoding="utf-8"))
    papers = papers_of(bibliography.read_text(encoding="utf-8"))
    asked = teaching.read_text(encoding="utf-8") if teaching and teaching.is_file() else ""
    text = deck(book["cells"], executed.stem, papers=papers, teaching=asked)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    return target


def deck(
    cells: Sequence[Mapping[str, Any]],
    chapter: str,
    *,
    papers: Mapping[str, tuple[str, str]],
    teaching: str = "",
) -> str:
    """The slides of a chapter as one page."""
    words = Words(papers, quoted=quoted_numbers(cells))
    title = plain_markdown("".join(cells[0]["source"]), words)
    heading = HEADING.search(title)
    if heading is None:
        raise SlidesError(f"{chapter} does not begin with a heading; expected `# Title`.")
    outputs = [one for cell in cells for one in cell.get("outputs", [])]
    rows = [row for one in outputs for row in one.get("metadata", {}).get(LEDGER, [])]
    found = pictures(cells, words)
    if not found:
        raise SlidesError(f"{chapter} has no figures. Run it first: `attnlib run {chapter}`.")
    slides = [_title_slide(heading[2], title, rows), *_text_slides(title)]
    slides += [_picture_slide(one) for one in found]
    slides += [*_verdict_slide(rows), *_question_slide(teaching, words), *_exercise_slide(chapter)]
    return page(heading[2], slides)


def _inline(text: str) -> str:
    """Code, bold, italic and formulas of a line of markdown as HTML."""
    shown = html.escape(one_line(text), quote=False)
    shown = re.sub(r"`([^`]+)`", r"<code>\1</code>", shown)
    shown = re.sub(r"\*\*(.+?)\*\*", r"<b>\1</b>", shown)
    shown = re.sub(r"(?<![\w*])\*([^*]+)\*(?![\w*])", r"<i>\1</i>", shown)
    return re.sub(r"\$([^$]+)\$", r"<i>\1</i>", shown)


def _slide(kind: str, body: str, notes: str = "") -> str:
    aside = f'<aside class="notes">{notes or "<p>No notes.</p>"}</aside>'
    return f'<section class="slide {kind}">{body}{aside}</section>'


def _head(title: str, kicker: str = "", lead: str = "") -> str:
    above = f'<p class="kicker">{_inline(kicker)}</p>' if kicker else ""
    below = f'<p class="lead">{_inline(lead)}</p>' if lead else ""
    return f"<header>{above}<h2>{_inline(title)}</h2>{below}</header>"


def _points(items: Sequence[str]) -> str:
    """A list that gets smaller type before it gets too long for its slide."""
    letters = sum(map(len, items))
    size = "most" if letters > 1100 else "many" if letters > 620 or len(items) > 6 else ""
    return f'<ul class="points {size}">{"".join(f"<li>{_inline(one)}</li>" for one in items)}</ul>'


def _items(text: str) -> list[str]:
    return [one_line(one) for one in re.findall(r"^- (.*?)(?=^- |^\s*$|\Z)", text, re.M | re.S)]


def _title_slide(heading: str, text: str, rows: Sequence[Mapping[str, Any]]) -> str:
    about = re.search(r"^\*(After .*?)\*$", text, re.M | re.S)
    model = next((row["model"] for row in rows if row.get("model")), "")
    lead = (
        f"Measured on {model}. Of {len(rows)} claims, written down before the run:" if rows else ""
    )
    under = f'<p class="lead">{_inline(about[1])}</p>' if about else ""
    body = f"<div><h1>{_inline(heading)}</h1>{under}</div>"
    body += f'<div><p class="lead">{_inline(lead)}</p>{_totals(rows)}</div>' if rows else ""
    told = "The value is the paper's; what is judged is the phenomenon, a statement that any model "
    told += "can pass or fail, with a threshold that was fixed before the run."
    return _slide("title", body, f"<p>{told}</p>")


def _totals(rows: Sequence[Mapping[str, Any]]) -> str:
    counts = {name: sum(row["verdict"] == name for row in rows) for name in BADGES}
    shown = [(BADGES[name][0], name, n) for name, n in counts.items() if n]
    bar = "".join(f'<i class="{kind}" style="--n:{n}"></i>' for kind, _, n in shown)
    items = "".join(f'<li class="{kind}"><b>{n}</b>{name}</li>' for kind, name, n in shown)
    return f'<ul class="totals">{items}</ul><div class="bar" aria-hidden="true">{bar}</div>'


def _text_slides(text: str) -> Iterator[str]:
    """What the paper asked, and what one can do after the chapter: the lists of the first cell."""
    before, _, quoted = text.partition("\n> ")
    if _items(before):
        after = one_line(before.rpartition("\n- ")[2].partition("\n\n")[2].partition("\n\n")[0])
        said = 0 < len(after) < LONGEST_AFTER and not after.startswith("This chapter")
        under = f'<p class="lead">{_inline(after)}</p>' if said else ""
        yield _slide("text", _head("What the paper asked") + _points(_items(before)) + under)
    goals = _items(re.sub(r"^> ?", "", quoted, flags=re.M))
    if goals:
        yield _slide("text", _head("After this chapter you can") + _points(goals))


def _picture_slide(one: Picture) -> str:
    where = _WHERE.search(one.heading)
    title = _WHERE.sub("", one.heading) + (f": {one.name}" if one.name else "")
    lead, rest = _lead(one.caption)
    box = _BOX.search(one.svg)
    _, _, width, height = map(float, box[1].split()) if box else (0.0, 0.0, 16.0, 9.0)
    beside = "side" if width / height < 1.75 and one.verdicts else ""
    tall = " tall" if width / height < 1.1 else ""
    body = f'<div class="both {beside}"><figure class="picture{tall}">{one.svg}</figure>'
    body += f"{_verdict_list(one.verdicts)}</div>"
    notes = f"<p>{html.escape(one.caption)}</p>" if rest else ""
    notes += "".join(f"<p>{_told(verdict)}</p>" for verdict in one.verdicts)
    return _slide("figure", _head(title, where[1] if where else "", lead) + body, notes)


def _lead(caption: str) -> tuple[str, str]:
    """The first sentence of a caption, and the rest; of a long one what stands before its list."""
    first, _, rest = caption.partition(". ")
    first = f"{first.rstrip('.')}." if first else ""
    if len(first) > LONGEST_LEAD and first.find(": ") > 20:
        return f"{first.partition(': ')[0]}.", caption
    return first, rest


def _verdict_list(verdicts: Sequence[Verdict]) -> str:
    """The verdicts that fit, the ones that failed first among equals."""
    if not verdicts:
        return ""
    ranked = sorted(verdicts, key=lambda one: one.verdict == "reproduced")
    shown = [one for one in verdicts if one in ranked[:MOST_VERDICTS]]
    items = "".join(_verdict_item(one) for one in shown)
    left = len(verdicts) - len(shown)
    items += _more(left) if left > 0 else ""
    return f'<ul class="verdicts">{items}</ul>'


def _more(left: int) -> str:
    return f'<li class="more">and {left} more, in the notes (n)</li>'


def _verdict_item(one: Verdict) -> str:
    kind, sign = BADGES.get(one.verdict, ("absent", "–"))
    said = f"<b>{sign} {html.escape(one.verdict)}</b> <span>{html.escape(one.where)}</span>"
    return f'<li class="{kind}">{said}<br>{html.escape(_lead(one.phenomenon)[0])}</li>'


def _told(one: Verdict) -> str:
    numbers = f" Paper {one.paper}; ours {one.ours}." if one.paper and one.ours != "–" else ""
    return html.escape(f"{one.verdict}: {one.where}. {one.phenomenon}.{numbers}")


def _verdict_slide(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    failed = [row for row in rows if row["verdict"] not in ("reproduced", "absent")]
    items = [
        f'<li class="{BADGES[row["verdict"]][0]}"><b>{BADGES[row["verdict"]][1]} '
        f"{html.escape(row['where'])}</b><br>{html.escape(row['phenomenon'])}</li>"
        for row in failed
    ]
    if len(items) > MOST_FAILED:
        items = [*items[:MOST_FAILED], _more(len(items) - MOST_FAILED)]
    head = _head("What held, and what did not")
    body = f'{head}{_totals(rows)}<ul class="verdicts">{"".join(items)}</ul>'
    notes = "".join(
        f"<p>{html.escape(row['where'])}: {html.escape(row['reason'])}</p>" for row in failed
    )
    yield _slide("verdict", body, notes)


def _question_slide(teaching: str, words: Words) -> Iterator[str]:
    asked = discussion(plain_markdown(teaching, words))
    if asked:
        points = _points([question for question, _ in asked])
        notes = "".join(f"<p><b>{_inline(q)}</b> {_inline(told)}</p>" for q, told in asked)
        yield _slide("text", _head("To discuss") + points, notes)


def _exercise_slide(chapter: str) -> Iterator[str]:
    found = of_chapter(chapter)
    if not found:
        return
    columns = []
    for level, name in LEVELS.items():
        rows = "".join(
            f"<li><b>{one.number}</b>{_inline(one.title)}<small>{one.minutes} min</small></li>"
            for one in found
            if one.level == level
        )
        columns.append(f"<div><h3>{name.capitalize()}</h3><ol>{rows}</ol></div>")
    how = f'Answers are checked by <code>check("{found[2].short}", ...)</code>.'
    lead = f'<p class="lead">{how}</p>'
    body = f'{_head("Exercises")}{lead}<div class="levels">{"".join(columns)}</div>'
    yield _slide("exercises", body, "<p>Solutions stand folded at the end of the chapter.</p>")
