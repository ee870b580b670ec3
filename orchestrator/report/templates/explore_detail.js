// One trial: its parameters and the outcomes of its trainings; of trainings shown in full also curve and head roles.

const SVG = "http://www.w3.org/2000/svg";

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

function drawCurve(curve) {
  const [width, height, room] = [320, 130, 6];
  const isLog = curve.every(([, value]) => value > 0);
  const values = curve.map(([, value]) => (isLog ? Math.log10(value) : value));
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const last = curve[curve.length - 1][0] || 1;
  const place = ([step], at) => {
    const up = high > low ? (values[at] - low) / (high - low) : 0.5;
    return `${room + (step / last) * (width - 2 * room)},${height - room - up * (height - 2 * room)}`;
  };
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("viewBox", `0 0 ${width} ${height}`);
  drawing.setAttribute("role", "img");
  const [from, to] = [curve[0], curve[curve.length - 1]];
  const words = `evaluation loss from ${shown(from[1])} at step ${from[0]} to ${shown(to[1])} at step ${to[0]}`;
  drawing.setAttribute("aria-label", words);
  const line = document.createElementNS(SVG, "polyline");
  line.setAttribute("points", curve.map(place).join(" "));
  drawing.append(line);
  const caption = make("figcaption", { class: "note" }, `${words}${isLog ? "; the height is logarithmic" : ""}`);
  return make("div", { class: "curve" }, drawing, caption);
}

function showTraining(sweep, name, host) {
  const words = (verb) => `attnsweep ${verb} ${sweep.place} ${name}`;
  host.replaceChildren(make("h3", {}, `Training ${name}`));
  const sample = sweep.samples.get(name);
  if (sample && sample.curve.length) host.append(drawCurve(sample.curve));
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
