// The list of sagas: filters in the address, pages, and actions on those that are selected.
"use strict";

import {action_button, actions_of, read_only_note, sql_details} from "./actions.js";
import {read, session} from "./api.js";
import {make, table} from "./dom.js";
import {capitalised, instant_of, local_time, short, short_wait_of, status, when} from "./format.js";
import {Selection} from "./selection.js";

const page_size = 50;
const statuses = ["pending", "running", "compensating", "parked", "suspended", "completed", "failed"];
const selection = new Selection(saga => saga.saga_id, saga => saga.key ?? saga.saga_id);

// Where a page begins is no filter: those before an instant stay chosen on every page.
export const load = ({before, created_before, ...others}, is_poll) =>
  read("api/sagas", {...others, created_before: before ?? created_before}, is_poll).catch(error => {
    if (error.status !== 400 && error.status !== 403) throw error;
    return {sagas: [], error: error.message}; // the filter that is refused stays visible
  });

const address = parameters => `#/sagas?${new URLSearchParams(Object.entries(parameters)
  .filter(([, value]) => value))}`;

function filters(parameters) {
  const field = (name, label, type = "text", more = {}) => make("label", {}, label,
    make("input", {name, type, value: parameters[name], autocomplete: "off", spellcheck: "false", ...more}));
  const submit = event => {
    event.preventDefault();
    const chosen = Object.fromEntries(new FormData(event.currentTarget));
    if (chosen.created_before) chosen.created_before = chosen.created_before === local_time(parameters.created_before)
      ? parameters.created_before : instant_of(chosen.created_before);
    location.hash = address(chosen);
  };
  return make("form", {class: "filters", onsubmit: submit, "aria-label": "Filters", "data-key": JSON.stringify(parameters)},
    field("saga", "Name"),
    make("label", {}, "Status", make("select", {name: "status"}, make("option", {value: ""}, "any"),
      ...[...new Set([...statuses, parameters.status].filter(Boolean))].map(s => make("option", {value: s, selected: s === parameters.status}, s)))),
    field("key", "Key begins with"),
    // A viewer whose session has ended keeps the text that was typed there.
    field("attributes", "Attributes", "text", session.sees_payloads ? {placeholder: '{"customer": "c1"}'}
      : {placeholder: "Log in to search", readonly: true}),
    field("created_before", "Started before", "datetime-local", {value: local_time(parameters.created_before), step: "any"}),
    make("button", {}, "Filter"), make("a", {href: "#/sagas"}, "Clear"));
}

/// `redraw` shows the view again after a selection.
export function draw(data, parameters, redraw) {
  const {shown, came} = selection.show(data.sagas.slice(0, page_size),
    (row, first) => !first || Date.parse(row.created_at) >= Date.parse(first.created_at));
  const last = shown.at(-1);
  const selected = selection.rows;
  const names = [...new Set(selected.flatMap(s => actions_of(s.status)))];
  const ids = {saga_ids: selected.map(s => s.saga_id)};
  return [make("h2", {}, "Sagas"), filters(parameters), read_only_note(),
    data.error ? make("p", {class: "bad", role: "alert"}, data.error) : null,
    shown.length > 0 ? make("p", {class: "buttons"}, ...selection.all(shown, came, redraw),
      ...names.map(name => action_button(name, ids, `${capitalised(name)} ${selected.length} sagas`))) : null,
    sql_details("selected", names.map(name => [name, ids])),
    table("Sagas, the newest first", ["", "Saga", "Name", "Status", "Waits for", "Started", "Changed",
        ...(session.sees_payloads ? ["Attributes"] : [])],
      shown.map(s => ({key: s.saga_id, class: s.is_gone ? "gone" : "", cells: [selection.box(s, redraw),
        make("a", {href: `#/saga/${s.saga_id}`}, short(s.key ?? s.saga_id, 40)), `${s.saga} ${s.version}`,
        status(s.status), short(short_wait_of(s.waits_for), 80) ?? "", when(s.created_at, data.now), when(s.updated_at, data.now),
        ...(session.sees_payloads ? [s.attributes && Object.keys(s.attributes).length > 0
          ? make("code", {}, JSON.stringify(s.attributes)) : ""] : [])]}))),
    make("p", {class: "buttons"},
      parameters.before_saga_id ? make("a", {href: address({...parameters, before: "", before_saga_id: ""})}, "Newest") : null,
      data.sagas.length > page_size ? make("a", {href: address({...parameters, before: last.created_at,
        before_saga_id: last.saga_id})}, "Older") : null)];
}
