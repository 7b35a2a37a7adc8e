// Numbers and times as text.
"use strict";

import {make} from "./dom.js";

export const percent = x => `${(100 * (x ?? 0)).toFixed(1)} %`;
export const at_least = (n, max) => n >= max ? `${max} or more` : n;
export const rounded = x => typeof x === "number" ? Math.round(x * 100) / 100 : x;

/// A duration: 0.3 s, 12 s, 4 min, 3 h, 2 d.
export function seconds(x) {
  if (x === null || x === undefined) return "";
  const s = Math.max(0, x);
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 120) return `${Math.round(s)} s`;
  if (s < 7200) return `${Math.round(s / 60)} min`;
  return s < 172800 ? `${Math.round(s / 3600)} h` : `${Math.round(s / 86400)} d`;
}

export const difference = (from, to) => (Date.parse(to) - Date.parse(from)) / 1000;

/// An instant as "12 s ago" or "in 3 min" by the database's clock, with the exact time as its title.
export function when(instant, now) {
  if (!instant) return "";
  const age = difference(instant, now);
  const text = age > -0.05 ? `${seconds(age)} ago` : `in ${seconds(-age)}`;
  return make("time", {datetime: instant, title: instant}, text);
}

/// An instant as a field for local time has it; empty where the text is not one.
export function local_time(instant) {
  const time = new Date(instant ?? "");
  return isNaN(time) ? "" : new Date(time - time.getTimezoneOffset() * 60000).toISOString().slice(0, -1);
}
export const instant_of = local => local ? new Date(local).toISOString() : null;

/// "until 2026-11-28 09:00 (in 3 h)", in the viewer's time.
export const until = (instant, now) => [`until ${local_time(instant).slice(0, 16).replace("T", " ")} (`, when(instant, now), ")"];

/// A pause: until when, why, who paused and when; null where there is none.
export const pause_of = (x, now) => !x.paused ? null : make("div", {},
  make("p", {}, make("span", {class: "warn"}, "paused", x.paused_until ? [" ", ...until(x.paused_until, now)] : null,
    x.pause_reason ? `: ${x.pause_reason}` : null)),
  x.paused_since ? make("p", {class: "dim"}, x.paused_by ? `by ${x.paused_by} ` : null, when(x.paused_since, now)) : null);

/// What consumers gave back last: until when nobody gets it, and why; null where a batch was acknowledged since.
export const release_of = (x, now) => !x.released_until ? null : make("p", {}, make("span", {class: "warn"}, "given back",
  difference(x.released_until, now) < 0 ? [" ", ...until(x.released_until, now)] : null, x.release_reason ? `: ${x.release_reason}` : null));

export const status_class = s => s === "completed" || s === "active" ? "good"
  : s === "parked" || s === "dead" || s === "failed" ? "bad"
  : s === "compensating" || s === "suspended" || s === "suspected" || s === "draining" ? "warn" : "";
export const status = s => make("span", {class: status_class(s)}, s);
/// What a saga waits for; in a list without the instant.
export const wait_of = text => text?.replace(/^waits for /, "");
const instant_pattern = /([1-9]\d{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]) (?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3})/;
/// The same with each instant that the text names as "12 s ago" beside it.
export const wait_with_times = (text, instants, now) => wait_of(text)?.split(instant_pattern)
  .flatMap((part, i) => i % 2 === 0 ? [part] : [part, " (", when(instants[(i - 1) / 2], now), ")"]);
export const short_wait_of = text => wait_of(text)?.replace(/ since [-\d]+ [\d:.]+/, "");
export const capitalised = text => text.charAt(0).toUpperCase() + text.slice(1);
export const short = (text, length = 60) =>
  text && text.length > length ? `${text.slice(0, length)}…` : text;
