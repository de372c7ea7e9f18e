// One episode: its answer beside the gold query's, its turns, its tables, its group.
const TABLE_TOOLS = new Set(["run_query", "sample_rows", "distinct_values"]);

function resultPart(sql, group, empty) {
  if (!sql) return element("p", { class: "muted small" }, empty);
  const result = group.results[sql], parts = [element("pre", { class: "sql", dir: "auto" }, sql)];
  if (!result) parts.push(element("p", { class: "small muted" }, group.missing ? `No result: ${group.missing}.` : "No result."));
  else if (result.error !== undefined) parts.push(element("p", { class: "small wrong" }, `Error: ${result.error}`));
  else {
    const rest = [result.more ? `first ${result.rows.length} rows, more exist` : `${result.rows.length} ${result.rows.length === 1 ? "row" : "rows"}`];
    if (result.hidden_columns) rest.push(`${result.hidden_columns} more columns`);
    parts.push(scrolling("Result", dataTable(result.columns, result.rows, "Result")),
      element("p", { class: "small muted" }, rest.join(", ")));
  }
  return parts;
}

function splitThinking(text) {
  const end = text.lastIndexOf("</think>");
  if (end < 0) return { thinking: "", rest: text.replace(/^\s*<think>/, "") };
  return { thinking: text.slice(0, end).replace(/^\s*<think>/, "").trim(), rest: text.slice(end + 8) };
}

// A tool result as a table, where it has that form; null where it has not.
function toolTable(tool, result) {
  if (!TABLE_TOOLS.has(tool)) return null;
  const lines = result.split("\n"), notes = lines.filter((line) => line.startsWith("... ("));
  const [head, ...rows] = lines.filter((line) => !line.startsWith("... (")).map((line) => line.split(" | "));
  if (!head || rows.some((row) => row.length !== head.length) || (rows.length === 1 && rows[0][0] === "(no rows)")) return null;
  return [scrolling(`Result of ${tool}`, dataTable(head, rows, `Result of ${tool}`)),
    ...notes.map((line) => element("p", { class: "small muted" }, line))];
}

function callPart([tool, args, result, error]) {
  let values = null;
  try { values = JSON.parse(args ?? ""); } catch { values = null; }
  const plain = values !== null && typeof values === "object" && !Array.isArray(values);
  const rest = plain ? Object.entries(values).filter(([name]) => name !== "sql" || typeof values.sql !== "string") : [];
  return element("div", { class: "call" },
    element("div", { class: "head" }, element("strong", {}, element("code", {}, tool || "unreadable call")),
      rest.length ? element("span", { class: "small" }, rest.map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value)}`).join(", ")) : null,
      !plain && args ? element("code", {}, args) : null,
      error ? element("span", { class: "mark" }, `error: ${words(error)}`) : null),
    plain && typeof values.sql === "string" ? element("pre", { class: "sql", dir: "auto" }, values.sql) : null,
    result ? element("div", { class: "result" }, error ? element("pre", { class: "wrong", dir: "auto" }, result)
      : toolTable(tool, result) ?? element("pre", { dir: "auto", tabindex: result.length > 1200 ? 0 : null }, result)) : null);
}

function turnPart(turn, place, last) {
  const { thinking, rest } = splitThinking(turn.completion), failed = turn.calls.some((call) => call[3]);
  return element("li", { class: `turn${failed ? " failed" : ""}` },
    element("h5", {}, `Turn ${place + 1}`, last && !turn.calls.length ? ", final answer" : ""),
    thinking ? element("details", {}, element("summary", {}, `Thinking, ${thinking.length} characters`), element("pre", { dir: "auto" }, thinking)) : null,
    turn.calls.length ? turn.calls.map(callPart) : element("pre", { class: "sql", dir: "auto" }, rest.trim() || "(nothing)"),
    element("details", {}, element("summary", {}, "As written and answered"),
      element("pre", { dir: "auto" }, turn.completion), turn.said ? element("pre", { class: "muted", dir: "auto" }, turn.said) : null));
}

function groupPart(index, group, current, open) {
  return element("section", { "aria-label": "Group" },
    element("h4", {}, `The group: ${index.episodes.length} candidates of this question`),
    element("ol", { class: "group" }, index.episodes.map(([candidate, tier, ended, reward, advantage, gated, sql, turns, calls], place) =>
      element("li", { class: place === current ? "current" : null },
        element("div", { class: "tools" }, element("strong", {}, `Candidate ${candidate}`), tierMark(tier)),
        element("dl", {}, ...[["Reward", number(reward)], ["Advantage", signed(advantage)], ["Turns, calls", `${turns}, ${calls}`], ["Gate", gated ? "closed at start" : "open"], ["Ended by", words(ended)]]
          .flatMap(([term, value]) => [element("dt", {}, term), element("dd", { class: term === "Advantage" && advantage ? (advantage > 0 ? "positive" : "negative") : null }, value)])),
        element("p", { class: "path" }, group.episodes[place].turns.flatMap((turn) => turn.calls.map((call) => `${call[0] || "?"}${call[3] ? " ✗" : ""}`)).join(" → ") || "no call"),
        element("pre", { dir: "auto", tabindex: 0 }, sql || "(no answer)"),
        place === current ? element("span", { class: "small muted" }, "shown above") : element("button", { type: "button", class: "quiet", onclick: () => open(place) }, `Read candidate ${candidate}`)))));
}

// Fills `place` with candidate number `current` of a group; `open(n)` shows another candidate.
function showEpisode(place, data, index, group, current, open) {
  const [candidate, tier, ended, reward, advantage, gated, sql] = index.episodes[current], episode = group.episodes[current];
  const facts = [["", data.sources[index.source].name], ["update", index.update], ["database", index.db], ["bucket", words(index.bucket)],
    ["difficulty", index.difficulty], ["ended by", words(ended)], ["gate", gated ? "closed at start" : "open"], ["tokens written", episode.tokens[2]]];
  const scored = [["reward", number(reward)], ["advantage", signed(advantage)], ["F1", number(episode.f1)], ["join share", number(episode.join_share)], ["agrees with group", episode.agrees ? "yes" : "no"]];
  const meta = (pairs) => element("p", { class: "meta" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "–")
    .map(([name, value]) => element("span", {}, name ? `${name} ` : "", element("b", {}, value))));
  const step = (by, text) => element("button", { type: "button", class: "quiet", disabled: !index.episodes[current + by], onclick: () => open(current + by) }, text);
  place.replaceChildren(
    element("header", {},
      element("div", { class: "tools" }, element("span", {}, `Candidate ${candidate} `, tierMark(tier)),
        element("span", {}, step(-1, "Previous"), " ", step(1, "Next"))),
      element("h3", { dir: "auto", tabindex: -1 }, index.question || "(no question)"),
      meta(facts), meta(scored)),
    element("div", { class: "pair" },
      element("div", { class: "panel" }, element("h5", {}, "Answer ", tierMark(tier)), resultPart(sql, group, "The episode gave no answer."),
        episode.error && !group.results[sql]?.error ? element("p", { class: "small wrong" }, `Scored as: ${episode.error}`) : null),
      element("div", { class: "panel" }, element("h5", {}, "Gold query"), resultPart(index.gold, group, "No gold query."))),
    element("h4", {}, "Turns"),
    element("ol", { class: "turns" }, episode.turns.map((turn, at) => turnPart(turn, at, at === episode.turns.length - 1))),
    tablesPart(group, episode),
    index.episodes.length > 1 ? groupPart(index, group, current, open) : element("p"));
}
