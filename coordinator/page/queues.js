// Queues: waiting and running steps, limits, and the last hour.
"use strict";

import {action_button, pause_action, sql_details} from "./actions.js";
import {read} from "./api.js";
import {rate_chart, rate_spark, spark} from "./charts.js";
import {make, table} from "./dom.js";
import {at_least, pause_of, when} from "./format.js";

export async function load(_, is_poll) {
  const [queues, history] = await Promise.all([read("api/queues", {}, is_poll), read("api/history", {}, is_poll)]);
  return {...queues, history};
}

const limits = q => [q.max_running !== null ? `${q.max_running} running` : null,
  q.max_running_per_group !== null ? `${q.max_running_per_group} a group` : null,
  q.rate !== null ? `${q.rate} in ${q.rate_interval}` : null].filter(Boolean).join(", ");

// As the daemon's charts name it.
const name_of = q => `${q.region} / ${q.cluster} / ${q.queue}`;
const is_default = q => q.region === "default" && q.cluster === "default";

export function draw(data) {
  const {rates, queues, period_seconds: period} = data.history;
  return [make("h2", {}, "Queues"),
    make("div", {class: "charts"}, rate_chart("Sagas started", rates.started, period),
      rate_chart("Sagas completed", rates.completed, period), rate_chart("Steps completed", rates.steps, period),
      rate_chart("Attempts failed", rates.failures, period, true)),
    table("Queues", ["Queue", "Waiting", "Running", "Oldest due", "Limits", "State", "Waiting, last hour",
        "Completed, last hour", "Failed, last hour", ""],
      data.queues.map(q => {
        const action = pause_action("queue", q, {queue: q.queue, region: q.region, cluster: q.cluster});
        const known = queues[name_of(q)];
        return {key: name_of(q), cells: [is_default(q) ? q.queue : make("span", {}, q.queue,
          make("span", {class: "dim"}, ` ${q.region} / ${q.cluster}`)), at_least(q.waiting, 10000), at_least(q.running, 10000),
          when(q.oldest_due, data.now), limits(q) || "none", pause_of(q, data.now) ?? "open",
          spark(`Waiting in ${q.queue}`, known?.waiting), rate_spark(`Completed in ${q.queue}`, known?.completed, period),
          rate_spark(`Failed in ${q.queue}`, known?.failed, period, true),
          make("span", {}, action_button(...action, `${q.paused ? "Resume" : "Pause"} queue ${q.queue}`), sql_details(name_of(q), [action]))]};
      }))];
}
