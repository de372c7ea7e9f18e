// The list of episodes, its filters, and the episode that is open. Both are kept in the address, so a reload keeps them.
const PAGE = 40;
const FIELDS = ["text", "source", "from", "to", "tier", "bucket", "ended", "db"];

function options(select, values, all) {
  select.replaceChildren(element("option", { value: "" }, all), ...values.map(([value, text]) => element("option", { value }, text)));
}

const distinct = (values) => [...new Set(values.filter((value) => value !== null && value !== undefined && value !== ""))].sort();

async function setUpBrowser(data) {
  const form = document.getElementById("filters"), list = document.getElementById("list"), count = document.getElementById("count");
  const more = document.getElementById("more"), place = document.getElementById("episode"), packed = document.querySelectorAll("script.packed");
  const episodes = data.groups.flatMap((group, number) => group.episodes.map((_, candidate) => ({ group: number, candidate })));
  const texts = new Map(), whole = new Map();
  let found = episodes, shownRows = 0, current = null, search = 0;

  const sourceName = (group) => visible(data.sources[group.source].name).trim();
  const plain = (values) => distinct(values).map((value) => [value, words(value)]);
  options(form.elements.source, data.sources.map((_, source) => [sourceName({ source }), sourceName({ source })]), "all");
  form.querySelector(".source").hidden = data.sources.length < 2;
  options(form.elements.tier, data.tiers.map((tier) => [tier, tier]), "all");
  options(form.elements.bucket, plain(data.groups.map((group) => group.bucket)), "all");
  options(form.elements.ended, plain(data.groups.flatMap((group) => group.episodes.map((episode) => episode[2]))), "all");
  document.getElementById("databases").replaceChildren(...distinct(data.groups.map((group) => group.db)).map((value) => element("option", { value })));

  const load = async (number) => {
    if (!whole.has(number)) whole.set(number, await unpack(packed[number].textContent));
    return whole.get(number);
  };
  const indexText = ({ group, candidate }) => {
    const { question, gold, episodes: all } = data.groups[group];
    return `${question ?? ""}\n${gold ?? ""}\n${all[candidate][6] ?? ""}`.toLowerCase();
  };
  // Unpacking every group takes a second or two in a large report, so it is done once and only when asked for.
  const turnText = async ({ group, candidate }) => {
    if (!texts.has(group)) {
      const { episodes: all } = await unpack(packed[group].textContent);
      const turnOf = (turn) => [turn.completion, turn.said, ...turn.calls.flat()].join("\n");
      texts.set(group, all.map((episode) => episode.turns.map(turnOf).join("\n").toLowerCase()));
    }
    return texts.get(group)[candidate];
  };

  function wanted() {
    const value = (name) => form.elements[name].value.trim();
    return Object.fromEntries([...FIELDS.map((name) => [name, value(name)]),
      ["turns", form.elements.turns.checked ? "1" : ""]].filter(([, text]) => text !== ""));
  }

  function fits({ group, candidate }, filter) {
    const index = data.groups[group], episode = index.episodes[candidate];
    return (filter.source === undefined || sourceName(index) === filter.source)
      && (filter.from === undefined || (index.update ?? -1) >= Number(filter.from)) && (filter.to === undefined || (index.update ?? -1) <= Number(filter.to))
      && (filter.tier === undefined || episode[1] === filter.tier) && (filter.bucket === undefined || index.bucket === filter.bucket)
      && (filter.ended === undefined || episode[2] === filter.ended)
      && (filter.db === undefined || (index.db ?? "").toLowerCase().includes(filter.db.toLowerCase()));
  }

  async function apply() {
    const filter = wanted(), mine = ++search, text = filter.text?.toLowerCase();
    let matching = episodes.filter((episode) => fits(episode, filter));
    if (text !== undefined) {
      const kept = [];
      for (const episode of matching) {
        if (indexText(episode).includes(text) || (filter.turns && (await turnText(episode)).includes(text))) kept.push(episode);
        if (mine !== search) return;
      }
      matching = kept;
    }
    found = matching;
    showFound();
    remember();
  }

  function showFound() {
    shownRows = 0;
    list.replaceChildren();
    showMore();
    count.textContent = `${found.length.toLocaleString("en")} of ${episodes.length.toLocaleString("en")} episodes`;
  }

  function showMore() {
    list.append(...found.slice(shownRows, shownRows + PAGE).map((episode) => element("li", {}, row(episode))));
    shownRows = Math.min(found.length, shownRows + PAGE);
    more.hidden = shownRows >= found.length;
    mark();
  }

  function row(episode) {
    const index = data.groups[episode.group], [candidate, tier, , reward] = index.episodes[episode.candidate];
    const where = [data.sources.length > 1 ? data.sources[index.source].name : null, index.update === null ? null : `update ${index.update}`,
      index.bucket ? words(index.bucket) : null, `candidate ${candidate}`, `reward ${number(reward)}`];
    return element("button", { type: "button", "data-at": `${episode.group}.${episode.candidate}`, onclick: () => open(episode.group, episode.candidate, true) },
      element("span", { class: "where" }, tierMark(tier), where.filter(Boolean).map((part) => element("span", {}, part))),
      element("span", { class: "question", dir: "auto" }, index.question || "(no question)"));
  }

  function mark() {
    const at = current ? `${current.group}.${current.candidate}` : "";
    list.querySelectorAll("button").forEach((button) => button.setAttribute("aria-current", String(button.dataset.at === at)));
  }

  async function open(group, candidate, focus) {
    const index = data.groups[group];
    if (!index?.episodes[candidate]) return;
    current = { group, candidate };
    const loaded = await load(group);
    if (current.group !== group || current.candidate !== candidate) return;
    showEpisode(place, data, index, loaded, candidate, (other) => open(group, other, true));
    mark();
    remember();
    if (focus) {
      place.querySelector("h3").focus({ preventScroll: true });
      place.scrollIntoView({ block: "start" });
    }
  }

  function remember() {
    const state = new URLSearchParams(wanted());
    if (current) {
      const group = data.groups[current.group];
      state.set("open", JSON.stringify([sourceName(group), group.at, current.candidate]));
    }
    history.replaceState(null, "", `#episodes?${state}`.replace(/\?$/, ""));
  }

  // The address names a run and a place in its files, since the places in the list change while a run goes on.
  async function recall(state) {
    for (const name of FIELDS) form.elements[name].value = state.get(name) ?? "";
    form.elements.turns.checked = state.has("turns");
    await apply();
    let named = null;
    try { named = JSON.parse(state.get("open")); } catch { named = null; }
    if (!Array.isArray(named)) return;
    const [source, at, candidate] = named;
    const group = data.groups.findIndex((index) => sourceName(index) === source && index.at === at);
    if (group >= 0) await open(group, candidate, false);
  }

  let waiting;
  form.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(apply, 120); });
  form.addEventListener("reset", () => setTimeout(apply));
  form.addEventListener("submit", (event) => event.preventDefault());
  more.addEventListener("click", () => {
    const first = shownRows;
    showMore();
    list.children[first]?.querySelector("button").focus();
  });
  const [section, query] = location.hash.slice(1).split("?");
  if (section === "episodes" && query) await recall(new URLSearchParams(query));
  else showFound();
  return { reading: () => current !== null };
}
