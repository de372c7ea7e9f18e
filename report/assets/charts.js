// Charts, drawn with plotly when they come into view.
const DRAWN = new Map();
const SMOOTH_FROM = 90; // updates from which on a moving mean is drawn over the raw values
const TABLE_ROWS = 60;

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
// Plotly reads a few tags in names: they must stay text.
const label = (text) => visible(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;");

function seriesColor(series, data) {
  if (series.color !== "run") return color(series.color.replace(/^stage-(\d+)$/, (_, n) => `stage-${n % 10}`));
  if (data.runs.length === 1 && data.tiers.includes(series.label)) return color(series.label);
  return color(`run-${series.run % 6}`);
}

function movingMean(values, width) {
  const half = Math.floor(width / 2);
  return values.map((_, at) => {
    const near = values.slice(Math.max(0, at - half), at + half + 1).filter((value) => value !== null);
    return near.length ? near.reduce((sum, value) => sum + value, 0) / near.length : null;
  });
}

const shown = (chart, run) => chart.series.filter((series) => !chart.one_run || series.run === run);
const named = (series, chart, data) => data.runs.length > 1 && !chart.one_run
  ? `${data.runs[series.run].name}: ${series.label}` : series.label;

function traces(chart, data, run) {
  const format = chart.unit === "share" ? ".1%" : ".3~g";
  return shown(chart, run).flatMap((series) => {
    const x = data.runs[series.run].updates, tint = seriesColor(series, data);
    const base = { x, type: "scatter", mode: "lines", name: label(named(series, chart, data)),
      hovertemplate: `%{y:${format}}`, connectgaps: false };
    const line = { color: tint, width: 2, dash: series.line };
    if (chart.stacked) {
      return [{ ...base, y: series.y.map((value) => value ?? 0), stackgroup: "all", fillcolor: tint, line: { color: tint, width: 0.5 } }];
    }
    if (x.length < SMOOTH_FROM || series.label.endsWith("planned")) {
      return [{ ...base, y: series.y, line, mode: x.length < 3 ? "lines+markers" : "lines" }];
    }
    const width = Math.round(x.length / 40);
    return [
      { ...base, y: series.y, line: { color: tint, width: 1 }, opacity: 0.22, hoverinfo: "skip", hovertemplate: undefined, showlegend: false },
      { ...base, y: movingMean(series.y, width), line },
    ];
  }).concat(levelTraces(chart, data));
}

function levelTraces(chart) {
  return chart.levels.flatMap((level) => [level.low, level.high].filter((value) => value !== null).map((value, place) => ({
    x: level.x, y: [value, value], type: "scatter", mode: "lines", line: { color: color("muted"), width: 2, dash: "dot" },
    name: label(level.label), showlegend: place === 0 && chart.levels.findIndex((l) => l.label === level.label) === chart.levels.indexOf(level),
    hovertemplate: chart.unit === "share" ? "%{y:.0%}" : "%{y}",
  })));
}

function layout(chart, data, run) {
  const axis = { gridcolor: color("line"), zerolinecolor: color("line"), linecolor: color("line"), automargin: true };
  const anchors = chart.anchors.filter((entry) => data.runs.length === 1 || entry.run === run).flatMap((entry) => entry.x);
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: color("ink"), family: "system-ui, sans-serif", size: 12 },
    margin: { l: 44, r: 14, t: 10, b: 40 }, hovermode: "x unified",
    hoverlabel: { bgcolor: color("surface"), bordercolor: color("line"), font: { color: color("ink") } },
    legend: { orientation: "h", y: -0.2, yanchor: "top", x: 0, font: { size: 11.5 } },
    xaxis: { ...axis, title: { text: "update", standoff: 4, font: { color: color("muted"), size: 11 } }, rangemode: "nonnegative" },
    yaxis: { ...axis, rangemode: "tozero", tickformat: chart.unit === "share" ? ".0%" : undefined,
      ticksuffix: chart.unit === "seconds" ? " s" : "", ...(chart.unit === "share" && chart.stacked ? { range: [0, 1] } : {}) },
    shapes: anchors.map((x) => ({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color: color("muted"), width: 1, dash: "dash" } })),
    showlegend: true,
  };
}

function drawChart(figure, chart, data, run) {
  const plot = figure.querySelector(".plot");
  if (!shown(chart, run).length) {
    plot.className = "plot absent";
    plot.replaceChildren("Not logged by this run.");
    return;
  }
  plot.setAttribute("role", "img");
  plot.setAttribute("aria-label", visible(`${chart.title}. ${chart.words.join(". ")}`));
  Plotly.react(plot, traces(chart, data, run), layout(chart, data, run), {
    responsive: true, displaylogo: false, displayModeBar: false, showTips: false });
  DRAWN.set(figure, chart);
}

function fillNumbers(details, chart, data, run) {
  const mine = shown(chart, run), updates = [...new Set(mine.flatMap((series) => data.runs[series.run].updates))].sort((a, b) => a - b);
  const step = Math.ceil(updates.length / TABLE_ROWS);
  const at = mine.map((series) => new Map(data.runs[series.run].updates.map((update, place) => [update, series.y[place]])));
  const rows = updates.filter((_, place) => place % step === 0 || place === updates.length - 1)
    .map((update) => [update, ...at.map((values) => values.get(update) ?? "–")]);
  details.querySelector("div")?.remove();
  details.append(element("div", { tabindex: 0, role: "region", "aria-label": `Numbers of ${chart.title}` },
    step > 1 ? element("p", { class: "small muted" }, `Every ${step}th update.`) : null,
    dataTable(["update", ...mine.map((series) => named(series, chart, data))], rows, chart.title)));
}

function setUpCharts(data) {
  let run = 0;
  const figures = [...document.querySelectorAll("[data-chart]")];
  const chartOf = (figure) => data.charts[Number(figure.dataset.chart)];
  const observer = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => {
    observer.unobserve(entry.target);
    drawChart(entry.target, chartOf(entry.target), data, run);
  }), { rootMargin: "300px" });
  figures.forEach((figure) => observer.observe(figure));
  figures.forEach((figure) => figure.querySelector(".numbers")?.addEventListener("toggle", (event) => {
    if (event.target.open) fillNumbers(event.target, chartOf(figure), data, run);
  }));
  document.getElementById("run")?.addEventListener("change", (event) => {
    run = Number(event.target.value);
    figures.forEach((figure) => {
      if (DRAWN.has(figure)) drawChart(figure, chartOf(figure), data, run);
      const open = figure.querySelector(".numbers[open]");
      if (open) fillNumbers(open, chartOf(figure), data, run);
    });
  });
  return () => DRAWN.forEach((chart, figure) => drawChart(figure, chart, data, run));
}
