"use strict";
// Filters the rows of a table by the fields of its form, and sorts them by a column on a click on its head.
for (const form of document.querySelectorAll("form[data-filters]")) {
  const table = document.getElementById(form.dataset.filters);
  const body = table.tBodies[0];
  const count = form.querySelector("output");
  const limits = [...form.querySelectorAll("input[type=number]")];
  const choices = [...form.querySelectorAll("select")];
  const ticks = [...form.querySelectorAll("input[type=checkbox]")];
  const search = form.querySelector("input[type=search]");

  const passes = (row) =>
    (!search || search.value.toLowerCase().split(/\s+/).every((word) => row.textContent.toLowerCase().includes(word))) &&
    choices.every((each) => !each.value || row.dataset[each.name] === each.value) &&
    ticks.every((each) => !each.checked || row.dataset[each.name] === "yes") &&
    limits.every((each) => {
      const most = parseFloat(each.value) * parseFloat(each.dataset.scale || "1");
      return Number.isNaN(most) || parseFloat(row.dataset[each.name]) <= most;
    });

  const show = () => {
    let shown = 0;
    for (const row of body.rows) {
      row.hidden = !passes(row);
      shown += row.hidden ? 0 : 1;
    }
    count.textContent = `${shown} of ${body.rows.length} shown`;
  };

  const valueOf = (row, column) => {
    const cell = row.cells[column];
    const number = parseFloat(cell.dataset.value ?? "");
    return Number.isNaN(number) ? cell.textContent.trim() : number;
  };
  const sortBy = (head) => {
    const ascending = head.getAttribute("aria-sort") !== "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    const rows = [...body.rows].sort((one, other) => {
      const [first, second] = [valueOf(one, head.cellIndex), valueOf(other, head.cellIndex)];
      const order = typeof first === "number" && typeof second === "number" ? first - second : String(first).localeCompare(String(second));
      return ascending ? order : -order;
    });
    body.append(...rows);
  };
  for (const head of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => sortBy(head));
  }
  form.addEventListener("input", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  show();
}
