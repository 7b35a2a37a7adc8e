// What an operator can do: the SQL of each action, for everybody to copy, and a dialog that tries
// it first and then does it.
"use strict";

import {act, can_act, session} from "./api.js";
import {by_id, copyable, make, patch, quoted, table} from "./dom.js";
import {capitalised, instant_of} from "./format.js";
import {clear_selections} from "./selection.js";

/// Objects other than sagas belong to a ring, which the session names.
const in_ring = o => !o.region || (o.region === "default" && o.cluster === "default") ? ""
  : `SET stacksaga.region = ${quoted(o.region)}; SET stacksaga.cluster = ${quoted(o.cluster)};\n`;
const uuids = ids => `ARRAY[${ids.map(quoted).join(", ")}]::uuid[]`;
const on_sagas = name => (o, reason) => o.saga_ids.length === 1
  ? `SELECT stacksaga.${name}_saga(${quoted(o.saga_ids[0])}, ${reason});`
  : `SELECT * FROM stacksaga.${name}_sagas(${uuids(o.saga_ids)}, ${reason}, dry_run => false` +
    `${o.spread ? `, spread => ${quoted(o.spread)}` : ""});`;
const of_name = (name, what) => (o, reason) => `${in_ring(o)}SELECT stacksaga.${name}(${quoted(o[what])}, ${reason}` +
  `${o.until ? `, until => ${quoted(o.until)}` : ""});`;
/// Pause and resume of what has a name; `more` is what the dialog asks for besides the reason.
const pauses = (kind, what, more = {has_until: true}) => ({
  [`pause-${kind}`]: {label: "Pause", sql: of_name(`pause_${kind}`, what), ...more},
  [`resume-${kind}`]: {label: "Resume", sql: of_name(`resume_${kind}`, what)},
});
const past = o => o.past_dedupe_retention ? ", past_dedupe_retention => true" : "";
const on_messages = name => (o, reason) => in_ring(o) + o.message_ids.map(id =>
  `SELECT stacksaga.${name}(${quoted(o.subscription)}, ${quoted(id)}, ${reason}${past(o)});`).join("\n");

const catalogue = {
  retry: {label: "Retry", sql: on_sagas("retry"), has_spread: true},
  compensate: {label: "Compensate", sql: on_sagas("compensate"), has_spread: true},
  "retry-group": {label: "Retry", has_spread: true, page: 1000, is_group: true},
  "compensate-group": {label: "Compensate", has_spread: true, page: 1000, is_group: true},
  "redrive-group": {label: "Redrive", page: 1000, is_group: true, has_past: true},
  resume: {label: "Resume", sql: on_sagas("resume"), has_spread: true},
  cancel: {label: "Cancel", sql: on_sagas("cancel")},
  suspend: {label: "Suspend", sql: on_sagas("suspend")},
  resolve: {label: "Resolve step", sql: (o, reason) => `SELECT stacksaga.resolve_step(` +
    `${quoted(o.saga_id)}, ${quoted(o.step)}, ${quoted(o.outcome)}, ${o.output === undefined ? ""
      : `output => ${quoted(JSON.stringify(o.output))}, `}reason => ${reason});`},
  redrive: {label: "Redrive", has_past: true, sql: on_messages("redrive_message")},
  discard: {label: "Discard", sql: on_messages("discard_message")},
  "redrive-all": {label: "Redrive all", has_spread: true, has_past: true, page: 1000, sql: (o, reason) =>
    `${in_ring(o)}SELECT * FROM stacksaga.redrive_messages(${quoted(o.subscription)}, reason => ${reason}, dry_run => false` +
    `${o.spread ? `, spread => ${quoted(o.spread)}` : ""}${past(o)});`},
  ...pauses("queue", "queue"),
  ...pauses("definition", "saga"),
  ...pauses("schedule", "schedule", {}),
  ...pauses("subscription", "subscription"),
};

export const sql_of = (name, object, reason = "why") => catalogue[name].sql(object, quoted(reason));

/// The actions on sagas of a status. One that has parked while it was compensated compensates by a retry.
export const actions_of = (status, parked_direction = "act") => ({
  pending: ["cancel", "suspend"], running: ["cancel", "suspend"], compensating: ["suspend"],
  suspended: ["resume", "compensate", "cancel"],
  parked: parked_direction === "act" ? ["retry", "compensate", "cancel"] : ["retry", "cancel"]})[status] ?? [];

let after_action = () => {};
export const on_action = handler => { after_action = handler; };
let ask_login = () => {};
/// How a dialog asks for a login in its place: a function of a message and of the next step.
export const on_lost_session = handler => { ask_login = handler; };

/// Runs an action; one that takes all in pages runs until nothing is left. What was done before an error is in its
/// message.
async function run(name, object, is_dry_run) {
  const {page} = catalogue[name];
  const rows = [];
  const seen = new Set();
  let after = null; // of sagas, which may stay in a group, the id of the last one
  for (;;) {
    let answer;
    try {
      answer = await act(name, after ? {...object, after} : object, is_dry_run);
    } catch (error) {
      if (rows.length > 0) error.message = `${rows.length} were done before this: ${error.message}`;
      throw error;
    }
    const id_of = row => row.message_id ?? row.saga_id;
    const fresh = answer.rows.filter(row => !seen.has(id_of(row)));
    for (const row of fresh) seen.add(id_of(row));
    rows.push(...fresh);
    after = fresh.map(row => row.saga_id).filter(Boolean).reduce((last, id) => id > last ? id : last, "") || null;
    const is_full = page && answer.rows.length >= page;
    // Messages that fail again come again: a page without a new one is the end.
    if (!is_full || is_dry_run || fresh.length === 0) return {rows, is_part: is_full && is_dry_run};
  }
}

const rows_max = 100;

/// The result of an action for each object, without empty columns.
function rows_of(rows) {
  const names = Object.keys(rows[0] ?? {}).filter(name => rows.some(row => (row[name] ?? "") !== ""));
  return table((rows.length === 1 ? "One object" : `${rows.length} objects`) + (rows.length > rows_max ? `, the first ${rows_max}` : ""),
    names.map(name => capitalised(name.replaceAll("_", " "))), rows.slice(0, rows_max).map(row => names.map(name => row[name] ?? "")));
}

/// Asks for a reason, tries the action, shows its result, and commits it when that is confirmed.
function open_dialog(name, object, title) {
  const dialog = by_id("dialog");
  const action = catalogue[name];
  let is_tried = false;
  let is_busy = false; // not by disabling the button, which would lose the focus
  const result = make("div", {role: "status"});
  const sql = make("div");
  const reason = make("input", {id: "reason", name: "reason", required: true, autocomplete: "off"});
  const spread = make("input", {id: "spread", name: "spread", placeholder: "at once; or 5 minutes", autocomplete: "off"});
  const until = make("input", {id: "until", name: "until", type: "datetime-local"});
  const past_retention = make("input", {id: "past", name: "past", type: "checkbox"});
  const output = make("input", {id: "output", name: "output", placeholder: '{"receipt": 17}', autocomplete: "off", spellcheck: "false"});
  const go = make("button", {id: "go", class: "primary"}, "Try it");
  const close = make("button", {type: "button", onclick: () => dialog.close()}, "Close");
  const asked = () => ({...object, reason: reason.value, ...(spread.value ? {spread: spread.value} : {}),
    ...(until.value ? {until: instant_of(until.value)} : {}), ...(past_retention.checked ? {past_dedupe_retention: true} : {}),
    ...(output.value.trim() ? {output: JSON.parse(output.value)} : {})});
  const changed = () => {
    is_tried = false;
    go.textContent = "Try it";
    try {
      patch(sql, action.is_group ? [] : [make("h3", {}, "SQL"), copyable(sql_of(name, asked(), reason.value || "why"))]);
      output.setCustomValidity("");
    } catch {
      output.setCustomValidity("This is not JSON.");
    }
  };
  const submit = async event => {
    event.preventDefault();
    if (is_busy || go.hidden) return;
    is_busy = true;
    try {
      const answer = await run(name, asked(), !is_tried);
      const refused = answer.rows.filter(row => row.error).length;
      patch(result, [make("p", {class: refused ? "warn" : "good"},
        `${is_tried ? "Done" : "Nothing has been done yet. This would happen"}` +
        `${answer.is_part ? ` to these ${answer.rows.length} first, and then to all others` : ""}` +
        `${refused ? `; ${refused} of ${answer.rows.length} refused` : ""}${is_tried ? "." : ":"}`), rows_of(answer.rows)]);
      if (is_tried) {
        close.focus();
        go.hidden = true;
        clear_selections();
        after_action();
      } else {
        is_tried = true;
        go.textContent = `${action.label} for good`;
      }
    } catch (error) {
      patch(result, [make("p", {class: "bad"}, error.message)]);
      // The form comes back with the text that was typed.
      if (error.status === 401 && session.actions === "password") {
        const form = [...dialog.childNodes];
        ask_login(error.message, () => { dialog.replaceChildren(...form); patch(result, []); go.focus(); });
      }
    }
    is_busy = false;
  };
  reason.oninput = spread.oninput = until.oninput = past_retention.oninput = output.oninput = changed;
  dialog.replaceChildren(make("form", {onsubmit: submit, method: "dialog"},
    make("h2", {id: "dialog-title"}, title),
    make("label", {for: "reason"}, "Reason; it is recorded with your name"), reason,
    action.has_spread ? [make("label", {for: "spread"}, "Spread the next attempts over"), spread] : null,
    action.has_until ? [make("label", {for: "until"}, "Until, in your time; empty: until somebody resumes it"), until] : null,
    action.has_past ? make("label", {}, past_retention, " Also messages that are older than stacksaga.dedupe_retention: their consumer " +
      "may have forgotten that an attempt took effect, and I have looked") : null,
    object.outcome === "done" ? [make("label", {for: "output"}, "What the step returns, as JSON"), output] : null,
    make("p", {class: "buttons"}, go, close),
    result, sql));
  changed();
  dialog.showModal();
  reason.focus();
}

/// What is to be done about an object that can be paused.
export const pause_action = (kind, x, object) => [`${x.paused ? "resume" : "pause"}-${kind}`, object];

/// A button that acts, for those who may; the title names what it acts on.
export const action_button = (name, object, title) => can_act()
  ? make("button", {type: "button", "data-action": name, "data-key": `${name} ${title}`,
      "aria-label": title, onclick: () => open_dialog(name, object, title)}, catalogue[name].label) : null;

/// SQL of several actions, closed at first.
export const sql_details = (key, actions) => actions.length === 0 ? null : make("details", {"data-key": `sql ${key}`},
  make("summary", {}, "SQL"), ...actions.map(([name, object]) => copyable(sql_of(name, object))));

export const read_only_note = () => session.actions === "off"
  ? make("p", {class: "dim"}, "This page is read-only: the daemon was started without operators. Copy the SQL of an action instead.")
  : can_act() ? null : make("p", {class: "dim"}, "Log in to act and to see payloads.");
