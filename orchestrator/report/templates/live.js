// For a page from `attnsweep serve`: loads a newer version when the server has one, and restores what the reader saw.

const MEMORY = "attnsweep";

function recalled() {
  const kept = sessionStorage.getItem(MEMORY);
  sessionStorage.removeItem(MEMORY);
  return kept === null ? { sections: {}, open: [], isPaused: false } : JSON.parse(kept);
}

// Identifies a heading or summary by section and text, because it may have moved in a newer version of the page.
const nameOf = (element) => `${element.closest("main")?.id} ${element.textContent}`;
const all = (selector) => [...document.querySelectorAll(selector)];

// The last heading above the visible part, and how far below this heading the visible part begins.
function whereabouts() {
  const above = all("main h1, main h2, main h3").filter((each) => each.getBoundingClientRect().top <= 1 && each.offsetParent);
  const last = above[above.length - 1];
  return last ? { name: nameOf(last), below: -last.getBoundingClientRect().top } : { name: null, below: scrollY };
}

function goTo({ name, below }) {
  const found = all("main h1, main h2, main h3").find((each) => nameOf(each) === name);
  scrollTo({ top: below + (found ? found.getBoundingClientRect().top + scrollY : 0), behavior: "instant" });
}

const memory = recalled();
const reader = { isPaused: memory.isPaused, isDue: false, isHolding: false, isEditing: false };

function renew() {
  const sections = Object.fromEntries([...views].map(([id, chosen]) => [id, chosen()]));
  const open = all("details[open] > summary").map(nameOf);
  sessionStorage.setItem(MEMORY, JSON.stringify({ sections, open, place: whereabouts(), isPaused: reader.isPaused }));
  location.reload();
}

// Renews the page only if it is visible and the reader is not dragging, typing or selecting anything.
function renewIfFree() {
  const isFree = !(reader.isPaused || reader.isHolding || reader.isEditing || document.hidden) && getSelection().isCollapsed;
  if (reader.isDue && isFree) renew();
}

function follow(bar) {
  const said = make("span", { role: "status" }, "");
  const button = make("button", { type: "button" }, "");
  const tell = (words) => {
    said.textContent = words ?? (reader.isPaused ? "paused: this page stays as it is" : "this page is renewed while its sweeps run");
    button.textContent = reader.isPaused ? "Go on" : "Pause";
  };
  button.addEventListener("click", () => { reader.isPaused = !reader.isPaused; tell(); renewIfFree(); });
  bar.append(said, button);
  tell();
  const events = new EventSource("/changes");
  events.onmessage = (event) => {
    tell();
    reader.isDue = Number(event.data) !== Number(document.body.dataset.renewal);
    renewIfFree();
  };
  events.onerror = () => tell("attnsweep serve does not answer: this page stays as it is");

  const listen = (kinds, change) => kinds.forEach((kind) => document.addEventListener(kind, (event) => {
    change(event);
    // The timeout lets the browser handle the event first.
    setTimeout(renewIfFree);
  }));
  const isField = (event) => event.target.matches("input, select");
  listen(["pointerdown"], () => { reader.isHolding = true; });
  listen(["pointerup", "pointercancel"], () => { reader.isHolding = false; });
  listen(["focusin", "input"], (event) => { reader.isEditing = isField(event); });
  listen(["focusout", "change"], () => { reader.isEditing = false; });
  listen(["visibilitychange", "selectionchange"], () => {});
}

history.scrollRestoration = "manual";
all("details").filter((each) => memory.open.includes(nameOf(each.querySelector("summary")))).forEach((each) => { each.open = true; });
await begin(memory.sections);
const bar = make("div", { class: "live" });
document.body.prepend(bar);
follow(bar);
if (memory.place) goTo(memory.place);
