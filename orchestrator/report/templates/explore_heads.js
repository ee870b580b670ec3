// The attention maps of one training: a canvas for each head. Pointing at a cell shows its tokens and weight.

const [WIDEST_MAP, LARGEST_CELL] = [176, 14];

// A cell's opacity is its weight relative to the largest of the layer; negative weights have another colour.
function drawMap(canvas, weights, most) {
  const pen = canvas.getContext("2d");
  const image = pen.createImageData(canvas.width, canvas.height);
  const style = getComputedStyle(document.documentElement);
  const [more, less] = ["--mark", "--against"].map((name) => channels(style.getPropertyValue(name).trim()));
  weights.forEach((weight, at) => {
    image.data.set([...(weight < 0 ? less : more), Math.round((255 * Math.abs(weight)) / most)], 4 * at);
  });
  pen.putImageData(image, 0, 0);
}

function makeMap(layer, head, told) {
  const [rows, columns] = [layer.queries.length, layer.keys.length];
  const weights = unpack(head.weights);
  const most = weights instanceof Int8Array ? 127 : 255;
  const words = (at) => {
    const [query, key] = [layer.queries[Math.floor(at / columns)], layer.keys[at % columns]];
    return `${query} → ${key}: ${Number((weights[at] * layer.unit).toPrecision(2))}`;
  };
  const strongest = weights.reduce((best, weight, at) => (Math.abs(weight) > Math.abs(weights[best]) ? at : best), 0);
  const canvas = make("canvas", { class: "head-map", role: "img", width: String(columns), height: String(rows) });
  canvas.setAttribute("aria-label", `${layer.title}, head ${head.title}; strongest ${words(strongest)}`);
  const cell = Math.min(LARGEST_CELL, WIDEST_MAP / columns);
  canvas.style.width = `${columns * cell}px`;
  canvas.style.height = `${rows * cell}px`;
  canvas.draw = () => drawMap(canvas, weights, most);
  canvas.draw();
  const tell = (event) => {
    const box = canvas.getBoundingClientRect();
    const part = (from, length, n) => Math.min(n - 1, Math.max(0, Math.floor((n * from) / length)));
    const row = part(event.clientY - box.top - canvas.clientTop, canvas.clientHeight, rows);
    const column = part(event.clientX - box.left - canvas.clientLeft, canvas.clientWidth, columns);
    told.textContent = `head ${head.title}: ${words(row * columns + column)}`;
  };
  canvas.addEventListener("pointermove", tell);
  canvas.addEventListener("pointerdown", tell);
  return make("figure", {}, canvas, make("figcaption", { class: "note" }, head.title));
}

function makeHeads(sweep, name) {
  const maps = sweep.maps.get(name);
  const command = makeCommand(`attnsweep heads ${sweep.place} ${name}`);
  if (!maps) {
    return make("div", { class: "heads" }, make("p", { class: "note" }, "Its attention maps are not in this page; this command replays the training and draws them:"), command);
  }
  const isSigned = maps.layers.some((layer) => layer.heads.some((head) => head.weights.type === "i1"));
  const parts = maps.layers.flatMap((layer) => {
    const told = make("p", { class: "note told" }, "Rest the pointer on a cell: query → key, weight.");
    const figures = layer.heads.map((head) => makeMap(layer, head, told));
    return [make("h4", {}, layer.title), make("div", { class: "head-maps" }, ...figures), told];
  });
  return make("div", { class: "heads" }, make("h4", {}, "Attention maps where it ended"),
    make("p", { class: "note" }, `${maps.text}. Rows are queries, columns keys; the stronger the colour, the larger the weight, up to the largest of the layer${isSigned ? "; negative weights have another colour" : ""}. Below each: the head, its role, and the structure that it is nearest to, if any.`),
    ...parts, make("p", { class: "note" }, "As a figure, with the tokens beside it:"), command);
}
