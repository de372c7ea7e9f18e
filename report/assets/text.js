// Text of models and databases: it becomes text nodes, and characters that cannot be seen are named.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/gu;
const KEPT = new Set(["\n", "\t", "\u200c", "\u200d"]);

function visible(text) {
  return String(text ?? "").replace(UNSEEN, (sign) =>
    KEPT.has(sign) ? sign : `⟨U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

// An element. `properties`: attributes, but for `on…` (listeners); children: elements or texts, null is left out.
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : visible(value));
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined) made.append(child instanceof Node ? child : visible(child));
  }
  return made;
}

async function unpack(text) {
  const binary = atob(text.trim());
  const bytes = new Uint8Array(binary.length);
  for (let place = 0; place < binary.length; place++) bytes[place] = binary.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

// What the browser remembers; it may grant no storage, as to a page from a disk.
function stored(storage, name) {
  try { return window[storage].getItem(name); } catch { return null; }
}

function store(storage, name, value) {
  try { window[storage].setItem(name, value); } catch { /* then it is not remembered */ }
}

const number = (value, digits = 2) => (value === null || value === undefined ? "–" : Number(value).toFixed(digits));
const signed = (value) => (value === null || value === undefined ? "–" : (value > 0 ? "+" : "") + Number(value).toFixed(2));
const words = (name) => String(name ?? "–").replaceAll("_", " ");
const tierMark = (tier) => element("span", { class: `tier ${/^[a-z]+$/.test(tier ?? "") ? tier : ""}` }, tier ?? "–");

// Around what may be wider than the page: scrolled by keyboard too.
const scrolling = (label, child) => element("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, child);

// A table of rows; `heads` are the columns' names.
function dataTable(heads, rows, label) {
  const numeric = heads.map((_, place) => rows.every((row) => row[place] === null || !Number.isNaN(Number(row[place]))));
  return element("table", { class: "data", "aria-label": label },
    element("thead", {}, element("tr", {}, heads.map((head, place) =>
      element("th", { scope: "col", class: numeric[place] ? null : "text" }, head)))),
    element("tbody", {}, rows.map((row) => element("tr", {}, row.map((value, place) =>
      element("td", { class: numeric[place] ? null : "text", dir: "auto" },
        value === null ? element("span", { class: "null" }, "NULL") : value))))));
}
