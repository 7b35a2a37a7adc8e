// The page reads /status every two seconds and draws it. Tokens are text there: JavaScript's
// numbers do not hold them, so they become BigInt.
"use strict";

const period_ms = 2000;
const lag_max_seconds = 60;
const colours = 8;
const ring_size = 1n << 64n;
const ring_start = -(1n << 63n);
const by_id = id => document.getElementById(id);

// Elements are created, never parsed from text: text from a database stays text.
function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "path", "title", "text"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag)
                      : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (value !== undefined && value !== "") element.setAttribute(name, value);
  element.append(...children.map(c => c instanceof Node ? c : String(c ?? "")));
  return element;
}

function table(caption, heads, rows) {
  if (rows.length === 0) return make("p", {}, `${caption}: none.`);
  const cell = (tag, what) => what instanceof Node || typeof what !== "object" || what === null
    ? make(tag, typeof what === "number" ? {class: "number"} : {}, what) : make(tag, what.attributes, what.content);
  const is_number = column => rows.some(r => typeof (r.cells ?? r)[column] === "number");
  const head = (text, column) => make("th", {scope: "col", class: is_number(column) ? "number" : undefined}, text);
  return make("table", {}, make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...heads.map(head))),
    make("tbody", {}, ...rows.map(r => make("tr", r.attributes ?? {},
      ...(r.cells ?? r).map(c => cell("td", c))))));
}

const percent = x => `${(100 * (x ?? 0)).toFixed(1)} %`;
const seconds = x => x === null || x === undefined ? "" :
  x < 120 ? `${Math.max(0, x).toFixed(1)} s` : `${Math.round(x / 60)} min`;
const state_class = s => s === "active" ? "good" : s === "dead" ? "bad" : "warn";

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

function draw_ring(ring) {
  const number = new Map(ring.nodes.map((n, i) => [n.node, i]));
  const drawing = make("svg", {viewBox: "0 0 200 200", role: "img",
      "aria-label": `Token ring: ${ring.ranges.length} ranges of ${ring.total_nodes} nodes`},
    ...ring.ranges.map(r => arc(r, (number.get(r.node) ?? 0) % colours,
                                ring.nodes[number.get(r.node)])),
    make("text", {x: 100, y: 96}, `epoch ${ring.epoch}`),
    make("text", {x: 100, y: 110}, `${percent(ring.coverage)} owned`));
  const granted = name => ring.ranges.filter(r => r.node === name).reduce((n, r) => n + r.slots, 0);
  const promised = name => ring.ranges.filter(r => (r.next_node ?? r.node) === name)
    .reduce((n, r) => n + r.slots, 0);
  const nodes = table("Nodes", ["Node", "State", "Kind", "Share", "Slots owned", "Slots granted",
                                "Last beat", "Load", "Confirms"],
    ring.nodes.map((n, i) => ({attributes: {class: n.state === "dead" ? "dead" : ""}, cells: [
      make("span", {}, make("span", {class: `swatch c${i % colours}`, "aria-hidden": "true"}), n.node),
      make("span", {class: state_class(n.state)}, n.state),
      n.agent ? `${n.kind} of ${n.agent}` : n.kind, percent(n.share), granted(n.node),
      promised(n.node), seconds(n.heartbeat_age_seconds), n.load,
      n.progress ? make("span", {}, make("code", {}, JSON.stringify(n.progress)),
                        ` ${seconds(n.checkpoint_age_seconds)} ago`) : ""]})));
  const queues = table("Queues", ["Queue", "Oldest due", "Overdue"],
    ring.queues.map(q => [q.queue, q.oldest_due ?? "", seconds(q.overdue_seconds)]));
  const key = `ranges-${ring.region}-${ring.cluster}`;
  const ranges = make("details", {open: by_id(key)?.parentNode.open ? "open" : undefined},
    make("summary", {id: key}, `${ring.ranges.length} ranges`),
    table("Ranges", ["First token", "Last token", "Slots", "Epoch", "Owner", "Next"],
      ring.ranges.map(r => [make("code", {}, r.range_start), make("code", {}, r.range_end), r.slots,
        r.epoch, r.node ?? "nobody", r.next_node ?? ""])));
  return make("div", {},
    make("h3", {}, `${ring.region} / ${ring.cluster}`),
    make("p", {}, ring.window_start
      ? `Window ${ring.window_start} to ${ring.window_end}, published by ${ring.publisher}. `
      : "No window is published. ", `Oldest work overdue: ${seconds(ring.overdue_seconds) || "none"}.`),
    make("div", {class: "ring"}, drawing, make("div", {}, nodes, queues, ranges)));
}

const subscription_heads = ["Subscription", "Topic", "Handler", "Unread for", "Held", "Dead"];
const at_least = (n, max) => n >= max ? `${max} or more` : n;
const subscription_cells = s => [s.subscription, s.topic, s.handler ?? "services",
  seconds(s.lag_seconds), at_least(s.held, 1000), at_least(s.dead, 1000)];

// A screen reader announces the summary when it changes, not with each update.
function show_summary(counts) {
  const parts = counts.filter(([n]) => n > 0).map(([n, what]) => `${n} ${what}${n === 1 ? "" : "s"}`);
  const text = parts.length === 0 ? "Nothing." : parts.join(", ") + ".";
  if (by_id("summary").textContent !== text) by_id("summary").textContent = text;
}

function draw_attention(status) {
  const blocked = status.blocked_keys ?? [];
  const lagging = status.subscriptions.filter(s => s.lag_seconds > lag_max_seconds);
  const suspected = status.rings.flatMap(r => r.nodes.filter(n => n.state === "suspected" || n.state === "dead")
    .map(n => ({ring: `${r.region} / ${r.cluster}`, ...n})));
  const problems = (status.problems ?? []).filter(p => p.severity !== "ok" && p.severity !== "info");
  show_summary([[status.parked, "parked saga"], [blocked.length, "blocked key"],
                [lagging.length, "lagging subscription"], [suspected.length, "unresponsive node"],
                [problems.length, "problem"]]);
  const parts = [];
  if (status.parked > 0)
    parts.push(table(`Parked sagas: ${status.parked}`, ["Saga", "Step", "Since", "Why", "SQL"],
      status.parked_sagas.map(p => [
        make("span", {}, p.saga, " ",
          make("a", {href: `#${p.saga_id}`, id: `parked-${p.saga_id}`}, make("code", {}, p.saga_id))), `${p.step} (${p.direction})`,
        p.since, p.error, make("code", {}, p.hint)])));
  if (blocked.length > 0)
    parts.push(table("Blocked keys", ["Subscription", "Topic", "Key", "Since", "Attempts", "Why", "Waiting"],
      blocked.map(b => [b.subscription, b.topic, b.key, b.blocked_since, b.attempts, b.last_error,
                        b.waiting])));
  if (lagging.length > 0)
    parts.push(table("Lagging subscriptions", subscription_heads, lagging.map(subscription_cells)));
  if (suspected.length > 0)
    parts.push(table("Unresponsive nodes", ["Node", "Ring", "State", "Last beat", "Share"],
      suspected.map(n => [n.node, n.ring, make("span", {class: state_class(n.state)}, n.state),
                          seconds(n.heartbeat_age_seconds), percent(n.share)])));
  if (problems.length > 0)
    parts.push(table("Problems", ["Severity", "Check", "What", "What to do"],
      problems.map(p => [make("span", {class: p.severity === "error" ? "bad" : "warn"}, p.severity),
                         p.check_name, p.detail, make("code", {}, p.fix)])));
  by_id("attention").replaceChildren(...parts);
}

function draw(status) {
  by_id("database").textContent = status.database;
  document.title = `stacksaga: ${status.database}`;
  const states = status.rings.flatMap(r => r.nodes).map(n => n.state);
  by_id("pills").replaceChildren(
    make("span", {class: "pill"}, `version ${status.version}`), " ",
    make("span", {class: "pill"}, status.coordination),
    ...["active", "suspected", "dead", "draining"].map(s => [s, states.filter(x => x === s).length])
      .filter(([s, n]) => n > 0 || s === "active")
      .flatMap(([s, n]) => [" ", make("span", {class: `pill ${state_class(s)}`}, `${s} ${n}`)]));
  draw_attention(status);
  by_id("rings").replaceChildren(...status.rings.map(draw_ring));
  by_id("subscriptions").replaceChildren(
    table("Subscriptions", subscription_heads, status.subscriptions.map(subscription_cells)));
  by_id("sagas").replaceChildren(table("By status", ["Status", "Sagas"],
    status.sagas.map(s => [s.status, s.more ? `${s.sagas} or more` : s.sagas])), table("Since the counters began", ["What", "", "Number"],
    (status.counters ?? []).map(c => [c.name.replace(/^stacksaga_|_total$/g, "").replaceAll("_", " "),
      Object.values(c.labels).join(", "), c.value])));
  by_id("workers").replaceChildren(table("Workers", ["Process", "Since", "Turns", "Items", "Failures", "Last turn", "Mode"],
    status.workers.map(w => [w.pid, w.started_at, w.turns, w.items, w.failures,
      w.last_turn_ms === null ? "" : `${w.last_turn_ms} ms`, w.mode])));
}

let paused = false;

// The page shows one of several databases: the one that the address names, else the first.
const chosen = new URLSearchParams(location.search).get("database");
const of_database = chosen === null ? "" : `?database=${encodeURIComponent(chosen)}`;

function choose(answer) {
  if (!answer.databases) return answer;
  const names = answer.databases.map(d => d.name);
  const one = answer.databases[Math.max(0, names.indexOf(chosen))];
  const select = by_id("choose");
  if (select.options.length !== names.length)
    select.replaceChildren(...names.map(n => make("option", {value: n}, n)));
  if (document.activeElement !== select) select.value = one.name;
  by_id("databases").hidden = false;
  if (one.error) throw new Error(one.error);
  return one.status;
}
by_id("choose").addEventListener("change", event => {
  location.search = `?database=${encodeURIComponent(event.target.value)}`;
});

async function update() {
  if (!paused && !document.hidden) {
    const failure = by_id("failure");
    try {
      const response = await fetch("status");
      if (!response.ok) throw new Error(await response.text());
      const focused = document.activeElement?.id;
      draw(choose(await response.json()));
      if (focused) by_id(focused)?.focus({preventScroll: true}); // a redrawn element loses the focus
      failure.hidden = true;
      by_id("updated").textContent = `Updated ${new Date().toLocaleTimeString()}`;
    } catch (error) {
      if (failure.textContent !== error.message) failure.textContent = error.message;
      failure.className = "bad";
      failure.hidden = false;
    }
  }
  setTimeout(update, period_ms);
}

by_id("pause").addEventListener("click", event => {
  paused = !paused;
  event.target.setAttribute("aria-pressed", paused);
  event.target.textContent = paused ? "Resume updates" : "Pause updates";
});
// The timeline of a saga has an address: the page's, with the id after a "#".
async function show_timeline() {
  const id = location.hash.slice(1);
  if (id === "") return;
  by_id("saga").value = id;
  const timeline = by_id("timeline");
  try {
    timeline.textContent = await (await fetch(`saga/${encodeURIComponent(id)}${of_database}`)).text();
  } catch (error) {
    timeline.textContent = error.message;
  }
  timeline.hidden = false;
  timeline.focus();
}
addEventListener("hashchange", show_timeline);
by_id("find").addEventListener("submit", event => {
  event.preventDefault();
  const id = by_id("saga").value;
  if (location.hash === `#${id}`) show_timeline();
  else location.hash = id;
});
show_timeline();
update();
