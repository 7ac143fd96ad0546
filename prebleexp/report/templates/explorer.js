"use strict";
// Choose what is drawn against what, over the table of all runs (see explorer.py for its form).
(() => {
  const MOST_CHOICES = 60, MOST_MARKS = 20000, MOST_LISTED = 500;
  const STATISTICS = {
    mean: "mean and 95 % interval", median: "median and quartiles", min: "least", max: "greatest", runs: "every run",
  };
  const root = document.getElementById("explorer");
  const part = (name) => root.querySelector(`.${name}`);
  const [chart, legend, listing, detail] = ["chart", "legend", "listing", "detail"].map(part), note = root.querySelector("[role=status]");
  const element = window.prebleexpElement;
  const shown = (value) => (value === null ? "null" : typeof value === "number" ? String(value) : value);
  const brief = (value) => (value === null || value === undefined ? "–" : Number(value.toPrecision(4)).toLocaleString("en-US", { maximumSignificantDigits: 4 }));
  const build = (data) => {
    const dimension = Object.fromEntries(data.dimensions.map((one) => [one.name, one]));
    const measure = Object.fromEntries(data.measures.map((one) => [one.name, one]));
    const value = (name, run) => (dimension[name] ? dimension[name].values[dimension[name].index[run]] : null);
    const start = data.start;
    const state = { x: start.x, y: start.y, colour: start.colour, column: start.column, row: start.row, statistic: "mean", axes: "shared" };
    const left = new Map(); // by dimension the values that are left; all if it is not there
    if (start.parts.length && dimension.part) left.set("part", new Set(start.parts));
    const asked = new URLSearchParams(location.hash.slice(1));
    const numbered = (name, text) => new Set(text.split("|").map((at) => dimension[name].values[Number(at)]));
    for (const [name, text] of asked) {
      if (Object.hasOwn(state, name)) state[name] = text;
      else if (dimension[name]) left.set(name, numbered(name, text));
    }
    let only = null; // the lines that were chosen in the legend; all if there is nothing
    const changed = () => {
      const chosen = new URLSearchParams(Object.entries(state));
      const at = (name, values) => dimension[name].values.flatMap((one, i) => (values.has(one) ? [i] : [])).join("|");
      for (const [name, values] of left) chosen.set(name, at(name, values));
      if (only) chosen.set("lines", at(state.colour, only));
      history.replaceState(null, "", `#${chosen}`);
      return draw();
    };

    const chooser = (label, name, options) => {
      const select = element("select", { name });
      for (const [key, text] of options) select.append(element("option", { value: key, textContent: text }));
      if (!options.some(([key]) => key === state[name])) state[name] = options[0][0];
      select.value = state[name];
      select.addEventListener("change", () => {
        state[name] = select.value;
        if (name === "colour") only = null;
        changed();
      });
      return element("label", {}, label, select);
    };
    const dimensions = data.dimensions.map((one) => [one.name, one.label]);
    const few = dimensions.filter(([name]) => dimension[name].values.length <= MOST_CHOICES);
    const measures = data.measures.map((one) => [one.name, one.label]);
    const none = [["", "–"]];
    part("choices").append(
      chooser("x", "x", [...dimensions, ...measures]), chooser("y", "y", measures),
      chooser("colour", "colour", [...none, ...few]), chooser("panels", "column", [...none, ...few]),
      chooser("rows of panels", "row", [...none, ...few]), chooser("statistic", "statistic", Object.entries(STATISTICS)),
      chooser("y axes", "axes", [["shared", "same in all panels"], ["free", "free in each panel"]]),
    );
    if (asked.has("lines") && dimension[state.colour]) only = numbered(state.colour, asked.get("lines"));
    window.prebleexpFilters(part("filters"), data.dimensions.filter((one) => one.values.length <= MOST_CHOICES)
      .map((one) => ({ ...one, texts: one.values.map(shown) })), left, changed);

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

    // a point for every run, or for all runs that share x, colour and panel; in the units of the labels
    const single = () => state.statistic === "runs" || !dimension[state.x];
    const plotted = () => {
      const scaled = (name) => (run) => (measure[name].values[run] === null ? null : measure[name].values[run] * measure[name].scale);
      const xOf = dimension[state.x] ? (run) => value(state.x, run) : scaled(state.x), yOf = scaled(state.y);
      const place = (run) => ({ x: xOf(run), colour: value(state.colour, run), column: value(state.column, run), row: value(state.row, run) });
      const runs = runsLeft().filter((run) => xOf(run) !== null || dimension[state.x]);
      if (single()) return { points: runs.map((run) => ({ ...place(run), y: yOf(run), runs: [run] })), pooled: [] };
      const groups = new Map();
      for (const run of runs) {
        const at = place(run), key = JSON.stringify(at);
        if (!groups.has(key)) groups.set(key, { ...at, runs: [] });
        groups.get(key).runs.push(run);
      }
      const pooled = data.dimensions.filter((one) => one.name !== "seed" && one.name !== "policy.seed"
        && [...groups.values()].some((group) => group.runs.some((run) => one.index[run] !== one.index[group.runs[0]])));
      const points = [...groups.values()].map((group) => ({ ...group, ...summarise(group.runs.map(yOf)) }));
      if (pooled.length && state.statistic === "mean") for (const point of points) { delete point.low; delete point.high; }
      return { points, pooled: pooled.map((one) => one.label) };
    };

    // as panels, lines and x come, which is how they are listed
    const inOrder = (points) => {
      const ranks = ["row", "column", "colour", "x"].filter((name) => dimension[state[name]])
        .map((name) => [name, new Map(dimension[state[name]].values.map((one, i) => [one, i]))]);
      const apart = (a, b) => ranks.reduce((found, [name, rank]) => found || rank.get(a[name]) - rank.get(b[name]), 0);
      return [...points].sort(apart);
    };
    const title = (name) => (dimension[name] || measure[name]).label;
    const panelOf = (point) => ["column", "row"].filter((name) => state[name])
      .map((name) => dimension[state[name]].titles[dimension[state[name]].values.indexOf(point[name])]).join(", ");
    // as panels.js takes them, and what tooltips say
    const told = (point) => {
      const first = point.runs[0];
      const configuration = data.dimensions.filter((one) => point.runs.every((run) => one.index[run] === one.index[first]))
        .map((one) => `${one.name}=${shown(value(one.name, first))}`).join(" ");
      const runs = point.runs.length === 1 ? data.keys[first] : `${point.runs.length} runs, such as ${data.keys[first]}`;
      const within = point.low === undefined ? "–" : `${brief(point.low)} to ${brief(point.high)}`;
      return { ...point, colour: shown(point.colour), panel: panelOf(point), told: runs, configuration, within };
    };
    const lookOf = (name) => dimension[state.colour].looks[dimension[state.colour].values.indexOf(name)];
    const titles = () => ({ x: title(state.x), y: measure[state.y].axis });
    const specification = (points, lines, whole) => {
      const ink = getComputedStyle(document.documentElement);
      const panels = [...new Set(points.map((point) => point.panel))].filter(Boolean), x = dimension[state.x];
      const { x: along, y: up } = titles();
      return window.prebleexpPanels(points, {
        x: { title: along, numeric: !x || x.numeric, measured: !x, order: x && x.values },
        y: { title: up, within: state.statistic === "mean" ? "95 % interval" : "quartiles" },
        colour: state.colour && { title: title(state.colour), names: lines.map(shown), looks: lines.map((name) => ({ ...lookOf(name), colour: ink.getPropertyValue(lookOf(name).colour).trim() })) },
        panels, across: state.column ? new Set(points.map((point) => point.column)).size : panels.length,
        single: single(), free: state.axes === "free", whole, width: chart.clientWidth, description: part("spoken").textContent,
      });
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
      const head = [...heads.map((name) => title(state[name])), title(state.y), "interval", "runs", "first run"];
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

    // what is shown, in the units of the columns' names, with what tells the points apart
    const csv = (points) => {
      const first = (point, name) => shown(value(name, point.runs[0]));
      const used = ["row", "column", "colour", "x"].map((name) => state[name]);
      const others = data.dimensions.map((one) => one.name).filter((name) => new Set(points.map((point) => first(point, name))).size > 1
        && points.every((point) => point.runs.every((run) => value(name, run) === value(name, point.runs[0]))));
      const names = [...new Set([...used.filter((name) => dimension[name]), ...others])];
      const plain = (name, one) => (one === undefined ? "" : Number((one / measure[name].scale).toPrecision(6)));
      const ends = points.some((point) => point.low !== undefined) ? (state.statistic === "mean" ? ["low_95", "high_95"] : ["quartile_1", "quartile_3"]) : [];
      const measured = measure[state.x] ? [state.x] : [];
      const row = (point) => [...names.map((name) => first(point, name)), ...measured.map((name) => plain(name, point.x)), plain(state.y, point.y),
        ...(ends.length ? [plain(state.y, point.low), plain(state.y, point.high)] : []), point.runs.length, data.keys[point.runs[0]]];
      return window.prebleexpCsv([[...names, ...measured, state.y, ...ends, "runs", "first_run"], ...points.map(row)]);
    };
    const download = (kind, url) => element("a", { href: url, download: `${state.y}.${kind}` }).click();
    const files = (points, lines) => {
      const picture = async (kind) => {
        const paper = getComputedStyle(document.body).backgroundColor;
        const { view } = await window.prebleexpChart(element("div"), { ...specification(points, lines, true), background: paper });
        download(kind, await view.toImageURL(kind, 2));
      };
      const button = (text, action) => {
        const made = element("button", { type: "button", textContent: text });
        made.addEventListener("click", action);
        return made;
      };
      const whole = () => download("csv", URL.createObjectURL(new Blob([csv(points)], { type: "text/csv" })));
      part("downloads").replaceChildren("What is shown, as a file:", button("CSV", whole), button("SVG", () => picture("svg")), button("PNG", () => picture("png")));
    };

    let turn = 0;
    const draw = async () => {
      const mine = ++turn;
      const { points: all, pooled } = plotted();
      const lines = state.colour ? dimension[state.colour].values.filter((name) => all.some((point) => point.colour === name)) : [];
      const lit = only && lines.some((name) => only.has(name)) ? lines.filter((name) => only.has(name)) : lines;
      const points = inOrder(state.colour ? all.filter((point) => lit.includes(point.colour)) : all).map(told);
      window.prebleexpLegend(legend, lines.map((name) => ({ name, text: shown(name), lit: lit.includes(name), ...lookOf(name) })), (chosen) => {
        only = chosen && new Set(chosen);
        changed();
      });
      legend.ariaLabel = state.colour ? `Lines by ${title(state.colour)}` : "";
      for (const each of ["detail", "listing", "downloads"]) part(each).replaceChildren();
      const { x: along, y: up } = titles();
      part("axis.up").textContent = up;
      part("axis.x").textContent = along;
      part("meaning").replaceChildren(`Drawn: ${single() ? STATISTICS.runs : STATISTICS[state.statistic]}. `, element("code", { textContent: state.y }), `: ${measure[state.y].meaning}`);
      if (!points.length || points.length > MOST_MARKS) {
        note.textContent = points.length ? `${points.length} points are too many to draw: filter, or choose a statistic.` : "No run is left that has this.";
        chart.replaceChildren();
        root.dataset.drawn = String(turn);
        return;
      }
      part("spoken").textContent = `${STATISTICS[state.statistic]} of ${title(state.y)} against ${along}, ${points.length} points`;
      note.textContent = `${points.reduce((sum, point) => sum + point.runs.length, 0).toLocaleString("en-US")} runs in ${points.length} points.`
        + (pooled.length ? ` Points pool runs that differ in ${pooled.join(", ")}: split or filter by these for intervals.` : "");
      const { view } = await window.prebleexpChart(chart, specification(points, lit, false), false);
      if (mine !== turn) return;
      view.addEventListener("click", (_, item) => { if (item && item.datum && item.datum.runs) explain(item.datum); });
      table(points);
      files(points, lit);
      root.dataset.drawn = String(turn);
    };
    part("constants").textContent = Object.entries(data.constants).map(([name, text]) => `${name}=${text}`).join(" ");
    window.prebleexpRedraw(chart, draw);
  };

  const begin = () => window.prebleexpUnpack("runs").then(build).catch((error) => { note.textContent = `The explorer does not work in this browser: ${error.message}`; });
  // drawn when it comes near the screen: a page opens faster
  const watch = new IntersectionObserver((entries) => {
    if (entries.some((entry) => entry.isIntersecting)) { watch.disconnect(); begin(); }
  }, { rootMargin: "600px" });
  watch.observe(root);
  if (location.hash.includes("=")) root.scrollIntoView(); // a link to what was chosen here
  // on a narrow screen the chart comes first, and what can be chosen is folded
  const narrow = matchMedia("(max-width: 40rem)"), controls = part("controls");
  const fold = () => { controls.open = !narrow.matches; };
  narrow.addEventListener("change", fold);
  fold();
})();
