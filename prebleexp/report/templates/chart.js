"use strict";
// Data that a page carries: JSON, gzipped, as base64.
window.prebleexpUnpack = async (id) => {
  const packed = document.getElementById(id).textContent.trim();
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
};
// How charts look on this page, whichever paper it has; `menu` offers them as pictures.
window.prebleexpChart = (element, specification, menu = true) => {
  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const [text, rule] = [ink("--ink"), ink("--rule")];
  const axis = { labelColor: text, titleColor: text, gridColor: rule, domainColor: rule, tickColor: rule, labelFontSize: 11, titleFontWeight: "normal" };
  const config = {
    font: getComputedStyle(document.body).fontFamily, axis, axisX: { grid: false }, view: { stroke: null },
    legend: { labelColor: text, titleColor: text, labelFontSize: 12, titleFontWeight: "normal" },
    header: { labelColor: text, titleColor: text, titleFontWeight: "normal" }, title: { color: text },
    ...specification.config,
  };
  // the interpreter of expressions needs no eval, which the page's security policy forbids
  const options = { ast: true, renderer: "svg", actions: menu && { export: true, source: false, compiled: false, editor: false } };
  const schema = "https://vega.github.io/schema/vega-lite/v6.json";
  return window.vegaEmbed(element, { $schema: schema, background: null, ...specification, config }, options);
};
// Draw now, and again when the width or the theme changes.
window.prebleexpRedraw = (element, draw) => {
  let waiting = 0, width = element.clientWidth;
  new ResizeObserver(() => {
    if (element.clientWidth === width) return;
    width = element.clientWidth;
    clearTimeout(waiting);
    waiting = setTimeout(draw, 150);
  }).observe(element);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
};
