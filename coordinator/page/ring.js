// The token ring: ranges and their owners. Tokens are text: JavaScript's numbers do not hold them, so they
// become BigInt.
"use strict";

import {facts, make, table} from "./dom.js";
import {percent, rounded, seconds, status, when} from "./format.js";

const colours = 8;
const ring_size = 1n << 64n;
const ring_start = -(1n << 63n);

function point(turn, radius) {
  const angle = 2 * Math.PI * turn - Math.PI / 2;
  return `${(100 + radius * Math.cos(angle)).toFixed(2)} ${(100 + radius * Math.sin(angle)).toFixed(2)}`;
}

// A share of the ring, in 0..1, from an exact token.
const turn_of = token => Number((BigInt(token) - ring_start) * 1000000n / ring_size) / 1000000;

function arc(range, colour, node) {
  const from = turn_of(range.range_start);
  const to = Math.min(turn_of(range.range_end) + 0.000001, from + 0.9999);
  const large = to - from > 0.5 ? 1 : 0;
  const text = `${range.node ?? "nobody"}: ${range.range_start} to ${range.range_end}, ` +
    `${range.slots} slots, epoch ${range.epoch}` +
    (range.next_node && range.next_node !== range.node ? `, then ${range.next_node}` : "");
  return make("path", {class: range.node === null ? "unowned" : `c${colour} ${node?.state ?? ""}`,
    d: `M${point(from, 92)}A92 92 0 ${large} 1 ${point(to, 92)}` +
       `L${point(to, 64)}A64 64 0 ${large} 0 ${point(from, 64)}Z`}, make("title", {}, text));
}

function draw_nodes(ring) {
  const granted = name => ring.ranges.filter(r => r.node === name).reduce((n, r) => n + r.slots, 0);
  const promised = name => ring.ranges.filter(r => (r.next_node ?? r.node) === name)
    .reduce((n, r) => n + r.slots, 0);
  return table("Nodes", ["Node", "State", "Kind", "Share", "Slots owned", "Slots granted", "Last beat",
                         "Load", "Confirms"],
    ring.nodes.map((n, i) => ({key: n.node, class: n.state === "dead" ? "dead" : "", cells: [
      make("span", {class: n.node.length < 20 ? "short" : ""}, make("span", {class: `swatch c${i % colours}`, "aria-hidden": "true"}), n.node),
      status(n.state), n.agent ? `${n.kind} of ${n.agent}` : n.kind, percent(n.share), granted(n.node),
      promised(n.node), `${seconds(n.heartbeat_age_seconds)} ago`, rounded(n.load),
      n.progress ? make("span", {}, make("code", {}, JSON.stringify(n.progress)),
                        ` ${seconds(n.checkpoint_age_seconds)} ago`) : ""]})));
}

export function draw_ring(ring, now) {
  const number = new Map(ring.nodes.map((n, i) => [n.node, i]));
  const drawing = make("svg", {viewBox: "0 0 200 200", role: "img",
      "aria-label": `Token ring: ${ring.ranges.length} ranges of ${ring.total_nodes} nodes`},
    ...ring.ranges.map(r => arc(r, (number.get(r.node) ?? 0) % colours, ring.nodes[number.get(r.node)])),
    make("text", {x: 100, y: 96}, `epoch ${ring.epoch}`),
    make("text", {x: 100, y: 110}, `${percent(ring.coverage)} owned`));
  const ranges = make("details", {"data-key": `ranges ${ring.region} ${ring.cluster}`},
    make("summary", {}, `${ring.ranges.length} ranges`),
    table("Ranges", ["First token", "Last token", "Slots", "Epoch", "Owner", "Next"],
      ring.ranges.map(r => [make("code", {}, r.range_start), make("code", {}, r.range_end), r.slots,
        r.epoch, r.node ?? "nobody", r.next_node ?? ""])));
  return make("div", {"data-key": `${ring.region} ${ring.cluster}`},
    make("h3", {}, `${ring.region} / ${ring.cluster}`),
    facts([["Window", ring.window_start ? make("span", {}, "opened ", when(ring.window_start, now),
             ", ends ", when(ring.window_end, now)) : "none is published"],
           ["Published by", ring.publisher],
           ["Oldest work overdue", seconds(ring.overdue_seconds) || "none"]]),
    make("div", {class: "ring"}, drawing, make("div", {}, draw_nodes(ring), ranges)));
}

const in_flight = state => state.sagas.filter(s => s.status !== "completed" && s.status !== "failed")
  .map(s => `${s.sagas}${s.more ? " or more" : ""} ${s.status}`).join(", ") || "none";

/// The handler that a worker is in. An older server does not say.
function running(state, pid) {
  const handler = state.handlers?.find(h => h.pid === pid);
  return handler ? make("span", {}, handler.handler, ", since ", when(handler.since, state.time)) : "";
}

export const draw = state => [make("h2", {}, "Rings"), facts([["Sagas in flight", in_flight(state)]]),
  ...state.rings.map(r => draw_ring(r, state.time)),
  table("Background workers", ["Process", "Started", "Turns", "Items", "Failures", "Last turn", "Mode", "Runs"],
    state.workers.map(w => [w.pid, when(w.started_at, state.time), w.turns, w.items, w.failures,
      w.last_turn_ms === null ? "" : `${rounded(w.last_turn_ms)} ms`, w.mode, running(state, w.pid)]))];
