// The outbox: subscriptions, and the dead messages and blocked keys of one of them or of all.
"use strict";

import {action_button, pause_action, sql_details} from "./actions.js";
import {chosen_of, read, read_error_detail, session} from "./api.js";
import {facts, long_text, make, payload, table} from "./dom.js";
import {at_least, pause_of, release_of, seconds, when} from "./format.js";
import {Selection} from "./selection.js";

const page_size = 50;
const selection = new Selection(d => key_of(d), d => `message ${d.message_id}`);

export async function load(parameters, is_poll) {
  const subscription = parameters.id;
  const [state, blocked, dead] = await Promise.all([read("status", {}, is_poll),
    read("api/blocked-keys", {subscription}, is_poll),
    read("api/dead-messages", {subscription, after: parameters.after, after_id: parameters.after_id}, is_poll)]);
  return {state: state.databases ? chosen_of(state.databases).status : state, ...blocked, ...dead};
}

const link = name => make("a", {href: `#/outbox/${encodeURIComponent(name)}`}, name);

const key_of = message => `${message.subscription} ${message.message_id}`;

/// Details of opened dead messages, for as long as they are shown: {payload} or {error}.
/// Another viewer does not see them.
let payloads = new Map();
let reader = null;
function keep_payloads(shown) {
  const keys = new Set(shown.map(key_of));
  payloads = new Map([...payloads].filter(([key]) => keys.has(key) && reader === session.user));
  reader = session.user;
}

async function read_payload(event, message, redraw) {
  const key = key_of(message);
  if (event.currentTarget.parentNode.open || payloads.get(key)?.payload) return;
  const {subscription, message_id: id} = message;
  const as = session.user;
  const answer = await read("api/message", {subscription, id}).catch(error => ({error: error.message}));
  const details = await Promise.resolve(read_error_detail("message", {subscription, id})).catch(() => []);
  if (as !== session.user) return;
  payloads.set(key, {...answer, details});
  redraw();
}

const shown_payload = answer => !answer ? null
  : answer.error ? make("p", {class: "bad"}, answer.error) : make("div", {}, payload("Payload", answer.payload, session.sees_payloads),
    ...answer.details.map(d => facts([["Attempt", d.attempt], ["Detail", long_text(d.detail)], ["Context", long_text(d.context)]])));

/// The object of an action: messages of one subscription of one ring.
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
  const {shown, came} = selection.show(data.dead_messages.slice(0, page_size));
  const last = shown.at(-1);
  keep_payloads(shown);
  return [shown.length > 0 ? make("p", {class: "buttons"}, ...selection.all(shown, came, redraw)) : null, ...draw_selected(),
    table("Dead messages, the oldest first", ["", "Key", "Topic", "Subscription", "Dead since", "Attempts", "Error", ""],
      shown.map(d => {
        const object = object_of([d]);
        return {key: key_of(d), class: d.is_gone ? "gone" : "", cells: [selection.box(d, redraw), d.key ?? "", d.topic, link(d.subscription),
          when(d.dead_since, data.now), d.attempts, long_text(d.last_error),
          make("div", {}, action_button("redrive", object, `Redrive message ${d.message_id}`), " ",
            action_button("discard", object, `Discard message ${d.message_id}`),
            sql_of_dead(d.message_id, object),
            make("details", {"data-key": "payload"}, make("summary", {onclick: event => read_payload(event, d, redraw)}, "Payload"),
              make("div", {class: "payload"}, shown_payload(payloads.get(key_of(d))))))]};
      })),
    data.dead_messages.length > page_size ? make("p", {}, make("a", {href: `#/outbox/${encodeURIComponent(parameters.id ?? "")}?` +
      new URLSearchParams({after: last.dead_since, after_id: last.message_id})}, "Younger")) : null,
    parameters.after ? make("p", {}, make("a", {href: `#/outbox/${encodeURIComponent(parameters.id ?? "")}`}, "Oldest")) : null];
}

function state_of(s, now) {
  const states = [pause_of(s, now), release_of(s, now)].filter(Boolean);
  return states.length === 0 ? "open" : make("div", {}, ...states);
}

function draw_subscription(s, now) {
  const object = {subscription: s.subscription, region: s.region, cluster: s.cluster};
  const pause = pause_action("subscription", s, object);
  const actions = [[pause, `${s.paused ? "Resume" : "Pause"} subscription ${s.subscription}`],
    ...(s.dead > 0 ? [[["redrive-all", object], `Redrive all of ${s.subscription}`]] : [])];
  return {key: `${s.region} ${s.cluster} ${s.subscription}`, cells: [link(s.subscription), s.topic, s.handler ?? "services",
    seconds(s.lag_seconds), at_least(s.held, 1000), at_least(s.dead, 1000), state_of(s, now),
    make("div", {}, ...actions.flatMap(([action, title]) => [action_button(...action, title), " "]),
      sql_details(s.subscription, actions.map(([action]) => action)))]};
}

export function draw(data, parameters, redraw) {
  const chosen = parameters.id;
  const subscriptions = data.state.subscriptions.filter(s => !chosen || s.subscription === chosen);
  return [make("h2", {}, chosen ? `Subscription ${chosen}` : "Outbox"),
    chosen ? make("p", {}, make("a", {href: "#/outbox"}, "All subscriptions")) : null,
    table("Subscriptions", ["Subscription", "Topic", "Handler", "Unread for", "Held", "Dead", "State", ""],
      subscriptions.map(s => draw_subscription(s, data.now))),
    table("Blocked keys", ["Key", "Topic", "Subscription", "Since", "Attempts", "Waiting", "Error"],
      data.blocked_keys.map(b => ({key: `${b.subscription} ${b.message_id}`, cells: [b.key, b.topic, link(b.subscription),
        when(b.blocked_since, data.now), b.attempts, at_least(b.waiting, 10000), long_text(b.last_error)]}))),
    ...draw_dead(data, parameters, redraw)];
}
