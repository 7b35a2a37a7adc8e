// Small charts: curves of the last hour, and attempts on a time axis.
"use strict";

import {make} from "./dom.js";
import {difference, seconds, short} from "./format.js";

/// A curve of values that are null where nothing is known.
function curve(values, label) {
  const max = Math.max(1, ...values.map(v => v ?? 0));
  const x = i => values.length < 2 ? 0 : (100 * i / (values.length - 1)).toFixed(2);
  let path = "";
  values.forEach((v, i) => {
    // A point without neighbours is a dot: a line of no length, with round ends.
    if (v !== null) path += (path && values[i - 1] !== null && i > 0 ? `L${x(i)} ` : `M${x(i)} `) + (39 - 38 * v / max).toFixed(2) +
      ((values[i - 1] ?? null) === null && (values[i + 1] ?? null) === null ? "h0" : "");
  });
  return make("svg", {viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": label},
    make("path", {class: "curve", d: path || "M0 39"}));
}

const known = values => (values ?? []).filter(v => v !== null);

/// Events in each minute: a curve, the total, and the same in words.
function rate_of(values, period) {
  const per_minute = (values ?? []).map(v => v === null ? null : v * 60 / period);
  const sum = Math.round(known(values).reduce((a, b) => a + b, 0));
  const peak = Math.round(Math.max(0, ...known(per_minute)));
  return {per_minute, sum, text: known(values).length === 0 ? "known after a minute"
    : `${sum} in ${seconds(known(values).length * period)}, at most ${peak} a minute`};
}

/// Events in each minute of the last hour.
export function rate_chart(title, values, period, is_bad = false) {
  const {per_minute, text} = rate_of(values, period);
  return make("div", {class: `chart ${is_bad ? "failures" : ""}`, "data-key": title}, make("b", {}, title),
    curve(per_minute, `${title}: ${text}`), make("span", {class: "dim"}, text));
}

export const spark = (title, values) => known(values).length === 0 ? "" : make("span", {class: "spark"},
  curve(values, `${title}: at most ${Math.max(...known(values))} in the last hour, now ${known(values).at(-1)}`));

/// The same of a rate, with how often it happened.
export function rate_spark(title, values, period, is_bad = false) {
  if (known(values).length === 0) return "";
  const {per_minute, sum, text} = rate_of(values, period);
  return make("span", {class: `spark ${is_bad && sum > 0 ? "failures" : ""}`}, curve(per_minute, `${title}: ${text}`),
    make("span", {class: "dim"}, String(sum)));
}

/// Each attempt is a bar from its start to its end.
export function attempts_axis(attempts, now) {
  if (attempts.length === 0) return null;
  const shown = attempts.slice(-40);
  const start = shown[0].started_at;
  const end_of = a => a.finished_at ?? now;
  const span = Math.max(0.001, ...shown.map(a => difference(start, end_of(a))));
  const x = instant => 180 + 600 * difference(start, instant) / span;
  const height = 22 * shown.length + 24;
  return make("div", {class: "wide", tabindex: 0, role: "region", "aria-label": "Attempts in time"}, make("svg", {class: "axis", viewBox: `0 0 800 ${height}`, role: "img",
      "aria-label": `${shown.length} attempts within ${seconds(span)}; the table below lists them`},
    make("line", {x1: 180, x2: 780, y1: height - 18, y2: height - 18}),
    make("text", {x: 180, y: height - 4}, "0"),
    make("text", {x: 780, y: height - 4, "text-anchor": "end"}, seconds(span)),
    ...shown.flatMap((a, i) => [
      make("text", {x: 170, y: 22 * i + 15, "text-anchor": "end"},
        short(`${a.direction === "compensate" ? "undo " : ""}${a.step} ${a.attempt}`, 24)),
      make("rect", {class: a.status, x: Math.min(x(a.started_at), 777), y: 22 * i + 4, height: 14, rx: 2,
          width: Math.max(3, x(end_of(a)) - x(a.started_at)).toFixed(1)},
        make("title", {}, `${a.step} (${a.direction}), attempt ${a.attempt}: ${a.status}`))])));
}
