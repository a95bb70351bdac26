"""The page that slides stand on: one file with its own style and script."""

from __future__ import annotations

import html

STYLE = """
:root { color-scheme: light; --page: #fdfcf9; --ink: #1d2329; --soft: #5c636b; --line: #e2dfd6;
  --card: #f5f3ec; --accent: #0b6199; --yes: #146c43; --partly: #8a5a00; --no: #b02a37;
  --apart: #5c636b; }
:root[data-theme="dark"] { color-scheme: dark; --page: #14181d; --ink: #e6e9ed; --soft: #a3abb5;
  --line: #323a44; --card: #1d232a; --accent: #6cb8e6; --yes: #6fd39a; --partly: #e3c05a;
  --no: #f58a94; --apart: #a3abb5; }
* { box-sizing: border-box; }
html { font-size: clamp(13px, min(1.5vw, 2.66vh), 40px); }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.4;
  font-family: system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; }
.slide { height: 100vh; height: 100dvh; padding: 2.4rem 3.4rem 3.2rem; display: flex;
  flex-direction: column; gap: 1rem; overflow: hidden; }
.js .slide:not(.on) { display: none; }
.kicker { color: var(--accent); font-weight: 650; font-size: .95rem; margin: 0 0 .2rem; }
h1 { font-size: 3.4rem; line-height: 1.1; letter-spacing: -.02em; margin: 0; max-width: 18em; }
h2 { font-size: 2.1rem; line-height: 1.15; letter-spacing: -.01em; margin: 0; }
.lead { color: var(--soft); font-size: 1.15rem; margin: .35rem 0 0; max-width: 58rem; }
.slide.title { justify-content: center; gap: 1.6rem; }
.title .lead { font-size: 1.3rem; }
.totals { display: flex; flex-wrap: wrap; gap: .6rem 2.2rem; margin: 0; padding: 0;
  list-style: none; }
.totals b { display: block; font-size: 2.6rem; line-height: 1.1; color: var(--badge);
  font-variant-numeric: tabular-nums; }
.bar { display: flex; height: .8rem; border-radius: .4rem; overflow: hidden; gap: 2px;
  max-width: 58rem; }
.bar i { background: var(--badge); flex: var(--n); }
.yes { --badge: var(--yes); } .partly { --badge: var(--partly); } .no { --badge: var(--no); }
.apart, .absent { --badge: var(--apart); }
.points { flex: 1; margin: 0; padding: 0; list-style: none; display: flex; min-height: 0;
  flex-direction: column; justify-content: center; gap: 1.1rem; font-size: 1.45rem;
  max-width: 58rem; }
.text > .lead { margin: 0; }
.points li { padding-left: 1.3rem; border-left: 4px solid var(--line); }
.points.many { font-size: 1.15rem; gap: .7rem; }
.points.most { font-size: .98rem; gap: .5rem; }
.points code, .lead code, h1 code, h2 code { font-size: .9em; background: var(--card);
  padding: 0 .25em; border-radius: 3px; }
.both { flex: 1; min-height: 0; display: flex; gap: 1.1rem; flex-direction: column; }
.both.side { flex-direction: row; gap: 2.2rem; }
.picture { flex: 1; min-height: 0; min-width: 0; margin: 0; display: flex; }
.picture svg { width: 100% !important; max-width: none !important; height: 100%;
  overflow: visible; }
.picture.tall { overflow-y: auto; align-items: flex-start; scrollbar-width: thin; }
.picture.tall svg { width: min(94%, 58rem) !important; height: auto; margin: 0 auto; }
.side .verdicts { flex: 0 0 27%; align-content: center; grid-template-columns: 1fr; }
.verdicts { display: grid; grid-template-columns: repeat(auto-fit, minmax(12.5rem, 1fr)); margin: 0;
  gap: .45rem 1.6rem; padding: 0; list-style: none; font-size: .88rem; line-height: 1.3; }
.verdicts li { border-top: 2px solid var(--badge); padding-top: .25rem; }
.verdicts .more { border: 0; color: var(--soft); grid-column: 1 / -1; padding: 0; }
.slide.verdict .verdicts { flex: 1; min-height: 0; overflow-y: auto; font-size: 1.12rem;
  gap: 1rem 2.4rem; align-content: center; grid-template-columns: 1fr 1fr; }
.verdicts b { color: var(--badge); } .verdicts span { color: var(--soft); }
.levels { flex: 1; display: grid; grid-template-columns: repeat(3, 1fr); gap: 2rem; min-height: 0;
  align-content: center; }
.levels h3 { margin: 0 0 .5rem; color: var(--accent); font-size: 1.2rem; }
.levels ol { margin: 0; padding: 0; list-style: none; }
.levels li { padding: .3rem 0; border-top: 1px solid var(--line); display: flex; gap: .6rem; }
.levels small { margin-left: auto; color: var(--soft); white-space: nowrap; font-size: .85rem; }
.levels b { color: var(--soft); font-weight: 600; min-width: 1.4em; }
.notes { display: none; border-top: 3px solid var(--accent); background: var(--card);
  margin: 0 -3.4rem -3.2rem; padding: .8rem 3.4rem 2.6rem; font-size: .95rem; max-height: 42vh;
  overflow-y: auto; flex: none; }
.notes :is(p, ul) { margin: 0 0 .5rem; max-width: 64rem; } .notes ul { padding-left: 1.2rem; }
.with-notes .notes { display: block; }
.foot { position: fixed; inset: auto 0 0 0; display: none; align-items: center; gap: .5rem;
  padding: .4rem 1rem; font-size: .8rem; color: var(--soft); background: var(--page); }
.js .foot { display: flex; }
.foot button { font: inherit; color: inherit; background: none; border: 1px solid var(--line);
  border-radius: 4px; min-width: 2.4rem; min-height: 1.9rem; cursor: pointer; }
.foot button:focus-visible { outline: 2px solid var(--accent); }
.foot .keys { margin-left: auto; } .foot .at { font-variant-numeric: tabular-nums; }
.progress { position: absolute; inset: 0 auto auto 0; height: 3px; background: var(--accent);
  width: 0; }
@media (max-width: 760px) {
  html { font-size: 15px; }
  .slide { height: auto; min-height: 100vh; min-height: 100dvh; padding: 1.3rem 1.1rem 4rem;
    overflow: visible; }
  h1 { font-size: 2.1rem; } h2 { font-size: 1.5rem; } .points { font-size: 1.1rem; flex: none; }
  .title .lead, .lead { font-size: 1rem; } .totals b { font-size: 1.8rem; }
  .both, .both.side { flex-direction: column; flex: none; }
  .picture, .picture.tall { overflow: auto hidden; flex: none; max-width: calc(100vw - 2.2rem); }
  .picture svg, .picture.tall svg { width: max(100%, 34rem) !important; min-width: 34rem;
    height: auto; }
  .verdicts, .side .verdicts, .slide.verdict .verdicts { grid-template-columns: 1fr; flex: none; }
  .levels { grid-template-columns: 1fr; gap: 1.2rem; align-content: start; }
  .notes { margin: 0 -1.1rem -4rem; padding: .8rem 1.1rem 4rem; max-height: none; }
  .foot .keys { display: none; } .foot button { min-height: 2.6rem; min-width: 3rem; }
  .foot .at { margin-left: auto; }
}
@page { size: 13.333in 7.5in; margin: 0; }
@media print {
  html { font-size: 19px; }
  .js .slide, .js .slide:not(.on), .slide { display: flex; height: 7.5in; min-height: 0;
    break-after: page; break-inside: avoid; padding: 2.4rem 3.4rem 2rem; overflow: hidden; }
  .slide:last-of-type { break-after: auto; }
  .picture.tall { overflow: hidden; } .picture.tall svg { height: 100%; }
  .foot, .notes, .with-notes .notes { display: none !important; }
}
"""

SCRIPT = """
(() => {
  const root = document.documentElement, slides = [...document.querySelectorAll('.slide')];
  const bar = document.querySelector('.progress'), at = document.querySelector('.at');
  const stored = name => { try { return localStorage.getItem(name); } catch { return null; } };
  const store = (name, value) => { try { localStorage.setItem(name, value); } catch {} };
  const dark = matchMedia('(prefers-color-scheme: dark)');
  const paint = () => {
    root.dataset.theme = stored('theme') ?? (dark.matches ? 'dark' : 'light');
  };
  let now = 0;
  const go = to => {
    now = Math.max(0, Math.min(slides.length - 1, to));
    slides.forEach((slide, i) => slide.classList.toggle('on', i === now));
    bar.style.width = `${100 * (now + 1) / slides.length}%`;
    at.textContent = `${now + 1} / ${slides.length}`;
    history.replaceState(null, '', `#${now + 1}`);
    scrollTo(0, 0);
  };
  const scrolled = way => {  // a tall figure first shows its lower half
    const tall = slides[now].querySelector('.picture.tall'), before = tall?.scrollTop;
    tall?.scrollBy(0, way * tall.clientHeight * .7);
    return tall && tall.scrollTop !== before;
  };
  const notes = () => root.classList.toggle('with-notes');
  const theme = () => {
    store('theme', root.dataset.theme === 'dark' ? 'light' : 'dark');
    paint();
  };
  const full = () => document.fullscreenElement ? document.exitFullscreen()
    : root.requestFullscreen?.().catch(() => {});
  const keys = {
    ArrowRight: () => go(now + 1), ArrowDown: () => scrolled(1) || go(now + 1),
    ArrowLeft: () => go(now - 1), ArrowUp: () => scrolled(-1) || go(now - 1),
    PageDown: () => go(now + 1), PageUp: () => go(now - 1),
    Home: () => go(0), End: () => go(slides.length - 1), n: notes, d: theme, f: full,
  };
  addEventListener('keydown', event => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest('button') && (event.key === ' ' || event.key === 'Enter')) return;
    const act = event.key === ' ' ? () => go(now + (event.shiftKey ? -1 : 1)) : keys[event.key];
    if (act) { event.preventDefault(); act(); }
  });
  let from = null;
  addEventListener('touchstart', event => {
    const inside = event.target.closest('.picture');  // a wide figure on a phone scrolls by itself
    const scrolls = inside && inside.scrollWidth > inside.clientWidth;
    from = event.touches.length === 1 && !scrolls ? event.touches[0] : null;
  }, { passive: true });
  addEventListener('touchend', event => {
    if (!from) return;
    const to = event.changedTouches[0];
    const x = to.clientX - from.clientX, y = to.clientY - from.clientY;
    if (Math.abs(x) > 50 && Math.abs(x) > 1.5 * Math.abs(y)) go(now + (x < 0 ? 1 : -1));
    from = null;
  });
  document.querySelector('.back').addEventListener('click', () => go(now - 1));
  document.querySelector('.next').addEventListener('click', () => go(now + 1));
  document.querySelector('.talk').addEventListener('click', notes);
  addEventListener('hashchange', () => go((parseInt(location.hash.slice(1)) || 1) - 1));
  dark.addEventListener('change', paint);
  root.classList.add('js');
  paint();
  go((parseInt(location.hash.slice(1)) || 1) - 1);
})();
"""

FOOT = """
<nav class="foot" aria-label="Slides"><span class="progress"></span>
<button class="back" aria-label="Previous slide">←</button>
<button class="next" aria-label="Next slide">→</button>
<button class="talk" aria-label="Speaker notes">n</button>
<span class="at"></span>
<span class="keys">← → space · Home End · n notes · d dark · f full screen</span></nav>
"""


def page(title: str, slides: list[str]) -> str:
    """One self-contained file: opens from disk, prints one slide a page."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{STYLE}</style></head>\n<body><main>"
        + "\n".join(slides)
        + f"</main>{FOOT}<script>{SCRIPT}</script></body></html>\n"
    )
