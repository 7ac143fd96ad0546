"use strict";
// The charts of a run (see run_page.py for the form of its data).
(() => {
  const MOST_STRIPS = 32, STRIP_PX = 46;
  const root = document.getElementById("run");
  const holder = (name) => root.querySelector(`[data-chart=${name}]`);
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const over = (data) => ({ field: "t", type: "quantitative", title: "time (s)", axis: { format: ",.4~r" }, scale: { domain: [0, data.edges.at(-1)], nice: false } });

  const rows = (data, series) => {
    const made = [];
    for (let gpu = 0; gpu < data.gpus; gpu++) {
      for (let bin = 0; bin + 1 < data.edges.length; bin++) {
        const row = { gpu: `${data.unit} ${gpu}`, t: data.edges[bin], until: data.edges[bin + 1], mean: series.mean[gpu][bin] };
        if (series.low) Object.assign(row, { low: series.low[gpu][bin], high: series.high[gpu][bin] });
        if (row.mean !== null) made.push(row);
      }
    }
    return made;
  };
  const tooltip = (series) => [{ field: "gpu", title: "on" }, { field: "t", title: "from (s)", format: ",.4~r" }, { field: "until", title: "to (s)", format: ",.4~r" },
    { field: "mean", title: "mean", format: ",.4~r" }, ...(series.low ? [{ field: "low", title: "least", format: ",.4~r" }, { field: "high", title: "greatest", format: ",.4~r" }] : [])];

  const strips = (data, series, width) => {
    const seconds = over(data), colour = ink("--blue"), y = { field: "mean", type: "quantitative", title: null, axis: { tickCount: 2, format: ",.4~r" } };
    const layer = [{ mark: { type: "line", interpolate: "step-after", color: colour, strokeWidth: 1.4, aria: false }, encoding: { x: seconds, y } }];
    if (series.low) layer.unshift({ mark: { type: "area", interpolate: "step-after", color: colour, opacity: 0.25, aria: false }, encoding: { x: seconds, y: { ...y, field: "low" }, y2: { field: "high" } } });
    layer.push({ mark: { type: "bar", opacity: 0, clip: true, width: width / (data.edges.length - 1) }, encoding: { x: seconds, y: { value: 0 }, y2: { value: STRIP_PX }, tooltip: tooltip(series) } });
    const header = { labelAngle: 0, labelAlign: "left", labelFontSize: 11, title: null, labelPadding: 4 };
    return { facet: { row: { field: "gpu", type: "nominal", sort: null, header } }, spec: { width: width - 60, height: STRIP_PX, layer }, spacing: 10 };
  };
  const heat = (data, series, width) => ({
    width: width - 60, height: Math.min(900, 6 * data.gpus), mark: "rect",
    encoding: { x: { ...over(data), bin: { binned: true } }, x2: { field: "until" }, y: { field: "gpu", type: "nominal", sort: null, title: null, axis: { labelOverlap: true } },
      color: { field: "mean", type: "quantitative", title: null, scale: { scheme: "viridis" } }, tooltip: tooltip(series) },
  });

  const build = (data) => {
    const select = document.createElement("select");
    data.series.forEach((series, i) => select.add(new Option(series.label, i)));
    const label = document.createElement("label");
    label.append("quantity", select);
    root.querySelector(".choices").append(label);
    const drawTime = async () => {
      const series = data.series[select.value], width = holder("time").clientWidth;
      const shape = data.gpus <= MOST_STRIPS ? strips : heat;
      await window.prebleexpChart(holder("time"), { data: { values: rows(data, series) }, description: `${series.label} on each ${data.unit} over time`, ...shape(data, series, width) });
      root.dataset.drawn = series.name;
    };
    select.addEventListener("change", drawTime);
    window.prebleexpRedraw(holder("time"), drawTime);

    if (data.scale.length) {
      const names = [...new Set(data.scale.map((one) => one.what))], looks = { ready: ["--blue", [1, 0]], starting: ["--vermilion", [5, 3]], draining: ["--muted", [1, 2]], wanted: ["--ink", [7, 2, 1, 2]] };
      window.prebleexpRedraw(holder("scale"), () => window.prebleexpChart(holder("scale"), {
        data: { values: data.scale }, width: Math.min(900, holder("scale").clientWidth - 70), height: 220,
        description: `Replicas over time: ${names.join(", ")}`, mark: { type: "line", interpolate: "step-after", strokeWidth: 1.8 },
        encoding: { x: over(data), y: { field: "gpus", type: "quantitative", title: "replicas", axis: { tickMinStep: 1 } },
          color: { field: "what", type: "nominal", title: null, scale: { domain: names, range: names.map((name) => ink(looks[name][0])) }, legend: { orient: "top", columns: 4 } },
          strokeDash: { field: "what", type: "nominal", title: null, scale: { domain: names, range: names.map((name) => looks[name][1]) } },
          tooltip: [{ field: "what", title: "what" }, { field: "t", title: "from (s)", format: ",.4~r" }, { field: "gpus", title: "replicas" }] },
      }));
    }

    const points = data.distributions.flatMap((one) => one.values.map((value, i) => ({ what: one.label, value, share: (i + 1) / one.values.length })));
    const logarithmic = points.every((point) => point.value > 0);
    window.prebleexpRedraw(holder("distributions"), () => window.prebleexpChart(holder("distributions"), {
      data: { values: points }, width: Math.min(760, holder("distributions").clientWidth - 70), height: 300,
      description: "Share of requests that took no longer, for time to first token and latency",
      mark: { type: "line", interpolate: "step-after", strokeWidth: 1.8 },
      encoding: { x: { field: "value", type: "quantitative", title: "seconds", scale: { type: logarithmic ? "log" : "linear" }, axis: { format: ",.4~r" } },
        y: { field: "share", type: "quantitative", title: "share of requests that took no longer", axis: { format: "%" } },
        color: { field: "what", type: "nominal", title: null, scale: { range: [ink("--blue"), ink("--vermilion")] }, legend: { orient: "top", columns: 1 } },
        tooltip: [{ field: "what", title: "what" }, { field: "value", title: "seconds", format: ",.4~r" }, { field: "share", title: "share", format: ".1%" }] },
    }));

    if (!holder("assignment")) return;
    const cells = data.assignment.flatMap((row, i) => row.map((requests, gpu) => ({ group: data.groups[i], gpu, requests })));
    window.prebleexpRedraw(holder("assignment"), () => window.prebleexpChart(holder("assignment"), {
      data: { values: cells }, width: Math.min(900, holder("assignment").clientWidth - 110), height: Math.max(60, 16 * data.groups.length),
      description: `Requests of each prefix group on each ${data.unit}`, mark: "rect",
      encoding: { x: { field: "gpu", type: "ordinal", title: data.unit, axis: { labelAngle: 0, labelOverlap: true } }, y: { field: "group", type: "nominal", sort: null, title: "prefix group" },
        color: { field: "requests", type: "quantitative", scale: { scheme: "viridis", domainMin: 0 } },
        tooltip: [{ field: "group", title: "prefix group" }, { field: "gpu", title: data.unit }, { field: "requests", title: "requests" }] },
    }));
  };
  window.prebleexpUnpack("data").then(build).catch((error) => { root.querySelector(".note").textContent = `The charts do not work in this browser: ${error.message}`; });
})();
