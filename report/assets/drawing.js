// The foreign-key graph of an episode's database, from positions that the report computed.
const BOX = { width: 156, height: 26, across: 204, down: 36, margin: 14 };

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function graph(group, opened) {
  const fold = (names) => new Set(names.map((name) => name.toLowerCase()));
  const open = fold(opened), gold = fold(group.gold_tables);
  const at = group.places.map(([column, row]) => ({ x: BOX.margin + column * BOX.across, y: BOX.margin + row * BOX.down }));
  const is = group.tables.map((name) => ({ opened: open.has(name.toLowerCase()), gold: gold.has(name.toLowerCase()) }));
  const lines = group.edges.map(([child, parent]) => {
    const [left, right] = at[child].x <= at[parent].x ? [at[child], at[parent]] : [at[parent], at[child]];
    const y0 = left.y + BOX.height / 2, y1 = right.y + BOX.height / 2, x0 = left.x + BOX.width;
    const bend = left.x === right.x ? `M${x0} ${y0} C${x0 + 40} ${y0} ${x0 + 40} ${y1} ${x0} ${y1}`
      : `M${x0} ${y0} C${x0 + 32} ${y0} ${right.x - 32} ${y1} ${right.x} ${y1}`;
    return svg("path", { d: bend, class: is[child].opened && is[parent].opened ? "used" : null });
  });
  const boxes = group.tables.map((name, place) => {
    const { x, y } = at[place], marks = (is[place].gold ? "★ " : "") + (is[place].opened ? "● " : "");
    const full = visible(name), short = full.length > 19 - marks.length ? full.slice(0, 18 - marks.length) + "…" : full;
    return svg("g", { class: `${is[place].opened ? "opened" : ""} ${is[place].gold ? "gold" : ""}` },
      svg("title", {}, document.createTextNode(full)),
      svg("rect", { x, y, width: BOX.width, height: BOX.height, rx: 5 }),
      svg("text", { x: x + 9, y: y + 17 }, document.createTextNode(marks + short)));
  });
  const width = Math.max(...at.map(({ x }) => x)) + BOX.width + 56, height = Math.max(...at.map(({ y }) => y)) + BOX.height + BOX.margin;
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Foreign-key graph of ${group.tables.length} tables; the list below says the same` }, ...lines, ...boxes);
}

function tablesPart(group, episode) {
  const open = new Set(episode.opened.map((name) => name.toLowerCase()));
  const gold = new Set(group.gold_tables.map((name) => name.toLowerCase()));
  const missed = group.gold_tables.filter((name) => !open.has(name.toLowerCase()));
  const neighbors = group.tables.map(() => []);
  group.edges.forEach(([child, parent]) => neighbors[child].push(group.tables[parent]));
  return element("section", { "aria-label": "Tables" },
    element("h4", {}, `Tables: ${open.size} of ${group.tables.length} opened`),
    element("p", { class: "small muted" }, "★ gold table, ● opened by this episode; lines are foreign keys. ",
      missed.length ? element("span", { class: "wrong" }, `Never opened, though needed: ${missed.join(", ")}.`) : "Every gold table was opened."),
    group.missing ? element("p", { class: "small muted" }, `Foreign keys are not drawn: ${group.missing}.`) : null,
    group.tables.length ? element("div", { class: "graph", tabindex: 0, role: "region", "aria-label": "Drawing of the tables" }, graph(group, episode.opened)) : null,
    element("details", {}, element("summary", {}, "Tables as a list"),
      scrolling("Tables", dataTable(["table", "gold", "opened", "refers to"], group.tables.map((name, place) => [name,
        gold.has(name.toLowerCase()) ? "gold" : "", open.has(name.toLowerCase()) ? "opened" : "", neighbors[place].join(", ")]), "Tables"))));
}
