"use strict";
// A legend of buttons. A click shows a line alone, a second one all; with Shift it takes the line away or brings it back.
window.prebleexpLegend = (holder, entries, choose) => {
  const element = window.prebleexpElement;
  const press = (name, several) => {
    const lit = entries.filter((one) => one.lit).map((one) => one.name), on = lit.includes(name);
    const chosen = !several ? [name] : on ? lit.filter((one) => one !== name) : [...lit, name];
    const again = !several && on && lit.length === 1;
    choose(again || !chosen.length || chosen.length === entries.length ? null : chosen);
  };
  const buttons = entries.map(({ name, text, lit, colour, outline, dashed }) => {
    const button = element("button", { type: "button", title: "Alone; again: all. With Shift: away, or back", ariaPressed: String(lit) });
    button.innerHTML = `<svg viewBox="0 0 28 12" aria-hidden="true"><path d="M0 6h28"${dashed ? ' stroke-dasharray="6 4"' : ""}/><path d="${outline}" transform="translate(14 6) scale(4)"/></svg>`;
    button.style.setProperty("--line", `var(${colour})`);
    button.append(text);
    button.addEventListener("click", (event) => press(name, event.shiftKey));
    return button;
  });
  const focus = [...holder.children].indexOf(document.activeElement);
  holder.replaceChildren(...buttons);
  if (buttons[focus]) buttons[focus].focus();
};
