// The atlas of heads: the grid, its colours, the search, and the card of the opened head. Each
// fragment brings this script along, and it wakes every atlas that sleeps: no id has to be unique.
const MOST_FOUND = 24;    // heads that a search lists; the grid shows them all
const MOST_CLASSES = 12;  // classes that the legend names

const wakeAtlas = figure => {
  figure.dataset.awake = '';
  const root = figure.querySelector('.root');
  if (tooOld(root)) return;
  const d = JSON.parse(figure.dataset.atlas), n = d.layers * d.heads;
  d.name = head => `${Math.floor(head / d.heads) + 1}-${head % d.heads + 1}`;
  d.headNamed = name => {
    const [layer, number] = name.split('-').map(Number);
    return layer >= 1 && layer <= d.layers && number >= 1 && number <= d.heads ?
      (layer - 1) * d.heads + number - 1 : null;
  };
  d.summary = head => d.summaries[head].map(sentence => `${sentence}.`).join(' ');
  d.noHead = name => `There is no head ${name}; this model has ${d.name(0)} to ${d.name(n - 1)}.`;
  d.facts.forEach((fact, place) => {
    fact.place = place;
    fact.lines = Object.fromEntries(['text', 'interval', 'note', 'detail'].map(part =>
      [part, fact[part].split('\n')]));
    fact.told = head => fact.kind === 'flag' ? `${fact.group}: ${fact.name}` :
      `${fact.name} ${fact.lines.text[head]}` +
      (fact.lines.note[head] ? ` (${short(fact.lines.note[head], 60)})` : '');
  });
  const search = searcher(d), LIKENESS = d.facts.length;  // one colour more: distance to this head
  const state = {head: d.open, by: d.by, hits: null};
  // Only the first atlas of a page speaks with its address, and none in a notebook.
  const owner = document.querySelector('figure.attn-atlas') === figure &&
    !figure.closest('.jp-Notebook, .jp-OutputArea, .jupyter-wysiwyg');

  // The address: #8-10, or #8-10&by=entropy

  const keyOf = by => by === LIKENESS ? 'likeness' : d.facts[by]?.key;
  const address = () => `#${d.name(state.head)}` +
    (state.by === d.by ? '' : `&by=${encodeURIComponent(keyOf(state.by))}`);
  const fromAddress = () => {
    const asked = location.hash.match(/^#(\d+-\d+)(?:&by=([^&]+))?$/);
    if (!asked) return location.hash.length < 2 ? {head: d.open, by: d.by} : null;
    const head = d.headNamed(asked[1]);
    let key = asked[2] ?? keyOf(d.by);
    try { key = decodeURIComponent(key); } catch { /* a damaged address names no fact */ }
    const by = key === 'likeness' ? LIKENESS : d.facts.findIndex(fact => fact.key === key);
    return {head: head ?? state.head, by: by < 0 ? d.by : by,
      lost: head === null ? asked[1] : null};
  };
  const remember = push => {
    if (owner && address() !== location.hash)
      history[push ? 'pushState' : 'replaceState'](null, '', address());
  };

  const follow = asked => {  // to where the address leads, or to where it should have led
    const {lost, ...to} = asked ?? {};
    Object.assign(state, to);
    show();
    if (!lost) return;
    status.textContent = d.noHead(lost);
    remember(false);
  };

  // What can be done

  const act = {
    open: (head, reveal = false, push = true) => {
      state.head = head; show(); remember(push);
      if (!state.hits) status.textContent = '';  // it spoke of an address
      if (reveal && card.getBoundingClientRect().top < 0 || reveal &&
          card.getBoundingClientRect().top > innerHeight * .6) card.scrollIntoView({behavior:
        matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth'});
    },
    colour: by => { state.by = by; paint(); remember(false); },
  };

  // The left side: search, colours, grid

  const box = el('input', {type: 'search', 'aria-label': 'find heads', autocomplete: 'off',
    spellcheck: 'false', placeholder: 'Find heads: 8-10, objects …'});
  const status = el('p', {class: 'status', role: 'status'}), results = el('ol', {class: 'results'});
  const menu = el('select', {'aria-label': 'colour the heads by'});
  [...new Set(d.facts.map(fact => fact.group))].forEach(group => menu.append(el('optgroup', {label:
    group}, ...d.facts.filter(fact => fact.group === group).map(fact =>
    el('option', {value: fact.place}, fact.name)))));
  menu.append(el('optgroup', {label: 'Likeness'}, el('option', {value: LIKENESS},
    'distance to the opened head')));
  menu.addEventListener('change', () => act.colour(Number(menu.value)));
  const legend = el('div', {class: 'legend'}), meaning = el('p', {class: 'fine'});

  const cells = [], lines = [el('div', {class: 'layer', role: 'row'}, el('span', {class: 'corner'}),
    ...Array.from({length: d.heads}, (_, i) => el('span', {role: 'columnheader', 'aria-label':
      `head ${i + 1}`}, String(i + 1))))];
  for (let layer = 0; layer < d.layers; layer++) {
    const row = Array.from({length: d.heads}, () => {
      const cell = el('button', {type: 'button', tabindex: -1}), at = cells.push(cell) - 1;
      cell.addEventListener('click', () => act.open(at));
      return el('span', {class: 'slot', role: 'gridcell'}, cell);
    });
    lines.push(el('div', {class: 'layer', role: 'row'}, el('span', {role: 'rowheader', 'aria-label':
      `layer ${layer + 1}`}, String(layer + 1)), ...row));
  }
  const grid = el('div', {class: 'grid', role: 'grid', 'aria-label': `heads of ${d.model}, ` +
    'layers as rows', style: `--heads:${d.heads}`}, ...lines);
  grid.addEventListener('keydown', event => {
    const at = cells.indexOf(event.target), first = at - at % d.heads;
    const to = {ArrowRight: at + 1, ArrowLeft: at - 1, ArrowDown: at + d.heads, ArrowUp:
      at - d.heads, Home: first, End: first + d.heads - 1}[event.key];
    if (at < 0 || !cells[to]) return;
    event.preventDefault();
    act.open(to, false, false);  // a walk over the grid is one step of the history
    cells[to].focus();
  });

  const card = el('section', {class: 'card', 'aria-label': 'the opened head'});
  const name = el('h2', {}), whose = el('p', {class: 'whose'});
  const sentence = el('p', {class: 'summary', 'aria-live': 'polite'});
  const top = el('div', {class: 'top'}), groups = el('div', {class: 'groups'});
  const examples = d.texts.length ? examplesOf(d, [...figure.querySelectorAll('[data-maps]')]) : null;
  card.append(name, whose, sentence, el('div', {class: 'looks'}, top, ...(examples ?
    [examples.box] : [])), groups);
  const keys = el('p', {class: 'fine keys'}, ...[['/', 'search'], ['arrows', 'another head'],
    ['Esc', 'end the search']].flatMap(([key, does]) => [el('kbd', {}, key), ` ${does} `]));
  root.replaceChildren(el('div', {class: 'board'}, el('div', {class: 'side'},
    el('div', {class: 'find'}, box, status, results),
    el('label', {class: 'by'}, el('span', {}, 'Colour by'), menu), grid, legend, meaning, keys),
    card));

  // Colours

  const distance = (a, b) => a === b ? 0 : d.distances[Math.max(a, b)][Math.min(a, b)];
  const looks = () => {  // of each head its hue, strength, mark, and words
    if (state.by === LIKENESS) {
      const all = cells.map((_, head) => distance(state.head, head));
      const most = Math.max(...all, 1);
      return all.map(value => ({hue: d.distance_hue, strength: value === null ? null :
        100 * (1 - value / most), mark: '', told: `distance to ${d.name(state.head)} ` +
        (value === null ? 'not measured' : (value / 1e5).toFixed(3))}));
    }
    const fact = d.facts[state.by];
    return fact.shade.map((shade, head) => {
      const told = `${fact.name} ${fact.lines.text[head]}`;
      if (fact.kind === 'class') {
        const {hue, mark} = fact.classes[shade] ?? {};
        return {hue, strength: shade === null ? null : 100, mark, told};
      }
      return {hue: shade < 0 ? fact.below : fact.hue, strength: shade === null ? null :
        Math.abs(shade), mark: fact.kind === 'flag' && shade ? '✓' : '', told};
    });
  };
  const key = () => {
    const fact = d.facts[state.by];
    if (fact?.kind === 'class') return fact.classes.slice(0, MOST_CLASSES).map(({name, hue, mark},
        i) => {
      const one = el('button', {type: 'button', title: 'find these heads', style: `--hue:${hue}`},
        el('i', {'aria-hidden': 'true'}, mark), name, ' ', el('b', {},
        String(fact.shade.filter(shade => shade === i).length)));
      one.addEventListener('click', () => { box.value = name; find(); });
      return one;
    }).concat(fact.classes.length > MOST_CLASSES ? [el('span', {class: 'fine'},
      `and ${fact.classes.length - MOST_CLASSES} more`)] : []);
    if (fact?.kind === 'flag') return [el('span', {class: 'flag', style: `--hue:${fact.hue}`},
      el('i', {'aria-hidden': 'true'}, '✓'), 'yes ', el('b', {},
      String(fact.shade.filter(Boolean).length)))];
    const ends = fact ? fact.ends : ['far', 'near'];
    const strip = fact?.diverging ? `linear-gradient(to right, ${fact.below}, var(--wash), ` +
      `${fact.hue})` : `linear-gradient(to right, var(--wash), ${fact?.hue ?? d.distance_hue})`;
    return [el('span', {class: 'scale'}, el('i', {style: `background:${strip}`}),
      ...ends.map(text => el('span', {}, text)))];
  };
  const paint = () => {
    const fact = d.facts[state.by];
    const hits = state.hits?.length ? new Set(state.hits.map(({head}) => head)) : null;
    looks().forEach(({hue, strength, mark, told}, head) => {
      const cell = cells[head], chosen = head === state.head;
      cell.style.setProperty('--hue', hue ?? 'transparent');
      cell.style.setProperty('--strength', `${(strength ?? 0).toFixed(0)}%`);
      cell.classList.toggle('missing', strength === null);
      cell.classList.toggle('dim', Boolean(hits) && !hits.has(head));
      cell.classList.toggle('hit', Boolean(hits) && hits.has(head));
      cell.textContent = mark ?? '';
      cell.title = `head ${d.name(head)}: ${told}`;
      cell.setAttribute('aria-label', cell.title + (hits?.has(head) ? ', found' : ''));
      cell.setAttribute('aria-pressed', String(chosen));
      cell.tabIndex = chosen ? 0 : -1;
    });
    menu.value = String(state.by);
    legend.replaceChildren(...key());
    meaning.textContent = fact ? fact.about : 'Jensen-Shannon divergence of what the heads attend to.';
  };

  // Search

  const find = () => {
    const {hits, said, inOrder} = search(box.value), shown = hits ?? [];
    state.hits = hits;
    results.replaceChildren(...shown.slice(0, MOST_FOUND).map(({head, why}) => {
      const one = el('button', {type: 'button', 'data-head': d.name(head)}, el('b', {},
        d.name(head)), el('span', {}, why.slice(0, 2).join('; ')));
      one.addEventListener('click', () => act.open(head, true));
      return el('li', {}, one);
    }));
    results.hidden = !shown.length;
    status.textContent = said ? said : hits === null ? '' : !hits.length ? 'No head is known by ' +
      'that. Try a relation (dobj, subject), a type (vertical), a role (delimiter), or a name ' +
      '(8-10).' : hits.length === 1 ? '1 head' : hits.length <= MOST_FOUND ?
      `${hits.length} heads, ${inOrder ? 'in order' : 'best first'}` :
      `${hits.length} heads; the ${inOrder ? 'first' : 'best'} ${MOST_FOUND}:`;
    paint();
  };
  box.addEventListener('input', find);
  box.addEventListener('keydown', event => {
    if (event.key === 'Enter' && state.hits?.length) act.open(state.hits[0].head, true);
    if (event.key === 'ArrowDown') { event.preventDefault(); results.querySelector('button')?.focus(); }
  });
  results.addEventListener('keydown', event => {
    const all = [...results.querySelectorAll('button')], at = all.indexOf(event.target);
    const by = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (!by) return;
    event.preventDefault();
    (all[at + by] ?? (by < 0 ? box : all[at])).focus();
  });

  // The card

  const show = () => {
    const {head} = state;
    name.textContent = `Head ${d.name(head)}`;
    whose.textContent = `layer ${Math.floor(head / d.heads) + 1}, head ${head % d.heads + 1} ` +
      `of ${d.model}`;
    sentence.textContent = d.summary(head);
    top.replaceChildren(...[portraitOf(d, head), neighboursOf(d, head, act)].filter(Boolean));
    groups.replaceChildren(...factGroups(d, head, act));
    examples?.show(head);
    paint();
    figure.dataset.open = d.name(head);
  };

  figure.addEventListener('keydown', event => {
    if (event.key !== 'Tab') event.stopPropagation();  // a notebook has shortcuts of its own
    if (event.key === 'Escape' && box.value) { box.value = ''; find(); box.focus(); }
    toSearch(event);
  });
  const toSearch = event => {
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey ||
        /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    event.preventDefault(); box.focus(); box.select();
  };
  if (owner) {
    document.addEventListener('keydown', event => {
      if (!figure.contains(event.target)) toSearch(event);
    });
    window.addEventListener('popstate', () => {
      const asked = fromAddress();
      if (asked) follow(asked);
    });
  }
  find();
  follow(owner ? fromAddress() : null);
};
document.querySelectorAll('figure.attn-atlas:not([data-awake])').forEach(wakeAtlas);
