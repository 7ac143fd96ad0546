"use strict";
// Relative differences with their intervals, a row for each cell.
(() => {
  const MOST = 120;
  const LOOKS = { better: ["green", "circle"], worse: ["vermilion", "square"], undecided: ["grey", "cross"], equal: ["blue", "triangle-up"],
    different: ["purple", "diamond"], incomparable: ["amber", "triangle-down"] };
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const chart = document.getElementById("chart");
  const all = JSON.parse(document.getElementById("data").textContent).filter((cell) => cell.difference !== null);
  if (!all.length) return;
  const values = all.slice(0, MOST), present = Object.entries(LOOKS).filter(([name]) => values.some((cell) => cell.verdict === name));
  window.prebleexpRedraw(chart, () => {
    const label = Math.min(320, chart.clientWidth / 2, 30 + 7 * Math.max(...values.map((cell) => cell.where.length)));
    const y = { field: "where", type: "nominal", sort: null, title: null, axis: { labelLimit: label - 10 } };
    const percent = { format: "+.1%" };
    const look = (range) => ({ field: "verdict", type: "nominal", title: chart.dataset.verdict, legend: { orient: "top", columns: 3, symbolOpacity: 1 },
      scale: { domain: present.map(([name]) => name), range: present.map(range) } });
    const color = look(([, [colour]]) => ink(`--${colour}`)), shape = look(([, [, marker]]) => marker);
    const tooltip = [{ field: "where", title: "at" }, ...["difference", "low", "high"].map((field) => ({ field, title: field, ...percent })), { field: "verdict", title: chart.dataset.verdict }];
    return window.prebleexpChart(chart, {
      data: { values }, width: Math.max(120, Math.min(1000, chart.clientWidth - label - 20)), height: { step: 18 },
      description: `Relative differences of ${values.length} cells`,
      layer: [
        { mark: { type: "rule", color: ink("--muted"), aria: false }, encoding: { x: { datum: 0 } } },
        { mark: { type: "rule", strokeWidth: 2, aria: false }, encoding: { y, x: { field: "low", type: "quantitative", title: null, axis: { format: "+.1~%", labelOverlap: true, tickCount: 6 }, scale: { nice: 6 } }, x2: { field: "high" }, color } },
        { mark: { type: "point", filled: true, size: 55, opacity: 1 }, encoding: { y, x: { field: "difference", type: "quantitative" }, color, shape, tooltip } },
      ],
    });
  });
})();
