// One saga: its status, attempts, payloads and actions.
"use strict";

import {action_button, actions_of, read_only_note, sql_details} from "./actions.js";
import {read, read_error_detail, session} from "./api.js";
import {attempts_axis} from "./charts.js";
import * as diagram from "./diagram.js";
import {copyable, facts, long_text, make, payload, table} from "./dom.js";
import {capitalised, difference, seconds, status, wait_with_times, when} from "./format.js";

export async function load({id}, is_poll) {
  const [data, error_details] = await Promise.all([read("api/saga", {id}, is_poll),
    read_error_detail("saga", {id}, is_poll)]);
  return {...data, error_details};
}

const link = (saga, text) => make("a", {href: `#/saga/${saga.saga_id}`}, text ?? saga.key ?? saga.saga_id);

/// The children that a saga may wait for.
const live_children = children => children.filter(c => c.status !== "completed" && c.status !== "failed")
  .flatMap((c, i) => [i > 0 ? ", " : "", link(c, c.key ?? c.saga), " ", status(c.status)]);

/// The actions that the saga's status allows, each with its object.
function possible_actions(s, attempts, parked) {
  const ids = {saga_ids: [s.saga_id]};
  const actions = actions_of(s.status, parked?.direction).map(name => [name, ids]);
  const step = parked?.step ?? attempts.filter(a => a.status !== "completed").at(-1)?.step ?? s.current_step;
  if (step && actions.length > 0)
    for (const outcome of ["done", "not_done", "never"])
      actions.push(["resolve", {saga_id: s.saga_id, step, outcome}]);
  return actions;
}

const title_of = ([name, object], s) => name === "resolve"
  ? `Resolve step ${object.step} of ${s.key ?? s.saga_id} as ${object.outcome.replace("_", " ")}`
  : `${capitalised(name)} ${s.key ?? s.saga_id}`;

/// The messages that the handler of an attempt published, at most the first 20.
function messages_of(attempt, now) {
  const {count = 0, messages = []} = attempt.published ?? {};
  const step = attempt.direction === "act" ? attempt.step : `${attempt.step}, undoing it`;
  const rows = messages.map(m => ({key: m.message_id, cells: [m.topic, m.key ?? "", make("code", {}, m.message_id), step,
    attempt.attempt, when(attempt.finished_at, now)]}));
  if (count > rows.length)
    rows.push({key: `more of ${step}`, class: "dim", cells: [`and ${count - rows.length} more`, "", "", step, attempt.attempt, ""]});
  return rows;
}

/// The commands of message steps, and messages that handlers published. Messages of services do not name their saga.
function published(data, now) {
  const topics = diagram.topics(data.diagram);
  const rows = data.attempts.flatMap(a => topics.has(a.step) && a.direction === "act"
    ? [[topics.get(a.step), data.saga.saga_id, "", a.step, a.attempt, when(a.started_at, now)]] : messages_of(a, now));
  return rows.length === 0 ? null : [table("Messages published", ["Topic", "Key", "Message", "Step", "Attempt", "When"], rows),
    make("p", {class: "dim"}, "By its handlers and message steps. Messages that services publish do not name their saga.")];
}

// A saga that its deadline has parked keeps the request until it goes on.
const compensation_of = s => !s.compensation_requested ? null
  : s.status === "parked" && s.compensation_requested === "deadline" ? "the deadline has passed"
  : `requested by ${s.compensation_requested}: it begins unless an irreversible step is done`;

function head(data) {
  const s = {...data.saga, parked_step: data.parked?.step};
  const actions = possible_actions(s, data.attempts, data.parked);
  const children = live_children(data.children);
  return [make("h2", {}, s.key ?? s.saga_id, " ", status(s.status)),
    actions.length === 0 || !session.csrf_token ? null : make("p", {class: "buttons"}, ...actions.map(action =>
      make("span", {"data-key": title_of(action, s)}, action_button(...action, title_of(action, s)),
        action[0] === "resolve" && session.csrf_token ? ` as ${action[1].outcome.replace("_", " ")}` : null))),
    actions.length > 0 ? read_only_note() : null,
    sql_details("saga", actions),
    facts([["Saga", `${s.saga}, version ${s.version}`], ["Id", make("code", {}, s.saga_id)],
      ["Waits for", wait_with_times(data.waits_for, data.waits_at, data.now)],
      ["Children", children.length === 0 ? null : make("span", {}, ...children)],
      ["Step", s.current_step && `${s.current_step}, ${s.attempt ? `attempt ${s.attempt}` : "not tried yet"}`],
      ["Next attempt", s.paused_until && when(s.paused_until, data.now)], ["Why paused", s.pause_reason],
      ["Compensation", compensation_of(s)],
      ["Parked at", data.parked && `${data.parked.step} (${data.parked.direction})`],
      ["Started", when(s.created_at, data.now)], ["Finished", s.finished_at && when(s.finished_at, data.now)],
      ["Took", s.finished_at && seconds(difference(s.created_at, s.finished_at))],
      ["Error", s.last_error && s.status !== "completed" ? make("div", {class: "bad"}, long_text(s.last_error)) : ""],
      ["Failed step", data.result?.failed_step], ["Priority", s.priority], ["Group", s.group_key],
      ["Ring", `${s.region} / ${s.cluster}`], ["Token", make("code", {}, s.token)],
      ["Parent", data.parent && link(data.parent, `${data.parent.saga} (${data.parent.status})`)]]),
    data.parked ? copyable(data.parked.hint) : null,
    make("h3", {}, "Stages"), diagram.failure_note(data.diagram), diagram.draw(data.diagram, data.attempts, s)];
}

export function draw(data) {
  const now = data.now;
  return [...head(data),
    make("h3", {}, "Attempts in time"), attempts_axis(data.attempts, now),
    table("Attempts", ["Step", "Direction", "Attempt", "Result", "Began", "Took", "By", "Error"],
      data.attempts.map(a => ({key: `${a.step} ${a.direction} ${a.attempt} ${a.status === "released" ? "released" : ""}`, cells: [a.step, a.direction, a.attempt,
        make("span", {}, status(a.status), a.progress ? make("span", {class: "dim"}, ` ${a.progress}`) : null),
        when(a.started_at, now), a.finished_at ? seconds(difference(a.started_at, a.finished_at)) : "",
        a.worker ?? "", long_text([a.error_class?.replaceAll("_", " "), a.error].filter(Boolean).join(": "))]}))),
    data.error_details.length > 0 ? table("Details of errors", ["Step", "Direction", "Attempt", "Detail", "Context"],
      data.error_details.map(d => ({key: `${d.step} ${d.direction} ${d.attempt}`,
        cells: [d.step, d.direction, d.attempt, long_text(d.detail), long_text(d.context)]}))) : null,
    make("h3", {}, "Data"),
    data.attributes && Object.keys(data.attributes).length > 0
      ? facts(Object.entries(data.attributes).map(([k, v]) => [k, String(v)])) : null,
    payload("Input", data.input, session.sees_payloads), payload("Results", data.result?.output, session.sees_payloads),
    data.children.length > 0 ? table("Children", ["Saga", "Name", "Status", "Started"], data.children.map(c =>
      ({key: c.saga_id, cells: [link(c), c.saga, status(c.status), when(c.created_at, now)]}))) : null,
    published(data, now),
    data.actions.length > 0 ? table("What operators did", ["Action", "Step", "Role", "For", "Reason", "When", "From", "To"],
      data.actions.map(a => [a.action, a.step ? `${a.step} ${a.outcome ?? ""}` : "", a.role, a.on_behalf_of ?? "", a.reason ?? "",
        when(a.acted_at, now), a.status_before ?? "", a.status_after ?? ""])) : null,
    make("h3", {}, "Timeline"),
    make("pre", {id: "timeline", tabindex: 0, role: "region", "aria-label": "Timeline of the saga"}, (data.timeline ?? []).join("\n"))];
}
