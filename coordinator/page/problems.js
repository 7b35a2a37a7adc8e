// Problems, above every view: one line for each kind, which opens.
"use strict";

import {action_button, sql_details} from "./actions.js";
import {by_id, copyable, long_text, make, patch, table} from "./dom.js";
import {capitalised, pause_of, percent, seconds, short, when} from "./format.js";

const lag_max_seconds = 60;
const lines_max = 5;
// Findings of doctor() that the page shows by itself, with their actions.
const shown_above = new Set(["parked", "dead_messages", "lag"]);
const link_to = p => make("a", {href: `#/saga/${p.saga_id}`, id: `parked-${p.saga_id}`}, p.key ?? p.saga_id);

/// Groups rows by a key, in the order in which each key first comes.
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

const list_of = words => words.length > 3 ? `${words.slice(0, 3).join(", ")} and ${words.length - 3} more` : words.join(", ");

/// The errors of sagas and of messages in groups, each with its whole count, the newest first.
const errors = ({saga_groups, message_groups, now}) => [...saga_groups.map(g => [g, of_sagas]), ...message_groups.map(g => [g, of_messages])]
  .sort(([a], [b]) => Date.parse(b.first_seen) - Date.parse(a.first_seen)).map(([group, draw]) => draw(group, now));

function of_sagas(g, now) {
  const key = `sagas ${g.pattern}`;
  const names = list_of(g.sagas);
  const place = (g.steps ?? []).length > 0 ? ` at ${list_of(g.steps)}` : "";
  const group = {pattern: g.pattern};
  const actions = g.first.some(p => p.direction === "act") ? ["retry", "compensate"] : ["retry"];
  const seen = make("p", {}, "First ", when(g.first_seen, now), ", last ", when(g.last_seen, now), `; version ${g.versions.join(", ")}.`);
  if (g.parked === 0)
    return problem(key, "warn", `${g.retrying} × ${names} retrying${place}: ${short(g.error, 200)}`, seen);
  return problem(key, "bad", `${g.parked} × ${names} parked${place}: ${short(g.error, 200)}`, seen,
    g.retrying > 0 ? make("p", {}, `${g.retrying} more wait for another attempt.`) : null,
    make("p", {class: "buttons"}, ...actions.map(name =>
      action_button(`${name}-group`, group, `${capitalised(name)} ${g.parked} parked sagas ${names}`))),
    sql_details(key, actions.map(name => [name, {saga_ids: g.first.map(p => p.saga_id)}])),
    table(g.parked > g.first.length ? "The first of them" : "Parked sagas",
      ["Saga", "Step", "Since", "Why", "SQL"], g.first.map(p => ({key: p.saga_id, cells: [
        link_to(p), `${p.step} (${p.direction})`, when(p.since, now), long_text(p.error), make("code", {}, p.hint)]}))),
    ...g.sagas.map(name => make("p", {}, make("a", {href: `#/sagas?${new URLSearchParams({status: "parked", saga: name})}`},
      `All parked sagas ${name}`))));
}

function of_messages(g, now) {
  const key = JSON.stringify(["messages", g.region, g.cluster, g.subscription, g.pattern]);
  const counts = [g.blocked > 0 ? `${g.blocked} × key blocked` : "", g.dead > 0 ? `${g.dead} × message dead` : ""];
  const group = {subscription: g.subscription, region: g.region, cluster: g.cluster, pattern: g.pattern};
  return problem(key, "bad", `${counts.filter(Boolean).join(", ")} in ${g.subscription}: ${short(g.error, 200)}`,
    make("p", {}, "First ", when(g.first_seen, now), ", last ", when(g.last_seen, now), `; of topic ${list_of(g.topics)}.`),
    g.dead > 0 ? make("p", {class: "buttons"}, action_button("redrive-group", group, `Redrive ${g.dead} dead messages of ${g.subscription}`)) : null,
    make("p", {}, make("a", {href: `#/outbox/${encodeURIComponent(g.subscription)}`}, `Subscription ${g.subscription}`)));
}

const lagging = (state, now) => state.subscriptions.filter(s => s.lag_seconds > lag_max_seconds)
  .map(s => problem(`lagging ${s.subscription}`, "warn",
    `Subscription ${s.subscription} of ${s.topic} has not read for ${seconds(s.lag_seconds)}`,
    s.paused ? pause_of(s, now) : make("p", {}, s.handler ? "The background workers run its handler: see Ring." : "A service reads it by receive_messages().")));

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

/// `groups` is {error} where they could not be read.
export function show(state, groups) {
  const of_errors = groups.error ? [problem("errors", "bad", `Errors could not be counted: ${groups.error}`)] : errors(groups);
  const sum = (rows, name) => groups.error ? 0 : groups[rows].reduce((all, g) => all + g[name], 0);
  const [lag, nodes, found] = [lagging(state, groups.now ?? state.time), unresponsive(state), findings(state)];
  show_summary([[sum("saga_groups", "parked"), "parked saga"], [sum("message_groups", "blocked"), "blocked key"],
    [sum("message_groups", "dead"), "dead message"], [lag.length, "lagging subscription"], [nodes.length, "unresponsive node"],
    [found.length, "finding"]]);
  const lines = [...of_errors, ...lag, ...nodes, ...found];
  const more = lines.slice(lines_max);
  patch(by_id("problems"), [...lines.slice(0, lines_max), ...(more.length === 0 ? [] : [make("details", {"data-key": "more"},
    make("summary", {}, `${more.length} more`), ...more)])]);
}
