// Rows of a list that a viewer has selected, for actions in bulk.
"use strict";

import {make} from "./dom.js";

export class Selection {
  #rows = new Map();
  #key_of;
  #name_of;

  constructor(key_of, name_of) {
    this.#key_of = key_of;
    this.#name_of = name_of;
  }

  get rows() { return [...this.#rows.values()]; }

  /// These rows are shown: others are selected no longer.
  keep(shown) {
    const known = new Map(shown.map(row => [this.#key_of(row), row]));
    for (const key of [...this.#rows.keys()])
      if (known.has(key)) this.#rows.set(key, known.get(key)); else this.#rows.delete(key);
  }

  #select(rows, is_chosen, redraw) {
    for (const row of rows)
      if (is_chosen) this.#rows.set(this.#key_of(row), row); else this.#rows.delete(this.#key_of(row));
    redraw();
  }

  /// The box of a row; `redraw` shows the list again.
  box(row, redraw) {
    return make("input", {type: "checkbox", "aria-label": `Select ${this.#name_of(row)}`,
      checked: this.#rows.has(this.#key_of(row)),
      onchange: event => this.#select([row], event.currentTarget.checked, redraw)});
  }

  /// The button for all rows, and how many are selected.
  all(shown, redraw) {
    const is_all = this.#rows.size >= shown.length;
    return [make("button", {type: "button", "data-key": "select", onclick: () => this.#select(shown, !is_all, redraw)},
        is_all ? "Select none" : "Select all of this page"),
      this.#rows.size > 0 ? make("span", {}, `${this.#rows.size} selected`) : null];
  }
}
