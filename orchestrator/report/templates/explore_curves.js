// Draws single learning curves, and the median and quartiles of all, by outcome and by whether the loss still fell.

const CURVES_HIGH = 210;
const INSET = { left: 46, right: 10, top: 8, bottom: 34 };
const BEYOND_LEVELS = 30; // the same number as in the page's figures
const MOST_LOSS = 1e30;
const LEAST_DECADES = 1.3;

// Maps steps to 0..1 along the axis: logarithmic from the first probe on, if early probes are close together.
function scaleSteps(steps) {
  const sorted = [...new Set(steps)].sort((a, b) => a - b);
  const [first, last] = [sorted.find((step) => step > 0) ?? 1, sorted[sorted.length - 1] || 1];
  const isLog = last >= 10 * first && sorted.length < last / first / 2;
  const decades = Math.log10(last / first);
  const linear = 0.5 / (0.5 + decades); // the share of the axis before the first probe
  const place = (step) => {
    if (!isLog) return step / last;
    return step < first ? (linear * step) / first : linear + ((1 - linear) * Math.log10(step / first)) / decades;
  };
  const ticks = isLog
    ? [[0, "0"], ...logTicks(Math.log10(first) + 1e-9, Math.log10(last)).map(([at, label]) => [place(10 ** at), label])]
    : linearTicks(0, last).map(([at, label]) => [place(at), label]);
  return { place, ticks, band: 0 };
}

function scaleLosses(losses, levels) {
  const known = levels.filter((level) => level > 0);
  let [low, high] = [Math.min(...losses, ...levels), Math.min(Math.max(...losses, ...levels), MOST_LOSS)];
  if (known.length) {
    low = Math.max(low, Math.min(...known) / BEYOND_LEVELS);
    high = Math.min(high, Math.max(...known) * BEYOND_LEVELS);
  }
  const isLog = low > 0 && Math.log10(high / low) >= LEAST_DECADES;
  const scaled = isLog ? Math.log10 : Number;
  const scale = scaleNumbers(scaled(low), scaled(high), isLog, 0.05);
  return { ...scale, place: (value) => (value <= 0 && isLog ? -1 : scale.placeOf(scaled(Math.min(value, MOST_LOSS)))) };
}

// Returns the scale of losses that all curves share, from the quartiles of all outcomes: equal heights are equal losses.
// Diverged trainings are left out, because their losses would leave no room for others. Returns null without losses.
function sharedLosses(sweep) {
  const losses = sweep.curves.filter((group) => group.outcome !== "diverged").flatMap(finiteLosses);
  return losses.length ? scaleLosses(losses, sweep.levels.map((level) => level.value)) : null;
}

const finiteLosses = (group) => group.quartiles.flatMap(([, ...values]) => values.filter((value) => value !== null));

const stepsOf = (group) => [...group.quartiles, ...group.singles.flatMap((each) => each.curve)].map(([step]) => step);

function makeCurves(view) {
  const { sweep } = view;
  const groups = sweep.curves.map((group) => ({
    ...group,
    colour: sweep.outcomes.find((each) => each.name === group.outcome)?.colour,
    singles: [...sweep.samples.values()].filter((each) => each.is_by_lot && each.curve.length && each.outcome === group.outcome && each.motion === group.motion),
  })).filter((group) => group.singles.some((each) => each.curve.length > 1)); // some ledgers hold only the last probe
  const common = groups.filter((group) => group.outcome !== "diverged");
  const shared = { steps: common.length ? scaleSteps(common.flatMap(stepsOf)) : null, losses: sharedLosses(sweep) };
  const parts = groups.map((group) => {
    if (group.outcome !== "diverged") return makeCurvePlate(view, group, shared, sweep.levels);
    return makeCurvePlate(view, group, { steps: scaleSteps(stepsOf(group)), losses: scaleLosses(finiteLosses(group), []) }, []);
  });
  const element = make("div", { class: "figures curves" }, ...parts.map((part) => part.element));
  return { element, isEmpty: !groups.length, draw: () => { for (const part of parts) part.draw(); } };
}

function makeCurvePlate(view, group, scales, levels) {
  const { sweep, state } = view;
  const title = `${[group.outcome, group.motion].filter(Boolean).join(", ")}: ${said(group.singles.length)} of ${said(group.n)} trainings`;
  const plate = makePlate(CURVES_HIGH, `Learning curves: ${title}`);
  const x = (step) => INSET.left + scales.steps.place(step) * (plate.width - INSET.left - INSET.right);
  const y = (loss) => INSET.top + (1 - scales.losses.place(loss)) * (plate.height - INSET.top - INSET.bottom);
  const trialOf = (single) => placeOf(sweep, single.trial);
  const seen = () => group.singles.filter((single) => state.inside[trialOf(single)]);

  function trace(pen, points) {
    pen.beginPath();
    points.forEach(([step, loss], at) => (at ? pen.lineTo(x(step), y(loss)) : pen.moveTo(x(step), y(loss))));
  }

  function inFrame(pen, work) {
    pen.save();
    pen.beginPath();
    pen.rect(INSET.left, INSET.top, plate.width - INSET.left - INSET.right, plate.height - INSET.top - INSET.bottom);
    pen.clip();
    work();
    pen.restore();
  }

  function drawLevels(pen) {
    const [right, bottom] = [plate.width - INSET.right, plate.height - INSET.bottom];
    pen.strokeStyle = state.scheme.soft;
    for (const level of levels) {
      const height = y(level.value);
      if (height < INSET.top || height > bottom) continue;
      pen.setLineDash(level.name === "solved" ? [] : [4, 3]);
      pen.beginPath();
      pen.moveTo(INSET.left, height);
      pen.lineTo(right, height);
      pen.stroke();
    }
    pen.setLineDash([]);
  }

  function draw() {
    plate.fit();
    mark(null);
    const pen = plate.clear(plate.below);
    const colour = state.scheme.seen(group.colour ?? state.scheme.soft);
    pen.lineWidth = 1;
    pen.font = "11px system-ui, sans-serif";
    drawFrame(pen, plate, INSET, [scales.steps, scales.losses], ["optimizer steps", ""], state.scheme);
    drawLevels(pen);
    inFrame(pen, () => {
      pen.strokeStyle = colour;
      pen.globalAlpha = 0.45;
      for (const single of seen()) {
        trace(pen, single.curve);
        pen.stroke();
      }
      pen.globalAlpha = 0.2;
      pen.fillStyle = colour;
      const ends = (at) => group.quartiles.map((each) => [each[0], each[at] ?? MOST_LOSS]);
      trace(pen, [...ends(1), ...ends(3).reverse()]);
      pen.fill();
      pen.globalAlpha = 1;
      pen.lineWidth = 2.5;
      trace(pen, ends(2));
      pen.stroke();
    });
  }

  function mark(single) {
    const pen = plate.clear(plate.above);
    if (!single) return;
    inFrame(pen, () => {
      pen.strokeStyle = state.scheme.ink;
      pen.lineWidth = 2;
      trace(pen, single.curve);
      pen.stroke();
    });
  }

  // The height of a curve at the pointer, interpolated between two probes like the drawn line.
  function heightAt(single, left) {
    const after = single.curve.findIndex(([step]) => x(step) >= left);
    if (after < 0 || (after === 0 && x(single.curve[0][0]) > left)) return null;
    if (after === 0) return y(single.curve[0][1]);
    const [[s0, v0], [s1, v1]] = [single.curve[after - 1], single.curve[after]];
    const share = (left - x(s0)) / (x(s1) - x(s0));
    return y(v0) + share * (y(v1) - y(v0));
  }

  function nearest(event) {
    const [left, top] = plate.placeOf(event);
    let [found, least] = [null, reachOf(event)];
    for (const single of seen()) {
      const height = heightAt(single, left);
      if (height !== null && Math.abs(height - top) < least) [found, least] = [single, Math.abs(height - top)];
    }
    return found;
  }

  plate.element.addEventListener("pointermove", (event) => {
    const single = nearest(event);
    mark(single);
    plate.tip.hidden = true;
    if (!single) return;
    const [step, loss] = single.curve[single.curve.length - 1];
    plate.tell(`training ${single.trial}/${single.replicate}\n${shown(loss)} at step ${step}`, INSET.left, 0);
  });
  plate.element.addEventListener("pointerleave", () => { plate.tip.hidden = true; mark(null); });
  plate.element.addEventListener("click", (event) => {
    const single = nearest(event);
    if (single) view.show(trialOf(single), `${single.trial}/${single.replicate}`);
  });
  const element = make("div", { class: "card" }, make("h4", {}, title), plate.element);
  return { element, draw };
}
