"use strict";
// plotly.js and the figures are deflated. Where a browser cannot unpack them, it says so.
async function unpacked(id) {
  const packed = atob(document.getElementById(id).textContent);
  const bytes = Uint8Array.from(packed, one => one.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).text();
}
const every = selector => [...document.querySelectorAll(selector)];
const plots = () => every(".js-plotly-plot");

// One figure after the other, so that the page can be read meanwhile; then says so.
async function draw() {
  const library = document.createElement("script");
  library.textContent = await unpacked("plotly");
  document.head.append(library);
  const figures = JSON.parse(await unpacked("figures"));
  for (const [index, plot] of figures.plots.entries()) {
    await Plotly.newPlot("figure-" + index, plot.data, plot.layout, figures.config);
    await new Promise(resolve => setTimeout(resolve));
  }
  offerNames();
  for (const plot of plots()) plot.on("plotly_click", openStep);
  document.documentElement.dataset.drawn = String(figures.plots.length);
  if (location.hash.startsWith("#finding-")) unfold();
}

function fit() {
  const shown = plots().filter(plot => plot.offsetParent !== null);
  return Promise.all(shown.map(plot => Plotly.Plots.resize(plot)));
}
let waiting;
addEventListener("resize", () => {
  clearTimeout(waiting);
  waiting = setTimeout(fit, 100);
});
const more = document.getElementById("more");
more.addEventListener("toggle", fit);

// A finding is shown with some room beside it, and never more than the figure has.
function show(number) {
  for (const plot of plots()) {
    const begins = [], ends = [];
    for (const trace of plot.data.filter(one => one.meta === "findings")) {
      trace.customdata.forEach((marked, index) => {
        if (marked !== number) return;
        begins.push(trace.base[index]);
        ends.push(trace.base[index] + trace.x[index]);
      });
    }
    if (!begins.length) continue;
    const [first, last] = plot.layout.meta.range;
    const low = Math.min(...begins), high = Math.max(...ends), room = (high - low) / 4;
    const range = [Math.max(low - room, first), Math.min(high + room, last)];
    Plotly.relayout(plot, {"xaxis.range": range});
    plot.scrollIntoView();
    return;
  }
}
function unfold() {
  const place = /^#finding-([0-9]+)$/.exec(location.hash);
  if (place !== null) show(Number(place[1]));
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target !== null && more.contains(target)) {
    more.open = true;
    fit().then(() => target.scrollIntoView());
  }
}
addEventListener("hashchange", unfold);
addEventListener("click", event => {
  if (event.target.hash && event.target.hash === location.hash) unfold();
});

// From a step of the whole run to the figure that shows it.
function openStep(event) {
  const steps = event.points[0].customdata;
  if (!Array.isArray(steps)) return;
  const shows = plot => plot.layout.meta && plot.layout.meta.step >= steps[0]
    && plot.layout.meta.step <= steps[1];
  const figure = plots().find(shows);
  if (figure) figure.scrollIntoView();
}

// Names of operations in the timeline, and the stretches that bear one.
const wanted = document.getElementById("name"), told = document.getElementById("named");
const named = () => plots().filter(plot => plot.layout.meta && plot.layout.meta.names);
function offerNames() {
  if (!wanted) return;
  // Names are escaped as those that plotly draws.
  const plain = text => new DOMParser().parseFromString(text, "text/html").body.textContent;
  for (const plot of named()) plot.layout.meta.names = plot.layout.meta.names.map(plain);
  const names = new Set(named().flatMap(plot => plot.layout.meta.names));
  document.getElementById("names").append(...[...names].sort().map(name => new Option(name)));
  wanted.addEventListener("input", mark);
}
function mark() {
  const text = wanted.value.trim().toLowerCase(), found = new Set();
  let stretches = 0;
  for (const plot of named()) {
    const names = plot.layout.meta.names.map(name => name.toLowerCase().includes(text));
    const bars = [...plot.data.keys()].filter(index => "names" === plot.data[index].meta);
    const selected = bars.map(index => {
      if (!text) return null;
      const numbers = plot.data[index].customdata;
      const points = [...numbers.keys()].filter(point => names[numbers[point]]);
      stretches += points.length;
      points.forEach(point => found.add(plot.layout.meta.names[numbers[point]]));
      return points;
    });
    Plotly.restyle(plot, {selectedpoints: selected, "unselected.marker.opacity": 0.1}, bars);
  }
  told.textContent = !text ? "" : stretches
    ? `${stretches} stretches, ${found.size === 1 ? "1 name" : found.size + " names"}`
    : "none in these steps; shorter stretches are merged into their neighbors";
}

unfold();
if ("DecompressionStream" in window) draw();
else document.getElementById("undrawn").hidden = false;
