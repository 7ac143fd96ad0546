"use strict";
// Choose what is drawn against what, over the table of all runs (see explorer.py for its form), as a Vega-Lite chart.
(() => {
  const MOST_CHOICES = 60, MOST_MARKS = 20000, MOST_LISTED = 500;
  const STATISTICS = {
    mean: "mean with its 95 % interval", median: "median with quartiles", min: "least", max: "greatest", runs: "every run",
  };
  const root = document.getElementById("explorer");
  const chart = root.querySelector(".chart"), note = root.querySelector("[role=status]");
  const listing = root.querySelector(".listing"), detail = root.querySelector(".detail");
  const element = (name, attributes = {}, ...children) => {
    const made = Object.assign(document.createElement(name), attributes);
    made.append(...children);
    return made;
  };
  const shown = (value) => (value === null ? "null" : typeof value === "number" ? String(value) : value);
  const brief = (value) => (value === null || value === undefined ? "–" : Number(value.toPrecision(4)).toLocaleString("en-US", { maximumSignificantDigits: 4 }));
  const build = (data) => {
    const dimension = Object.fromEntries(data.dimensions.map((one) => [one.name, one]));
    const measure = Object.fromEntries(data.measures.map((one) => [one.name, one]));
    const value = (name, run) => (dimension[name] ? dimension[name].values[dimension[name].index[run]] : null);
    const start = data.start;
    const state = { x: start.x, y: start.y, colour: start.colour, column: start.column, row: start.row, statistic: "mean" };
    const left = new Map(); // by dimension the values that are shown; all if it is not there
    if (start.parts.length && dimension.part) left.set("part", new Set(start.parts));
    for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
      if (name in state) state[name] = text;
      else if (dimension[name]) left.set(name, new Set(text.split("|").map((at) => dimension[name].values[Number(at)])));
    }

    const chooser = (label, name, options) => {
      const select = element("select", { name });
      for (const [key, text] of options) select.append(element("option", { value: key, textContent: text }));
      if (!options.some(([key]) => key === state[name])) state[name] = options[0][0];
      select.value = state[name];
      select.addEventListener("change", () => { state[name] = select.value; draw(); });
      return element("label", {}, label, select);
    };
    const dimensions = data.dimensions.map((one) => [one.name, one.label]);
    const few = dimensions.filter(([name]) => dimension[name].values.length <= MOST_CHOICES);
    const measures = data.measures.map((one) => [one.name, one.name]);
    const none = [["", "–"]];
    root.querySelector(".choices").append(
      chooser("x", "x", [...dimensions, ...measures]), chooser("y", "y", measures),
      chooser("colour", "colour", [...none, ...few]), chooser("panels", "column", [...none, ...few]),
      chooser("rows of panels", "row", [...none, ...few]), chooser("statistic", "statistic", Object.entries(STATISTICS)),
    );

    const filter = (one) => {
      const summary = element("summary");
      const say = () => {
        const chosen = left.get(one.name);
        summary.textContent = `${one.label}: ${chosen ? [...chosen].map(shown).join(", ") || "none" : "all"}`;
      };
      const boxes = one.values.map((each) => {
        const box = element("input", { type: "checkbox", checked: !left.has(one.name) || left.get(one.name).has(each) });
        box.addEventListener("change", () => {
          const on = one.values.filter((_, i) => boxes[i].firstChild.checked);
          if (on.length === one.values.length) left.delete(one.name);
          else left.set(one.name, new Set(on));
          say();
          draw();
        });
        return element("label", {}, box, shown(each));
      });
      say();
      return element("details", { name: "filter" }, summary, element("div", { className: "boxes" }, ...boxes));
    };
    const filters = data.dimensions.filter((one) => one.values.length <= MOST_CHOICES);
    const fields = filters.filter((one) => one.name.includes("."));
    root.querySelector(".filters").append(...filters.filter((one) => !one.name.includes(".")).map(filter));
    if (fields.length) {
      root.querySelector(".filters").append(element("details", { className: "more" }, element("summary", { textContent: "more filters" }),
        element("div", { className: "filters" }, ...fields.map(filter))));
    }

    const runsLeft = () => data.keys.map((_, run) => run).filter((run) =>
      [...left].every(([name, values]) => values.has(value(name, run))) && measure[state.y].values[run] !== null);

    const summarise = (values) => {
      const sorted = [...values].sort((a, b) => a - b), n = sorted.length;
      const at = (share) => {
        const position = share * (n - 1), low = Math.floor(position);
        return sorted[low] + (position - low) * (sorted[Math.min(low + 1, n - 1)] - sorted[low]);
      };
      const mean = sorted.reduce((sum, one) => sum + one, 0) / n;
      if (state.statistic === "min") return { y: sorted[0] };
      if (state.statistic === "max") return { y: sorted[n - 1] };
      if (state.statistic === "median") return { y: at(0.5), low: at(0.25), high: at(0.75) };
      if (n < 2) return { y: mean };
      const deviation = Math.sqrt(sorted.reduce((sum, one) => sum + (one - mean) ** 2, 0) / (n - 1));
      const half = (data.t[n - 2] ?? 1.96) * deviation / Math.sqrt(n);
      return { y: mean, low: mean - half, high: mean + half };
    };

    // a point for every run, or for all runs that share x, colour and panel
    const plotted = () => {
      const xOf = (run) => (dimension[state.x] ? value(state.x, run) : measure[state.x].values[run]);
      const place = (run) => ({ x: xOf(run), colour: shown(value(state.colour, run)), column: value(state.column, run), row: value(state.row, run) });
      const runs = runsLeft().filter((run) => xOf(run) !== null || dimension[state.x]);
      if (state.statistic === "runs" || measure[state.x]) {
        return { points: runs.map((run) => ({ ...place(run), y: measure[state.y].values[run], runs: [run] })), pooled: [] };
      }
      const groups = new Map();
      for (const run of runs) {
        const at = place(run), key = JSON.stringify(at);
        if (!groups.has(key)) groups.set(key, { ...at, runs: [] });
        groups.get(key).runs.push(run);
      }
      const pooled = data.dimensions.filter((one) => one.name !== "seed" && one.name !== "policy.seed"
        && [...groups.values()].some((group) => group.runs.some((run) => one.index[run] !== one.index[group.runs[0]])));
      const points = [...groups.values()].map((group) => ({ ...group, ...summarise(group.runs.map((run) => measure[state.y].values[run])) }));
      if (pooled.length && state.statistic === "mean") for (const point of points) { delete point.low; delete point.high; }
      return { points, pooled: pooled.map((one) => one.label) };
    };

    const specification = (points) => {
      const facets = ["column", "row"].filter((name) => state[name]);
      const numeric = !dimension[state.x] || dimension[state.x].numeric;
      const many = state.statistic === "runs" || Boolean(measure[state.x]);
      const xs = [...new Set(points.map((point) => point.x))].filter((x) => typeof x === "number").sort((a, b) => a - b);
      const wide = numeric && xs.length > 1 && xs[0] > 0 && xs.at(-1) / xs[0] >= 8;
      const ys = points.map((point) => point.y);
      const tall = Math.min(...ys) > 0 && Math.max(...ys) / Math.min(...ys) > 10;
      const least = Math.min(...ys) / 1.3;
      if (tall) for (const point of points) if (point.low !== undefined) point.low = Math.max(point.low, least); // no logarithm below zero
      const across = state.column ? Math.min(new Set(points.map((point) => point.column)).size, Math.max(1, Math.floor(chart.clientWidth / 330))) : 1;
      const columns = state.row ? new Set(points.map((point) => point.column)).size : across;
      const width = Math.max(140, Math.floor((chart.clientWidth - (state.row ? 130 : 90)) / columns) - 22);
      const dark = matchMedia("(prefers-color-scheme: dark)").matches;
      const colours = dimension[state.colour];
      const looks = colours && colours.looks.length ? colours.looks : null;
      const present = new Set(points.map((point) => point.colour));
      const kept = colours ? colours.values.map((_, i) => i).filter((i) => present.has(shown(colours.values[i]))) : [];
      const scale = { domain: kept.map((i) => shown(colours.values[i])) };
      const range = looks ? { range: kept.map((i) => (dark ? looks[i].dark : looks[i].light)) } : {};
      const legend = { orient: "top", columns: Math.max(1, Math.floor(chart.clientWidth / 220)), labelLimit: 200, symbolOpacity: 1 };
      const title = (name) => (dimension[name] ? dimension[name].label : name);
      const x = { field: "x", type: numeric ? "quantitative" : "nominal", title: title(state.x) };
      if (numeric) {
        x.scale = wide ? { type: "log", base: 2, nice: false } : { zero: false };
        x.axis = dimension[state.x] && xs.length <= 12 ? { values: xs, format: ",.4~r" } : { format: ",.4~r" };
      } else {
        x.sort = dimension[state.x].values;
        x.axis = { labelLimit: 120 };
      }
      const axis = { format: ",.4~r", tickCount: 5 };
      const y = { field: "y", type: "quantitative", title: state.y, scale: tall ? { type: "log", domainMin: least } : { zero: !many }, axis };
      const tooltip = [{ field: "told", title: "run" }, { field: "x", title: title(state.x) },
        ...["colour", "column", "row"].filter((name) => state[name]).map((name) => ({ field: name, title: title(state[name]) })),
        { field: "y", title: state.y, format: ",.4~r" }, ...(many ? [] : [{ field: "within", title: state.statistic === "mean" ? "95 % interval" : "quartiles" }]),
        { field: "configuration", title: "configuration" }];
      const encoding = { x, y };
      if (state.colour) {
        encoding.color = { field: "colour", type: "nominal", title: title(state.colour), scale: { ...scale, ...range }, legend };
      }
      const layer = [];
      const banded = points.some((point) => point.low !== undefined);
      if (!many && banded) {
        const band = { ...encoding, y: { ...y, field: "low" }, y2: { field: "high" } };
        layer.push(numeric ? { mark: { type: "area", opacity: 0.18, aria: false }, encoding: band } : { mark: { type: "rule", opacity: 0.6, aria: false }, encoding: band });
      }
      if (!many && numeric) layer.push({ mark: { type: "line", strokeWidth: 1.8, aria: false }, encoding });
      const shape = state.colour ? { shape: { field: "colour", type: "nominal", title: title(state.colour), scale, legend } } : {};
      layer.push({ mark: { type: "point", filled: true, size: many ? 24 : 42, opacity: many ? 0.55 : 1 }, encoding: { ...encoding, ...shape, tooltip } });
      const inner = { width, height: Math.round(Math.min(300, Math.max(180, width * 0.7))), layer };
      const header = { labelLimit: width, title: null, labelFontSize: 12, labelFontWeight: "bold", labelAnchor: "start" };
      const sorted = (name) => ({ field: name, type: "nominal", sort: dimension[state[name]].values, header: { ...header, title: title(state[name]), titleAnchor: "start" } });
      const whole = facets.length === 0 ? inner
        : state.row ? { facet: Object.fromEntries(facets.map((name) => [name, sorted(name)])), spec: inner }
        : { facet: sorted("column"), columns, spec: inner };
      return { data: { values: points }, description: root.querySelector(".spoken").textContent, ...whole };
    };

    const named = (point) => {
      const first = point.runs[0];
      const configuration = data.dimensions.filter((one) => point.runs.every((run) => one.index[run] === one.index[first]))
        .map((one) => `${one.name}=${shown(value(one.name, first))}`).join(" ");
      const runs = point.runs.length === 1 ? data.keys[first] : `${point.runs.length} runs, such as ${data.keys[first]}`;
      return { ...point, told: runs, configuration, within: point.low === undefined ? "–" : `${brief(point.low)} to ${brief(point.high)}` };
    };

    // what a click on a point does, for who has no pointer
    const details = (point) => {
      const made = element("button", { type: "button", textContent: data.keys[point.runs[0]], title: "Say which runs these are" });
      made.addEventListener("click", () => { explain(point); detail.focus(); });
      return made;
    };

    const table = (points) => {
      const heads = ["x", "colour", "column", "row"].filter((name) => state[name]);
      const row = (point) => element("tr", {}, ...heads.map((name) => element("td", { textContent: shown(point[name]) })),
        ...[brief(point.y), point.within, String(point.runs.length)].map((text) => element("td", { textContent: text })),
        element("td", {}, details(point)));
      const head = [...heads.map((name) => (dimension[state[name]] || { label: state[name] }).label), state.y, "interval", "runs", "first run"];
      const made = element("table", {},
        element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col", textContent: text })))),
        element("tbody", {}, ...points.slice(0, MOST_LISTED).map(row)));
      const scroller = element("div", { className: "scroll", tabIndex: 0 }, made);
      scroller.setAttribute("role", "region");
      scroller.setAttribute("aria-label", "Numbers in the chart");
      const rest = points.length - MOST_LISTED;
      listing.replaceChildren(element("summary", { textContent: "Numbers in the chart" }), scroller,
        ...(rest > 0 ? [element("p", { textContent: `${rest} more are not listed.` })] : []));
      window.prebleexpTable(scroller);
    };

    const explain = (point) => {
      const runs = point.runs.slice(0, 12).map((run) => element("li", {}, element("code", { textContent: `python -m prebleexp trace ${data.keys[run]}` }),
        ` ${state.y} = ${brief(measure[state.y].values[run])}${dimension.seed ? `, seed ${shown(value("seed", run))}` : ""}`));
      detail.replaceChildren(element("p", { textContent: point.configuration }), element("ul", {}, ...runs));
    };

    let turn = 0;
    const draw = async () => {
      const mine = ++turn;
      const { points, pooled } = plotted();
      const chosen = new URLSearchParams(Object.entries(state));
      for (const [name, values] of left) chosen.set(name, [...values].map((each) => dimension[name].values.indexOf(each)).join("|"));
      history.replaceState(null, "", `#${chosen}`);
      detail.replaceChildren();
      if (!points.length || points.length > MOST_MARKS) {
        note.textContent = points.length ? `${points.length} points are too many to draw: filter, or choose a statistic.` : "No run is left that has this.";
        chart.replaceChildren();
        listing.replaceChildren();
        return;
      }
      const what = `${STATISTICS[state.statistic]} of ${state.y} against ${state.x}`;
      root.querySelector(".spoken").textContent = `${what}, ${points.length} points`;
      note.textContent = `${points.reduce((sum, point) => sum + point.runs.length, 0).toLocaleString("en-US")} runs in ${points.length} points.`
        + (pooled.length ? ` Points pool runs that differ in ${pooled.join(", ")}: split or filter by these for intervals.` : "");
      const spoken = points.map(named);
      const view = await window.prebleexpChart(chart, specification(spoken));
      if (mine !== turn) return;
      view.view.addEventListener("click", (_, item) => { if (item && item.datum && item.datum.runs) explain(item.datum); });
      table(spoken);
      root.dataset.drawn = String(turn);
    };
    root.querySelector(".constants").textContent = Object.entries(data.constants).map(([name, text]) => `${name}=${text}`).join(" ");
    window.prebleexpRedraw(chart, draw);
  };

  const begin = () => window.prebleexpUnpack("runs").then(build).catch((error) => { note.textContent = `The explorer does not work in this browser: ${error.message}`; });
  // drawn when it comes near the screen: a page opens faster
  const watch = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) { watch.disconnect(); begin(); }
  }, { rootMargin: "600px" });
  watch.observe(root);
})();
