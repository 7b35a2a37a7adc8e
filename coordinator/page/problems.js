// What needs attention, above every view: one line for each kind of problem, which opens.
"use strict";

import {action_button, sql_details} from "./actions.js";
import {by_id, copyable, long_text, make, patch, table} from "./dom.js";
import {at_least, percent, seconds, short, when} from "./format.js";

const lag_max_seconds = 60;
const lines_max = 5;
const counted_max = 1000; // parked sagas
const rows_max = 20; // of blocked keys
// What doctor() finds that the page shows by itself, with what can be done.
const shown_above = new Set(["parked", "dead_messages", "lag"]);
const link_to = p => make("a", {href: `#/saga/${p.saga_id}`, id: `parked-${p.saga_id}`}, p.key ?? p.saga_id);

/// Rows by what they have in common, in the order in which each first comes.
function grouped(rows, key_of) {
  const groups = new Map();
  for (const row of rows) {
    const key = key_of(row);
    groups.set(key, [...(groups.get(key) ?? []), row]);
  }
  return [...groups];
}

/// An error without words that have a digit: ids and amounts differ from saga to saga.
const pattern_of = error => (error ?? "").replace(/[^\s"'()<>]*\d[^\s"'()<>]*/g, "…");
/// The error of a group: what its errors have in common, where they differ.
const error_of = errors => short(errors.every(e => e === errors[0]) ? errors[0] : pattern_of(errors[0]), 200);

const problem = (key, kind, line, ...more) => make("details", {"data-key": key},
  make("summary", {}, make("span", {class: kind}, kind === "bad" ? "Error" : "Warning"), ` ${line}`), ...more);

const parked = state => state.parked_errors.map(e => {
  const key = JSON.stringify([e.saga, e.step, e.direction, pattern_of(e.error)]);
  const ids = {saga_ids: e.saga_ids};
  return problem(`parked ${key}`, "bad", `${e.sagas} × ${e.saga} parked at ${e.step}` +
    `${e.direction === "compensate" ? ", undoing it" : ""}: ${short(e.error ?? "", 200)}`,
    make("p", {class: "buttons"}, action_button("retry", ids, `Retry ${e.sagas} parked sagas ${e.saga}`)),
    sql_details(key, [["retry", ids]]),
    table(e.sagas > e.first.length ? "The first of them" : "Parked sagas",
      ["Saga", "Step", "Since", "Why", "SQL"], e.first.map(p => ({key: p.saga_id, cells: [
        link_to(p), `${p.step} (${p.direction})`, when(p.since, state.time), long_text(p.error), make("code", {}, p.hint)]}))),
    make("p", {}, make("a", {href: `#/sagas?${new URLSearchParams({status: "parked", saga: e.saga})}`}, `All parked sagas ${e.saga}`)));
});

const blocked = state => grouped(state.blocked_keys, b => JSON.stringify([b.subscription, pattern_of(b.last_error)]))
  .map(([key, rows]) => problem(`blocked ${key}`, "bad",
    // Of all keys only so many are here: others may belong to any group.
    `${at_least(rows.length, state.blocked_keys.length < rows_max ? Infinity : rows.length)} × key blocked in ${rows[0].subscription}: ${
      error_of(rows.map(b => b.last_error))}`,
    table("Blocked keys", ["Topic", "Key", "Since", "Attempts", "Waiting", "Error"], rows.map(b => ({key: b.message_id, cells: [
      b.topic, make("a", {href: `#/outbox/${encodeURIComponent(b.subscription)}`}, b.key),
      when(b.blocked_since, state.time), b.attempts, at_least(b.waiting, 10000), long_text(b.last_error)]})))));

const lagging = state => state.subscriptions.filter(s => s.lag_seconds > lag_max_seconds)
  .map(s => problem(`lagging ${s.subscription}`, "warn",
    `Subscription ${s.subscription} of ${s.topic} has not read for ${seconds(s.lag_seconds)}`,
    make("p", {}, s.handler ? "The background workers run its handler: see Ring." : "A service reads it by receive_messages().")));

const unresponsive = state => state.rings.flatMap(r => r.nodes.map(n => ({...n, ring: `${r.region} / ${r.cluster}`})))
  .filter(n => n.state === "suspected" || n.state === "dead")
  .map(n => problem(`node ${n.ring} ${n.node}`, n.state === "dead" ? "bad" : "warn",
    `Node ${n.node} of ${n.ring} is ${n.state}: last beat ${seconds(n.heartbeat_age_seconds)} ago`,
    make("p", {}, `It owns ${percent(n.share)} of the ring.`)));

const findings = state => grouped((state.problems ?? []).filter(p =>
  (p.severity === "error" || p.severity === "warning") && !shown_above.has(p.check_name)),
  p => `${p.severity} ${p.check_name}`).map(([key, rows]) => problem(`check ${key}`,
    rows[0].severity === "error" ? "bad" : "warn",
    `${rows.length > 1 ? `${rows.length} × ` : ""}${rows[0].check_name}: ${rows[0].detail}`,
    ...rows.flatMap(p => [rows.length > 1 ? make("p", {}, p.detail) : null, p.fix ? copyable(p.fix) : null])));

// A screen reader announces the summary when it changes, not with each update.
function show_summary(counts) {
  const parts = counts.filter(([n]) => n > 0).map(([n, what, max]) =>
    `${at_least(n, max ?? Infinity)} ${what}${n === 1 ? "" : "s"}`);
  const text = parts.length === 0 ? "Nothing." : `${parts.join(", ")}.`;
  if (by_id("summary").textContent !== text) by_id("summary").textContent = text;
}

export function show(state) {
  const kinds = [[parked(state), state.parked, "parked saga", counted_max],
    [blocked(state), state.blocked_keys.length, "blocked key", rows_max],
    [lagging(state), null, "lagging subscription"], [unresponsive(state), null, "unresponsive node"],
    [findings(state), null, "finding"]];
  show_summary(kinds.map(([lines, count, what, max]) => [count ?? lines.length, what, max]));
  const lines = kinds.flatMap(([some]) => some);
  const more = lines.slice(lines_max);
  const grouped_sagas = state.parked_errors.reduce((sum, e) => sum + e.sagas, 0);
  const rest = state.parked <= grouped_sagas && state.parked < counted_max ? null : make("p", {"data-key": "parked"},
    `Below are the errors of ${grouped_sagas} parked sagas. `, make("a", {href: "#/sagas?status=parked"}, "All parked sagas"));
  patch(by_id("problems"), [...(rest ? [rest] : []), ...lines.slice(0, lines_max), ...(more.length === 0 ? [] : [make("details", {"data-key": "more"},
    make("summary", {}, `${more.length} more`), ...more)])]);
}
