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
