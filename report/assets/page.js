// Start: the theme, the data, the charts, the episodes; and news of a run that is watched.
const WATCH_MS = 4000;

function setUpTheme(redraw) {
  const button = document.getElementById("theme"), themes = ["auto", "light", "dark"];
  let theme = stored("localStorage", "report-theme") ?? "auto";
  const apply = () => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    store("localStorage", "report-theme", theme);
    apply();
    redraw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  apply();
}

// Shows news at once while nobody reads an episode; else offers them.
function watch(version, browser) {
  const timer = setInterval(async () => {
    let now = version;
    try { now = await (await fetch("version", { cache: "no-store" })).text(); } catch { return; }
    if (now === version) return;
    clearInterval(timer);
    if (!browser.reading()) location.reload();
    else document.getElementById("news").hidden = false;
  }, WATCH_MS);
  document.getElementById("reload").addEventListener("click", () => location.reload());
}

document.addEventListener("DOMContentLoaded", async () => {
  let redraw = () => {};
  setUpTheme(() => redraw());
  const data = await unpack(document.getElementById("data").textContent);
  const browser = await setUpBrowser(data);
  redraw = setUpCharts(data);
  if (data.version) watch(data.version, browser);
  document.documentElement.dataset.ready = "true";
});
