// Charts, drawn with uPlot when they come into view.
const DRAWN = new Map(); // figure -> uPlot
const SMOOTH_FROM = 90; // updates from which on a moving mean is drawn over the raw values
const TABLE_ROWS = 60;
const HEIGHT = 240;
const DASHES = { solid: undefined, dash: [7, 5], dot: [2, 4] };

const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const shown = (chart, run) => chart.series.filter((series) => !chart.one_run || series.run === run);
const named = (series, chart, data) => data.runs.length > 1 && !chart.one_run
  ? `${data.runs[series.run].name}: ${series.label}` : series.label;

function seriesColor(series, data) {
  if (series.color !== "run") return color(series.color.replace(/^stage-(\d+)$/, (_, n) => `stage-${n % 10}`));
  if (data.runs.length === 1 && data.tiers.includes(series.label)) return color(series.label);
  return color(`run-${series.run % data.colours}`);
}

function format(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "share") return `${Math.round(1000 * value) / 10}%`;
  return Number(value.toPrecision(3)) + (unit === "seconds" ? " s" : "");
}

function movingMean(values, width) {
  const half = Math.floor(width / 2);
  return values.map((own, at) => {
    if (own === null) return null;
    const near = values.slice(Math.max(0, at - half), at + half + 1).filter((value) => value !== null);
    return near.reduce((sum, value) => sum + value, 0) / near.length;
  });
}

// A series' values at the chart's updates; null where its run has none.
function aligned(series, data, updates) {
  const at = new Map(data.runs[series.run].updates.map((update, place) => [update, series.y[place]]));
  return updates.map((update) => at.get(update) ?? null);
}

// The lines of a chart: {label, values, raw, stroke, …} in the order in which they are painted.
function chartLines(chart, data, run, updates) {
  const mine = shown(chart, run).map((series) => ({ label: named(series, chart, data), values: aligned(series, data, updates),
    stroke: seriesColor(series, data), dash: DASHES[series.line], planned: series.label.endsWith("planned") }));
  if (chart.stacked) {
    const sums = updates.map(() => 0);
    mine.forEach((line) => {
      line.raw = line.values;
      line.values = line.raw.map((value, place) => (sums[place] += value ?? 0));
      line.fill = line.stroke;
    });
    return mine.reverse(); // the highest first, so that the lower ones are painted over it
  }
  return mine.flatMap((line) => {
    if (updates.length < SMOOTH_FROM || line.planned || chart.joined) return [{ ...line, raw: line.values, joined: chart.joined }];
    const faint = { ...line, stroke: `${line.stroke}38`, width: 1, silent: true, dash: undefined };
    return [faint, { ...line, raw: line.values, values: movingMean(line.values, Math.round(updates.length / 40)) }];
  }).concat(publishedLines(chart, updates));
}

// Published curves as far as the drawn updates go: dotted, their points joined.
function publishedLines(chart, updates) {
  const places = new Map(updates.map((update, place) => [update, place]));
  return chart.published.map(({ label, x, y }) => {
    const values = updates.map(() => null);
    x.forEach((update, point) => { if (places.has(update)) values[places.get(update)] = y[point]; });
    return { label, values, raw: values, stroke: color("muted"), dash: DASHES.dot, joined: true };
  });
}

function chartOptions(chart, lines, updates, anchors, width) {
  const axis = { stroke: color("muted"), grid: { stroke: color("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
  return {
    width, height: HEIGHT, legend: { live: true, markers: { width: 3, fill: () => "transparent", stroke: (_, place) => lines[place - 1].stroke,
      dash: (_, place) => (lines[place - 1].dash ? "dashed" : "solid") } },
    cursor: { points: { size: 6 }, y: false, drag: { setScale: true, x: true, y: false } },
    scales: {
      x: { time: false, range: (_, low, high) => (low === high ? [low - 0.5, high + 0.5] : [low, high]) },
      y: { range: (_, low, high) => (chart.stacked && chart.unit === "share" ? [0, 1] : [Math.min(0, low ?? 0), high > 0 ? high * 1.05 : low < 0 ? 0 : 1]) },
    },
    axes: [
      { ...axis, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000], label: "update", labelSize: 18, labelFont: "11px system-ui, sans-serif", size: 30 },
      { ...axis, size: 52, values: (_, values) => values.map((value) => format(value, chart.unit)) },
    ],
    series: [
      { label: "update", value: (_, value) => value ?? "" },
      ...lines.map((line) => ({ label: visible(line.label), stroke: line.stroke, fill: line.fill, dash: line.dash, width: line.width ?? (chart.stacked ? 0.5 : 2), spanGaps: line.joined,
        class: line.silent ? "silent" : "drawn", value: (_, value, __, place) => (place === null ? "" : format(line.raw?.[place], chart.unit)),
        points: { show: chart.joined || (!chart.stacked && updates.length < 3) } })),
    ],
    hooks: { drawAxes: [(plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.strokeStyle = color("muted");
      ctx.setLineDash([4, 4]);
      for (const update of anchors) {
        const x = Math.round(plot.valToPos(update, "x", true));
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
      ctx.restore();
    }] },
  };
}

function drawChart(figure, chart, data, run) {
  const place = figure.querySelector(".plot"), mine = shown(chart, run);
  DRAWN.get(figure)?.destroy();
  DRAWN.delete(figure);
  if (!mine.length) {
    place.className = "plot absent";
    place.replaceChildren("Not logged by this run.");
    return;
  }
  place.className = "plot";
  place.replaceChildren();
  place.setAttribute("role", "img");
  place.setAttribute("aria-label", visible(`${chart.title}. ${chart.words.join(". ")}`));
  const updates = chartUpdates(mine, data), lines = chartLines(chart, data, run, updates);
  const anchors = chart.anchors.filter((entry) => data.runs.length === 1 || entry.run === run).flatMap((entry) => entry.x);
  const plot = new uPlot(chartOptions(chart, lines, updates, anchors, place.clientWidth), [updates, ...lines.map((line) => line.values)], place);
  DRAWN.set(figure, plot);
}

const chartUpdates = (series, data) => [...new Set(series.flatMap(({ run }) => data.runs[run].updates))].sort((a, b) => a - b);

function fillNumbers(details, chart, data, run) {
  const mine = shown(chart, run), updates = chartUpdates(mine, data), step = Math.ceil(updates.length / TABLE_ROWS);
  const columns = mine.map((series) => aligned(series, data, updates));
  const rows = updates.map((update, place) => [update, ...columns.map((values) => values[place] ?? "–")])
    .filter((_, place) => place % step === 0 || place === updates.length - 1);
  details.querySelector("div")?.remove();
  details.append(element("div", { tabindex: 0, role: "region", "aria-label": `Numbers of ${chart.title}` },
    step > 1 ? element("p", { class: "small muted" }, `Every ${step}th update.`) : null,
    dataTable(["update", ...mine.map((series) => named(series, chart, data))], rows, chart.title)));
}

function setUpCharts(data) {
  // Kept in the tab, so that the page of a run that goes on shows the same run again.
  const choice = document.getElementById("run"), names = data.runs.map(({ name }) => name);
  let run = Math.max(0, names.indexOf(stored("sessionStorage", "report-run")));
  if (choice) choice.value = String(run);
  const figures = [...document.querySelectorAll("[data-chart]")], seen = new Set();
  const chartOf = (figure) => data.charts[Number(figure.dataset.chart)];
  const draw = (figure) => drawChart(figure, chartOf(figure), data, run);
  const observer = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
    observer.unobserve(target);
    seen.add(target);
    draw(target);
  }), { rootMargin: "300px" });
  const sizes = new ResizeObserver((entries) => entries.forEach(({ target }) => {
    const plot = DRAWN.get(target.closest("figure"));
    if (plot && plot.width !== target.clientWidth) plot.setSize({ width: target.clientWidth, height: HEIGHT });
  }));
  figures.forEach((figure) => {
    observer.observe(figure);
    sizes.observe(figure.querySelector(".plot"));
    figure.querySelector(".numbers")?.addEventListener("toggle", (event) => {
      if (event.target.open) fillNumbers(event.target, chartOf(figure), data, run);
    });
  });
  choice?.addEventListener("change", () => {
    run = Number(choice.value);
    store("sessionStorage", "report-run", names[run]);
    seen.forEach(draw);
    figures.forEach((figure) => {
      const open = figure.querySelector(".numbers[open]");
      if (open) fillNumbers(open, chartOf(figure), data, run);
    });
  });
  return () => seen.forEach(draw);
}
