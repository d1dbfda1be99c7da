"""Questions to a page, in its own language."""

COLOUR = """
function colour(name) {  // a variable of the style sheet as the browser computes it
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(--${name})`;
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
"""
CONTRAST = """
(() => {
  const light = text => {
    const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
    const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(v => linear(v / 255));
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const clear = text => /^rgba\\(.*, 0\\)$/.test(text) || text === "none";
  const paper = element => {
    for (let at = element; at; at = at.parentElement) {
      const node = at.matches(".node");
      const box = node ? getComputedStyle(at.querySelector(".box")).fill : getComputedStyle(at).backgroundColor;
      if (!clear(box)) return box;
    }
    return "rgb(255, 255, 255)";
  };
  const poor = [];
  for (const element of document.body.querySelectorAll("*")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.matches("script, style, noscript")) continue;
    const svg = element instanceof SVGElement, style = getComputedStyle(element);
    const [a, b] = [light(svg ? style.fill : style.color), light(paper(element))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5) poor.push(`${element.tagName} ${element.textContent.trim().slice(0, 30)}`);
  }
  return poor;
})()
"""
"""Texts that can hardly be read on what is behind them: a contrast below 4.5, which WCAG asks for."""
TOO_WIDE = """
(() => {
  const own = at => ["auto", "scroll"].includes(getComputedStyle(at).overflowX);
  const scrolls = at => at && (own(at) || scrolls(at.parentElement));
  const found = document.documentElement.scrollWidth > innerWidth ? ["the page"] : [];
  for (const element of document.body.querySelectorAll("*")) {
    if (!element.checkVisibility() || scrolls(element.parentElement)) continue;
    const box = element.getBoundingClientRect();
    const beyond = box.right > innerWidth + .5 || box.left < -.5;
    if (box.width && beyond) found.push(`${element.tagName}.${element.className}`);
  }
  return found;
})()
"""
"""What reaches beyond the window and cannot be scrolled to inside its own frame."""
