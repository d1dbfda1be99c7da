"use strict";
// Where the boxes of a step's tree stand. What the answer gained is the top row; other guesses hang below it.

const ROW = 28, CELL = 7.6, PAD = 8, GAP = 26, LONGEST = 20, MARGIN = 12;
const FATES = ["stood", "refused", "below", "end", "dropped"];
const [TOKEN, PARENT, CHANCE, CONFIDENCE, ENTROPY, FATE] = [0, 1, 2, 3, 4, 5];
const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|[\u{1f000}-\u{1faff}]|[\u{20000}-\u{3fffd}]/u;

function cells(text) {
  let n = 0;
  for (const char of text) n += WIDE.test(char) ? 2 : 1;
  return n;
}

function label(text) {
  const shown = text.replace(/^ +| +$/g, spaces => "␣".repeat(spaces.length));
  if (cells(shown) <= LONGEST) return shown;
  let cut = "";
  for (const char of shown) {
    if (cells(cut + char) >= LONGEST) break;
    cut += char;
  }
  return cut + "…";
}

function childrenOf(step) {
  const children = step.nodes.map(() => []);
  const on = new Set(step.path);
  if (step.bonus) children[step.path.length ? step.path[step.path.length - 1] : 0].push(step.nodes.length);
  step.nodes.forEach((node, i) => {
    if (node[PARENT] < 0) return;
    if (on.has(i)) children[node[PARENT]].unshift(i);
    else children[node[PARENT]].push(i);
  });
  return children;
}

// Boxes {i, x, y, w, text, kind, p}, lines {from, to, on} and the size of the whole; box nodes.length is the bonus.
function layout(step, tokens) {
  const children = childrenOf(step), boxes = [], lines = [], widths = [], on = new Set([0, ...step.path]);
  const bonus = step.nodes.length;
  if (step.bonus) on.add(bonus);
  function place(i, depth, row) {
    const own = i === bonus;
    const text = label(tokens[own ? step.bonus[0] : step.nodes[i][TOKEN]]);
    const kind = own ? "bonus" : i === 0 ? "root" : FATES[step.nodes[i][FATE]];
    const box = { i, depth, row, w: cells(text) * CELL + 2 * PAD, text, kind, p: own ? step.bonus[1] : step.nodes[i][CHANCE] };
    boxes[i] = box;
    widths[depth] = Math.max(widths[depth] || 0, box.w);
    let next = row;
    for (const child of own ? [] : children[i]) {
      const after = place(child, depth + 1, next);
      lines.push({ from: i, to: child, on: on.has(i) && on.has(child) });
      next = after;
    }
    return Math.max(next, row + 1);
  }
  const rows = place(0, 0, 0);
  const lefts = [MARGIN];
  widths.forEach((w, depth) => lefts.push(lefts[depth] + w + GAP));
  for (const box of boxes) {
    box.x = lefts[box.depth];
    box.y = MARGIN + box.row * ROW;
  }
  return { boxes, lines, width: lefts[lefts.length - 1] - GAP + MARGIN, height: rows * ROW + 2 * MARGIN - 6 };
}

function nextAfter(step, node) {
  const at = node === 0 ? 0 : step.path.indexOf(node) + 1;
  if (at < step.path.length) {
    const child = step.nodes[step.path[at]];
    return [child[TOKEN], child[CHANCE]];
  }
  return step.bonus;
}

// Places of the answer's tokens that each step gave, from 1 on: [first, last].
function gained(steps) {
  let before = 0;
  return steps.map(step => [before + 1, before += step.gain]);
}

function places([first, last]) {
  return last < first ? "no token" : first === last ? `token ${first}` : `tokens ${first}–${last}`;
}

function guesses(step) {
  const dropped = step.nodes.length - 1 - step.guessed;
  const said = step.guessed ? `${step.stood} of ${step.guessed} stood` : dropped ? "" : "nothing guessed";
  return [said, dropped ? `${dropped} dropped` : ""].filter(part => part).join(", ");
}

function refused(step) {
  return step.nodes.some(node => node[FATE] === 1);
}

function total(step) {
  return Object.values(step.ms).reduce((sum, ms) => sum + ms, 0);
}

function share(p) {
  if (p === null || p === undefined) return "not known";
  return p >= 0.9995 && p < 1 ? "over 0.999" : p > 0 && p < 0.0005 ? "under 0.001" : p.toFixed(3);
}
