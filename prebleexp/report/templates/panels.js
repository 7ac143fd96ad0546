"use strict";
// Panels of lines, or of single runs, as a Vega-Lite chart, from points { x, y, low, high, colour, panel }.
(() => {
  const LEAST_PX = 190, LABELS_PX = 50, RIGHT_PX = 20, LABEL_PX = 110, NUMBER = ",.4~r";
  const beginsWith = (digits) => `indexof([${digits}], round(datum.value / pow(10, floor(log(datum.value) / LN10 + 1e-9)))) >= 0`;
  const titled = (text) => ({ text, anchor: "start", fontWeight: "normal", fontSize: 12, offset: 8 });

  // as many panels in a row as are wide enough, in rows of one length
  const inRow = (panels, width) => {
    const fit = Math.max(1, Math.floor(width / (LABELS_PX + LEAST_PX + RIGHT_PX)));
    return Math.ceil(panels / Math.ceil(panels / fit));
  };

  // `x` and `y` are { title, … }, `colour` is { title, names, looks } or null, `panels` their titles in order, of which
  // `across` belong into a row; `single` points are no line; `free` panels have an axis of their own; a `whole` picture
  // has its titles and its legend, which the page has outside
  window.prebleexpPanels = (points, { x, y, colour, panels, across, single, free, whole, width, description }) => {
    const groups = free && panels.length ? panels.map((panel) => points.filter((point) => point.panel === panel)) : [points];
    const ratios = groups.map((group) => {
      const ys = group.map((point) => point.y);
      return Math.min(...ys) > 0 ? Math.max(...ys) / Math.min(...ys) : 1;
    });
    const tall = points.every((point) => point.y > 0) && Math.max(...ratios) > 10;
    const values = !tall ? points : groups.flatMap((group) => {
      const least = Math.min(...group.map((point) => point.y)) / 1.3; // no logarithm below zero
      return group.map((point) => (point.low === undefined ? point : { ...point, low: Math.max(point.low, least) }));
    });
    const xs = [...new Set(points.map((point) => point.x))].filter((one) => typeof one === "number").sort((a, b) => a - b);
    const wide = x.numeric && xs.length > 1 && xs[0] > 0 && xs.at(-1) / xs[0] >= 8;
    const columns = panels.length ? inRow(across, width) : 1;
    const panelWidth = Math.max(120, Math.floor((width - 4) / columns) - LABELS_PX - RIGHT_PX);

    const round = beginsWith(free ? [1, 2, 3, 5, 7] : [1, 2, 5]); // a panel alone may span less than a decade
    const named = tall ? { condition: { test: round, value: 1 }, value: 0 } : 1;
    const along = { field: "x", type: x.numeric ? "quantitative" : "nominal", title: x.title };
    if (x.numeric) {
      along.scale = wide ? { type: "log", base: 2, nice: false } : { zero: false };
      along.axis = { title: null, format: NUMBER, labelFlush: false, ...(x.measured || xs.length > 12 ? {} : { values: xs }) };
    } else {
      along.sort = x.order;
      along.axis = { title: null, labelLimit: LABEL_PX };
    }
    const up = {
      field: "y", type: "quantitative", title: y.title, scale: tall ? { type: "log", nice: false } : { zero: !single },
      axis: { title: null, tickCount: 5, ticks: false, labelPadding: 6, gridOpacity: named, minExtent: LABELS_PX, maxExtent: LABELS_PX, labelOverlap: true,
        labelExpr: `${tall ? round : true} ? format(datum.value, abs(datum.value) < 1e5 ? '${NUMBER}' : '~s') : ''` },
    };
    const encoding = { x: along, y: up };
    const look = (range) => ({ field: "colour", type: "nominal", title: colour.title, scale: { domain: colour.names, range },
      legend: whole ? { orient: "top", columns: Math.max(1, Math.floor(width / 220)), labelLimit: 200, symbolOpacity: 1 } : null });
    if (colour) encoding.color = look(colour.looks.map((one) => one.colour));
    // beside each other, unless x tells them apart itself
    if (colour && !x.numeric && colour.title !== x.title) encoding.xOffset = { field: "colour", type: "nominal", scale: { domain: colour.names } };
    const dash = colour && colour.looks.some((one) => one.dashed) ? { strokeDash: look(colour.looks.map((one) => (one.dashed ? [6, 4] : [1, 0]))) } : {};
    const shape = colour ? { shape: look(colour.looks.map((one) => one.outline)) } : {};
    const tooltip = [{ field: "told", title: "run" }, { field: "x", title: x.title }, ...(colour ? [{ field: "colour", title: colour.title }] : []),
      ...(panels.length ? [{ field: "panel", title: "panel" }] : []), { field: "y", title: y.title, format: NUMBER },
      ...(single ? [] : [{ field: "within", title: y.within }]), { field: "configuration", title: "configuration" }];

    const layer = [];
    if (!single && values.some((point) => point.low !== undefined)) {
      const band = { ...encoding, y: { ...up, field: "low" }, y2: { field: "high" } };
      const mark = x.numeric ? { type: "area", opacity: 0.18, aria: false } : { type: "rule", opacity: 0.6, aria: false };
      layer.push({ mark, encoding: band });
    }
    if (!single && x.numeric) layer.push({ mark: { type: "line", strokeWidth: 1.8, aria: false }, encoding: { ...encoding, ...dash } });
    layer.push({ mark: { type: "point", filled: true, size: single ? 24 : 42, opacity: single ? 0.55 : 1 }, encoding: { ...encoding, ...shape, tooltip } });
    const panel = { width: panelWidth, height: Math.round(Math.min(300, Math.max(170, panelWidth * 0.66))), layer };
    const header = { title: null, labelLimit: panelWidth, labelFontSize: 12, labelFontWeight: "bold", labelAnchor: "start", labelPadding: 6 };
    const chart = !panels.length ? panel : {
      facet: { field: "panel", type: "nominal", sort: panels, header }, columns, spec: panel, bounds: "flush",
      spacing: { column: LABELS_PX + RIGHT_PX, row: 60 + (x.numeric ? 0 : Math.min(LABEL_PX, 7 * Math.max(...x.order.map((one) => String(one).length)))) },
      resolve: { axis: { x: "independent", y: "independent" }, scale: { y: free ? "independent" : "shared" } },
    };
    const drawn = { data: { values }, description };
    if (!whole) return { ...drawn, ...chart };
    return { ...drawn, title: titled(y.title), vconcat: [{ ...chart, title: { ...titled(x.title), orient: "bottom", anchor: "middle" } }] };
  };
})();
