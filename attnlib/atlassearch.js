// Search in the atlas: a question in words, and the heads that answer it with the reasons. What
// can be asked for (topics), and which words mean the same, comes with the data.
const searcher = d => {
  const stem = word => word.length > 3 && /[^su]s$/.test(word) ? word.slice(0, -1) : word;
  const wordsOf = text => (text.toLowerCase().match(/[\p{L}\p{N}]+/gu) ?? []).map(stem);
  const ignored = new Set(wordsOf(d.ignored)), soft = new Set(wordsOf(d.soft));
  const known = d.topics.map(topic => ({words: [...new Set(wordsOf(topic.words))],
    also: [...new Set(wordsOf(topic.also))], why: topic.why ? topic.why.split('\n') : null}));

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
  const found = (asked, t) => Math.max(0, ...known[t].words.map(word => likeness(asked, word)),
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

  return question => {
    let text = question.trim(), layers = null;
    if (!text) return null;
    text = text.replace(/\blayers?\s*(\d+)(?:\s*(?:-|–|to)\s*(\d+))?/i, (_, from, to) => {
      layers = [Number(from), Number(to ?? from)];
      return ' ';
    });
    const within = head => !layers || (Math.floor(head / d.heads) + 1 >= layers[0] &&
      Math.floor(head / d.heads) + 1 <= layers[1]);
    const named = text.match(/(?:^|\s)(\d+)\s*[-–./]\s*(\d+)(?=\s|$)/);
    if (named && !layers) {
      const [layer, number] = [Number(named[1]), Number(named[2])];
      return layer >= 1 && layer <= d.layers && number >= 1 && number <= d.heads ?
        [{head: (layer - 1) * d.heads + number - 1, why: ['the head of this name']}] : [];
    }
    const asked = wordsOf(text).filter(word => !ignored.has(word));
    if (!asked.length) return layers ? d.summaries.map((_, head) => head).filter(within).map(head =>
      ({head, why: [d.summaries[head].split('. ')[0]]})) : [];
    return [...scored(asked)].filter(([head]) => within(head)).sort((a, b) =>
      b[1].score - a[1].score || a[0] - b[0]).map(([head, {why}]) => ({head, why}));
  };
};
