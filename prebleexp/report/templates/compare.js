"use strict";
// Relative differences with their intervals, a row for each cell.
(() => {
  const MOST = 120;
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const chart = document.getElementById("chart");
  const all = JSON.parse(document.getElementById("data").textContent).filter((cell) => cell.difference !== null);
  if (!all.length) return;
  const values = all.slice(0, MOST);
  window.prebleexpRedraw(chart, () => {
    const label = Math.min(320, chart.clientWidth / 2);
    const y = { field: "where", type: "nominal", sort: null, title: null, axis: { labelLimit: label - 10 } };
    const percent = { format: "+.1%" };
    const color = { field: "verdict", type: "nominal", title: "B is", legend: { orient: "top", columns: 2 },
      scale: { domain: ["better", "worse", "undecided", "equal", "different", "incomparable"],
        range: ["green", "vermilion", "grey", "blue", "purple", "amber"].map((name) => ink(`--${name}`)) } };
    const tooltip = [{ field: "where", title: "at" }, ...["difference", "low", "high"].map((field) => ({ field, title: field, ...percent })), { field: "verdict", title: "B is" }];
    return window.prebleexpChart(chart, {
      data: { values }, width: Math.max(120, Math.min(1000, chart.clientWidth - label - 20)), height: { step: 18 },
      description: `Relative differences of ${values.length} cells`,
      layer: [
        { mark: { type: "rule", color: ink("--muted"), aria: false }, encoding: { x: { datum: 0 } } },
        { mark: { type: "rule", strokeWidth: 2, aria: false }, encoding: { y, x: { field: "low", type: "quantitative", title: "B against A", axis: percent }, x2: { field: "high" }, color } },
        { mark: { type: "point", filled: true, size: 55 }, encoding: { y, x: { field: "difference", type: "quantitative" }, color, tooltip } },
      ],
    });
  });
})();
