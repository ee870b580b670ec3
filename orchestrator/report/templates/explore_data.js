// Unpacks the sweep's columns, and counts trainings by outcome.

const ARRAYS = { i1: Int8Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, f4: Float32Array, f8: Float64Array };

// Lets the browser handle events between two pieces of work.
const breath = () => new Promise((resolve) => { setTimeout(resolve); });

function unpack(column) {
  const text = atob(column.data);
  const bytes = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) bytes[at] = text.charCodeAt(at);
  return new ARRAYS[column.type](bytes.buffer);
}

async function unpackSweep(packed) {
  const sweep = { ...packed, axes: [] };
  for (const name of ["trial", "size", "replicate", "outcome", "detail", "loss"]) {
    sweep[name] = unpack(packed[name]);
    await breath();
  }
  for (const axis of packed.axes) {
    sweep.axes.push({ ...axis, values: unpack(axis.values) });
    await breath();
  }
  // The trainings of the trial at place t have the places first[t] to first[t + 1] - 1.
  sweep.first = new Uint32Array(sweep.trial.length + 1);
  sweep.size.forEach((size, at) => { sweep.first[at + 1] = sweep.first[at] + size; });
  sweep.samples = new Map(packed.samples.map((each) => [`${each.trial}/${each.replicate}`, each]));
  sweep.maps = new Map(packed.maps.map((each) => [each.name, each]));
  return sweep;
}

// The place of the trial with this number; -1 if there is none. Trials are sorted by number.
function placeOf(sweep, number) {
  let low = 0;
  let high = sweep.trial.length - 1;
  while (low <= high) {
    const middle = (low + high) >> 1;
    if (sweep.trial[middle] === number) return middle;
    if (sweep.trial[middle] < number) low = middle + 1;
    else high = middle - 1;
  }
  return -1;
}

const noOutcomes = (sweep) => new Array(sweep.outcomes.length).fill(0);

// Counts the trainings of one trial by outcome, and adds them to the given counts.
function outcomesOf(sweep, at, counts = noOutcomes(sweep)) {
  for (let one = sweep.first[at]; one < sweep.first[at + 1]; one += 1) counts[sweep.outcome[one]] += 1;
  return counts;
}

// Returns n, the number of trainings that count in the page's rates, and k, how many of them have the ending.
function shareOf(sweep, counts, isEnding) {
  let n = 0;
  let k = 0;
  counts.forEach((count, at) => {
    if (!sweep.outcomes[at].judged) return;
    n += count;
    if (isEnding(sweep.outcomes[at])) k += count;
  });
  return { n, k };
}

// The choices for the points' colour. `test` selects outcomes whose share is shown; null shows the most frequent one.
function endingsOf(sweep) {
  const endings = [{ label: "most frequent outcome", test: null, colour: null }];
  if (sweep.outcomes.some((each) => each.stuck)) {
    endings.push({ label: "share stuck", test: (outcome) => outcome.stuck, colour: null });
  }
  for (const each of sweep.outcomes) {
    if (!each.judged) continue;
    endings.push({ label: `share ${each.name}`, test: (outcome) => outcome === each, colour: each.colour });
  }
  return endings;
}

const said = (count) => count.toLocaleString("en");

// Formats a number with six digits.
function shown(value) {
  if (!Number.isFinite(value)) return "-";
  const rounded = Number(value.toPrecision(6));
  return rounded !== 0 && Math.abs(rounded) < 1e-3 ? rounded.toExponential() : String(rounded);
}

function axisText(axis, at) {
  return axis.choices.length ? axis.choices[axis.values[at]] : shown(axis.values[at]);
}
