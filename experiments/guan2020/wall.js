// Each wall brings the script along and it wakes every wall that sleeps: no id has to be unique.
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
