(() => {
  const box = document.querySelector('.attn-ledger'), rows = [...box.querySelectorAll('tbody tr')];
  const words = box.querySelector('input'), told = box.querySelector('[role=status]');
  const buttons = [...box.querySelectorAll('button[data-kind]')];
  const texts = rows.map(row => row.textContent.toLowerCase());
  const chosen = kind => buttons.filter(one => one.dataset.kind === kind &&
    one.getAttribute('aria-pressed') === 'true').map(one => one.dataset.value);
  const filter = () => {
    const papers = chosen('paper'), verdicts = chosen('verdict');
    const asked = words.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    rows.forEach((row, i) => {
      const fits = (!papers.length || papers.includes(row.dataset.paper)) &&
        (!verdicts.length || verdicts.includes(row.dataset.verdict)) &&
        asked.every(word => texts[i].includes(word));
      row.hidden = !fits; left += fits;
    });
    told.textContent = `${left} of ${rows.length} claims`;
    const state = new URLSearchParams();
    papers.forEach(one => state.append('paper', one));
    verdicts.forEach(one => state.append('verdict', one));
    if (words.value.trim()) state.set('words', words.value.trim());
    history.replaceState(null, '', '#' + state);  // from disk only the fragment may change
  };
  const state = new URLSearchParams(location.search || location.hash.slice(1));
  buttons.forEach(one => {
    if (state.getAll(one.dataset.kind).includes(one.dataset.value))
      one.setAttribute('aria-pressed', 'true');
    one.onclick = () => {
      one.setAttribute('aria-pressed', String(one.getAttribute('aria-pressed') !== 'true'));
      filter();
    };
  });
  words.value = state.get('words') || '';
  words.oninput = filter;
  box.querySelector('.clear').onclick = () => {
    buttons.forEach(one => one.setAttribute('aria-pressed', 'false'));
    words.value = ''; filter();
  };
  box.querySelector('.filters').hidden = false;
  filter();
})();
