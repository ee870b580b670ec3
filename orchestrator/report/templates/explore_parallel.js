// Parallel coordinates: each trial is a line over all axes. Brushing (marking) a part of an axis selects trials there.

const MOST_LINES = 5000;
const SIDE = 48;
const TOP = 40;
const FOOT = 14;
const GRIP = 22; // how far from an axis, in pixels, the pointer still brushes it
const LEAST_APART = 56; // the least distance of two axes, in pixels; if they need more room, the plate scrolls sideways

function makeParallel(view) {
  const { sweep, state } = view;
  const plate = makePlate(270, "All swept parameters side by side, one line for each trial");
  plate.element.style.minWidth = `${2 * SIDE + LEAST_APART * (sweep.axes.length - 1)}px`;
  // On an axis, a moving finger brushes (marks a part of the axis). Elsewhere it scrolls the page.
  const grips = sweep.axes.map(() => make("div", { class: "grip" }));
  plate.element.append(...grips);
  plate.element.classList.add("brushed");
  const n = sweep.trial.length;
  const every = Math.ceil(n / MOST_LINES);
  const lines = {};
  const brushes = new Map();
  let held = null;

  const across = (axis) => SIDE + (axis * (plate.width - 2 * SIDE)) / Math.max(sweep.axes.length - 1, 1);
  const up = (place) => plate.height - FOOT - place * (plate.height - TOP - FOOT);

  function drawLine(pen, at) {
    pen.beginPath();
    let isDown = false;
    view.scales.forEach(({ places }, axis) => {
      const place = places[at];
      if (Number.isNaN(place)) isDown = false;
      else if (isDown) pen.lineTo(across(axis), up(place));
      else pen.moveTo(across(axis), up(place));
      if (!Number.isNaN(place)) isDown = true;
    });
    pen.stroke();
  }

  function drawAxes() {
    const pen = plate.clear(plate.above);
    const { ink, soft, mark, paper } = state.scheme;
    pen.font = "12px system-ui, sans-serif";
    const room = (plate.width - 2 * SIDE) / Math.max(sweep.axes.length - 1, 1);
    view.scales.forEach((scale, axis) => {
      const left = across(axis);
      const isLast = axis === sweep.axes.length - 1;
      pen.strokeStyle = soft;
      pen.beginPath();
      pen.moveTo(left, up(0));
      pen.lineTo(left, up(1));
      pen.stroke();
      pen.textAlign = axis === 0 ? "left" : isLast ? "right" : "center";
      pen.fillStyle = ink;
      // Names alternate between two lines, so that each may be two axes wide; the first and last also use the margin.
      const name = cutLabel(pen, sweep.axes[axis].name, axis === 0 || isLast ? room + SIDE - GAP : 2 * room - GAP);
      pen.fillText(name, left + (axis === 0 ? 4 - SIDE : isLast ? SIDE - 4 : 0), axis % 2 ? 12 + LINE : 12);
      pen.textAlign = isLast ? "left" : "right";
      pen.lineWidth = 3;
      pen.strokeStyle = paper;
      for (const [place, label] of stackedTicks(pen, scale, up(0) - up(1), (axis === 0 || isLast ? Math.min(room, SIDE) : Math.min(Math.max(room / 2, SIDE), room, 110)) - 8)) {
        const from = left + (isLast ? 5 : -5);
        pen.strokeText(label, from, up(place) + 4);
        pen.fillText(label, from, up(place) + 4);
      }
      pen.lineWidth = 1;
      if (brushes.has(axis)) {
        const [low, high] = brushes.get(axis);
        pen.fillStyle = mark;
        pen.globalAlpha = 0.35;
        pen.fillRect(left - 7, up(high), 14, up(low) - up(high));
        pen.globalAlpha = 1;
      }
    });
  }

  function draw() {
    plate.fit();
    grips.forEach((grip, axis) => { grip.style.left = `${across(axis) - GRIP}px`; grip.style.width = `${2 * GRIP}px`; });
    drawAxes();
    const pen = plate.clear(plate.below);
    pen.lineWidth = 1;
    const { of, palette } = state.colours;
    pen.globalAlpha = n > 300 ? 0.25 : 0.6;
    inSlices(lines, Math.ceil(n / every), (from, to) => {
      for (let at = from * every; at < to * every && at < n; at += every) {
        if (!state.inside[at]) continue;
        pen.strokeStyle = palette[of[at]];
        drawLine(pen, at);
      }
    }, view.settled);
  }

  function chooseInside() {
    state.inside.fill(1);
    for (const [axis, [low, high]] of brushes) {
      const { places } = view.scales[axis];
      for (let at = 0; at < n; at += 1) {
        if (!(places[at] >= low && places[at] <= high)) state.inside[at] = 0;
      }
    }
  }

  function applyBrushes() {
    chooseInside();
    view.brushed();
  }

  // Brushes are remembered as values, not places, because axes may have other ends in a newer version of the page.
  const remember = () => [...brushes].map(([axis, ends]) => [sweep.axes[axis].name, ...ends.map(view.scales[axis].unitOf)]);
  function recall(kept) {
    for (const [name, ...ends] of kept) {
      const axis = sweep.axes.findIndex((each) => each.name === name);
      if (axis >= 0) brushes.set(axis, ends.map(view.scales[axis].placeOf));
    }
    chooseInside();
  }

  function placeAt(event) {
    const [left, top] = plate.placeOf(event);
    const place = (plate.height - FOOT - top) / (plate.height - TOP - FOOT);
    return { left, place: Math.min(Math.max(place, 0), 1) };
  }

  plate.element.addEventListener("pointerdown", (event) => {
    const { left, place } = placeAt(event);
    const apart = sweep.axes.map((_, each) => Math.abs(across(each) - left));
    const axis = apart.indexOf(Math.min(...apart));
    if (apart[axis] > GRIP || !event.isPrimary) return;
    plate.element.setPointerCapture(event.pointerId);
    held = { axis, from: place };
    brushes.delete(axis);
  });
  plate.element.addEventListener("pointermove", (event) => {
    if (held === null) return;
    const { place } = placeAt(event);
    const ends = [Math.min(held.from, place), Math.max(held.from, place)];
    // A click removes the brush. It may move the pointer a little.
    if (ends[1] - ends[0] > 0.01) brushes.set(held.axis, ends);
    drawAxes();
  });
  const release = () => {
    if (held === null) return;
    held = null;
    applyBrushes();
  };
  plate.element.addEventListener("pointerup", release);
  plate.element.addEventListener("pointercancel", release);

  const clear = () => { brushes.clear(); applyBrushes(); };
  const note = every === 1 ? "" : ` Only ${said(Math.ceil(n / every))} lines are drawn, one trial in ${every}; brushes and counts include all trials.`;
  return { element: make("div", { class: "scroll" }, plate.element), draw, clear, remember, recall, lines, note };
}
