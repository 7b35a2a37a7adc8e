// Stages of a definition, drawn from the Mermaid flowchart that saga_diagram() returns.
"use strict";

import {make} from "./dom.js";

// Labels hold #NNN; for characters that Mermaid would interpret.
const plain = text => text.replace(/#(\d+);/g, (_, code) => String.fromCodePoint(Number(code)));

// What a label says follows a failure, behind its first two lines.
const failure_of = lines => lines.slice(2).find(text => text.startsWith("on failure: "))?.slice("on failure: ".length);

/// {stages: [[{no, name, does, is_pivot, on_failure, undo, fallback}]], on_failure} of a flowchart.
export function parse(diagram) {
  const steps = new Map();
  const stages = [];
  let on_failure = "compensate";
  let stage = null;
  for (const line of (diagram ?? "").split("\n").map(l => l.trim())) {
    const node = line.match(/^([sfc])(\d+)[[(>/]+"(.*)"[\])/]+(:::\w+)?$/);
    const begin = line.match(/^begin\(\("(.*)"\)\)$/);
    if (begin) {
      on_failure = failure_of(begin[1].split("<br/>").map(plain)) ?? on_failure;
    } else if (line.startsWith("subgraph ")) {
      stages.push(stage = []);
    } else if (line === "end") {
      stage = null;
    } else if (node) {
      const [, kind, no, label] = node;
      const lines = label.split("<br/>").map(plain);
      if (kind === "s") {
        const step = {no: Number(no), name: lines[0], does: lines[1], is_pivot: line.endsWith(":::pivot"),
          on_failure: failure_of(lines)};
        steps.set(no, step);
        if (stage) stage.push(step); else stages.push([step]);
      } else if (steps.has(no)) {
        steps.get(no)[kind === "c" ? "undo" : "fallback"] = lines[1];
      }
    }
  }
  return {stages, on_failure};
}

/// The attempts of a step without those that its service gave back.
const charged = (attempts, step) => attempts.filter(a => a.step === step.name && a.status !== "released");

/// The outcome of a step, by its attempts.
function state_of(step, attempts, saga) {
  const of_step = charged(attempts, step);
  const last = direction => of_step.filter(a => a.direction === direction).at(-1);
  const undone = last("compensate");
  if (saga?.status === "parked" && saga.parked_step === step.name) return "parked";
  if (undone?.status === "completed") return "compensated";
  if (saga?.status === "compensating" && saga.current_step === step.name) return "undoing";
  const act = last("act");
  if (act) return undone?.status === "failed" ? "failed" : act.status;
  return saga?.current_step === step.name ? "current" : "";
}

const words = {completed: "done", failed: "failed", started: "running", parked: "parked",
               compensated: "undone", current: "next", undoing: "is to be undone"};

/// The stages from left to right; each step with its command and its outcome.
export function draw(diagram, attempts = [], saga = null) {
  const draw_step = step => {
    const state = state_of(step, attempts, saga);
    const count = charged(attempts, step).length;
    return make("div", {class: `step ${state} ${step.is_pivot ? "pivot" : ""}`, "data-key": step.name},
      make("p", {}, make("b", {}, step.name), state ? ` ${words[state]}` : ""),
      make("p", {class: "dim"}, step.does, step.is_pivot ? ", irreversible" : ""),
      step.on_failure ? make("p", {class: "dim"}, `on failure: ${step.on_failure}`) : null,
      step.undo ? make("p", {class: "dim"}, `undo: ${step.undo}`) : null,
      step.fallback ? make("p", {class: "dim"}, `or else: ${step.fallback}`) : null,
      count > 1 ? make("p", {}, `${count} attempts`) : null);
  };
  return make("ol", {class: "stages", "aria-label": "Stages"},
    ...parse(diagram).stages.map(stage => make("li", {}, ...stage.map(draw_step))));
}

/// What the saga says follows a failure before an irreversible step is done, where it is not compensation.
export const failure_note = diagram => parse(diagram).on_failure === "compensate" ? null
  : make("p", {class: "dim"}, `On failure: ${parse(diagram).on_failure}, for an operator to retry or compensate.`);

/// The steps that publish messages, and their topics.
export const topics = diagram => new Map(parse(diagram).stages.flat()
  .filter(s => s.does?.startsWith("message ")).map(s => [s.name, s.does.slice("message ".length)]));
