"use strict";
// The list of contents: beside the page where there is room, else closed until it is asked for; it says where one is.
(() => {
  const box = document.querySelector(".contents details");
  const narrow = matchMedia("(max-width: 75rem)");
  const fit = () => { box.open = !narrow.matches; };
  narrow.addEventListener("change", fit);
  fit();
  const links = new Map([...box.querySelectorAll("a")].map((link) => [link.hash.slice(1), link]));
  box.addEventListener("click", (event) => { if (narrow.matches && event.target.closest("a")) box.open = false; });
  const targets = [...links.keys()].map((id) => document.getElementById(id));
  const mark = () => {
    const passed = targets.filter((target) => target.getBoundingClientRect().top < innerHeight / 3);
    const here = (passed.at(-1) || targets[0]).id;
    for (const [id, link] of links) link.toggleAttribute("aria-current", id === here);
  };
  let waiting = false;
  addEventListener("scroll", () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; mark(); });
  }, { passive: true });
  mark();
})();
