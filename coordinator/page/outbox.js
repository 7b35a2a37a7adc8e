// The outbox: subscriptions, and the dead messages and blocked keys of one of them or of all.
"use strict";

import {action_button, sql_details} from "./actions.js";
import {read, session} from "./api.js";
import {make, patch, payload, table} from "./dom.js";
import {at_least, seconds, when} from "./format.js";

const page_size = 50;

export async function load(parameters, is_poll) {
  const subscription = parameters.id;
  const [state, blocked, dead] = await Promise.all([read("status", {}, is_poll),
    read("api/blocked-keys", {subscription}, is_poll),
    read("api/dead-messages", {subscription, after: parameters.after, after_id: parameters.after_id}, is_poll)]);
  return {state: state.databases ? state.databases[0].status : state, ...blocked, ...dead};
}

const link = name => make("a", {href: `#/outbox/${encodeURIComponent(name)}`}, name);

/// Reads and shows the payload of a dead message when its details are opened.
async function show_payload(event, message) {
  const details = event.currentTarget.parentNode;
  if (details.open || details.dataset.read) return;
  const place = details.querySelector("div");
  try {
    const {subscription, message_id: id} = message;
    patch(place, [payload("Payload", (await read("api/message", {subscription, id})).payload, session.sees_payloads)]);
  } catch (error) {
    patch(place, [make("p", {class: "bad"}, error.message)]);
  }
}

function draw_dead(data, parameters) {
  const shown = data.dead_messages.slice(0, page_size);
  const last = shown.at(-1);
  return [table("Dead messages, the oldest first", ["Key", "Topic", "Subscription", "Dead since", "Attempts", "Error", ""],
      shown.map(d => {
        const object = {subscription: d.subscription, region: d.region, cluster: d.cluster, message_ids: [d.message_id]};
        return {key: `${d.subscription} ${d.message_id}`, cells: [d.key ?? "", d.topic, link(d.subscription),
          when(d.dead_since, data.now), d.attempts, d.last_error,
          make("div", {}, action_button("redrive", object, `Redrive message ${d.message_id}`), " ",
            action_button("discard", object, `Discard message ${d.message_id}`),
            sql_details(d.message_id, [["redrive", object], ["discard", object]]),
            make("details", {"data-key": "payload"}, make("summary", {onclick: event => show_payload(event, d)}, "Payload"),
              make("div", {class: "payload"})))]};
      })),
    data.dead_messages.length > page_size ? make("p", {}, make("a", {href: `#/outbox/${encodeURIComponent(parameters.id ?? "")}?` +
      new URLSearchParams({after: last.dead_since, after_id: last.message_id})}, "Younger")) : null];
}

export function draw(data, parameters) {
  const chosen = parameters.id;
  const subscriptions = data.state.subscriptions.filter(s => !chosen || s.subscription === chosen);
  return [make("h2", {}, chosen ? `Subscription ${chosen}` : "Outbox"),
    chosen ? make("p", {}, make("a", {href: "#/outbox"}, "All subscriptions")) : null,
    table("Subscriptions", ["Subscription", "Topic", "Handler", "Unread for", "Held", "Dead", ""],
      subscriptions.map(s => ({key: `${s.region} ${s.cluster} ${s.subscription}`, cells: [link(s.subscription), s.topic,
        s.handler ?? "services", seconds(s.lag_seconds), at_least(s.held, 1000), at_least(s.dead, 1000),
        s.dead > 0 ? make("span", {}, action_button("redrive-all", {subscription: s.subscription, region: s.region,
          cluster: s.cluster}, `Redrive all of ${s.subscription}`),
          sql_details(s.subscription, [["redrive-all", {subscription: s.subscription}]])) : ""]}))),
    table("Blocked keys", ["Key", "Topic", "Subscription", "Since", "Attempts", "Waiting", "Error"],
      data.blocked_keys.map(b => ({key: `${b.subscription} ${b.message_id}`, cells: [b.key, b.topic, link(b.subscription),
        when(b.blocked_since, data.now), b.attempts, b.waiting, b.last_error]}))),
    ...draw_dead(data, parameters)];
}
