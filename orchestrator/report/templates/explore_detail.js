// Shows one trial: its parameters and outcomes. A training that is shown in full has its curve and head roles too.

function makeTable(heads, rows, className) {
  const cells = (tag, texts) => make("tr", {}, ...texts.map((each) => make(tag, tag === "td" ? { class: "n" } : {}, each)));
  return make("div", { class: "scroll" }, make("table", { class: className },
    make("thead", {}, cells("th", heads)), make("tbody", {}, ...rows.map((row) => cells("td", row)))));
}

function makeCommand(text) {
  const pre = make("pre", { class: "command" }, text);
  const button = make("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      // Some browsers forbid a page from a file to write to the clipboard: select the text instead.
      getSelection().selectAllChildren(pre);
      button.textContent = "Marked";
    }
  });
  return make("div", { class: "copied" }, pre, button);
}

function makeSvg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function drawCurve(sweep, { outcome, curve }) {
  const [width, height, left, room] = [320, 130, 52, 8];
  const scale = (outcome === "diverged" ? null : sharedLosses(sweep)) ?? scaleLosses(curve.map(([, loss]) => loss), []);
  const [from, to] = [curve[0], curve[curve.length - 1]];
  const up = (place) => height - room - Math.min(Math.max(place, 0), 1) * (height - 2 * room);
  const points = curve.map(([step, loss]) => `${left + (step / (to[0] || 1)) * (width - left - room)},${up(scale.place(loss))}`);
  const words = `evaluation loss from ${shown(from[1])} at step ${from[0]} to ${shown(to[1])} at step ${to[0]}`;
  const drawing = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words },
    ...scale.ticks.map(([place, label]) => makeSvg("text", { x: left - 6, y: up(place) + 4 }, label)),
    makeSvg("polyline", { points: points.join(" ") }));
  const note = outcome === "diverged" ? "" : "; the axis is the same for all trainings that did not diverge";
  return make("div", { class: "curve" }, drawing, make("figcaption", { class: "note" }, words + note));
}

function showTraining(sweep, name, host) {
  const words = (verb) => `attnsweep ${verb} ${sweep.place} ${name}`;
  host.replaceChildren(make("h3", {}, `Training ${name}`));
  const sample = sweep.samples.get(name);
  if (sample && sample.curve.length) host.append(drawCurve(sweep, sample));
  if (sample && sample.roles.length) {
    host.append(make("p", { class: "note" }, "Roles of the heads at the last probe:"));
    host.append(makeTable(["layer", "heads in their order"], sample.roles.map(([layer, roles]) => [String(layer), roles.join(", ")]), "head-roles"));
  }
  if (sweep.heads) host.append(makeHeads(sweep, name));
  if (!sample) {
    const [trial, replicate] = name.split("/");
    const sql = `select step, value from curves where trial = ${trial} and replicate = ${replicate} and metric = 'eval_loss' order by step`;
    host.append(make("p", { class: "note" }, "Its curve is not in this page; the ledger has it:"));
    host.append(makeCommand(`attnsweep query ${sweep.place} "${sql}"`));
  }
  host.append(make("p", { class: "note" }, "Train it again, and ask why it ended so:"));
  host.append(makeCommand(words("replay")), makeCommand(words("why")));
}

function showTrial(sweep, at, host, wanted) {
  const training = make("div", { class: "training" });
  const rows = [];
  for (let one = sweep.first[at]; one < sweep.first[at + 1]; one += 1) {
    const name = `${sweep.trial[at]}/${sweep.replicate[one]}`;
    const button = make("button", { type: "button" }, String(sweep.replicate[one]));
    button.addEventListener("click", () => showTraining(sweep, name, training));
    const full = sweep.samples.has(name) ? "in full" : "";
    rows.push([button, sweep.outcomes[sweep.outcome[one]].name, sweep.details[sweep.detail[one]], shown(sweep.loss[one]), full]);
  }
  const facts = make("dl", { class: "facts" }, ...sweep.axes.map((axis) => make("div", {}, make("dt", {}, axis.name), make("dd", {}, axisText(axis, at)))));
  const table = makeTable(["replicate", "outcome", "detail", "evaluation loss", "curve"], rows, "replicates");
  host.replaceChildren(make("h3", {}, `Trial ${sweep.trial[at]}`), facts, table, training);
  makeSortable(table.querySelector("table"));
  const names = Array.from({ length: sweep.size[at] }, (_, one) => `${sweep.trial[at]}/${sweep.replicate[sweep.first[at] + one]}`);
  showTraining(sweep, wanted ?? names.find((name) => sweep.samples.has(name)) ?? names[0], training);
}

// The attention maps of one training: a canvas for each head. Pointing at a cell shows its tokens and weight.

const [WIDEST_MAP, LARGEST_CELL] = [176, 14];

// A cell's opacity is its weight relative to the largest of the layer; negative weights have another colour.
function drawMap(canvas, weights, most) {
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(canvas.width, canvas.height);
  const style = getComputedStyle(document.documentElement);
  const [more, less] = ["--mark", "--against"].map((name) => channels(style.getPropertyValue(name).trim()));
  weights.forEach((weight, at) => {
    image.data.set([...(weight < 0 ? less : more), Math.round((255 * Math.abs(weight)) / most)], 4 * at);
  });
  pen.putImageData(image, 0, 0);
}

function makeMap(layer, head, told) {
  const [rows, columns] = [layer.queries.length, layer.keys.length];
  const weights = unpack(head.weights);
  const most = weights instanceof Int8Array ? 127 : 255;
  const words = (at) => {
    const [query, key] = [layer.queries[Math.floor(at / columns)], layer.keys[at % columns]];
    return `${query} → ${key}: ${Number((weights[at] * layer.unit).toPrecision(2))}`;
  };
  const strongest = weights.reduce((best, weight, at) => (Math.abs(weight) > Math.abs(weights[best]) ? at : best), 0);
  const canvas = make("canvas", { class: "head-map", role: "img", width: String(columns), height: String(rows) });
  canvas.setAttribute("aria-label", `${layer.title}, head ${head.title}; strongest ${words(strongest)}`);
  const cell = Math.min(LARGEST_CELL, WIDEST_MAP / columns);
  canvas.style.width = `${columns * cell}px`;
  canvas.style.height = `${rows * cell}px`;
  canvas.draw = () => drawMap(canvas, weights, most);
  canvas.draw();
  const tell = (event) => {
    const box = canvas.getBoundingClientRect();
    const part = (from, length, n) => Math.min(n - 1, Math.max(0, Math.floor((n * from) / length)));
    const row = part(event.clientY - box.top - canvas.clientTop, canvas.clientHeight, rows);
    const column = part(event.clientX - box.left - canvas.clientLeft, canvas.clientWidth, columns);
    told.textContent = `head ${head.title}: ${words(row * columns + column)}`;
  };
  canvas.addEventListener("pointermove", tell);
  canvas.addEventListener("pointerdown", tell);
  return make("figure", {}, canvas, make("figcaption", { class: "note" }, head.title));
}

function makeHeads(sweep, name) {
  const maps = sweep.maps.get(name);
  const command = makeCommand(`attnsweep heads ${sweep.place} ${name}`);
  if (!maps) {
    return make("div", { class: "heads" }, make("p", { class: "note" }, "Its attention maps are not in this page; this command replays the training and draws them:"), command);
  }
  const isSigned = maps.layers.some((layer) => layer.heads.some((head) => head.weights.type === "i1"));
  const parts = maps.layers.flatMap((layer) => {
    const told = make("p", { class: "note told" }, "Rest the pointer on a cell: query → key, weight.");
    const figures = layer.heads.map((head) => makeMap(layer, head, told));
    return [make("h4", {}, layer.title), make("div", { class: "head-maps" }, ...figures), told];
  });
  return make("div", { class: "heads" }, make("h4", {}, "Attention maps where it ended"),
    make("p", { class: "note" }, `${maps.text}. Rows are queries, columns keys; the stronger the colour, the larger the weight, up to the largest of the layer${isSigned ? "; negative weights have another colour" : ""}. Below each: the head, its role, and the structure that it is nearest to, if any.`),
    ...parts, make("p", { class: "note" }, "As a figure, with the tokens beside it:"), command);
}
