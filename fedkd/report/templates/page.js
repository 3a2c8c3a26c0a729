'use strict';
// Columns are sorted by the number that a cell begins with, or as text; cells without a number come last.
const number = (cell) => Number.parseFloat(cell.textContent.replace(/[<,]/g, ''));
for (const table of document.querySelectorAll('table.sortable')) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => head.firstElementChild.addEventListener('click', () => {
    const rows = [...table.tBodies[0].rows];
    const cells = new Map(rows.map((row) => [row, row.cells[column]]));
    const numeric = rows.some((row) => !Number.isNaN(number(cells.get(row))));
    const falls = head.ariaSort ? head.ariaSort === 'ascending' : numeric;
    const sign = falls ? -1 : 1;
    const last = (row) => numeric && Number.isNaN(number(cells.get(row)));
    rows.sort((one, other) => last(one) - last(other) || sign * (numeric
      ? number(cells.get(one)) - number(cells.get(other)) || 0
      : cells.get(one).textContent.localeCompare(cells.get(other).textContent)));
    heads.forEach((each) => each.removeAttribute('aria-sort'));
    head.setAttribute('aria-sort', falls ? 'descending' : 'ascending');
    table.tBodies[0].append(...rows);
  }));
}
// On paper nothing is folded.
addEventListener('beforeprint', () => document.querySelectorAll('details').forEach((one) => { one.open = true; }));
