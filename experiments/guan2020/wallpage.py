"""Style and script of the wall of attention maps: plain, small, and in need of nothing else."""

from __future__ import annotations

# Every rule is under .attn-wall, because the page has rules of its own. The page's colours come
# from the book's theme, from a notebook, or from the browser, whichever is there.
STYLE = """
.attn-wall { --page: var(--pst-color-background, var(--jp-layout-color0,
  var(--vscode-editor-background, Canvas)));
  --ink: var(--pst-color-text-base, var(--jp-content-font-color1,
  var(--vscode-editor-foreground, CanvasText)));
  --soft: color-mix(in srgb, currentColor 65%, transparent); margin: 1.4rem 0 1.8rem; }
.attn-wall button { appearance: none; font: inherit; color: inherit; background: none; padding: 0;
  margin: 0; border: 0; border-radius: 3px; cursor: pointer; }
.attn-wall button:focus-visible { outline: 2px solid currentColor; outline-offset: 1px;
  z-index: 1; }
.attn-wall .t0 { --type: var(--c0); } .attn-wall .t1 { --type: var(--c1); }
.attn-wall .t2 { --type: var(--c2); } .attn-wall .t3 { --type: var(--c3); }
.attn-wall .t4 { --type: var(--c4); }
.attn-wall i { display: inline-block; width: .8em; height: .8em; margin-right: .4em;
  border-radius: 2px; background: var(--type); }
.attn-wall .kinds { display: flex; flex-wrap: wrap; gap: .3rem .5rem; margin: 0 0 .5rem 1.8rem;
  font-size: .88rem; }
.attn-wall .kinds button { padding: .1rem .55rem; border: 1px solid transparent; }
.attn-wall[data-awake] .kinds button {
  border-color: color-mix(in srgb, var(--type) 60%, transparent); }
.attn-wall .kinds button[aria-pressed="true"] {
  background: color-mix(in srgb, var(--type) 25%, transparent); }
.attn-wall .kinds b { font-weight: 600; font-variant-numeric: tabular-nums; }
.attn-wall .scroll { overflow-x: auto; }
.attn-wall .wall { position: relative; max-width: 54rem; min-width: 33rem; }
.attn-wall .wall img { position: absolute; left: 1.8rem; top: 1.3rem; width: calc(100% - 1.8rem);
  height: calc(100% - 1.3rem); max-width: none; margin: 0; filter: none; padding: 0 !important;
  background: none !important; border-radius: 0 !important; }
.attn-wall .cells { position: relative; display: grid; font-size: .74rem; line-height: 1.3rem;
  grid-template-columns: 1.8rem repeat(var(--heads), minmax(0, 1fr)); color: var(--soft); }
.attn-wall .line, .attn-wall .cell { display: contents; }
.attn-wall .cells [role="columnheader"] { text-align: center; height: 1.3rem; }
.attn-wall .cells [role="rowheader"] { align-self: center; padding-right: .4rem;
  text-align: right; }
.attn-wall .cells button { aspect-ratio: 1; min-width: 0; margin: 1px; position: relative;
  color: var(--ink); border: 1px solid color-mix(in srgb, var(--type) 75%, transparent); }
.attn-wall .cells button:hover { outline: 2px solid var(--type); z-index: 1; }
.attn-wall[data-only] .cells button { background: var(--page); opacity: .85; }
.attn-wall[data-only="0"] .cells .t0, .attn-wall[data-only="1"] .cells .t1,
.attn-wall[data-only="2"] .cells .t2, .attn-wall[data-only="3"] .cells .t3,
.attn-wall[data-only="4"] .cells .t4 { background: none; opacity: 1; }
.attn-wall dialog { padding: 0; border: 1px solid var(--soft); border-radius: 6px;
  background: var(--page); color: var(--ink); width: max-content; max-width: 96vw; max-height: 96vh;
  overflow: auto; font-size: .9rem; line-height: 1.4; }
.attn-wall dialog::backdrop { background: rgb(0 0 0 / .45); }
.attn-wall .opened { padding: .8rem 1rem 1rem; }
.attn-wall .top { display: flex; align-items: baseline; gap: .9rem; margin-bottom: .4rem; }
.attn-wall .top b { font-size: 1.15rem; } .attn-wall .top .space { flex: 1; }
.attn-wall .top button { min-width: 2rem; padding: .15rem .5rem;
  border: 1px solid color-mix(in srgb, currentColor 35%, transparent); }
.attn-wall .both { display: flex; flex-wrap: wrap; gap: .4rem 1.6rem; }
.attn-wall canvas { display: block; cursor: crosshair; }
.attn-wall .side { width: 14.5rem; } .attn-wall .side p { margin: 0 0 .5rem; min-height: 2.8em; }
.attn-wall .hint { margin: .5rem 0 0; font-size: .88rem; color: var(--soft); }
.attn-wall .side label { display: block; margin-bottom: .7rem; color: var(--soft); }
.attn-wall .what { font-size: .78rem; color: var(--soft); margin-bottom: .2rem; }
.attn-wall .part { display: grid; grid-template-columns: 3.4rem 1fr 3rem; gap: .4rem;
  align-items: center; font-size: .78rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
.attn-wall .part u { height: .6rem; background: var(--type); border-radius: 1px; }
.attn-wall .part span:last-child { text-align: right; }
@media print { .attn-wall .wall { break-inside: avoid; print-color-adjust: exact; } }
"""

# Each wall brings the script along and it wakes every wall that sleeps: no id has to be unique.
SCRIPT = r"""
(() => {
const wake = wall => {
  const d = JSON.parse(wall.dataset.wall), find = s => wall.querySelector(s);
  const every = s => [...wall.querySelectorAll(s)];
  const cells = every('.cells button'), kinds = every('.kinds button'), own = find('.own');
  const box = find('dialog'), canvas = find('canvas'), image = find('.wall img');
  const sheet = document.createElement('canvas');
  let now = 0, point = null, maps = null, place = null;

  const map = () => {  // square roots of the weights on show, from the opacity of the pixels
    if (!maps) {
      sheet.width = image.naturalWidth; sheet.height = image.naturalHeight;
      maps = sheet.getContext('2d', {willReadFrequently: true});
      maps.drawImage(image, 0, 0);
    }
    const tile = d.n + 2 * d.pad, x = now % d.heads, y = Math.floor(now / d.heads);
    const data = maps.getImageData(x * tile + d.pad, y * tile + d.pad, d.n, d.n).data;
    return Array.from({length: d.n * d.n}, (_, i) => 1 - Math.sqrt(1 - data[4 * i + 3] / 255));
  };
  const short = word => word.length > 14 ? word.slice(0, 13) + '…' : word;
  const told = (i, all) => `${d.tokens[Math.floor(i / d.n)]} → ${d.tokens[i % d.n]} ≈ ` +
    (all[i] ** 2).toFixed(2);

  const paint = () => {
    const all = map(), most = all.reduce((a, b, i) => b > all[a] ? i : a, 0);
    const space = Math.min(640, innerWidth - 400, innerHeight - 210), ctx = canvas.getContext('2d');
    const cell = Math.max(9, Math.min(26, Math.floor(space / d.n)));
    const font = bold => `${bold ? 'bold ' : ''}${Math.min(12, cell)}px system-ui, sans-serif`;
    ctx.font = font(true);
    const room = 6 + Math.ceil(Math.max(...d.tokens.map(t => ctx.measureText(short(t)).width)));
    const side = room + d.n * cell + 2, sharp = window.devicePixelRatio || 1;
    canvas.width = canvas.height = side * sharp;
    canvas.style.width = canvas.style.height = side + 'px';
    ctx.scale(sharp, sharp);
    ctx.textBaseline = 'middle'; ctx.fillStyle = getComputedStyle(box).color;
    d.tokens.forEach((word, i) => {
      ctx.font = font(point !== null && Math.floor(point / d.n) === i); ctx.textAlign = 'right';
      ctx.fillText(short(word), room - 4, room + (i + .5) * cell);
      ctx.font = font(point !== null && point % d.n === i); ctx.textAlign = 'left';
      ctx.save(); ctx.translate(room + (i + .5) * cell, room - 4); ctx.rotate(-Math.PI / 2);
      ctx.fillText(short(word), 0, 0); ctx.restore();
    });
    const full = own.checked ? Math.max(all[most], 1e-6) : 1;
    ctx.fillStyle = ctx.strokeStyle = d.colours[d.types[now]];
    all.forEach((root, i) => {
      ctx.globalAlpha = 1 - (1 - root / full) ** 2;
      ctx.fillRect(room + (i % d.n) * cell, room + Math.floor(i / d.n) * cell, cell, cell);
    });
    ctx.globalAlpha = .6; ctx.strokeRect(room - .5, room - .5, d.n * cell + 1, d.n * cell + 1);
    if (point !== null) {
      ctx.globalAlpha = 1; ctx.lineWidth = 2; ctx.strokeStyle = getComputedStyle(box).color;
      const [x, y] = [point % d.n, Math.floor(point / d.n)].map(p => room + p * cell);
      ctx.strokeRect(x, y, cell, cell);
    }
    find('.read').textContent = point === null ? `Strongest: ${told(most, all)}` : told(point, all);
    place = {room, cell};
  };

  const show = i => {
    now = (i + cells.length) % cells.length; point = null;
    const kind = d.types[now], name = `${Math.floor(now / d.heads) + 1}-${now % d.heads + 1}`;
    find('.top b').textContent = `Head ${name}`;
    find('.type').className = `type t${kind}`; find('.type span').textContent = d.kinds[kind];
    canvas.setAttribute('aria-label', `attention map of head ${name}, ${d.kinds[kind]}`);
    const parts = (d.values[now] || []).map((value, j) => {
      const row = document.createElement('div'); row.className = `part t${kind}`;
      const [label, bar, number] = ['span', 'u', 'span'].map(tag => document.createElement(tag));
      label.textContent = d.features[j]; number.textContent = `${(value / 10).toFixed(1)}%`;
      bar.style.width = `${Math.sqrt(value / 1000) * 100}%`;
      row.append(label, bar, number); return row;
    });
    find('.parts').replaceChildren(...parts);
    find('.what').hidden = !parts.length;
    if (!box.open) box.showModal();
    paint();
  };
  const step = by => {  // on to the next head that is not dimmed
    let next = now;
    for (let tries = 0; tries < cells.length; tries++) {
      next = (next + by + cells.length) % cells.length;
      if ([undefined, String(d.types[next])].includes(wall.dataset.only)) return show(next);
    }
  };
  const steps = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: d.heads, ArrowUp: -d.heads};

  cells.forEach((cell, i) => {
    cell.title = cell.getAttribute('aria-label');
    cell.onclick = () => show(i);
    cell.onfocus = () => cells.forEach(other => { other.tabIndex = other === cell ? 0 : -1; });
  });
  wall.addEventListener('keydown', event => {
    const at = cells.indexOf(event.target), by = steps[event.key];
    // A notebook must not take the keys for its own shortcuts.
    if (event.key !== 'Escape' && event.key !== 'Tab') event.stopPropagation();
    if (!by || event.target.type === 'checkbox') return;
    if (box.open) { event.preventDefault(); step(by); }
    else if (at >= 0) { event.preventDefault(); cells[at + by]?.focus(); }
  });
  kinds.forEach(button => {
    button.disabled = false;
    button.onclick = () => {
      const on = button.getAttribute('aria-pressed') !== 'true';
      kinds.forEach(other => other.setAttribute('aria-pressed', String(on && other === button)));
      if (on) wall.dataset.only = button.dataset.kind; else delete wall.dataset.only;
    };
  });
  canvas.onpointermove = event => {
    const at = [event.offsetY, event.offsetX].map(p => Math.floor((p - place.room) / place.cell));
    const before = point;
    point = at.every(p => p >= 0 && p < d.n) ? at[0] * d.n + at[1] : null;
    if (point !== before) paint();
  };
  canvas.onpointerleave = () => { point = null; paint(); };
  own.onchange = paint;
  find('.back').onclick = () => step(-1);
  find('.forth').onclick = () => step(1);
  find('.shut').onclick = () => box.close();
  box.onclick = event => { if (event.target === box) box.close(); };
  box.onclose = () => cells[now].focus();
  find('.hint').hidden = false;
  wall.dataset.awake = '';
};
document.querySelectorAll('figure.attn-wall:not([data-awake])').forEach(wake);
})();
"""

DIALOG = """<dialog aria-label="one head"><div class="opened">
<div class="top"><b></b><span class="type"><i></i><span></span></span><span class="space"></span>
<button type="button" class="back" aria-label="previous head">←</button>
<button type="button" class="forth" aria-label="next head" autofocus>→</button>
<button type="button" class="shut" aria-label="close">✕</button></div>
<div class="both"><canvas role="img"></canvas><div class="side">
<p class="read" aria-live="polite"></p>
<label><input type="checkbox" class="own"> full strength for its largest</label>
<div class="what">share of attention, on a √ scale</div>
<div class="parts"></div></div></div></div></dialog>"""
