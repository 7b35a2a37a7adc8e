// The page: views by the address after "#", read again every two seconds; what changed is redrawn.
"use strict";

import {on_action, on_lost_session} from "./actions.js";
import {chosen_of, is_down, log_in, log_out, read, read_session, read_status, session} from "./api.js";
import {by_id, make, patch} from "./dom.js";
import {status_class} from "./format.js";
import {definitions, log, schedules} from "./lists.js";
import * as outbox from "./outbox.js";
import * as problems from "./problems.js";
import * as queues from "./queues.js";
import * as ring from "./ring.js";
import * as saga from "./saga.js";
import * as sagas from "./sagas.js";

const period_ms = 2000;
const views = {
  sagas: {title: "Sagas", ...sagas}, saga: {...saga}, queues: {title: "Queues", ...queues},
  outbox: {title: "Outbox", ...outbox}, schedules: {title: "Schedules", ...schedules},
  definitions: {title: "Definitions", ...definitions},
  ring: {title: "Ring", load: async () => latest, draw: ring.draw}, log: {title: "Log", ...log}};
let latest = null;
let paused = false;
let number = 0; // of the latest navigation: an answer to an earlier one is not shown

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

/// {name, parameters} of "#/NAME/ID?QUERY"; an old address is the id of a saga alone.
function route() {
  const hash = location.hash.slice(1);
  if (/^[0-9a-f-]{36}$/i.test(hash)) return {name: "saga", parameters: {id: hash}};
  const [path, query] = hash.split("?");
  const [, name, id] = path.split("/");
  const parameters = Object.fromEntries(new URLSearchParams(query ?? ""));
  if (id) parameters.id = decoded(id);
  return views[name] ? {name, parameters} : {name: "sagas", parameters: {}};
}

let answered_at = null; // when everything that is shown was read

/// The failure, in a sentence. The reason why a database is down is in the daemon's log and, for probes, at /readyz.
function show_failure(error) {
  const failure = by_id("failure");
  const as_of = answered_at ? ` What is shown is as of ${answered_at.toLocaleTimeString()}.` : "";
  const text = !error ? "" : error.is_down ? `${error.message}${as_of}` : error.message;
  if (failure.textContent !== text) failure.textContent = text;
  failure.hidden = !error;
}

/// Changes the view. A button may go away that has the focus, as Retry does when the saga runs: the view takes it.
function keep_focus(change) {
  const view = by_id("view");
  const had_focus = view.contains(document.activeElement);
  change();
  if (had_focus && !view.contains(document.activeElement)) view.focus({preventScroll: true});
}

function show_title() {
  const heading = by_id("view").querySelector("h2")?.textContent;
  document.title = [heading, `stacksaga: ${latest?.database ?? ""}`].filter(Boolean).join(" – ");
}

async function show_view(is_poll) {
  const mine = is_poll ? number : ++number;
  const address = location.hash;
  const is_late = () => mine !== number || location.hash !== address;
  const {name, parameters} = route();
  for (const link of document.querySelectorAll("nav a"))
    if (link.hash === `#/${name === "saga" ? "sagas" : name}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  const view = by_id("view");
  try {
    const data = await views[name].load(parameters, is_poll);
    if (is_late() || data === null) return;
    const draw = () => keep_focus(() => patch(view, views[name].draw(data, parameters, draw).flat().filter(Boolean)));
    if (view.dataset.shown !== address) {
      view.replaceChildren();
      view.dataset.shown = address;
    }
    draw();
    show_title();
  } catch (error) {
    if (is_late()) return;
    if (view.dataset.shown === address) throw error; // what was read before stays below the failure
    view.dataset.shown = "";
    patch(view, [make("p", {class: "bad", role: "alert"}, error.message)]);
  }
}

function choose(answer) {
  if (!answer.databases) return answer;
  const names = answer.databases.map(d => d.name);
  const one = chosen_of(answer.databases);
  const select = by_id("choose");
  if (select.options.length !== names.length)
    select.replaceChildren(...names.map(n => make("option", {value: n}, n)));
  if (document.activeElement !== select) select.value = one.name;
  by_id("databases").hidden = false;
  if (one.error) throw one.error.startsWith("the database does not answer") ? is_down() : new Error(one.error);
  return one.status;
}

async function show_state(is_poll) {
  latest = choose(await read_status());
  by_id("database").textContent = latest.database;
  show_title();
  const states = latest.rings.flatMap(r => r.nodes).map(n => n.state);
  patch(by_id("pills"), [make("span", {class: "pill"}, `version ${latest.version}`),
    make("span", {class: "pill"}, latest.coordination),
    ...["active", "suspected", "dead", "draining"].map(s => [s, states.filter(x => x === s).length])
      .filter(([s, n]) => n > 0 || s === "active")
      .map(([s, n]) => make("span", {class: `pill ${status_class(s)}`}, `nodes ${s} ${n}`)),
    ...latest.sagas.map(s => make("span", {class: "pill"}, `${s.status} ${s.sagas}${s.more ? " or more" : ""}`))]);
  problems.show(latest, await read("api/problems", {}, is_poll).catch(error => {
    if (error.is_down) throw error;
    return {error: error.message};
  }));
}

function show_session() {
  by_id("user").textContent = session.user ?? (session.actions === "off" ? "read-only" : "");
  by_id("log-in").hidden = session.actions !== "password" || session.user !== null;
  by_id("log-out").hidden = session.csrf_token === null || session.actions !== "password";
}

/// Reads and draws everything once.
export async function update(is_poll = true) {
  try {
    await read_session(is_poll);
    show_session();
    await show_state(is_poll);
    await show_view(is_poll);
    show_failure(null);
    answered_at = new Date();
    by_id("updated").textContent = `Updated ${new Date().toLocaleTimeString()}`;
  } catch (error) {
    show_failure(error);
  }
}

async function poll() {
  if (!paused && !document.hidden) await update();
  setTimeout(poll, period_ms);
}

/// Asks for a login in the dialog, which is shown already where a session ended under it. After it the focus goes
/// back, so that Enter, pressed once more, does nothing.
function ask_login(message = "", after = () => { by_id("dialog").close(); by_id("view").focus({preventScroll: true}); }) {
  const dialog = by_id("dialog");
  const user = make("input", {id: "login-user", name: "user", required: true, autocomplete: "username"});
  const password = make("input", {id: "login-password", name: "password", type: "password", required: true,
    autocomplete: "current-password"});
  const failure = make("p", {class: "bad", role: "alert"}, message);
  dialog.replaceChildren(make("form", {onsubmit: async event => {
    event.preventDefault();
    try {
      await log_in(user.value, password.value);
      after();
      await update(false);
    } catch (error) {
      failure.textContent = error.message;
    }
  }}, make("h2", {id: "dialog-title"}, "Log in"), make("label", {for: "login-user"}, "User"), user,
    make("label", {for: "login-password"}, "Password"), password, failure,
    make("p", {class: "buttons"}, make("button", {class: "primary"}, "Log in"),
      make("button", {type: "button", onclick: () => dialog.close()}, "Close"))));
  if (!dialog.open) dialog.showModal();
  user.focus();
}

by_id("views").append(...Object.entries(views).filter(([, view]) => view.title)
  .map(([name, view]) => make("li", {}, make("a", {href: `#/${name}`}, view.title))));
by_id("pause").addEventListener("click", event => {
  paused = !paused;
  event.target.setAttribute("aria-pressed", paused);
  event.target.textContent = paused ? "Resume updates" : "Pause updates";
});
by_id("log-in").addEventListener("click", () => ask_login());
by_id("log-out").addEventListener("click", async () => {
  await log_out().catch(show_failure);
  await update(false);
  by_id("log-in").focus();
});
by_id("dialog").addEventListener("close", event => {
  // The button that opened it may be gone. Browsers take the focus out of a closed dialog later than they say so.
  const focused = document.activeElement;
  if (focused === document.body || event.target.contains(focused)) by_id("view").focus({preventScroll: true});
});
by_id("choose").addEventListener("change", event => {
  location.search = `?database=${encodeURIComponent(event.target.value)}`;
});
document.querySelector(".skip").addEventListener("click", event => {
  event.preventDefault(); // the address names a view
  by_id("view").focus();
});
by_id("find").addEventListener("submit", async event => {
  event.preventDefault();
  const text = by_id("search").value.trim();
  if (/^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i.test(text)) {
    location.hash = `#/saga/${text}`;
    return;
  }
  try {
    // The one saga of this key, or the list of those whose key begins so.
    const {sagas: found} = await read("api/sagas-of-key", {key: text});
    location.hash = found.length === 1 ? `#/saga/${found[0].saga_id}` : `#/sagas?${new URLSearchParams({key: text})}`;
  } catch (error) {
    show_failure(error);
  }
});
addEventListener("hashchange", async () => {
  const focused = document.activeElement;
  show_failure(null);
  await show_view(false).catch(show_failure);
  // The link that was followed may be gone with the last view. Otherwise the viewer is elsewhere already.
  if (document.activeElement !== focused && document.activeElement !== document.body) return;
  const view = by_id("view");
  view.focus({preventScroll: true});
  const header = document.querySelector("header");
  const covered = getComputedStyle(header).position === "sticky" ? header.offsetHeight : 0;
  const top = view.getBoundingClientRect().top - covered - 8;
  if (top < 0 || covered === 0) scrollBy(0, top);
});
on_action(() => update(false));
on_lost_session(ask_login);
await update(false);
setTimeout(poll, period_ms);
