// Search in the atlas: a question in words, and the heads that answer it with the reasons. What
// can be asked for (topics), and which words mean the same, comes with the data.
const searcher = d => {
  const stem = word => word.length > 3 && /[^su]s$/.test(word) ? word.slice(0, -1) : word;
  const wordsOf = text => (text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).map(stem);
  const ignored = new Set(wordsOf(d.ignored)), soft = new Set(wordsOf(d.soft));
  const known = d.topics.map(topic => ({words: [...new Set(wordsOf(topic.words))],
    also: [...new Set(wordsOf(topic.also))], why: topic.why ? topic.why.split('\n') : null}));

  // `not needed` and `without a role` are names of topics: there, two words are asked for as one.
  const articles = new Set(['a', 'an', 'the', 'any']);
  const bare = text => wordsOf(text).filter(word => !articles.has(word));
  const phrases = d.topics.map(topic => `${topic.words},${topic.also}`.split(',').map(phrase =>
    ` ${bare(phrase).join(' ')} `));
  const says = (pair, t) => phrases[t].some(phrase => phrase.includes(` ${pair} `));
  const joined = (word, next) => /^(not?|without)$/.test(word) && next && !ignored.has(next) &&
    phrases.some((_, t) => says(`${word} ${next}`, t));
  const unitsOf = text => {
    const words = bare(text);
    return words.flatMap((word, i) => joined(word, words[i + 1]) ? [`${word} ${words[i + 1]}`] :
      joined(words[i - 1] ?? '', word) || ignored.has(word) ? [] : [word]);
  };

  const oneEditApart = (a, b) => {  // one letter more, less, or another, or two swapped
    if (Math.abs(a.length - b.length) > 1 || a[0] !== b[0]) return false;
    let i = 0;
    while (i < a.length && a[i] === b[i]) i++;
    return a.slice(i + 1) === b.slice(i + 1) || a.slice(i) === b.slice(i + 1) ||
      a.slice(i + 1) === b.slice(i) ||
      (a[i] === b[i + 1] && a[i + 1] === b[i] && a.slice(i + 2) === b.slice(i + 2));
  };
  const likeness = (asked, word) => asked === word ? 1 :
    asked.length > 2 && word.startsWith(asked) ? .8 :
    word.length > 4 && asked.startsWith(word) ? .7 :
    asked.length > 4 && oneEditApart(asked, word) ? .5 : 0;
  const found = (asked, t) => asked.includes(' ') ? Number(says(asked, t)) :
    Math.max(0, ...known[t].words.map(word => likeness(asked, word)),
    ...known[t].also.map(word => .7 * likeness(asked, word)));

  // A question of several words: topics that know them all, and if there are none, heads that
  // answer each word by some topic or other.
  const scored = asked => {
    const must = asked.filter(word => !soft.has(word)), may = asked.filter(word => soft.has(word));
    const words = must.length ? must : may, all = d.topics.map((_, t) => t);
    const score = t => {
      const parts = words.map(word => found(word, t));
      return Math.min(...parts) > 0 ? exact(t) * parts.reduce((a, b) => a + b) / parts.length +
        .1 * may.filter(word => found(word, t)).length : 0;
    };
    // `vertical` answers vertical better than `dense&vertical` does.
    const exact = t => .8 + .2 * asked.filter(word => known[t].words.includes(word)).length /
      known[t].words.length;
    const close = (list, value) => {
      const best = Math.max(0, ...list.map(value));
      return best ? list.filter(t => value(t) >= .75 * best) : [];
    };
    const whole = close(all, score);
    if (whole.length) return answers(whole.map(t => [t, score(t)]));
    const apart = words.map(word => {
      const value = t => exact(t) * found(word, t);
      return answers(close(all, value).map(t => [t, value(t)]));
    });
    if (apart.some(one => !one.size)) return new Map();
    const both = new Map();
    for (const [head, first] of apart[0]) {
      const others = apart.slice(1).map(one => one.get(head));
      if (others.every(Boolean)) both.set(head, {score: others.reduce((sum, one) =>
        sum + one.score, first.score), why: [first, ...others].flatMap(one => one.why.slice(0, 1))});
    }
    return both;
  };
  const answers = list => {
    const heads = new Map();
    list.sort((a, b) => b[1] - a[1]).forEach(([t, score]) => {
      const topic = d.topics[t];
      topic.heads.forEach((head, rank) => {
        const one = heads.get(head) ?? {score: 0, why: []};
        one.score += score * (1 - .5 * rank / topic.heads.length);
        const why = topic.fact === null ? known[t].why[rank] : d.facts[topic.fact].told(head);
        if (!one.why.includes(why)) one.why.push(why);
        heads.set(head, one);
      });
    });
    return heads;
  };

  // What a question names by number: a head (8-10, 8 10, L8H10, layer 8 head 10), or some layers.
  const NAMES = [/\bl(?:ayer)?\s*(\d+)\s*[-–,.;]?\s*h(?:ead)?\s*(\d+)\b/i,
    /\bh(?:ead)?\s*(?<head>\d+)\s*(?:,|of|in)?\s*l(?:ayer)?\s*(?<layer>\d+)\b/i,
    /^\s*(?:heads?\s+)?(\d+)[\s,]+(\d+)\s*$/i, /(?:^|\s)(\d+)\s*[-–./:]\s*(\d+)(?=\s|$)/];
  const LAYERS = /\blayers?\s*(\d+)(?:\s*(?:-|–|to)\s*(\d+))?/i;
  const named = text => {
    const match = NAMES.map(name => text.match(name)).find(Boolean);
    return match ? `${match.groups?.layer ?? match[1]}-${match.groups?.head ?? match[2]}` : null;
  };

  // The search knows no `not`: `not vertical` would list what is vertical.
  const NOT = /(?<!\p{L})(?:not?|non|without|never|except|cannot|\p{L}+n[’']t)(?!\p{L})/iu;
  const ITSELF = /^\s*(?:the\s+|this\s+|a\s+)?(?:it|them|head)(?![\p{L}\p{N}-])(?!\s+\d)/iu;
  const refused = text => {  // the first `not` that no topic knows, and what it stands before
    for (let rest = text, match; (match = rest.match(NOT)); ) {
      const [no] = match, before = bare(rest.slice(0, match.index)).at(-1);
      rest = rest.slice(match.index + no.length);
      const [after] = bare(rest), word = no.toLowerCase();
      const ends = phrases.flat().some(phrase => phrase.endsWith(` ${before} ${word} `));
      // `better without` says all, and `without it` speaks of a head that was disabled.
      if (after && !joined(word, after) && !ends && !(word === 'without' && ITSELF.test(rest)))
        return {no, rest};
    }
    return null;
  };
  const refusal = ({no, rest}) => {
    const words = rest.replace(/^[\s-]+/, '').trim().split(/\s+/);
    const from = words.findIndex(word => !wordsOf(word).every(part => ignored.has(part)));
    const telling = wordsOf(rest).some(word => !ignored.has(word) && !soft.has(word));
    return `The search knows no “${no}”; ask for ` + (telling ?
      `“${words.slice(from).join(' ')}”, and the other heads turn pale.` : 'what a head has or does.');
  };

  // A reason is told once: `dobj 59.7 %` is also in the brackets of `best at dobj (dobj 59.7 %)`.
  // But another that only begins alike is another fact: block, and block (by the authors' code).
  const once = why => why.filter(one => !why.some(other => other.indexOf(one) > 0));

  // The heads that answer, or in `said` why there are none; null if nothing is asked.
  return question => {
    const none = said => ({hits: [], said});
    if (!question.trim()) return {hits: null};
    const not = refused(question);
    if (not) return none(refusal(not));
    const layers = LAYERS.test(question) && !NAMES.slice(0, 2).some(name => name.test(question)) ?
      question.match(LAYERS).slice(1).filter(Boolean).map(Number) : null;
    if (!layers && named(question)) {
      const name = named(question), head = d.headNamed(name), why = ['the head of this name'];
      return head === null ? none(d.noHead(name)) : {hits: [{head, why}]};
    }
    const beyond = layers?.find(layer => layer < 1 || layer > d.layers);
    if (beyond !== undefined)
      return none(`There is no layer ${beyond}; this model has 1 to ${d.layers}.`);
    const within = head => !layers || (Math.floor(head / d.heads) + 1 >= Math.min(...layers) &&
      Math.floor(head / d.heads) + 1 <= Math.max(...layers));
    const asked = unitsOf(layers ? question.replace(LAYERS, ' ') : question);
    if (!asked.length) return layers ? {inOrder: true, hits: d.summaries.map((_, head) =>
      head).filter(within).map(head => ({head, why: d.summaries[head].slice(0, 1)}))} : none();
    return {hits: [...scored(asked)].filter(([head]) => within(head)).sort((a, b) =>
      b[1].score - a[1].score || a[0] - b[0]).map(([head, {why}]) => ({head, why: once(why)}))};
  };
};
