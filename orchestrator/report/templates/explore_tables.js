// Sorts tables by a column: ascending, descending, and back to the original order.

const NUMBER = /^[<>]?\s*([-+−]?[\d,]*\.?\d+(?:e[-+]?\d+)?)/i;
const DIRECTIONS = { none: "ascending", ascending: "descending", descending: "none" };

function numberIn(text) {
  const found = NUMBER.exec(text);
  return found ? Number(found[1].replaceAll(",", "").replace("−", "-")) : NaN;
}

function sortRows(rows, column, direction) {
  if (direction === "none") return rows;
  const texts = new Map(rows.map((row) => [row, row.cells[column].textContent.trim()]));
  const numbers = new Map(rows.map((row) => [row, numberIn(texts.get(row))]));
  const isNumeric = rows.filter((row) => Number.isNaN(numbers.get(row))).length * 2 < rows.length;
  const sign = direction === "ascending" ? 1 : -1;
  return [...rows].sort((one, other) => {
    if (!isNumeric) return sign * texts.get(one).localeCompare(texts.get(other), "en", { numeric: true });
    const [a, b] = [numbers.get(one), numbers.get(other)];
    // Rows without a number come last in both directions.
    if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
    return sign * (a - b);
  });
}

function makeSortable(table) {
  const heads = table.tHead ? [...table.tHead.rows[0].cells] : [];
  const rows = [...table.tBodies[0].rows];
  if (rows.length < 2 || rows.some((row) => row.cells.length !== heads.length)) return;
  heads.forEach((head, column) => {
    if (!head.textContent.trim()) return;
    const button = make("button", { type: "button", class: "sort" }, ...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const direction = DIRECTIONS[head.getAttribute("aria-sort")];
      for (const each of heads) if (each.hasAttribute("aria-sort")) each.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", direction);
      table.tBodies[0].append(...sortRows(rows, column, direction));
    });
  });
}

function makeExtremes(view, extremes) {
  const { sweep } = view;
  const parameters = sweep.axes.slice(0, -1);
  const rows = extremes.trials.map((at, place) => {
    const button = make("button", { type: "button" }, String(sweep.trial[at]));
    button.addEventListener("click", () => view.show(at));
    return [button, shown(extremes.values[place]), ...parameters.map((axis) => axisText(axis, at))];
  });
  const table = makeTable(["trial", extremes.measure, ...parameters.map((axis) => axis.name)], rows, "extremes");
  makeSortable(table.querySelector("table"));
  return make("div", {}, make("h3", {}, `Trials: ${extremes.title}`), table);
}
