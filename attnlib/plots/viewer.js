// The head viewer: the grid of heads, the opened ones, and what is said of them. Each fragment
// brings this script along, and it wakes every viewer that sleeps: no id has to be unique.
const wake = figure => {
  figure.dataset.awake = '';
  const root = figure.querySelector('.root');
  if (tooOld(root)) return;
  const d = JSON.parse(figure.dataset.view), two = d.models.length > 1;
  const sheets = [...figure.querySelectorAll('[data-maps]')], unpacked = new Map();
  const roles = d.metrics.map((m, i) => i).filter(i => d.metrics[i].role);
  const state = {sample: 0, map: false, words: false, bare: false, point: null,
    metric: roles.length ? -1 : 0,  // -1 stands for the largest share
    sides: d.models.map((model, i) => ({model: i, head: model.open}))};
  let panels = [], turn = 0;

  // What is known of a head

  const reading = model => d.samples[state.sample].readings[model];
  const units = model => {  // the tokens on show, and of each piece its place among them, or -1
    const known = reading(model), all = state.words ? known.words : known.pieces;
    const unit = state.words ? known.unit : known.unit.map((_, i) => i);
    const gone = new Set(state.bare ? known.special.map(i => unit[i]) : []);
    const kept = all.map((_, u) => u).filter(u => !gone.has(u));
    return {tokens: kept.map(u => all[u]), place: unit.map(u => kept.indexOf(u))};
  };
  const headName = ({model, head}) =>
    `${Math.floor(head / d.models[model].heads) + 1}-${head % d.models[model].heads + 1}`;
  const amount = (metric, value) => value === null ? '–' :
    d.metrics[metric].share ? `${(100 * value).toFixed(value < .1 ? 1 : 0)} %` :
    `${value.toFixed(2)} ${d.metrics[metric].unit}`;
  const mainRole = (model, head) => roles.reduce((best, i) =>
    (reading(model).values[i][head] ?? 0) > (reading(model).values[best][head] ?? 0) ? i : best,
    roles[0]);
  const colouring = (model, head) => state.metric < 0 ? mainRole(model, head) : state.metric;
  const hue = ({model, head}) => d.metrics[roles.length ? mainRole(model, head) : state.metric]
    .colour;

  const layerOf = (model, layer) => {
    let at = layer;
    for (let s = 0; s <= state.sample; s++) {
      const upTo = s < state.sample ? d.models.length : model;
      for (let m = 0; m < upTo; m++) at += d.models[m].layers;
    }
    if (!unpacked.has(at)) unpacked.set(at, inflated(sheets[at].dataset.maps));
    return unpacked.get(at);
  };
  const mapOf = async ({model, head}) => {
    const known = reading(model), {heads} = d.models[model], shown = units(model);
    const bytes = await layerOf(model, Math.floor(head / heads));
    return {map: mapFrom(bytes, known, head % heads, d.power, shown), tokens: shown.tokens};
  };

  // The frame: heads on the left, the opened ones on the right

  const said = el('p', {class: 'said', 'aria-live': 'polite'});
  const stage = el('div', {class: 'stage'}), note = el('p', {class: 'fineprint'});
  const button = (text, about, act, more = {}) => {
    const made = el('button', {type: 'button', title: about, ...more}, text);
    made.addEventListener('click', act);
    return made;
  };
  const toggle = (first, second, about, key) => {
    const pair = [first, second].map((text, i) => button(text, `${about} (key ${key})`, () => {
      state[pair.key] = Boolean(i); state.point = null; show();
    }));
    pair.key = about === 'lines or map' ? 'map' : 'words';
    pair.box = el('span', {class: 'pair', role: 'group', 'aria-label': about}, ...pair);
    return pair;
  };
  const looks = toggle('Lines', 'Map', 'lines or map', 'm');
  const grain = toggle('Pieces', 'Words', 'pieces or words', 'w');
  const compare = button('Compare', 'keep this head and choose another beside it (key c)',
    () => pin());
  const specials = button('Special tokens', 'show [CLS], [SEP] and their like (key s)', () => {
    state.bare = !state.bare; state.point = null; show();
  });
  const save = ['SVG', 'PNG'].map(kind => button(kind, `save what is shown as ${kind}`,
    () => saved(kind), {'aria-label': `save as ${kind}`}));
  const tools = el('div', {class: 'tools', role: 'toolbar', 'aria-label': 'view'}, looks.box,
    grain.box, specials, ...(two ? [] : [compare]), el('span', {class: 'pair save'}, ...save));

  const gridOf = (model, m) => {
    const {layers, heads, name} = model, cells = [], lines = [];
    const numbers = Array.from({length: heads}, (_, i) => el('span', {role: 'columnheader',
      'aria-label': `head ${i + 1}`}, String(i + 1)));
    lines.push(el('div', {class: 'layer', role: 'row'}, el('span', {class: 'corner'}), ...numbers));
    for (let layer = 0; layer < layers; layer++) {
      const row = Array.from({length: heads}, (_, i) => {
        const cell = el('button', {type: 'button', tabindex: -1});
        cell.addEventListener('click', () => choose(m, cells.indexOf(cell)));
        cells.push(cell);
        return el('span', {class: 'slot', role: 'gridcell'}, cell);
      });
      lines.push(el('div', {class: 'layer', role: 'row'}, el('span', {role: 'rowheader',
        'aria-label': `layer ${layer + 1}`}, String(layer + 1)), ...row));
    }
    const box = el('div', {class: 'grid', role: 'grid', 'aria-label':
      `heads of ${name}, layers as rows`, style: `--heads:${heads}`}, ...lines);
    box.addEventListener('keydown', event => {
      const at = cells.indexOf(event.target);
      const by = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: heads, ArrowUp: -heads}[event.key];
      const to = event.key === 'Home' ? at - at % heads : event.key === 'End' ?
        at - at % heads + heads - 1 : at + by;
      if (at < 0 || !cells[to]) return;
      event.preventDefault(); choose(m, to); cells[to].focus();
    });
    return {box, cells};
  };
  const grids = d.models.map(gridOf);
  const chip = (text, metric, about) => {
    const made = button(el('i', {}), about, () => { state.metric = metric; show(); });
    made.append(el('span', {}, text), el('b', {}));
    if (metric >= 0) made.style.setProperty('--hue', d.metrics[metric].colour);
    return Object.assign(made, {metric});
  };
  const chips = [...(roles.length ? [chip('largest share', -1,
    'colour each head by where most of its attention goes')] : []),
    ...d.metrics.map((m, i) => chip(m.chip, i, m.what))];
  const scale = el('div', {class: 'scale'});
  const picker = el('select', {'aria-label': 'text'}, ...d.samples.map((sample, i) =>
    el('option', {value: i}, `${i + 1}. ${short(sample.title, 90)}`)));
  picker.addEventListener('change', () => {
    state.sample = Number(picker.value); state.point = null; show();
  });
  const text = d.samples.length > 1 ? el('label', {class: 'given'}, 'Text ', picker) :
    el('p', {class: 'given', title: d.samples[0].title}, `“${short(d.samples[0].title, 160)}”`);
  const help = el('details', {}, el('summary', {}, 'Keys and notes'), el('p', {class: 'keys'},
    ...[['arrows', 'another head, or in the drawing another token'], ['m', 'lines or map'],
      ['w', 'words or pieces'], ['s', 'special tokens'],
      ...(two ? [] : [['c', 'keep a head and compare']]),
      ['Esc', 'let go of a token']].flatMap(([key, does]) => [el('kbd', {}, key), ` ${does} `])),
    note);
  root.replaceChildren(text, el('div', {class: 'board'},
    el('div', {class: 'heads'}, ...grids.flatMap(({box}, i) =>
      two ? [el('div', {class: 'model'}, d.models[i].name), box] : [box]), scale,
      el('div', {class: 'about'}, 'Colour the heads by'),
      el('div', {class: 'chips', role: 'group', 'aria-label': 'colour the heads by'}, ...chips)),
    el('div', {class: 'opened'}, tools, said, stage)), help);

  const choose = (model, head) => {
    const side = two ? model : 0;
    state.sides[side] = {model, head}; state.point = null; show();
  };
  const pin = () => {  // the head stays on the right; the left one moves on
    if (two) return;
    state.sides = state.sides.length > 1 ? [state.sides[0]] : [state.sides[0], {...state.sides[0]}];
    state.point = null; show();
  };

  const colourGrid = () => {
    const shown = grids.map((_, m) => state.metric < 0 ? [] : reading(m).values[state.metric]);
    const all = shown.flat().filter(value => value !== null), none = !all.length;
    const low = none || d.metrics[state.metric].share ? 0 : Math.min(...all);
    const high = none ? 1 : Math.max(...all, low + 1e-9);
    grids.forEach(({cells}, m) => cells.forEach((cell, head) => {
      const metric = colouring(m, head), value = reading(m).values[metric][head];
      const chosen = state.sides[two ? m : 0].head === head;
      cell.style.setProperty('--hue', d.metrics[metric].colour);
      cell.style.setProperty('--strength',
        `${(100 * Math.max(0, ((value ?? low) - low) / (high - low))).toFixed(1)}%`);
      const about = `head ${headName({model: m, head})}: ${d.metrics[metric].name} ` +
        amount(metric, value);
      cell.textContent = state.metric < 0 && value > .5 ? d.metrics[metric].sign : '';
      cell.setAttribute('aria-label', about); cell.title = about;
      cell.setAttribute('aria-pressed', String(chosen));
      cell.tabIndex = chosen ? 0 : -1;
      cell.classList.toggle('kept', !two && state.sides[1]?.head === head);
    }));
    chips.forEach(made => {  // each shows its number for the opened heads, and a bar for the first
      made.setAttribute('aria-pressed', String(made.metric === state.metric));
      if (made.metric < 0) return;
      const m = d.metrics[made.metric];
      const values = state.sides.map(({model, head}) => reading(model).values[made.metric][head]);
      made.firstChild.textContent = m.sign;
      made.lastChild.textContent = values.map(value =>
        amount(made.metric, value).replace(/ [a-z ]+$/, '')).join(' · ');
      made.style.setProperty('--part', m.share ? `${100 * (values[0] ?? 0)}%` : 0);
    });
    const ends = state.metric < 0 ? ['faint: spread out', 'strong: all of it'] :
      [low, high].map(value => amount(state.metric, value));
    const full = state.metric < 0 ? 'var(--soft)' : d.metrics[state.metric].colour;
    scale.replaceChildren(el('span', {}, ends[0]), el('i', {style: `--hue:${full}`}),
      el('span', {}, ends[1]));
  };

  // What is said of it

  const strongest = (map, tokens, most) => {
    const order = [...map.keys()].filter(i => map[i] > .02).sort((a, b) => map[b] - map[a]);
    return order.slice(0, most).map(i => `${tokens[Math.floor(i / tokens.length)]} → ` +
      `${tokens[i % tokens.length]} ${map[i].toFixed(2)}`).join(', ');
  };
  const summary = panel => {
    const {model, head} = panel.side, role = roles.length ? mainRole(model, head) : state.metric;
    const value = reading(model).values[role][head], m = d.metrics[role];
    const main = m.role ? `${amount(role, value)} of its attention goes to ${m.short}` :
      `${m.name} ${amount(role, value)}`;
    const most = strongest(panel.map, panel.tokens, two ? 1 : 2) || 'all weights are small';
    return `${main}. Strongest: ${most}.`;
  };
  const told = (panel, {s, i, k}) => {
    const {map, tokens} = panel, n = tokens.length;
    if (k !== undefined) return `${tokens[i]} → ${tokens[k]} ${map[i * n + k].toFixed(3)}`;
    const others = tokens.map((_, o) => o).sort((a, b) => s ? map[b * n + i] - map[a * n + i] :
      map[i * n + b] - map[i * n + a]).slice(0, 4);
    return `${tokens[i]} ${s ? 'is attended to by' : 'attends to'} ` + others.map(o =>
      `${tokens[o]} ${(s ? map[o * n + i] : map[i * n + o]).toFixed(2)}`).join(', ');
  };
  const speak = () => {
    const {point, sides: [first, second]} = state;
    if (!two && second?.head === first.head && !point) {
      said.textContent = `Head ${headName(first)} is kept: choose another head to compare.`;
      return;
    }
    said.replaceChildren(...panels.filter(panel => !point || panel.hit(point)).map(panel =>
      el('span', {}, el('b', {}, `Head ${headName(panel.side)}`), two ?
        ` of ${d.models[panel.side.model].name}` : '', `: ${point ? told(panel, point) :
        summary(panel)} `)));
  };
  const pointAt = point => {
    if (JSON.stringify(point) === JSON.stringify(state.point)) return;
    state.point = point;
    said.style.minHeight = `${said.offsetHeight}px`;  // the drawing must not move under the pointer
    panels.forEach(panel => panel.mark(point && panel.hit(point) ? point : null));
    speak();
  };

  const panelOf = (side, s) => {
    const title = el('div', {class: 'whose'}, el('b', {}, `Head ${headName(side)}`),
      two ? ` ${d.models[side.model].name}` : s ? ' kept' : '');
    title.hidden = state.sides.length < 2;
    const svg = shape('svg', {tabindex: 0, role: 'application', 'aria-roledescription':
      'drawing of one head, arrow keys move over its tokens', 'font-family': FONT});
    const box = el('div', {class: 'panel'}, title, svg), panel = {side, box, svg, hue: hue(side)};
    panel.place = (width, height, ...inside) => {
      filled(svg, {viewBox: `0 0 ${width} ${height}`, width, height}, []);
      svg.replaceChildren(...inside);
    };
    // A token pointed at in one panel is marked in the other, if both show the same tokens.
    panel.hit = point => point.panel === s || panels[point.panel].tokens.join('\n') ===
      panel.tokens.join('\n');
    const follow = event => {
      const frame = svg.getBoundingClientRect(), zoom = svg.viewBox.baseVal.width / frame.width;
      const at = panel.at((event.clientX - frame.left) * zoom, (event.clientY - frame.top) * zoom);
      pointAt(at && {...at, panel: s});
    };
    svg.addEventListener('pointermove', follow);
    svg.addEventListener('pointerdown', follow);
    svg.addEventListener('pointerleave', event => {
      if (event.pointerType !== 'touch') pointAt(null);
    });
    svg.addEventListener('keydown', event => {
      const by = {ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1],
        ArrowUp: [0, -1]}[event.key];
      if (by) { event.preventDefault(); pointAt({...panel.step(state.point, by), panel: s}); }
      if (event.key === 'Escape') pointAt(null);
    });
    return panel;
  };

  const tell = () => {
    const {levels} = reading(0), from = Math.max(...panels.map(panel => panel.from ?? 0));
    const error = Math.ceil(2e4 / (3 * levels)) / 1e4;
    note.textContent = `Weights are kept in ${levels + 1} levels, within ${error.toFixed(4)} of ` +
      "the model's own. " + (state.map ?
      'In the map weak weights are lifted: 0.02 has a quarter of full strength. ' :
      `Lines show weights from ${from.toFixed(3)} on; point at a token for the weaker ones. `) +
      'Words: attention to a word is summed over its pieces, attention from it is averaged; the ' +
      'numbers that colour the heads are always those of the pieces.';
  };

  const show = async () => {
    const mine = ++turn, maps = await Promise.all(state.sides.map(mapOf));
    if (mine !== turn) return;  // another head was asked for meanwhile
    colourGrid();
    said.style.minHeight = '';
    [[looks, state.map], [grain, state.words]].forEach(([pair, on]) => pair.forEach((one, i) =>
      one.setAttribute('aria-pressed', String(Boolean(i) === on))));
    specials.setAttribute('aria-pressed', String(!state.bare));
    compare.setAttribute('aria-pressed', String(state.sides.length > 1));
    panels = state.sides.map(panelOf);
    stage.classList.toggle('both', panels.length > 1);
    stage.replaceChildren(...panels.map(panel => panel.box));
    panels.forEach((panel, s) => {
      Object.assign(panel, maps[s]);
      const width = Math.max(240, Math.floor(panel.box.clientWidth));
      (state.map ? picture : lines)(panel, panel.map, panel.tokens,
        state.map ? width : Math.min(width, 640));
      panel.svg.setAttribute('aria-label', `${state.map ? 'Map' : 'Lines'} of ` +
        `head ${headName(panel.side)}: ${summary(panel)}`);
    });
    speak();
    tell();
    figure.dataset.ready = turn;
  };

  // Saving what is shown

  const drawing = () => {
    const style = getComputedStyle(root), gap = 24, top = 34;
    const sizes = panels.map(panel => panel.svg.viewBox.baseVal);
    const width = sizes.reduce((sum, box) => sum + box.width + gap, gap);
    const height = top + gap + Math.max(...sizes.map(box => box.height));
    const whole = shape('svg', {width, height, viewBox: `0 0 ${width} ${height}`, 'font-family':
      FONT, style: `color:${style.color}`}, shape('rect', {width, height, fill:
      style.backgroundColor}));
    let x = gap;
    panels.forEach((panel, i) => {
      whole.append(shape('text', {x, y: 22, 'font-size': 14, 'font-weight': 600, fill:
        'currentColor'}, `${d.models[panel.side.model].name}, head ${headName(panel.side)}`),
        shape('g', {transform: `translate(${x} ${top})`}, ...panel.svg.cloneNode(true).childNodes));
      x += sizes[i].width + gap;
    });
    return {width, height, text: new XMLSerializer().serializeToString(whole)};
  };
  const saved = async kind => {
    const {width, height, text} = drawing();
    let file = new Blob([text], {type: 'image/svg+xml'});
    if (kind === 'PNG') {
      const image = new Image(), canvas = document.createElement('canvas');
      image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
      await image.decode();
      const sharp = Math.min(2, Math.sqrt(16e6 / (width * height)));  // what phones can hold
      canvas.width = width * sharp; canvas.height = height * sharp;
      canvas.getContext('2d').drawImage(image, 0, 0, canvas.width, canvas.height);
      file = await new Promise(done => canvas.toBlob(done, 'image/png'));
    }
    const which = panels.map(({side}) => `${d.models[side.model].name}-${headName(side)}`);
    const name = `${which.join('-and-')}-${state.map ? 'map' : 'lines'}.${kind.toLowerCase()}`;
    const address = URL.createObjectURL(file);
    el('a', {href: address, download: name.replace(/[^\w.-]+/g, '-')}).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  };

  figure.addEventListener('keydown', event => {
    const act = {m: () => looks[Number(!state.map)].click(), c: pin, s: () => specials.click(),
      w: () => grain[Number(!state.words)].click()}[event.key];
    if (event.key !== 'Tab') event.stopPropagation();  // a notebook has shortcuts of its own
    if (!act || event.ctrlKey || event.metaKey || event.altKey || event.target === picker) return;
    event.preventDefault(); act();
  });
  let width = 0;
  new ResizeObserver(() => {
    if (Math.abs(stage.clientWidth - width) > 1) { width = stage.clientWidth; show(); }
  }).observe(stage);
};
document.querySelectorAll('figure.attn-view:not([data-awake])').forEach(wake);
