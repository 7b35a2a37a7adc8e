// Views that are lists: schedules, definitions, operators' actions.
"use strict";

import {action_button, pause_action, sql_details} from "./actions.js";
import {read, session} from "./api.js";
import * as diagram from "./diagram.js";
import {copyable, long_text, make, payload, quoted, table} from "./dom.js";
import {at_least, difference, pause_of, seconds, when} from "./format.js";

const more = (rows, size, href) => rows.length > size ? make("p", {}, make("a", {href}, "More")) : null;

const late_after_seconds = 60;

/// The next run of a schedule, or the reason why it does not run.
function state_of_schedule(s, now) {
  if (s.paused) return make("span", {class: "warn"}, `paused: ${s.pause_reason ?? ""}`);
  const late = s.next_run ? difference(s.next_run, now) : 0;
  const parts = [
    s.failures > 0 ? make("span", {class: "bad"}, `failed ${s.failures} times since `, when(s.failed_since, now), ", next attempt ",
      when(s.next_attempt, now)) : null,
    late > late_after_seconds ? make("span", {class: "bad"}, `late by ${seconds(late)}: no worker of its ring fires it`) : null,
    s.skipped > 0 ? make("span", {class: "warn"}, `skipped ${s.skipped} in a row`, s.skipped_since ? " since " : "", when(s.skipped_since, now),
      ", as its last saga has not ended") : null].filter(Boolean);
  return parts.length === 0 ? "runs" : make("div", {}, ...parts.map(part => make("p", {}, part)));
}

const is_default_ring = s => s.region === "default" && s.cluster === "default";

export const schedules = {
  load: ({after}, is_poll) => read("api/schedules", {after}, is_poll),
  draw: data => [make("h2", {}, "Schedules"),
    table("Schedules", ["Schedule", "Ring", "Saga", "Cron", "Overlap", "Next", "Last", "State", "Error", ""],
      data.schedules.slice(0, 50).map(s => {
        const action = pause_action("schedule", s, {schedule: s.schedule, region: s.region, cluster: s.cluster});
        return {key: `${s.region} ${s.cluster} ${s.schedule}`, cells: [s.schedule,
          make("span", {class: is_default_ring(s) ? "dim" : ""}, `${s.region} / ${s.cluster}`), s.saga,
          make("span", {}, make("code", {}, s.cron), ` ${s.timezone}`), `${s.overlap}, missed: ${s.catch_up}`, when(s.next_run, data.now), s.last_saga_id
            ? make("a", {href: `#/saga/${s.last_saga_id}`}, when(s.last_run, data.now)) : "",
          state_of_schedule(s, data.now), long_text(s.last_error),
          make("div", {}, action_button(...action, `${s.paused ? "Resume" : "Pause"} schedule ${s.schedule}`), sql_details(s.schedule, [action]),
            s.input ? payload("Input", s.input, session.sees_payloads) : null)]};
      })),
    more(data.schedules, 50, `#/schedules?after=${encodeURIComponent(data.schedules[49]?.schedule)}`)]};

// A pause is of all versions.
const definition_pause = d => [pause_action("definition", d, {saga: d.saga}), `${d.paused ? "Resume" : "Pause"} definition ${d.saga}`];
const draw_pause = d => {
  const [action, title] = definition_pause(d);
  return make("div", {}, action_button(...action, title), sql_details(d.saga, [action]));
};

const draw_definition = (data, id) => [make("h2", {}, `Definition ${id}`),
  make("p", {}, make("a", {href: "#/definitions"}, "All definitions"), " ",
    make("a", {href: `#/sagas?saga=${encodeURIComponent(id)}`}, "Its sagas")),
  pause_of(data.definition, data.now), draw_pause(data.definition),
  make("h3", {}, "Stages"), diagram.failure_note(data.diagram), diagram.draw(data.diagram),
  table("Attempts and how long they may take", ["Step", "Attempts", "Longest", "Calls at worst", "Deduplicated for", "Warning"],
    data.retries.map(r => [r.step, r.attempts ?? "no limit", r.longest_window ?? "", r.worst_case_calls ?? "",
      r.dedupe_window ?? "", r.warning ?? ""])),
  make("details", {"data-key": "mermaid"}, make("summary", {}, "As Mermaid"), make("pre", {tabindex: 0}, data.diagram)),
  copyable(`SELECT stacksaga.saga_diagram(${quoted(id)});`)];

const draw_definitions = data => [make("h2", {}, "Definitions"),
  table("Definitions", ["Saga", "Version", "Current", "Steps", "Definer", "Defined", "Live sagas", "State", ""],
    data.definitions.slice(0, 50).map(d => ({key: `${d.saga} ${d.version}`, cells: [
      make("a", {href: `#/definitions/${encodeURIComponent(d.saga)}?version=${d.version}`}, d.saga), d.version,
      d.is_current ? "yes" : "", d.steps, d.definer, when(d.defined_at, data.now), at_least(d.live_sagas, 1000),
      pause_of(d, data.now) ?? "open", d.is_current ? draw_pause(d) : ""]}))),
  more(data.definitions, 50, `#/definitions?${new URLSearchParams({after: data.definitions[49]?.saga, version: data.definitions[49]?.version})}`)];

/// One line for each version, and a page for each with its diagram.
export const definitions = {
  load: ({id, version, after}, is_poll) => id ? read("api/definition", {saga: id, version}, is_poll)
                                              : read("api/definitions", {after, version}, is_poll),
  draw: (data, {id}) => id ? draw_definition(data, id) : draw_definitions(data)};

export const log = {
  load: ({before}, is_poll) => read("api/operator-actions", {before}, is_poll),
  draw: data => [make("h2", {}, "What operators did"),
    table("Actions, the newest first", ["When", "Action", "Object", "Role", "For", "Reason", "Detail"],
      data.operator_actions.slice(0, 50).map(a => [when(a.at, data.now), a.action,
        a.object.startsWith("saga ") && a.object.length === 41
          ? make("a", {href: `#/saga/${a.object.slice(5)}`}, a.object) : a.object,
        a.role_name, a.on_behalf_of ?? "", a.reason ?? "", a.detail ?? ""])),
    more(data.operator_actions, 50, `#/log?before=${encodeURIComponent(data.operator_actions[49]?.at)}`)]};
