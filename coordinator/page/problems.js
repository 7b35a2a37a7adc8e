// What needs attention, above every view: one line for each kind of problem, which opens.
"use strict";

import {action_button, sql_details} from "./actions.js";
import {by_id, copyable, make, patch, table} from "./dom.js";
import {at_least, percent, seconds, when} from "./format.js";

const lag_max_seconds = 60;
const lines_max = 5;
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

const problem = (key, kind, line, ...more) => make("details", {"data-key": key},
  make("summary", {}, make("span", {class: kind}, kind === "bad" ? "Error" : "Warning"), ` ${line}`), ...more);

const parked = state => grouped(state.parked_sagas, p => JSON.stringify([p.saga, p.step, p.direction, p.error]))
  .map(([key, rows]) => {
    const first = rows[0];
    const ids = {saga_ids: rows.map(p => p.saga_id)};
    const more = state.parked > state.parked_sagas.length ? ` (of ${state.parked} parked in all)` : "";
    return problem(`parked ${key}`, "bad", `${rows.length} × ${first.saga} parked at ${first.step}` +
      `${first.direction === "compensate" ? ", undoing it" : ""}: ${first.error}${more}`,
      make("p", {class: "buttons"}, action_button("retry", ids, `Retry ${rows.length} parked sagas ${first.saga}`)),
      sql_details(key, [["retry", ids]]),
      table("Parked sagas", ["Saga", "Step", "Since", "Why", "SQL"], rows.map(p => ({key: p.saga_id, cells: [
        link_to(p), `${p.step} (${p.direction})`, when(p.since, state.time), p.error, make("code", {}, p.hint)]}))));
  });

const blocked = state => grouped(state.blocked_keys, b => JSON.stringify([b.subscription, b.last_error]))
  .map(([key, rows]) => problem(`blocked ${key}`, "bad",
    `${rows.length} × key blocked in ${rows[0].subscription}: ${rows[0].last_error}`,
    table("Blocked keys", ["Topic", "Key", "Since", "Attempts", "Waiting"], rows.map(b => ({key: b.message_id, cells: [
      b.topic, make("a", {href: `#/outbox/${encodeURIComponent(b.subscription)}`}, b.key),
      when(b.blocked_since, state.time), b.attempts, at_least(b.waiting, 10000)]})))));

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
  const parts = counts.filter(([n]) => n > 0).map(([n, what]) => `${n} ${what}${n === 1 ? "" : "s"}`);
  const text = parts.length === 0 ? "Nothing." : `${parts.join(", ")}.`;
  if (by_id("summary").textContent !== text) by_id("summary").textContent = text;
}

export function show(state) {
  const kinds = [[parked(state), state.parked, "parked saga"], [blocked(state), state.blocked_keys.length, "blocked key"],
    [lagging(state), null, "lagging subscription"], [unresponsive(state), null, "unresponsive node"],
    [findings(state), null, "finding"]];
  show_summary(kinds.map(([lines, count, what]) => [count ?? lines.length, what]));
  const lines = kinds.flatMap(([some]) => some);
  const more = lines.slice(lines_max);
  patch(by_id("problems"), [...lines.slice(0, lines_max), ...(more.length === 0 ? [] : [make("details", {"data-key": "more"},
    make("summary", {}, `${more.length} more`), ...more)])]);
}
