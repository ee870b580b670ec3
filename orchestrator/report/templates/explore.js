// Builds the section Explore of each sweep. Without this script the page still shows all other sections.

function makeSelect(label, options, chosen, onChange) {
  const select = make("select", {}, ...options.map((text, at) => make("option", { value: String(at) }, text)));
  select.value = String(chosen);
  select.addEventListener("change", () => onChange(Number(select.value)));
  return make("label", {}, label, select);
}

function makeTrialField(view) {
  const field = make("input", { type: "number", min: "0", step: "1" });
  field.addEventListener("change", () => {
    if (field.value === "") return;
    const at = placeOf(view.sweep, Number(field.value));
    if (at >= 0) view.choose(at);
    else view.detail.replaceChildren(make("p", {}, `This sweep has no trial ${field.value}.`));
  });
  return make("label", {}, "trial", field);
}

function legendOf(colours) {
  return colours.legend.map(([colour, label]) => {
    const swatch = make("i", {});
    swatch.style.background = colour;
    return make("span", {}, swatch, label);
  });
}

function countsInside(sweep, inside) {
  let trials = 0;
  const counts = noOutcomes(sweep);
  for (let at = 0; at < sweep.trial.length; at += 1) {
    if (!inside[at]) continue;
    trials += 1;
    outcomesOf(sweep, at, counts);
  }
  const { n, k } = shareOf(sweep, counts, (outcome) => outcome.stuck);
  return `${said(trials)} of ${said(sweep.trial.length)} trials are in the brushes; of their ${said(n)} trainings that did not fail, ${said(k)} are stuck.`;
}

async function explore(section, chosen) {
  const sweep = await unpackSweep(JSON.parse(document.getElementById(section.dataset.points).textContent));
  const endings = endingsOf(sweep);
  const axisOf = (name, other) => { const at = sweep.axes.findIndex((axis) => axis.name === name); return at < 0 ? other : at; };
  const state = {
    x: axisOf(chosen.x, sweep.first_axes[0]),
    y: axisOf(chosen.y, sweep.first_axes[1]),
    ending: endings.find((each) => each.label === chosen.ending) ?? endings[0],
    areCells: chosen.areCells ?? false,
    chosen: null,
    inside: new Uint8Array(sweep.trial.length).fill(1),
  };
  const view = { sweep, state, scales: [], detail: make("div", { class: "detail", "aria-live": "polite" }) };
  for (const axis of sweep.axes) {
    view.scales.push(scaleAxis(axis));
    await breath();
  }
  view.choose = (at, name) => { state.chosen = at; scatter.mark(); showTrial(sweep, at, view.detail, name); };
  // Like `choose`, and scrolls to the trial's details, which may be out of sight.
  view.show = (at, name) => { view.choose(at, name); view.detail.scrollIntoView({ block: "nearest", behavior: "smooth" }); };
  const [scatter, parallel, curves] = [makeScatter(view), makeParallel(view), makeCurves(view)];
  view.settled = () => section.setAttribute("aria-busy", String(!(scatter.points.done && parallel.lines.done)));
  const legend = make("p", { class: "legend note" });
  const inside = make("p", { class: "note inside" });

  const parts = [scatter, parallel, curves];
  const draw = () => { for (const part of parts) part.draw(); };
  view.brushed = () => { inside.textContent = countsInside(sweep, state.inside); draw(); };
  const recolour = () => {
    state.scheme = schemeColours();
    state.colours = colourTrials(sweep, state.ending, state.scheme);
    legend.replaceChildren(...legendOf(state.colours));
    draw();
    view.detail.querySelectorAll("canvas.head-map").forEach((each) => each.draw());
  };

  const names = sweep.axes.map((axis) => axis.label);
  const clear = make("button", { type: "button" }, "Clear the brushes");
  clear.addEventListener("click", parallel.clear);
  section.append(
    make("div", { class: "controls" },
      makeSelect("across", names, state.x, (at) => { state.x = at; scatter.draw(); }),
      makeSelect("up", names, state.y, (at) => { state.y = at; scatter.draw(); }),
      makeSelect("as", ["points", "cells"], Number(state.areCells), (at) => { state.areCells = at === 1; scatter.draw(); }),
      makeSelect("colour", endings.map((each) => each.label), endings.indexOf(state.ending), (at) => { state.ending = endings[at]; recolour(); }),
      makeTrialField(view)),
    legend,
    make("div", { class: "beside" }, scatter.element, view.detail),
    make("h3", {}, "All swept parameters"),
    make("p", { class: "note" }, `Draw along an axis to keep the trials that pass there, here and above; click the axis to release it.${parallel.note}`),
    parallel.element,
    make("div", { class: "controls" }, clear, inside),
    ...(curves.isEmpty ? [] : [
      make("h3", {}, "Single learning curves"),
      make("p", { class: "note" }, "Thin lines are trainings; the thick line and the band are the median and the middle half of all trainings with this outcome: separately for those whose loss still fell by more than 1% over the last fifth of their steps (moving), and for the others (still). Click a line to see its training. Horizontal lines are the reference levels, as in the figures by outcome below. Brushes hide lines but do not change medians."),
      curves.element,
    ]),
    make("div", { class: "figures large" }, ...sweep.extremes.map((each) => makeExtremes(view, each))),
  );
  view.detail.append(make("p", { class: "note" }, "Click a point, or give a trial's number."));
  section.hidden = false;
  parallel.recall(chosen.brushes ?? []);
  inside.textContent = countsInside(sweep, state.inside);
  recolour();
  const at = placeOf(sweep, chosen.trial ?? -1);
  if (at >= 0) view.choose(at, chosen.training);
  views.set(section.dataset.points, () => ({
    x: sweep.axes[state.x].name,
    y: sweep.axes[state.y].name,
    ending: state.ending.label,
    areCells: state.areCells,
    trial: state.chosen === null ? null : sweep.trial[state.chosen],
    training: view.detail.querySelector(".training h3")?.textContent.replace("Training ", ""),
    brushes: parallel.remember(),
  }));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
  let width = section.clientWidth;
  new ResizeObserver(() => {
    if (section.clientWidth === width) return;
    width = section.clientWidth;
    draw();
  }).observe(section);
}

// Returns what the reader has chosen, by the section's id, so that a newer version of the page can show the same.
const views = new Map();

async function begin(chosen) {
  document.querySelectorAll("main table:not(.regions)").forEach(makeSortable);
  for (const section of document.querySelectorAll("section.explore")) {
    await breath();
    await explore(section, chosen[section.dataset.points] ?? {});
  }
}

begin({});
