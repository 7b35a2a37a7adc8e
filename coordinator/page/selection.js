// Rows of a list that a viewer has selected, for actions in bulk. While there are some, the list keeps its rows in
// their places.
"use strict";

import {make} from "./dom.js";

const all = [];

/// After an action on the selected rows.
export const clear_selections = () => { for (const selection of all) selection.clear(); };

/// Somebody marks text of the view with the mouse.
const is_marking = () => !getSelection().isCollapsed &&
  document.getElementById("view").contains(getSelection().anchorNode);

export class Selection {
  #rows = new Map();
  #shown = []; // as they were drawn last, at this address
  #address = null;
  #takes_new = false;
  #key_of;
  #name_of;

  constructor(key_of, name_of) {
    this.#key_of = key_of;
    this.#name_of = name_of;
    all.push(this);
  }

  get rows() { return [...this.#rows.values()]; }

  clear() { this.#rows.clear(); }

  /// The rows to show of those that were read, and how many others came. While somebody selects, the rows are those
  /// of the last time: with what they hold now, or marked as `is_gone`. `is_new` says of a row that it came, and did
  /// not only move up.
  show(read, is_new = () => true) {
    const fresh = new Map(read.map(row => [this.#key_of(row), row]));
    const is_kept = this.#address === location.hash && !this.#takes_new && (this.#rows.size > 0 || is_marking());
    const shown = is_kept
      ? this.#shown.map(row => fresh.get(this.#key_of(row)) ?? {...row, is_gone: true}) : read;
    const known = new Map(shown.map(row => [this.#key_of(row), row]));
    const came = is_kept ? read.filter(row => !known.has(this.#key_of(row)) && is_new(row, shown[0])).length : 0;
    this.#shown = shown;
    this.#address = location.hash;
    this.#takes_new = false;
    for (const key of [...this.#rows.keys()])
      if (known.has(key)) this.#rows.set(key, known.get(key)); else this.#rows.delete(key);
    return {shown, came};
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

  /// The button for all rows, how many are selected, and how many rows came meanwhile, which a button shows.
  all(shown, came, redraw) {
    const is_all = this.#rows.size >= shown.length;
    const show_new = () => { this.#takes_new = true; redraw(); };
    return [make("button", {type: "button", "data-key": "select", onclick: () => this.#select(shown, !is_all, redraw)},
        is_all ? "Select none" : "Select all of this page"),
      this.#rows.size > 0 ? make("span", {}, `${this.#rows.size} selected`) : null,
      came > 0 ? make("button", {type: "button", "data-key": "new", onclick: show_new,
        "aria-label": `Show ${came} new rows`}, `${came} new`) : null];
  }
}
