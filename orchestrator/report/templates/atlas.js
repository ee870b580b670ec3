// Hides the sweeps and claims that the reader does not look for. Without this script the page shows all.

const field = document.getElementById("text");
const choice = document.getElementById("workload");
const rows = [...document.querySelectorAll("tr[data-workload]")].map((row) => ({ row, text: row.textContent.toLowerCase() }));

function show() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const { row, text } of rows) {
    const isChosen = choice.value === "" || row.dataset.workload === choice.value;
    row.hidden = !(isChosen && words.every((word) => text.includes(word)));
  }
  for (const said of document.querySelectorAll("[data-counts]")) {
    const inside = rows.filter(({ row }) => row.closest("table").id === said.dataset.counts);
    said.textContent = `${inside.filter(({ row }) => !row.hidden).length} of ${inside.length}`;
  }
}

document.getElementById("filter").hidden = false;
field.addEventListener("input", show);
choice.addEventListener("change", show);
show();
