// Trials in the plane of two axes: as points, or counted in cells that are coloured by how their trainings ended.

const MARGIN = { left: 62, right: 12, top: 10, bottom: 44 };
const FONT = "12px system-ui, sans-serif";
const [REACH, TOUCH_REACH] = [12, 22]; // how far a mouse and a finger may miss a point, in pixels
const reachOf = (event) => (event.pointerType === "touch" ? TOUCH_REACH : REACH);

function makeScatter(view) {
  const { sweep, state } = view;
  const plate = makePlate(400, "All trials in the plane of two parameters; the table below lists the chosen one");
  const points = {};
  const margin = { ...MARGIN };
  let cells = null;
  const n = sweep.trial.length;
  const size = n > 20000 ? 2 : n > 2000 ? 4 : 7;
  let x = new Float32Array(n);
  let y = new Float32Array(n);

  function placePoints() {
    const [across, up] = [view.scales[state.x], view.scales[state.y]];
    const [wide, high] = [plate.width - margin.left - margin.right, plate.height - margin.top - margin.bottom];
    // Only if both axes have choices, the points of a pair are spread. Otherwise the points of a choice form a line.
    const areChoices = across.band > 0 && up.band > 0;
    for (let at = 0; at < n; at += 1) {
      const [right, raised] = areChoices ? [jitter(at) * 0.7 * across.band, jitter(at + 7919) * 0.7 * up.band] : [0, 0];
      x[at] = margin.left + (across.places[at] + right) * wide;
      y[at] = margin.top + (1 - up.places[at] - raised) * high;
    }
  }

  // Draws lines between the bands of choices.
  function drawLanes(pen, wide, high) {
    pen.beginPath();
    for (let place = view.scales[state.x].band; place > 0 && place < 0.999; place += view.scales[state.x].band) {
      pen.moveTo(margin.left + place * wide, margin.top);
      pen.lineTo(margin.left + place * wide, margin.top + high);
    }
    for (let place = view.scales[state.y].band; place > 0 && place < 0.999; place += view.scales[state.y].band) {
      pen.moveTo(margin.left, margin.top + place * high);
      pen.lineTo(margin.left + wide, margin.top + place * high);
    }
    pen.stroke();
  }

  function draw() {
    plate.fit();
    const pen = plate.clear(plate.below);
    pen.font = FONT;
    // Names of choices need a wider margin than numbers.
    margin.left = view.scales[state.y].band ? Math.max(MARGIN.left, Math.min(110, 0.3 * plate.width)) : MARGIN.left;
    margin.right = roomAtEnd(pen, view.scales[state.x], plate.width - margin.left, MARGIN.right);
    placePoints();
    drawFrame(pen, plate, margin, [view.scales[state.x], view.scales[state.y]], [sweep.axes[state.x].name, sweep.axes[state.y].name], state.scheme);
    drawLanes(pen, plate.width - margin.left - margin.right, plate.height - margin.top - margin.bottom);
    cells = state.areCells ? binTrials(view) : null;
    if (cells) drawCells(pen);
    else drawPoints(pen);
    mark();
  }

  function drawCells(pen) {
    const { palette } = state.colours;
    for (const cell of cells.values()) {
      const [left, top, wide, high] = boxOf(cell);
      pen.fillStyle = palette[cell.colour];
      pen.fillRect(left, top, wide - 1, high - 1);
      if (wide < 44 || high < 18 || !cell.share) continue;
      pen.fillStyle = isLight(palette[cell.colour]) ? "#000000" : "#ffffff";
      pen.textAlign = "center";
      pen.fillText(cell.share, left + wide / 2, top + high / 2 + 4);
    }
    points.done = true;
    view.settled();
  }

  // Where a cell is drawn: left, top, width and height.
  function boxOf({ column, row }) {
    const [nx, ny] = [binsOf(sweep.axes[state.x]), binsOf(sweep.axes[state.y])];
    const [wide, high] = [(plate.width - margin.left - margin.right) / nx, (plate.height - margin.top - margin.bottom) / ny];
    return [margin.left + column * wide, margin.top + (ny - 1 - row) * high, wide, high];
  }

  function cellAt(event) {
    const [x, y] = plate.placeOf(event);
    return [...cells.values()].find((cell) => {
      const [left, top, wide, high] = boxOf(cell);
      return x >= left && x < left + wide && y >= top && y < top + high;
    });
  }

  function drawPoints(pen) {
    const { of, palette } = state.colours;
    inSlices(points, n, (from, to) => {
      for (let at = from; at < to; at += 1) {
        if (Number.isNaN(x[at]) || Number.isNaN(y[at])) continue;
        pen.fillStyle = state.inside[at] ? palette[of[at]] : state.scheme.line;
        pen.globalAlpha = state.inside[at] ? 0.85 : 0.35;
        pen.fillRect(x[at] - size / 2, y[at] - size / 2, size, size);
      }
      pen.globalAlpha = 1;
    }, view.settled);
  }

  function mark(hovered = null) {
    const pen = plate.clear(plate.above);
    pen.lineWidth = 2;
    for (const [at, colour] of [[state.chosen, state.scheme.ink], [hovered, state.scheme.soft]]) {
      if (at === null || Number.isNaN(x[at]) || Number.isNaN(y[at])) continue;
      pen.strokeStyle = colour;
      pen.strokeRect(x[at] - size / 2 - 3, y[at] - size / 2 - 3, size + 6, size + 6);
    }
  }

  function nearest(event) {
    const [left, top] = plate.placeOf(event);
    let found = null;
    let least = reachOf(event) ** 2;
    for (let at = 0; at < n; at += 1) {
      const distance = (x[at] - left) ** 2 + (y[at] - top) ** 2;
      if (distance < least && state.inside[at]) [found, least] = [at, distance];
    }
    return found;
  }

  function hover(event) {
    plate.tip.hidden = true;
    if (cells) {
      const cell = cellAt(event);
      if (cell) plate.tell(cell.words, ...boxOf(cell));
      return;
    }
    const at = nearest(event);
    mark(at);
    if (at !== null) plate.tell(tipOf(sweep, at), x[at], y[at]);
  }

  plate.element.addEventListener("pointermove", hover);
  plate.element.addEventListener("pointerleave", () => { plate.tip.hidden = true; mark(); });
  plate.element.addEventListener("click", (event) => {
    const at = cells ? null : nearest(event);
    if (at !== null) view.choose(at);
  });
  return { element: plate.element, draw, mark, points };
}

function tipOf(sweep, at) {
  const lines = [`trial ${sweep.trial[at]}`];
  for (const axis of sweep.axes) lines.push(`${axis.name} ${axisText(axis, at)}`);
  outcomesOf(sweep, at).forEach((count, which) => {
    if (count) lines.push(`${count} ${sweep.outcomes[which].name}`);
  });
  return lines.join("\n");
}

const MOST_BINS = 8; // along an axis of numbers

const binsOf = (axis) => axis.choices.length || MOST_BINS;

function isLight(colour) {
  const [red, green, blue] = channels(colour).map((each) => (each / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18;
}

// Formats the ends of a bin; for a choice, its label.
function binText(axis, scale, bin) {
  if (axis.choices.length) return axis.choices[bin];
  const end = (at) => { const unit = scale.unitOf(at / MOST_BINS); return Number((axis.log ? 10 ** unit : unit).toPrecision(3)); };
  return `${shown(end(bin))} to ${shown(end(bin + 1))}`;
}

// Returns the cells that have trials inside the brushes: colour (place in the palette), share, and text of each.
function binTrials(view) {
  const { sweep, state } = view;
  const axes = [sweep.axes[state.x], sweep.axes[state.y]];
  const scales = [view.scales[state.x], view.scales[state.y]];
  const [nx, ny] = axes.map(binsOf);
  const [across, up] = scales.map((scale) => scale.places);
  const cells = new Map();
  for (let at = 0; at < sweep.trial.length; at += 1) {
    if (!state.inside[at] || Number.isNaN(across[at]) || Number.isNaN(up[at])) continue;
    const [column, row] = [Math.min(Math.floor(across[at] * nx), nx - 1), Math.min(Math.floor(up[at] * ny), ny - 1)];
    const key = column * ny + row;
    let cell = cells.get(key);
    if (cell === undefined) {
      cell = { column, row, trials: 0, counts: noOutcomes(sweep) };
      cells.set(key, cell);
    }
    cell.trials += 1;
    outcomesOf(sweep, at, cell.counts);
  }
  for (const cell of cells.values()) {
    const { test } = state.ending;
    const most = sweep.outcomes[cell.counts.indexOf(Math.max(...cell.counts))];
    const { n, k } = shareOf(sweep, cell.counts, test ?? ((outcome) => outcome === most));
    cell.share = n ? (k / n).toFixed(2) : "";
    cell.colour = test === null ? sweep.outcomes.indexOf(most) : n ? Math.round((k / n) * (SHADES - 1)) : 0;
    const where = axes.map((axis, which) => `${axis.name} ${binText(axis, scales[which], which ? cell.row : cell.column)}`);
    const ends = sweep.outcomes.flatMap((outcome, at) => (cell.counts[at] ? [`${said(cell.counts[at])} ${outcome.name}`] : []));
    const what = test === null ? most.name : state.ending.label;
    cell.words = [...where, `${what}: ${said(k)} of ${said(n)} in ${said(cell.trials)} trial${cell.trials === 1 ? "" : "s"}`, ...ends].join("\n");
  }
  return cells;
}
