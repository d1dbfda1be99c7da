// Draws what `layout` placed. Texts of the model go into the page as text nodes only, never as markup.

const SVG = "http://www.w3.org/2000/svg", PHASES = ["draft", "score", "verify", "commit"], BOX = 21;
const data = JSON.parse(document.getElementById("data").textContent);
const steps = data.steps, tokens = data.tokens;
const plans = steps.map(step => layout(step, tokens)), spans = gained(steps);
const [strip, list, text, tip, where, only] = ["strip", "steps", "text", "tip", "where", "only"].map(id => document.getElementById(id));
const timed = steps.filter(step => !step.read);
const slowest = Math.max(1e-9, ...(timed.length ? timed : steps).map(total));
const cards = [], pieces = steps.map(() => []);
let now = 0;

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  element.append(...children);
  return element;
}

function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  element.append(...children);
  return element;
}

function phaseBars(step, scale) {
  const parts = PHASES.filter(phase => step.ms[phase]).map(phase => [phase, step.ms[phase]]);
  return parts.map(([phase, ms]) => {
    const bar = make("i", { class: "t-" + phase, title: `${phase} ${ms.toFixed(2)} ms` });
    bar.style.width = 100 * ms / scale + "%";
    return bar;
  });
}

function head(i) {
  const step = steps[i];
  const ms = total(step);
  const read = step.read ? ` · read ${step.read} of the prompt` : "";
  return make("div", { class: "head" },
    make("b", {}, `step ${i + 1}`), make("span", {}, places(spans[i])), make("span", { class: "said" }, guesses(step)),
    make("span", {}, `+${step.gain}`),
    make("span", { class: "time" }, ...(ms ? phaseBars(step, Math.max(slowest, ms)) : [])),
    make("span", { class: "ms" }, (ms ? ms.toFixed(1) + " ms" : "not timed") + read));
}

function tree(i) {
  const plan = plans[i];
  const svg = draw("svg", { class: "tree", width: plan.width, height: plan.height, role: "img",
    "aria-label": `Tree of step ${i + 1}` });
  for (const line of plan.lines) {
    const a = plan.boxes[line.from], b = plan.boxes[line.to];
    const x = a.x + a.w, y = a.y + BOX / 2, z = b.y + BOX / 2, bend = b.x - GAP / 2;
    svg.append(draw("path", { d: `M${x} ${y}H${bend - GAP / 4}C${bend} ${y} ${bend} ${z} ${b.x} ${z}`, class: line.on ? "edge on" : "edge" }));
  }
  for (const box of plan.boxes) {
    if (!box) continue;
    const group = draw("g", { class: `node f-${box.kind}`, transform: `translate(${box.x} ${box.y})`, "data-step": i,
      "data-node": box.i, tabindex: i === now ? 0 : -1 },
      draw("rect", { class: "box", width: box.w, height: BOX, rx: 4 }),
      draw("text", { x: PAD, y: 15 }, box.text));
    if (box.p !== null) group.append(draw("rect", { class: "bar", x: 0, y: BOX + 1, width: box.w * Math.min(1, box.p), height: 2 }));
    svg.append(group);
  }
  return svg;
}

function fill(card) {
  if (card.firstChild) return;
  const i = Number(card.dataset.step);
  card.append(head(i), make("div", { class: "scroll" }, tree(i)));
}

const watcher = new IntersectionObserver(entries => {
  for (const entry of entries) {
    if (entry.isIntersecting) fill(entry.target);
    else entry.target.replaceChildren();
  }
}, { rootMargin: "900px 0px" });

function lay() {
  steps.forEach((step, i) => {
    const card = make("section", { class: "step", "data-step": i, "aria-label": `Step ${i + 1}` });
    card.style.height = `calc(var(--head) + ${plans[i].height + 16}px)`; // 16: a bar to scroll with
    cards.push(card);
    watcher.observe(card);
  });
  list.append(...cards);
  data.words.forEach(([piece, , step, drafted]) => {
    const span = make("span", { "data-step": step, class: drafted ? "d" : "" }, piece);
    pieces[step].push(span);
    text.append(span);
  });
}

function columns(height, base, of) {
  return steps.map((step, i) => {
    const h = of(step) * height;
    return h > 0 ? `M${i} ${base(step) - h}h.86v${h}h-.86z` : "";
  }).join("");
}

function overview() {
  const most = Math.max(1, ...steps.map(step => step.guessed)), up = 42 / most;
  strip.setAttribute("viewBox", `0 0 ${steps.length} 76`);
  const shapes = [
    ["var(--refused)", 0.55, columns(up, step => 44 - up * step.stood, step => step.guessed - step.stood)],
    ["var(--stood)", 1, columns(up, () => 44, step => step.stood)],
  ];
  const below = new Map(steps.map(step => [step, 76]));
  const scale = step => 28 / Math.max(slowest, total(step));
  for (const phase of PHASES) {
    const d = columns(1, step => below.get(step), step => scale(step) * (step.ms[phase] || 0));
    steps.forEach(step => below.set(step, below.get(step) - scale(step) * (step.ms[phase] || 0)));
    shapes.push([`var(--${phase})`, 1, d]);
  }
  for (const [fill, opacity, d] of shapes) {
    const path = draw("path", { d, "fill-opacity": opacity });
    path.style.fill = fill;
    strip.append(path);
  }
  strip.append(draw("rect", { class: "cursor", y: 0, width: 1, height: 76 }));
  strip.setAttribute("aria-valuemin", 1);
  strip.setAttribute("aria-valuemax", steps.length);
}

// Only the nodes of the step one is at are stops of the Tab key: there may be thousands.
function reachable(i, tabindex) {
  for (const node of cards[i].querySelectorAll("[data-node]")) node.setAttribute("tabindex", tabindex);
}

function go(i, scroll = true) {
  for (const element of [cards[now], ...pieces[now]]) element.classList.remove("now");
  reachable(now, -1);
  now = Math.max(0, Math.min(steps.length - 1, i));
  for (const element of [cards[now], ...pieces[now]]) element.classList.add("now");
  reachable(now, 0);
  strip.querySelector(".cursor").setAttribute("x", now);
  strip.setAttribute("aria-valuenow", now + 1);
  where.textContent = `step ${now + 1} of ${steps.length}, ${places(spans[now])}`;
  if (!scroll) return;
  const bar = document.getElementById("bar");
  const covered = getComputedStyle(bar).position === "sticky" ? bar.offsetHeight : 0;
  window.scrollTo({ top: cards[now].offsetTop - covered - 8 });
  const first = pieces[now][0];
  if (first) text.scrollTop = first.offsetTop - text.offsetTop - 30;
}

function along(by, wanted) {
  for (let i = now + by; i >= 0 && i < steps.length; i += by) {
    if (wanted(steps[i]) && !cards[i].hidden) return go(i);
  }
}

const KEYS = {
  ArrowLeft: () => along(-1, () => true), ArrowRight: () => along(1, () => true),
  p: () => along(-1, refused), n: () => along(1, refused),
  Home: () => go(0), End: () => go(steps.length - 1),
};

function sentences(step, i) {
  if (i === step.nodes.length) return ["the target's own: one token comes free with every step"];
  if (i === 0) return ["the newest token: guesses start behind it"];
  const node = step.nodes[i], next = nextAfter(step, node[PARENT]);
  const taken = next ? `“${tokens[next[0]]}” (p ${share(next[1])})` : "another token";
  return [[
    "stood: the target came to the same token",
    `refused: the target took ${taken} there`,
    "not judged: it hangs below a guess that did not stand",
    "not used: the answer had ended before it",
    "dropped before it was scored: it ends the answer, follows a token that does, or may not be said",
  ][node[FATE]]];
}

function describe(step, i) {
  const own = i === step.nodes.length, node = own ? [step.bonus[0], 0, step.bonus[1], null, null] : step.nodes[i];
  const parts = [make("p", { class: "t" }, `“${tokens[node[TOKEN]]}”`), ...sentences(step, i).map(said => make("p", {}, said))];
  if (i > 0 && node[CHANCE] !== null) parts.push(make("p", {}, `target: p ${share(node[CHANCE])}`));
  if (i > 0 && node[CONFIDENCE] !== null) {
    parts.push(make("p", {}, `drafter: confidence ${share(node[CONFIDENCE])}, entropy ${node[ENTROPY].toFixed(2)} nats`));
  } else if (i > 0 && !own) parts.push(make("p", {}, "the drafter gives no probability"));
  const row = step.rows[i];
  if (row) {
    const lines = row.map(([token, p]) => make("tr", {}, make("td", {}, label(tokens[token])), make("td", {}, share(p))));
    parts.push(make("p", {}, "next, by the target:"), make("table", {}, ...lines));
  }
  return parts;
}

function point(event) {
  const group = event.target.closest ? event.target.closest("[data-node]") : null;
  tip.hidden = !group;
  if (!group) return;
  tip.replaceChildren(...describe(steps[Number(group.dataset.step)], Number(group.dataset.node)));
  const at = group.getBoundingClientRect();
  const left = Math.min(at.left, window.innerWidth - tip.offsetWidth - 12);
  const below = at.bottom + 8 + tip.offsetHeight < window.innerHeight;
  tip.style.left = Math.max(8, left) + "px";
  tip.style.top = (below ? at.bottom + 8 : at.top - 8 - tip.offsetHeight) + "px";
}

function listen() {
  list.addEventListener("pointerover", point);
  list.addEventListener("focusin", point);
  list.addEventListener("pointerleave", () => { tip.hidden = true; });
  list.addEventListener("focusout", () => { tip.hidden = true; });
  window.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });
  strip.addEventListener("click", event => {
    const box = strip.getBoundingClientRect();
    go(Math.floor((event.clientX - box.left) / box.width * steps.length));
  });
  text.addEventListener("click", event => {
    if (event.target.dataset.step !== undefined) go(Number(event.target.dataset.step));
  });
  list.addEventListener("click", event => {
    const card = event.target.closest(".step");
    if (card) go(Number(card.dataset.step), false);
  });
  only.disabled = !steps.some(refused);
  only.addEventListener("change", () => {
    steps.forEach((step, i) => { cards[i].hidden = only.checked && !refused(step); });
    if (cards[now].hidden) {
      const first = steps.findIndex((step, i) => i >= now && !cards[i].hidden);
      if (first >= 0) go(first);
    }
  });
  document.addEventListener("keydown", event => {
    if (event.key === "Escape") tip.hidden = true;
    if (event.ctrlKey || event.metaKey || event.altKey || !KEYS[event.key]) return;
    event.preventDefault();
    KEYS[event.key]();
  });
}

if (steps.length) {
  lay();
  overview();
  listen();
  go(0, false);
}
