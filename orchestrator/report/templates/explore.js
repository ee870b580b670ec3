"use strict";
const unpack = (text) => new Float32Array(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
const make = (name, attributes, parent, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return parent.appendChild(made);
};
const short = (value) => (Number.isFinite(value) ? String(Number(value.toPrecision(3))) : "-");
const WIDE = 460, HIGH = 340, LEFT = 84, RIGHT = 12, TOP = 10, BOTTOM = 44;

// Where a value lies between 0 and 1, and the ticks, of the values of one axis.
function scaled(values, { log, whole, choices }) {
  if (choices) return { at: (value) => (value + 0.5) / choices.length, ticks: choices.map((name, i) => [i, name]) };
  const scale = log ? Math.log10 : (value) => value, seen = [...values].map(scale).filter(Number.isFinite);
  let low = seen.reduce((a, b) => Math.min(a, b), Infinity), high = seen.reduce((a, b) => Math.max(a, b), -Infinity);
  if (!seen.length) [low, high] = [0, 1];
  const room = whole && !log ? 0.5 : (high - low || 1) * 0.04;
  [low, high] = [low - room, high + room];
  const power = 10 ** Math.floor(Math.log10((high - low) / 4));
  let step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= (high - low) / 5);
  if (log || whole) step = Math.max(1, Math.ceil(step));
  const ticks = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) ticks.push([log ? 10 ** at : at, short(log ? 10 ** at : at)]);
  if (log && ticks.length < 2) for (const end of [low + room, high - room]) ticks.push([10 ** end, short(10 ** end)]);
  return { at: (value) => (scale(value) - low) / (high - low), ticks };
}

function frame(holder, x, y, names) {
  holder.replaceChildren();
  const svg = make("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, role: "img", "aria-label": names.join(" by ") }, holder);
  const place = (a, b) => [LEFT + x.at(a) * (WIDE - LEFT - RIGHT), TOP + (1 - y.at(b)) * (HIGH - TOP - BOTTOM)];
  const thin = (ticks) => ticks.filter((_, i) => i % Math.ceil(ticks.length / 8) === 0);
  const mark = (cx, cy, anchor, text, most) => make("text", { x: cx, y: cy, "text-anchor": anchor, class: "soft" }, svg, text.slice(0, most));
  for (const [value, text] of thin(x.ticks)) mark(LEFT + x.at(value) * (WIDE - LEFT - RIGHT), HIGH - BOTTOM + 15, "middle", text, 60 / thin(x.ticks).length);
  for (const [value, text] of thin(y.ticks)) mark(LEFT - 5, TOP + (1 - y.at(value)) * (HIGH - TOP - BOTTOM) + 4, "end", text, 11);
  make("path", { d: `M${LEFT} ${TOP}V${HIGH - BOTTOM}H${WIDE - RIGHT}`, fill: "none", class: "edge" }, svg);
  make("text", { x: (LEFT + WIDE) / 2, y: HIGH - 8, "text-anchor": "middle" }, svg, names[0]);
  make("text", { x: 12, y: HIGH / 2, "text-anchor": "middle", transform: `rotate(-90 12 ${HIGH / 2})` }, svg, names[1]);
  return [svg, place];
}

for (const root of document.querySelectorAll(".explore")) {
  const data = JSON.parse(root.querySelector("script").textContent), { axes, outcomes, trials, steps } = data;
  for (const axis of axes) axis.numbers = unpack(axis.values);
  const counts = unpack(data.counts), rows = unpack(data.rows), losses = unpack(data.losses), n = outcomes.length;
  const [across, up, colour] = root.querySelectorAll("select"), said = root.querySelector(".said"), of = root.querySelector(".of");
  const fill = (select, names, chosen) => { names.forEach((name, i) => select.add(new Option(name, i, i === chosen, i === chosen))); select.onchange = draw; };
  const share = (i, o) => counts[i * n + o] / outcomes.reduce((sum, _, each) => sum + counts[i * n + each], 0);
  const tell = (i) => `Trial ${trials[i]}: ` + axes.map((axis) => `${axis.label} ${axis.choices ? axis.choices[axis.numbers[i]] : short(axis.numbers[i])}`).join(", ")
    + " | " + outcomes.map(([name], o) => [counts[i * n + o], name]).filter(([k]) => k).map(([k, name]) => `${k} ${name}`).join(", ");
  const spread = (axis, i, factor) => axis.numbers[i] + (axis.choices || axis.whole ? ((i * factor) % 1 - 0.5) * 0.5 : 0);
  function draw() {
    const x = axes[across.value], y = axes[up.value], by = Number(colour.value);
    const [svg, place] = frame(root.querySelector(".plane"), scaled(x.numbers, x), scaled(y.numbers, y), [x.label, y.label]);
    trials.forEach((_, i) => {
      const [cx, cy] = place(spread(x, i, 0.7549), spread(y, i, 0.5698)), most = outcomes.reduce((best, _, o) => (share(i, o) > share(i, best) ? o : best), 0);
      if (!Number.isFinite(cx + cy)) return;
      const look = by ? { fill: outcomes[by - 1][1], "fill-opacity": 0.04 + 0.96 * share(i, by - 1) } : { fill: outcomes[most][1], "fill-opacity": 0.85 };
      make("circle", { cx, cy, r: trials.length > 1000 ? 2.5 : 4, class: "edge", "stroke-width": 0.5, "data-trial": i, ...look }, svg);
    });
  }
  function show(i) {
    const mine = [...Array(rows.length / 3).keys()].filter((row) => rows[3 * row] === i);
    const x = scaled(steps.map((step) => step + 1), { log: steps.length > 1 && steps.at(-1) > 10 });
    const values = mine.flatMap((row) => [...losses.slice(row * steps.length, (row + 1) * steps.length)]);
    const [svg, place] = frame(root.querySelector(".curves"), x, scaled(values, { log: values.every((value) => !(value <= 0)) }), ["optimizer steps + 1", "evaluation loss"]);
    for (const row of mine) {
      const points = steps.map((step, at) => place(step + 1, losses[row * steps.length + at])).filter(([, b]) => Number.isFinite(b));
      make("title", {}, make("polyline", { points: points.join(" "), fill: "none", stroke: outcomes[rows[3 * row + 2]][1], "stroke-width": 1.8 }, svg), `replicate ${rows[3 * row + 1]}: ${outcomes[rows[3 * row + 2]][0]}`);
    }
    of.textContent = tell(i);
  }
  const names = axes.map((axis) => axis.label);
  fill(across, names, 0), fill(up, names, names.length > 2 ? 1 : names.length - 1), fill(colour, ["most frequent outcome", ...outcomes.map(([name]) => `share ${name}`)], 0);
  root.addEventListener("mouseover", ({ target }) => target.dataset.trial && (said.textContent = tell(target.dataset.trial)));
  root.addEventListener("click", ({ target }) => target.dataset.trial && show(Number(target.dataset.trial)));
  draw(), show(0);
}
