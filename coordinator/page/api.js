// The requests of the page to the daemon, and the session of its viewer.
"use strict";

export const session = {user: null, csrf_token: null, actions: "off", sees_payloads: false};
export const can_act = () => session.csrf_token !== null;
export const chosen_database = new URLSearchParams(location.search).get("database");
/// Of several databases, the one that the address names, else the first.
export const chosen_of = databases => databases.find(d => d.name === chosen_database) ?? databases[0];

const of_database = parameters => new URLSearchParams(Object.entries(
  {...parameters, database: chosen_database}).filter(([, v]) => v !== null && v !== undefined && v !== ""));

/// The error of a database or a daemon that does not answer.
export function is_down(what = "database") {
  const error = new Error(`The ${what} does not answer.`);
  error.is_down = true;
  return error;
}

async function ask(path, options) {
  try {
    return await fetch(path, options);
  } catch {
    throw is_down("daemon");
  }
}

async function answer_of(response) {
  const text = await response.text();
  let answer;
  try { answer = JSON.parse(text); } catch { answer = {error: text.trim() || response.statusText}; }
  if (response.status === 503 && answer.error?.startsWith("the database does not answer")) throw is_down();
  if (!response.ok) {
    const error = new Error([answer.error, answer.detail, answer.hint].filter(Boolean)
      .map(text => /[.!?]$/.test(text) ? text : `${text}.`).join(" "));
    error.status = response.status;
    throw error;
  }
  return answer;
}

/// Reads a view. `is_poll`: the page updates itself, so that a session is not kept alive by it.
export async function read(path, parameters = {}, is_poll = false) {
  const query = of_database(parameters).toString();
  return answer_of(await ask(query ? `${path}?${query}` : path,
                               is_poll ? {headers: {"X-Stacksaga-Poll": "1"}} : {}));
}

/// DETAIL and CONTEXT of errors, for operators. Without the grant, or with an older extension, there are none.
export const read_error_detail = (of, parameters, is_poll) => session.sees_payloads
  ? read(`api/${of}-error-detail`, parameters, is_poll).catch(error => { if (error.is_down) throw error; return []; }) : [];

/// The state of every database of the daemon.
export const read_status = async () => answer_of(await ask("status"));

let question = 0; // an answer to an earlier one may come late, from before a login

export async function read_session(is_poll = false) {
  const mine = ++question;
  const answer = await read("api/session", {}, is_poll);
  if (mine === question) Object.assign(session, answer);
}

export async function log_in(user, password) {
  await answer_of(await ask("api/login", {method: "POST", body: new URLSearchParams({user, password})}));
  await read_session();
}

async function post(path, object) {
  return answer_of(await ask(path, {method: "POST", body: JSON.stringify(object),
    headers: {"Content-Type": "application/json", "X-CSRF-Token": session.csrf_token ?? ""}}));
}

export async function log_out() {
  await post("api/logout", {});
  await read_session();
}

/// Runs an action; a dry run changes nothing.
export const act = (name, object, is_dry_run) =>
  post(`api/act/${name}?${of_database({dry_run: is_dry_run ? "yes" : "no"})}`, object);
