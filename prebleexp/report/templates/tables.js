"use strict";
// Tables that can be sorted, filtered and copied. Without scripts they are plain tables.
(() => {
  const element = window.prebleexpElement = (name, attributes = {}, ...children) => {
    const made = Object.assign(document.createElement(name), attributes);
    made.append(...children);
    return made;
  };
  const numberOf = (text) => {
    const found = text.replace(/,/g, "").match(/^[-+−]?\d[\d.]*(e[-+]?\d+)?/);
    return found ? Number(found[0].replace("−", "-")) : NaN;
  };
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
  const csv = window.prebleexpCsv = (rows) => rows.map((row) => row.map((cell) => quoted(String(cell))).join(",")).join("\n") + "\n";
  const textOf = (cell) => cell.textContent.trim();
  const button = (text, action) => {
    const made = element("button", { type: "button", textContent: text });
    made.addEventListener("click", action);
    return made;
  };

  const sortable = (table) => {
    const body = table.tBodies[0];
    const original = [...body.rows];
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const name = textOf(head);
      const sort = () => {
        const before = head.getAttribute("aria-sort");
        const now = { none: "ascending", ascending: "descending", descending: "none" }[before || "none"];
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        if (now !== "none") head.setAttribute("aria-sort", now);
        const sign = now === "descending" ? -1 : 1;
        const compare = (one, other) => {
          const [a, b] = [one, other].map((row) => textOf(row.cells[column]));
          const [x, y] = [numberOf(a), numberOf(b)];
          if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
          return sign * (Number.isNaN(x) ? a.localeCompare(b) : x - y);
        };
        body.append(...(now === "none" ? original : [...original].sort(compare)));
      };
      const made = button(name, sort);
      made.title = `Sort by ${name}`;
      head.replaceChildren(made);
    });
  };

  const filterable = (table, tools, label) => {
    const input = document.createElement("input");
    input.type = "search";
    input.placeholder = "Filter rows";
    input.setAttribute("aria-label", `Filter the rows of: ${label}`);
    const count = document.createElement("span");
    count.setAttribute("role", "status");
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        const cells = [...row.cells].map((cell) => textOf(cell).toLowerCase());
        // a number stands for itself: 8 does not find 128
        const has = (word) => cells.some((cell) => (/^\d+$/.test(word) ? cell === word : cell.includes(word)));
        row.hidden = !words.every(has);
        shown += row.hidden ? 0 : 1;
      }
      count.textContent = words.length ? `${shown} of ${table.tBodies[0].rows.length} rows` : "";
    });
    tools.append(input, count);
  };

  const copyable = (table, tools) => {
    const copy = button("Copy as CSV", async () => {
      const rows = [table.tHead.rows[0], ...[...table.tBodies[0].rows].filter((row) => !row.hidden)];
      const text = csv(rows.map((row) => [...row.cells].map(textOf)));
      let done = true;
      try {
        await navigator.clipboard.writeText(text);
      } catch {
        const area = document.createElement("textarea");
        area.value = text;
        document.body.append(area);
        area.select();
        done = document.execCommand("copy");
        area.remove();
      }
      copy.textContent = done ? "Copied" : "Not copied: the browser does not allow it";
      setTimeout(() => { copy.textContent = "Copy as CSV"; }, 2000);
    });
    tools.append(copy);
  };

  window.prebleexpTable = (scroller) => {
    const table = scroller.querySelector("table");
    const tools = document.createElement("div");
    tools.className = "tools";
    sortable(table);
    if (table.tBodies[0].rows.length > 5) filterable(table, tools, scroller.getAttribute("aria-label"));
    copyable(table, tools);
    scroller.before(tools);
  };
  for (const scroller of document.querySelectorAll(".scroll:has(> table)")) window.prebleexpTable(scroller);
})();
