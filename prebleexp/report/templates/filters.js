"use strict";
// A button for each dimension, which opens its values over the page: all, none, some, or one alone.
(() => {
  const MOST_NAMED = 3, GAP_PX = 8;
  const element = window.prebleexpElement;

  // a button, and what it opens beneath itself, over what is there
  const opens = (width, button, ...content) => {
    const over = element("div", { popover: "auto", className: "over" }, ...content);
    button.popoverTargetElement = over;
    over.addEventListener("beforetoggle", (event) => {
      if (event.newState !== "open") return;
      const at = button.getBoundingClientRect(), room = document.documentElement.clientWidth;
      const wide = Math.min(width, room - 2 * GAP_PX);
      const left = Math.max(GAP_PX, Math.min(at.left, room - GAP_PX - wide));
      Object.assign(over.style, { width: `${wide}px`, left: `${left + scrollX}px`, top: `${at.bottom + scrollY + 4}px` });
    });
    return [button, over];
  };

  const filter = ({ name, label, values, texts }, left, changed) => {
    const button = element("button", { type: "button" });
    const boxes = values.map(() => element("input", { type: "checkbox" }));
    const set = (chosen) => {
      if (chosen.length === values.length) left.delete(name);
      else left.set(name, new Set(chosen));
      say();
      changed();
    };
    const say = () => {
      const chosen = left.get(name);
      const named = chosen && (chosen.size > MOST_NAMED ? `${chosen.size} of ${values.length}` : texts.filter((_, i) => chosen.has(values[i])).join(", ") || "none");
      button.textContent = `${label}: ${named || "all"}`;
      button.classList.toggle("chosen", Boolean(chosen));
      boxes.forEach((box, i) => { box.checked = !chosen || chosen.has(values[i]); });
    };
    const action = (text, what, chosen) => {
      const made = element("button", { type: "button", textContent: text, ariaLabel: what });
      made.addEventListener("click", () => set(chosen));
      return made;
    };
    const rows = values.map((value, i) => {
      boxes[i].addEventListener("change", () => set(values.filter((_, at) => boxes[at].checked)));
      return element("li", {}, element("label", {}, boxes[i], texts[i]), action("only", `only ${texts[i]}`, [value]));
    });
    say();
    const made = opens(320, button,
      element("p", {}, action("all", `all of ${label}`, values), action("none", `none of ${label}`, [])), element("ul", {}, ...rows));
    made[1].setAttribute("role", "group");
    made[1].setAttribute("aria-label", label);
    return made;
  };

  // dimensions are { name, label, values, texts }; `left` has by name the values that are left, of those dimensions that are filtered; fields of a class come last
  window.prebleexpFilters = (holder, dimensions, left, changed) => {
    const fields = dimensions.filter((one) => one.name.includes("."));
    holder.append(...dimensions.filter((one) => !fields.includes(one)).flatMap((one) => filter(one, left, changed)));
    if (!fields.length) return;
    const button = element("button", { type: "button" });
    const say = () => {
      const chosen = fields.filter((one) => left.has(one.name)).length;
      button.textContent = `more filters${chosen ? `: ${chosen}` : ""}`;
      button.classList.toggle("chosen", chosen > 0);
    };
    say();
    const more = opens(640, button, ...fields.flatMap((one) => filter(one, left, () => { say(); changed(); })));
    more[1].classList.add("filters");
    holder.append(...more);
  };
})();
