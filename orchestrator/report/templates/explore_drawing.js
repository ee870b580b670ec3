// Canvases, scales and colours, and drawing in slices between which the browser handles events.

const SLICE_MS = 10;
const PER_SLICE = 400;
const SHADES = 11;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// Calls work(from, to) on the parts of `n` items one by one, until a later call has the same `owner`.
// Calls `settled` when `owner.done` changes.
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

// Two canvases on top of each other, the drawing and the marks at the pointer, and above them a tooltip.
function makePlate(height, label) {
  const below = make("canvas", { role: "img", "aria-label": label });
  const above = make("canvas", { "aria-hidden": "true" });
  const tip = make("div", { class: "tip", hidden: "" });
  const element = make("div", { class: "plate" }, below, above, tip);
  element.style.height = `${height}px`;
  const plate = { element, below, above, tip, width: 0, height };
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
  plate.placeOf = (event) => {
    const box = element.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  plate.tell = (words, left, top) => {
    tip.hidden = false;
    tip.textContent = words;
    tip.style.left = `${Math.max(4, Math.min(left + 12, plate.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${Math.max(4, top - tip.offsetHeight - 10)}px`;
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

// The colours of the page's style sheet for the current colour scheme.
function schemeColours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  const [ink, soft, line, paper, mark] = ["--ink", "--soft", "--line", "--paper", "--mark"].map(of);
  const weight = (colour) => channels(colour).reduce((sum, each) => sum + each, 0);
  // Replaces a colour that is too close to the page's background, such as black on a dark page.
  const seen = (colour) => (Math.abs(weight(colour) - weight(paper)) < 130 ? ink : colour);
  return { ink, soft, line, paper, mark, seen };
}

// Colours the trials: returns a palette, each trial's place in the palette (`of`), and a legend.
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

// Maps units (logarithms if `isLog`) to places between 0 and 1, and back; ticks are [place, label].
function scaleNumbers(lowest, highest, isLog, margin) {
  const room = margin * (highest - lowest) || 0.5;
  const [low, high] = [lowest - room, highest + room];
  const placeOf = (unit) => (unit - low) / (high - low);
  const ticks = (isLog ? logTicks : linearTicks)(low, high).map(([at, label]) => [placeOf(at), label]);
  return { placeOf, unitOf: (place) => low + place * (high - low), ticks, band: 0 };
}

// The scale of an axis, and the places of the axis' values; NaN for null. Each choice has a band of the scale.
function scaleAxis(axis) {
  const n = axis.choices.length;
  if (n) {
    const ticks = axis.choices.map((label, at) => [(at + 0.5) / n, label.length > 14 ? `${label.slice(0, 7)}…${label.slice(-6)}` : label]);
    return { places: Float32Array.from(axis.values, (value) => (value + 0.5) / n), ticks, band: 1 / n, unitOf: (place) => place * n, placeOf: (unit) => unit / n };
  }
  const scaled = Float64Array.from(axis.values, axis.log ? Math.log10 : Number);
  let [low, high] = [Infinity, -Infinity];
  for (const each of scaled) {
    if (each < low) low = each;
    if (each > high) high = each;
  }
  const scale = low > high ? scaleNumbers(0, 1, axis.log, 0) : scaleNumbers(low, high, axis.log, 0.03);
  return { ...scale, places: Float32Array.from(scaled, scale.placeOf) };
}

// Cuts a label that is wider than its room in the middle, because choices often differ at their ends.
function cutLabel(pen, label, room) {
  let cut = label;
  for (let kept = label.length - 1; pen.measureText(cut).width > room; kept -= 1) {
    if (kept < 1) return "";
    cut = `${label.slice(0, Math.ceil(kept / 2))}…${label.slice(label.length - Math.floor(kept / 2))}`;
  }
  return cut;
}

const GAP = 6; // between two labels, in pixels
const LEAST_ROOM = 44; // for a cut label that is still readable

// Returns so many of the ticks along a line of `length` pixels (every second, third, ...) that no labels touch.
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

// Returns the room that the last label needs to the right of an axis of `length` pixels, because it is centred there.
function roomAtEnd(pen, { ticks, band }, length, least) {
  const beyond = ([place, label]) => (band ? 0 : pen.measureText(label).width / 2 - (1 - place) * (length - least));
  return Math.ceil(Math.max(least, ...ticks.map((tick) => beyond(tick) + 2)));
}

const LINE = 14; // the height of a line of text, in pixels

// Like `roomyTicks`, but for a vertical axis: labels are as high as a line of text, and cut to `room`.
function stackedTicks(pen, { ticks }, length, room) {
  let every = 1;
  while (ticks.slice(every).some(([place], at) => (place - ticks[at][0]) * length < LINE)) every += 1;
  return ticks.filter((_, at) => at % every === 0).map(([place, label]) => [place, cutLabel(pen, label, room)]);
}

// Draws the frame of a plane with the ticks and names of its two axes; the second name may be empty.
function drawFrame(pen, plate, margin, [across, up], [name, nameUp], { ink, line }) {
  const [right, bottom] = [plate.width - margin.right, plate.height - margin.bottom];
  const [wide, high] = [right - margin.left, bottom - margin.top];
  pen.strokeStyle = line;
  pen.fillStyle = ink;
  pen.strokeRect(margin.left, margin.top, wide, high);
  pen.textAlign = "center";
  for (const [place, label] of roomyTicks(pen, across, wide)) pen.fillText(label, margin.left + place * wide, bottom + 15);
  pen.fillText(name, margin.left + wide / 2, plate.height - 7);
  pen.textAlign = "right";
  for (const [place, label] of stackedTicks(pen, up, high, margin.left - (nameUp ? 24 : 8))) pen.fillText(label, margin.left - 5, bottom - place * high + 4);
  pen.save();
  pen.translate(11, margin.top + high / 2);
  pen.rotate(-Math.PI / 2);
  pen.textAlign = "center";
  pen.fillText(nameUp, 0, 0);
  pen.restore();
}

// A number in -0.5..0.5 that is the same in every drawing: it keeps trials with the same two choices apart.
function jitter(at) {
  return ((at * 0.6180339887) % 1) - 0.5;
}
