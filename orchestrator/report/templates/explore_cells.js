// The plane divided into cells, coloured by how the trainings of their trials ended.

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

// Returns by place the cells with trials inside the brushes: the colour's place in the palette, the share, and a text.
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
      cell = { column, row, trials: 0, counts: new Array(sweep.outcomes.length).fill(0) };
      cells.set(key, cell);
    }
    cell.trials += 1;
    for (let one = sweep.first[at]; one < sweep.first[at + 1]; one += 1) cell.counts[sweep.outcome[one]] += 1;
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
