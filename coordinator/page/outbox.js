// The outbox: subscriptions, and the dead messages and blocked keys of one of them or of all.
"use strict";

import {action_button, sql_details} from "./actions.js";
import {chosen_of, read, session} from "./api.js";
import {long_text, make, patch, payload, table} from "./dom.js";
import {at_least, seconds, when} from "./format.js";
import {Selection} from "./selection.js";

const page_size = 50;
const selection = new Selection(d => `${d.subscription} ${d.message_id}`, d => `message ${d.message_id}`);

export async function load(parameters, is_poll) {
  const subscription = parameters.id;
  const [state, blocked, dead] = await Promise.all([read("status", {}, is_poll),
    read("api/blocked-keys", {subscription}, is_poll),
    read("api/dead-messages", {subscription, after: parameters.after, after_id: parameters.after_id}, is_poll)]);
  return {state: state.databases ? chosen_of(state.databases).status : state, ...blocked, ...dead};
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

/// What an action takes: messages of one subscription of one ring.
const object_of = messages => ({subscription: messages[0].subscription, region: messages[0].region,
  cluster: messages[0].cluster, message_ids: messages.map(d => d.message_id)});

const sql_of_dead = (key, object) => sql_details(key, [["redrive", object], ["discard", object]]);

/// Actions on those that are selected, for each subscription.
function draw_selected() {
  const groups = new Map();
  for (const d of selection.rows) {
    const key = JSON.stringify([d.subscription, d.region, d.cluster]);
    groups.set(key, [...(groups.get(key) ?? []), d]);
  }
  return [...groups].map(([key, messages]) => {
    const object = object_of(messages);
    const what = `${messages.length} messages of ${object.subscription}`;
    return make("div", {"data-key": key}, make("p", {class: "buttons"}, action_button("redrive", object, `Redrive ${what}`),
      action_button("discard", object, `Discard ${what}`)), sql_of_dead(key, object));
  });
}

function draw_dead(data, parameters, redraw) {
  const shown = data.dead_messages.slice(0, page_size);
  const last = shown.at(-1);
  selection.keep(shown);
  return [shown.length > 0 ? make("p", {class: "buttons"}, ...selection.all(shown, redraw)) : null, ...draw_selected(),
    table("Dead messages, the oldest first", ["", "Key", "Topic", "Subscription", "Dead since", "Attempts", "Error", ""],
      shown.map(d => {
        const object = object_of([d]);
        return {key: `${d.subscription} ${d.message_id}`, cells: [selection.box(d, redraw), d.key ?? "", d.topic, link(d.subscription),
          when(d.dead_since, data.now), d.attempts, long_text(d.last_error),
          make("div", {}, action_button("redrive", object, `Redrive message ${d.message_id}`), " ",
            action_button("discard", object, `Discard message ${d.message_id}`),
            sql_of_dead(d.message_id, object),
            make("details", {"data-key": "payload"}, make("summary", {onclick: event => show_payload(event, d)}, "Payload"),
              make("div", {class: "payload"})))]};
      })),
    data.dead_messages.length > page_size ? make("p", {}, make("a", {href: `#/outbox/${encodeURIComponent(parameters.id ?? "")}?` +
      new URLSearchParams({after: last.dead_since, after_id: last.message_id})}, "Younger")) : null];
}

export function draw(data, parameters, redraw) {
  const chosen = parameters.id;
  const subscriptions = data.state.subscriptions.filter(s => !chosen || s.subscription === chosen);
  return [make("h2", {}, chosen ? `Subscription ${chosen}` : "Outbox"),
    chosen ? make("p", {}, make("a", {href: "#/outbox"}, "All subscriptions")) : null,
    table("Subscriptions", ["Subscription", "Topic", "Handler", "Unread for", "Held", "Dead", ""],
      subscriptions.map(s => ({key: `${s.region} ${s.cluster} ${s.subscription}`, cells: [link(s.subscription), s.topic,
        s.handler ?? "services", seconds(s.lag_seconds), at_least(s.held, 1000), at_least(s.dead, 1000),
        s.dead > 0 ? make("span", {}, action_button("redrive-all", {subscription: s.subscription, region: s.region,
          cluster: s.cluster}, `Redrive all of ${s.subscription}`),
          sql_details(s.subscription, [["redrive-all", {subscription: s.subscription, region: s.region, cluster: s.cluster}]])) : ""]}))),
    table("Blocked keys", ["Key", "Topic", "Subscription", "Since", "Attempts", "Waiting", "Error"],
      data.blocked_keys.map(b => ({key: `${b.subscription} ${b.message_id}`, cells: [b.key, b.topic, link(b.subscription),
        when(b.blocked_since, data.now), b.attempts, at_least(b.waiting, 10000), long_text(b.last_error)]}))),
    ...draw_dead(data, parameters, redraw)];
}
