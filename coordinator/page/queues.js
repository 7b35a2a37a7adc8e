// Queues: what waits and runs, the limits, and the last hour.
"use strict";

import {action_button, sql_details} from "./actions.js";
import {read} from "./api.js";
import {rate_chart, spark} from "./charts.js";
import {make, table} from "./dom.js";
import {at_least, when} from "./format.js";

export async function load(_, is_poll) {
  const [queues, history] = await Promise.all([read("api/queues", {}, is_poll), read("api/history", {}, is_poll)]);
  return {...queues, history};
}

const limits = q => [q.max_running !== null ? `${q.max_running} running` : null,
  q.max_running_per_group !== null ? `${q.max_running_per_group} a group` : null,
  q.rate !== null ? `${q.rate} in ${q.rate_interval}` : null].filter(Boolean).join(", ");

export function draw(data) {
  const {rates, queues, period_seconds: period} = data.history;
  return [make("h2", {}, "Queues"),
    make("div", {class: "charts"}, rate_chart("Sagas started", rates.started, period),
      rate_chart("Sagas completed", rates.completed, period), rate_chart("Steps completed", rates.steps, period),
      rate_chart("Attempts failed", rates.failures, period, true)),
    table("Queues", ["Queue", "Waiting", "Running", "Oldest due", "Limits", "State", "Waiting, last hour", ""],
      data.queues.map(q => {
        const action = [q.paused ? "resume-queue" : "pause-queue", {queue: q.queue}];
        return {key: q.queue, cells: [q.queue, at_least(q.waiting, 10000), at_least(q.running, 10000),
          when(q.oldest_due, data.now), limits(q) || "none", q.paused ? make("span", {class: "warn"}, "paused") : "open",
          spark(`Waiting in ${q.queue}`, queues[q.queue]?.waiting),
          make("span", {}, action_button(...action, `${q.paused ? "Resume" : "Pause"} queue ${q.queue}`), sql_details(q.queue, [action]))]};
      }))];
}
