// The card of a head: a sentence, its portrait, example sentences, its neighbours, all facts.
const barOf = (fact, head) => {  // the value on its scale, with its interval
  const [at, from, to] = ['at', 'from', 'to'].map(part => fact[part]?.[head] ?? null);
  if (at === null || fact.kind !== 'number') return el('span', {class: 'bar none'});
  const place = (x, y) => `left:${x / 10}%;width:${(y - x) / 10}%`;
  const hue = fact.diverging && at < 500 ? fact.below : fact.hue;
  const bar = el('span', {class: 'bar', 'aria-hidden': 'true', style: `--hue:${hue}`});
  if (fact.middle) bar.append(el('i', {class: 'middle', style: place(...fact.middle)}));
  if (fact.diverging) bar.append(el('i', {class: 'zero'}), el('i', {class: 'fill',
    style: place(Math.min(at, 500), Math.max(at, 500))}));
  if (from !== null && to !== null) bar.append(el('i', {class: 'range', style: place(from, to)}));
  // Only a scale around 0 is shorter than its intervals; they are cut at its ends.
  if (fact.diverging && from !== null && to !== null && from < to) bar.append(...[[from === 0,
    'low'], [to === 1000, 'high']].filter(([cut]) => cut).map(([, end]) =>
    el('i', {class: `beyond ${end}`})));
  if (!fact.diverging) bar.append(el('i', {class: 'dot', style: `left:${at / 10}%`}));
  return bar;
};

const factOf = (fact, head, act) => {
  const [value, interval, note, detail] = ['text', 'interval', 'note', 'detail'].map(part =>
    fact.lines[part][head]);
  const rank = fact.rank[head];
  const more = el('p', {class: 'more'}), paper = () => fact.link ?
    el('a', {class: 'paper', href: fact.link}, fact.paper) : el('span', {class: 'paper'}, fact.paper);
  more.hidden = true;
  const told = [fact.about, detail && `${detail[0].toUpperCase()}${detail.slice(1)}.`,
    rank && `Place ${rank} of ${fact.ranked} heads, from the highest.`,
    fact.source && `Read from ${fact.source}.`].filter(Boolean).join(' ');
  const tint = el('button', {type: 'button', class: 'tint'}, 'Colour the heads by this');
  tint.addEventListener('click', () => act.colour(fact.place));
  const name = el('button', {type: 'button', class: 'name', 'aria-expanded': 'false'}, fact.name);
  name.addEventListener('click', () => {
    more.hidden = !more.hidden;
    name.setAttribute('aria-expanded', String(!more.hidden));
  });
  const mark = fact.kind === 'class' && fact.shade[head] !== null ?
    fact.classes[fact.shade[head]] : null;
  const shown = el('b', {class: 'value'}, value), flag = fact.kind === 'flag';
  if (fact.shade[head] === null) shown.classList.add('missing');
  const number = el('span', {class: 'number'}, ...(mark ? [el('i', {class: 'mark', 'aria-hidden':
    'true', style: `--hue:${mark.hue}`}, mark.mark), ' '] : []), shown,
    ...(interval ? [' ', el('span', {class: 'interval'}, interval)] : []));
  more.append(told, told ? ' ' : '', ...(flag ? [paper(), ' '] : []), tint);
  return el('li', {class: `fact ${fact.kind}${flag && fact.shade[head] ? ' has' : ''}`, 'data-key':
    fact.key, ...(flag ? {style: `--hue:${fact.hue}`} : {})}, name, ...(flag ? [number] :
    [barOf(fact, head), number, paper()]), ...(note ? [el('p', {class: 'note'}, note)] : []), more);
};

const portraitOf = (d, head) => {
  const row = d.portraits[head], n = row.length;
  if (row.some(value => value === null) || n < 2) return null;
  const width = 300, height = 132, top = 16, foot = 30, step = width / n;
  const most = Math.max(...row, ...d.average, 1), y = value =>
    top + (height - top - foot) * (1 - value / most);
  const peak = row.indexOf(Math.max(...row)), share = `${(row[peak] / 100).toFixed(1)} %`;
  const signed = offset => offset > 0 ? `+${offset}` :
    String(offset).replace('-', '−');
  const svg = shape('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'font-family': FONT,
    'font-size': 10.5, 'aria-label': `attention by distance, most at ${signed(d.offsets[peak])}: ` +
    share});
  const middle = (x, half = 12) => Math.min(width - half, Math.max(half, x));
  d.offsets.forEach((offset, i) => {
    const x = i * step + step * .14, wide = step * .72;
    svg.append(shape('rect', {x, y: y(row[i]), width: wide, height: Math.max(0, y(0) - y(row[i])),
      fill: d.near_hues[offset] ?? 'currentColor', 'fill-opacity': offset in d.near_hues ? 1 : .45}),
      shape('path', {d: `M${x - 1} ${y(d.average[i])}h${wide + 2}`, stroke: 'currentColor',
        'stroke-width': 1.4}));
    if (offset % 5 === 0) svg.append(shape('text', {x: middle(x + wide / 2), y: height - 17,
      'text-anchor': 'middle', fill: 'currentColor'}, signed(offset)));
  });
  svg.append(shape('path', {d: `M0 ${y(0)}H${width}`, stroke: 'currentColor', 'stroke-opacity': .4}),
    shape('text', {class: 'peak', x: middle((peak + .5) * step, 20), y: y(row[peak]) - 4,
      'text-anchor': 'middle', 'font-weight': 600, fill: 'currentColor'}, share),
    ...[[0, 'start', '← tokens before'], [width, 'end', 'tokens after →']].map(([x, anchor, text]) =>
      shape('text', {x, y: height - 3, 'text-anchor': anchor, fill: 'currentColor'}, text)));
  return el('div', {class: 'portrait'}, el('h3', {}, 'Portrait'), svg, el('p', {class: 'fine'},
    'Mean attention by distance from the token that attends, of tokens that have such a ' +
    'neighbour; a dash is the mean of all heads.'));
};

const neighboursOf = (d, head, act) => {
  if (!d.near[head].length) return null;
  const list = (title, found) => el('div', {}, el('h4', {}, title), el('ol', {}, ...found.map(
    ([other, text]) => {
      // The book's theme looks for a section behind every address on a page without sections, and
      // stumbles over #5-4; it passes over what has this class.
      const link = el('a', {href: `#${d.name(other)}`, class: 'disabled',
        title: d.summary(other)}, d.name(other));
      link.addEventListener('click', event => {
        if (event.ctrlKey || event.metaKey || event.shiftKey) return;
        event.preventDefault(); act.open(other, true);
      });
      return el('li', {'data-head': d.name(other)}, link, ' ', el('span', {}, text));
    })));
  return el('div', {class: 'neighbours'}, el('h3', {}, 'Heads like it'), el('div', {class: 'lists'},
    list('Nearest', d.near[head]), list('Farthest', d.far[head])), el('p', {class: 'fine'},
    'By Jensen-Shannon divergence of what they attend to, in nats.'));
};

// The example sentences: which one, and lines or map, are kept when another head is opened.
const examplesOf = (d, sheets) => {
  const state = {text: 0, map: false, head: 0}, unpacked = new Map();
  const said = el('p', {class: 'said'}), stage = el('div', {class: 'stage'});
  const button = (text, label, set) => {
    const made = el('button', {type: 'button', 'aria-label': label, title: label}, text);
    made.addEventListener('click', () => { set(); draw(); });
    return made;
  };
  const tabs = d.texts.map((text, i) => button(String(i + 1), `sentence ${i + 1}: ${text.title}`,
    () => { state.text = i; }));
  const looks = ['Lines', 'Map'].map((name, i) => button(name, name.toLowerCase(),
    () => { state.map = Boolean(i); }));
  const title = el('p', {class: 'title'}), scope = el('p', {class: 'fine'});
  const box = el('div', {class: 'examples'}, el('h3', {}, 'On three sentences'), el('div',
    {class: 'tools'}, el('span', {class: 'pair', role: 'group', 'aria-label': 'sentence'}, ...tabs),
    el('span', {class: 'pair', role: 'group', 'aria-label': 'lines or map'}, ...looks)), title, said,
    stage, scope);
  box.firstChild.textContent = d.texts.length === 1 ? 'On a sentence' : 'On example sentences';
  let turn = 0;

  const draw = async () => {
    const mine = ++turn, {text, head} = state, known = d.texts[text], tokens = known.pieces;
    const at = text * d.layers + Math.floor(head / d.heads);
    if (!unpacked.has(at)) unpacked.set(at, inflated(sheets[at].dataset.maps));
    const bytes = await unpacked.get(at), n = tokens.length;
    if (mine !== turn) return;
    const map = mapFrom(bytes, known, head % d.heads, d.power, {tokens, place: tokens.map((_, i) =>
      i)});
    const svg = shape('svg', {tabindex: 0, role: 'application', 'aria-roledescription':
      'drawing of one head, arrow keys move over its tokens', 'font-family': FONT});
    const panel = {hue: d.hues[head], place: (width, height, ...inside) => {
      filled(svg, {viewBox: `0 0 ${width} ${height}`, width, height}, []);
      svg.replaceChildren(...inside);
    }};
    stage.replaceChildren(svg);
    const width = Math.max(240, Math.floor(stage.clientWidth));
    (state.map ? picture : lines)(panel, map, tokens, Math.min(width, state.map ? 620 : 560));
    const order = [...map.keys()].sort((a, b) => map[b] - map[a]).slice(0, 2);
    const quoted = i => `“${tokens[i]}”`;  // a comma is a token, too
    const strongest = 'Strongest: ' + order.map(i => `${quoted(Math.floor(i / n))} → ` +
      `${quoted(i % n)} ${map[i].toFixed(2)}`).join('; ') + '.';
    let point = null;
    const mark = next => {
      point = next; panel.mark(point);
      said.textContent = point === null ? strongest : point.k !== undefined ?
        `${quoted(point.i)} → ${quoted(point.k)} ${map[point.i * n + point.k].toFixed(3)}` :
        told(point);
    };
    const told = ({s, i}) => {
      const weight = o => s ? map[o * n + i] : map[i * n + o];
      const others = tokens.map((_, o) => o).sort((a, b) => weight(b) - weight(a)).slice(0, 3);
      return `${quoted(i)} ${s ? 'is attended to by' : 'attends to'} ` +
        others.map(o => `${quoted(o)} ${weight(o).toFixed(2)}`).join('; ');
    };
    const follow = event => {
      const frame = svg.getBoundingClientRect(), zoom = svg.viewBox.baseVal.width / frame.width;
      mark(panel.at((event.clientX - frame.left) * zoom, (event.clientY - frame.top) * zoom));
    };
    svg.addEventListener('pointermove', follow);
    svg.addEventListener('pointerdown', follow);
    svg.addEventListener('pointerleave', event => {
      if (event.pointerType !== 'touch') mark(null);
    });
    svg.addEventListener('keydown', event => {
      const by = {ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1],
        ArrowUp: [0, -1]}[event.key];
      if (by) { event.preventDefault(); mark(panel.step(point, by)); }
      if (event.key === 'Escape' && point) { event.stopPropagation(); mark(null); }
    });
    mark(null);
    svg.setAttribute('aria-label', `${state.map ? 'map' : 'lines'} of head ${d.name(head)}. ` +
      strongest);
    title.textContent = `“${known.title}”`;
    scope.textContent = `One sentence of ${n} tokens; the numbers below are means over the ` +
      'inputs named above.';
    tabs.forEach((tab, i) => tab.setAttribute('aria-pressed', String(i === text)));
    looks.forEach((one, i) => one.setAttribute('aria-pressed', String(Boolean(i) === state.map)));
    box.dataset.drawn = `${d.name(head)} ${text} ${state.map ? 'map' : 'lines'}`;
  };
  let width = 0;
  new ResizeObserver(() => {
    if (Math.abs(stage.clientWidth - width) > 1) { width = stage.clientWidth; draw(); }
  }).observe(stage);
  return {box, show: head => { state.head = head; draw(); }};
};

const factGroups = (d, head, act) => {
  const groups = [...new Set(d.facts.map(fact => fact.group))];
  return [el('p', {class: 'fine'}, 'The thin line is the 95% interval, the grey band holds the middle ' +
    'half of all heads. Open a line to see how it is measured.'), ...groups.map(group => {
    const facts = d.facts.filter(fact => fact.group === group);
    return el('section', {class: 'group'}, el('h3', {}, group), el('ul', {class:
      facts.every(fact => fact.kind === 'flag') ? 'facts flags' : 'facts'},
      ...facts.map(fact => factOf(fact, head, act))));
  })];
};
