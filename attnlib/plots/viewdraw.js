// A head's map, unpacked, and drawn as lines between two columns of tokens, or as a map. Both fill
// a panel with an SVG, and tell it which token is where (`at`), how to mark one (`mark`) and where
// an arrow key leads from it (`step`).
const MOST_LINES = 1200;   // more would only be a grey veil
const LEAST = 0.01;        // weights below are not drawn as lines until their token is pointed at
const RECTANGLES = 64;     // up to so many tokens a map is drawn cell by cell, else as a picture
const FONT = 'system-ui, -apple-system, "Segoe UI", "Helvetica Neue", Arial, sans-serif';

const filled = (node, given, inside) => {
  for (const [name, value] of Object.entries(given)) node.setAttribute(name, value);
  node.append(...inside);  // strings become text, never markup
  return node;
};
const el = (tag, given = {}, ...inside) => filled(document.createElement(tag), given, inside);
const shape = (tag, given = {}, ...inside) =>
  filled(document.createElementNS('http://www.w3.org/2000/svg', tag), given, inside);
const short = (word, most = 16) => word.length > most ? word.slice(0, most - 1) + '…' : word;
const pen = document.createElement('canvas').getContext('2d');
const widest = (words, size) => {
  pen.font = `600 ${size}px ${FONT}`;
  return Math.ceil(Math.max(...words.map(word => pen.measureText(short(word)).width)));
};

// Whether this browser cannot unpack maps; then the page says which one can.
const tooOld = root => {
  const old = typeof DecompressionStream === 'undefined';
  if (old) root.textContent = 'This browser is too old to unpack the maps: please open the page ' +
    'in Chrome or Edge 80, Firefox 113, Safari 16.4, or later.';
  return old;
};
const inflated = async text => {
  const raw = atob(text), bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
};

// A head's map from the bytes of its layer: row = the token that attends, column = attended to.
const mapFrom = (bytes, known, head, power, {tokens, place}) => {
  const n = known.pieces.length, m = tokens.length;
  const weight = Array.from({length: known.levels + 1}, (_, i) => (i / known.levels) ** (1 / power));
  const size = new Array(m).fill(0), map = new Float32Array(m * m);
  place.forEach(u => size[u]++);
  // Attention to a word is summed over its pieces, attention from it averaged: rows sum to 1.
  for (let key = 0, at = head * n * n; key < n; key++)
    for (let query = 0; query < n; query++, at++)
      if (place[query] >= 0 && place[key] >= 0)
        map[place[query] * m + place[key]] += weight[bytes[at]] / size[place[query]];
  return map;
};

const lines = (panel, map, tokens, width) => {
  const n = tokens.length, row = n <= 40 ? 22 : n <= 90 ? 18 : 14, size = Math.min(13, row - 4);
  const top = 24, room = Math.min(widest(tokens, size) + 12, width * .3), number = 34;
  const left = room, right = width - room - number, height = top + n * row + 6;
  const y = i => top + (i + .5) * row;
  const line = (q, k, opacity, more = 0) => shape('path', {fill: 'none', stroke: panel.hue,
    'stroke-width': (.5 + 2.5 * map[q * n + k] + more).toFixed(2), 'stroke-linecap': 'round',
    'stroke-opacity': opacity.toFixed(3), d: `M${left} ${y(q)}C${(left + right) / 2} ${y(q)} ` +
    `${(left + right) / 2} ${y(k)} ${right} ${y(k)}`});
  const strong = [];
  map.forEach((weight, i) => { if (weight >= LEAST) strong.push(i); });
  strong.sort((a, b) => map[a] - map[b]);
  const drawn = strong.slice(-MOST_LINES);
  panel.from = drawn.length ? map[drawn[0]] : 0;
  const arriving = new Array(n).fill(0);  // where many lines meet, each is fainter
  drawn.forEach(i => arriving[i % n]++);
  const veil = shape('g', {}, ...drawn.map(i => line(Math.floor(i / n), i % n,
    Math.min(.9, map[i] ** .75) * Math.min(1, Math.sqrt(16 / arriving[i % n])))));
  const focus = shape('g'), marks = [[], []], labels = [[], []], numbers = [[], []];
  const words = shape('g', {'font-size': size, fill: 'currentColor'});
  tokens.forEach((word, i) => [0, 1].forEach(s => {
    const x = s ? right + 6 : left - 6, ends = s ? 'start' : 'end';
    marks[s].push(shape('rect', {x: s ? right + 2 : 0, y: y(i) - row / 2 + 1, rx: 3,
      width: (s ? room + number : left) - 2, height: row - 2, fill: panel.hue,
      'fill-opacity': 0}));
    labels[s].push(shape('text', {x, y: y(i) + size * .35, 'text-anchor': ends}, short(word)));
    numbers[s].push(shape('text', {x: s ? width - 2 : 2, y: y(i) + size * .35, 'text-anchor':
      s ? 'end' : 'start', 'font-size': size - 2}));
  }));
  words.append(...labels.flat(), ...numbers.flat());
  const heads = ['attends', 'attended to'].map((word, s) => shape('text', {x: s ? right + 6 :
    left - 6, y: 12, 'text-anchor': s ? 'start' : 'end', 'font-size': 11, fill: 'currentColor',
    opacity: .6}, word));
  panel.place(width, height, ...marks.flat(), veil, focus, ...heads, words);
  panel.at = (x, py) => ({s: x < (left + right) / 2 ? 0 : 1,
    i: Math.min(n - 1, Math.max(0, Math.floor((py - top) / row)))});
  panel.mark = point => {
    veil.setAttribute('opacity', point ? .07 : 1);
    marks.flat().forEach(mark => mark.setAttribute('fill-opacity', 0));
    labels.flat().forEach(one => { one.removeAttribute('font-weight'); });
    numbers.flat().forEach(one => { one.textContent = ''; });
    focus.replaceChildren();
    if (!point) return;
    const {s, i} = point;
    labels[s][i].setAttribute('font-weight', 600); marks[s][i].setAttribute('fill-opacity', .18);
    for (let other = 0; other < n; other++) {
      const [q, k] = s ? [other, i] : [i, other], weight = map[q * n + k];
      if (weight < .003) continue;
      focus.append(line(q, k, Math.min(1, .12 + weight ** .5), .4));
      marks[1 - s][other].setAttribute('fill-opacity', (.65 * weight).toFixed(3));
      if (weight >= .02 && row > 12) numbers[1 - s][other].textContent = weight.toFixed(2);
    }
  };
  panel.step = (point, [dx, dy]) => point ? {s: dx ? Number(dx > 0) : point.s,
    i: Math.min(n - 1, Math.max(0, point.i + dy))} : {s: 0, i: 0};
};

const picture = (panel, map, tokens, width) => {
  const n = tokens.length, room = Math.min(widest(tokens, 12) + 8, width * .3);
  const cell = Math.min(26, (width - room - 2) / n), size = Math.min(12, cell), side = n * cell;
  const every = Math.ceil(11 / cell);  // in small cells only every so manyth token is named
  const named = (word, i) => size >= 8 || i % every === 0 ? short(word) : '';
  // Weak weights are lifted, as on the wall of maps: 0.02 still has a quarter of full strength.
  const opacity = weight => 1 - (1 - Math.sqrt(Math.min(1, weight))) ** 2;
  const cells = shape('g', {fill: panel.hue, 'shape-rendering': 'crispEdges'});
  if (n <= RECTANGLES) map.forEach((weight, i) => {
    if (weight >= .0005) cells.append(shape('rect', {x: (room + i % n * cell).toFixed(2), y:
      (room + Math.floor(i / n) * cell).toFixed(2), width: cell.toFixed(2), height:
      cell.toFixed(2), 'fill-opacity': opacity(weight).toFixed(3)}));
  });
  else {
    const sheet = document.createElement('canvas'); sheet.width = sheet.height = n;
    const ctx = sheet.getContext('2d'), pixels = ctx.createImageData(n, n);
    const rgb = [1, 3, 5].map(at => parseInt(panel.hue.slice(at, at + 2), 16));
    map.forEach((weight, i) => pixels.data.set([...rgb, 255 * opacity(weight)], 4 * i));
    ctx.putImageData(pixels, 0, 0);
    cells.append(shape('image', {x: room, y: room, width: side, height: side, href:
      sheet.toDataURL(), style: 'image-rendering:pixelated'}));
  }
  const labels = [0, 1].map(s => tokens.map((word, i) => {
    const middle = room + (i + .5) * cell, shift = Math.max(size, 9) * .35;
    return shape('text', s ? {transform: `translate(${middle + shift} ${room - 4}) rotate(-90)`} :
      {x: room - 4, y: middle + shift, 'text-anchor': 'end'}, named(word, i));
  }));
  const cross = shape('rect', {fill: 'none', stroke: 'currentColor', 'stroke-width': 1.5,
    width: Math.max(cell, 3), height: Math.max(cell, 3), visibility: 'hidden'});
  const band = [0, 1].map(s => shape('rect', {fill: 'currentColor', 'fill-opacity': 0}));
  panel.place(width, room + side + 2, cells, shape('rect', {x: room - .5, y: room - .5,
    width: side + 1, height: side + 1, fill: 'none', stroke: 'currentColor', 'stroke-opacity': .3}),
    ...band, cross, shape('g', {'font-size': Math.max(size, 9), fill: 'currentColor'},
    ...labels.flat()));
  panel.at = (x, y) => {
    const [k, q] = [x, y].map(v => Math.floor((v - room) / cell));
    return q >= 0 && q < n && k >= 0 && k < n ? {s: 0, i: q, k} : null;
  };
  panel.mark = point => {
    labels.forEach((one, s) => one.forEach((label, i) => {
      const on = point && (s ? point.k : point.i) === i;
      label.setAttribute('font-weight', on ? 700 : 400);
      if (size < 8) label.textContent = on ? short(tokens[i]) : point ? '' : named(tokens[i], i);
    }));
    cross.setAttribute('visibility', point ? 'visible' : 'hidden');
    band.forEach(one => one.setAttribute('fill-opacity', point ? .07 : 0));
    if (!point) return;
    const [x, y] = [point.k, point.i].map(v => room + v * cell);
    filled(cross, {x, y}, []);
    filled(band[0], {x: room, y, width: side, height: cell}, []);
    filled(band[1], {x, y: room, width: cell, height: side}, []);
  };
  panel.step = (point, [dx, dy]) => point ? {s: 0, i: Math.min(n - 1, Math.max(0, point.i + dy)),
    k: Math.min(n - 1, Math.max(0, point.k + dx))} : {s: 0, i: 0, k: 0};
};
