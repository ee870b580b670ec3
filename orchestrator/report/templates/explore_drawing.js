// Canvases, scales, colours, and drawing in slices that leave the browser free to answer.

const SLICE_MS = 10;
const PER_SLICE = 400;
const SHADES = 11;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Calls work(from, to) until all of `n` is done, some at a time; a later call with the same `owner` ends this one.
// `settled` is told when `owner.done` changes.
function inSlices(owner, n, work, settled) {
  owner.run = (owner.run ?? 0) + 1;
  const mine = owner.run;
  owner.done = false;
  settled();
  let at = 0;
  const slice = () => {
    if (owner.run !== mine) return;
    const until = performance.now() + SLICE_MS;
    while (at < n && performance.now() < until) {
      const end = Math.min(at + PER_SLICE, n);
      work(at, end);
      at = end;
    }
    if (at < n) requestAnimationFrame(slice);
    else {
      owner.done = true;
      settled();
    }
  };
  slice();
}

// Two canvases on top of each other: the drawing, and above it what changes with the pointer.
function makePlate(height, label) {
  const below = make("canvas", { role: "img", "aria-label": label });
  const above = make("canvas", { "aria-hidden": "true" });
  const element = make("div", { class: "plate" }, below, above);
  element.style.height = `${height}px`;
  const plate = { element, below, above, width: 0, height };
  plate.fit = () => {
    const ratio = window.devicePixelRatio || 1;
    plate.width = element.clientWidth;
    for (const canvas of [below, above]) {
      canvas.width = Math.round(plate.width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
  };
  plate.clear = (canvas) => {
    const pen = canvas.getContext("2d");
    pen.clearRect(0, 0, plate.width, height);
    return pen;
  };
  return plate;
}

function channels(colour) {
  return [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
}

function mixed(from, to, share) {
  const end = channels(to);
  return `#${channels(from).map((each, at) => Math.round(each + share * (end[at] - each)).toString(16).padStart(2, "0")).join("")}`;
}

// The page's own colours, as its style sheet has them for the scheme in force.
function schemeColours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  const [ink, soft, line, paper, mark] = ["--ink", "--soft", "--line", "--paper", "--mark"].map(of);
  const weight = (colour) => channels(colour).reduce((sum, each) => sum + each, 0);
  // Black on a dark page would not be seen.
  const seen = (colour) => (Math.abs(weight(colour) - weight(paper)) < 130 ? ink : colour);
  return { ink, soft, line, paper, mark, seen };
}

// The colour of each trial: a palette, each trial's place in it, and a legend.
function colourTrials(sweep, ending, scheme) {
  const n = sweep.trial.length;
  const of = new Uint8Array(n);
  if (ending.test === null) {
    const palette = sweep.outcomes.map((each) => scheme.seen(each.colour));
    for (let at = 0; at < n; at += 1) {
      const counts = outcomesOf(sweep, at);
      of[at] = counts.indexOf(Math.max(...counts));
    }
    return { of, palette, legend: sweep.outcomes.map((each, at) => [palette[at], each.name]) };
  }
  const none = mixed(scheme.paper, scheme.soft, 0.4);
  const all = scheme.seen(ending.colour ?? scheme.mark);
  const palette = Array.from({ length: SHADES }, (_, step) => mixed(none, all, step / (SHADES - 1)));
  for (let at = 0; at < n; at += 1) {
    const { n: judged, k } = shareOf(sweep, outcomesOf(sweep, at), ending.test);
    of[at] = judged ? Math.round((k / judged) * (SHADES - 1)) : 0;
  }
  return { of, palette, legend: [0, 5, 10].map((step) => [palette[step], `${step * 10}% of trainings`]) };
}

const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";
function powerOfTen(power, digit = 1) {
  if (power >= -2 && power <= 3) return String(Number((digit * 10 ** power).toPrecision(1)));
  return `${digit === 1 ? "" : `${digit}·`}10${power < 0 ? "⁻" : ""}${[...String(Math.abs(power))].map((digit) => RAISED[digit]).join("")}`;
}

function logTicks(low, high) {
  const decades = [];
  const every = Math.ceil((high - low) / 7);
  for (let power = Math.ceil(low); power <= high; power += 1) {
    if (power % every === 0) decades.push([power, powerOfTen(power)]);
  }
  if (decades.length > 2) return decades;
  const ticks = [];
  for (let power = Math.floor(low); power <= high; power += 1) {
    for (const digit of [1, 2, 5]) {
      const at = power + Math.log10(digit);
      if (at >= low && at <= high) ticks.push([at, powerOfTen(power, digit)]);
    }
  }
  return ticks;
}

function linearTicks(low, high) {
  const rough = (high - low) / 5;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * unit >= rough) * unit;
  const ticks = [];
  for (let at = Math.ceil(low / step); at * step <= high; at += 1) ticks.push([at * step, shown(at * step)]);
  return ticks;
}

// Where the values of an axis lie, from 0 to 1 (NaN for null), and its ticks as [place, label].
function scaleAxis(axis) {
  const n = axis.choices.length;
  if (n) {
    const ticks = axis.choices.map((label, at) => [(at + 0.5) / n, label.length > 14 ? `${label.slice(0, 7)}…${label.slice(-6)}` : label]);
    return { places: Float32Array.from(axis.values, (value) => (value + 0.5) / n), ticks, band: 1 / n, unitOf: (place) => place * n, placeOf: (unit) => unit / n };
  }
  const scaled = Float64Array.from(axis.values, axis.log ? Math.log10 : Number);
  let low = Infinity;
  let high = -Infinity;
  for (const each of scaled) {
    if (each < low) low = each;
    if (each > high) high = each;
  }
  if (low === high || low === Infinity) [low, high] = low === Infinity ? [0, 1] : [low - 0.5, low + 0.5];
  const room = 0.03 * (high - low);
  low -= room;
  high += room;
  const place = (value) => (value - low) / (high - low);
  const ticks = (axis.log ? logTicks : linearTicks)(low, high).map(([at, label]) => [place(at), label]);
  return { places: Float32Array.from(scaled, place), ticks, band: 0, unitOf: (at) => low + at * (high - low), placeOf: place };
}

// The label, cut where it is wider than its room.
function cutLabel(pen, label, room) {
  let end = label.length;
  let cut = label;
  while (end > 0 && pen.measureText(cut).width > room) {
    end -= 1;
    cut = `${label.slice(0, end)}…`;
  }
  return end > 0 ? cut : "";
}

// The same, cut in its middle: choices often differ at their ends.
function cutMiddle(pen, label, room) {
  let cut = label;
  for (let kept = label.length - 1; kept > 0 && pen.measureText(cut).width > room; kept -= 1) {
    cut = `${label.slice(0, Math.floor(kept / 2))}…${label.slice(label.length - Math.ceil(kept / 2))}`;
  }
  return cut;
}

const GAP = 6; // between two labels, in pixels
const LEAST_ROOM = 44; // for a cut label that still says something

// The ticks along a line of so many pixels, without those whose labels would touch: every second, third, ...
// The labels of choices are also cut.
function roomyTicks(pen, { ticks, band }, length) {
  const widths = ticks.map(([, label]) => (band ? Math.min(pen.measureText(label).width, LEAST_ROOM) : pen.measureText(label).width));
  for (let every = 1; ; every += 1) {
    const kept = ticks.map((_, at) => at).filter((at) => at % every === 0);
    const fits = kept.slice(1).every((at, index) => {
      const before = kept[index];
      return (ticks[at][0] - ticks[before][0]) * length >= (widths[at] + widths[before]) / 2 + GAP;
    });
    if (!fits) continue;
    const room = band ? every * band * length - GAP : Infinity;
    return kept.map((at) => [ticks[at][0], cutLabel(pen, ticks[at][1], room)]);
  }
}

// The room to the right of so many pixels, for the half of the last label that reaches beyond the axis.
function roomAtEnd(pen, { ticks, band }, length, least) {
  const beyond = ([place, label]) => (band ? 0 : pen.measureText(label).width / 2 - (1 - place) * (length - least));
  return Math.ceil(Math.max(least, ...ticks.map((tick) => beyond(tick) + 2)));
}

const LINE = 14; // of text, in pixels

// The same along a line that goes up: labels are as high as a line of text, and as wide as there is room.
function stackedTicks(pen, { ticks }, length, room) {
  let every = 1;
  while (ticks.slice(every).some(([place], at) => (place - ticks[at][0]) * length < LINE)) every += 1;
  return ticks.filter((_, at) => at % every === 0).map(([place, label]) => [place, cutMiddle(pen, label, room)]);
}

// The same part of -0.5 to 0.5 for a trial in each drawing: trials with the same two choices do not cover each other.
function jitter(at) {
  return ((at * 0.6180339887) % 1) - 0.5;
}
