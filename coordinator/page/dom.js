// Elements, created and never parsed from text: text from a database stays text. patch() changes
// what is there into what should be, so that focus, selection and open details stay.
"use strict";

const svg_tags = new Set(["svg", "path", "title", "text", "line", "rect", "circle", "g"]);
const handlers = ["onclick", "onsubmit", "onchange"];

// Two names that differ by a character that shows nothing look alike, and what stands behind a directional one may be
// read backwards: \u202e is shown instead. The same characters as in extension/core/common/invisible.hpp.
const invisible = new RegExp("[\\u{ad}\\u{34f}\\u{61c}\\u{115f}-\\u{1160}\\u{17b4}-\\u{17b5}\\u{180b}-\\u{180f}" +
  "\\u{200b}-\\u{200f}\\u{2028}-\\u{202e}\\u{2060}-\\u{206f}\\u{3164}\\u{fe00}-\\u{fe0f}\\u{feff}\\u{ffa0}" +
  "\\u{fff0}-\\u{fffb}\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{e0fff}]", "gu");
export const visible = text => text.replace(invisible, c => {
  const code = c.codePointAt(0);
  return code > 0xffff ? `\\U${code.toString(16).padStart(8, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`;
});

/// make("td", {class: "number", onclick: f}, "text", element...)
export function make(tag, attributes = {}, ...children) {
  const element = svg_tags.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag)
                                    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (handlers.includes(name)) element[name] = value;
    else if (value !== undefined && value !== null && value !== false && (value !== "" || name === "value"))
      element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter(c => c !== null && c !== undefined && c !== "")
    .map(c => c instanceof Node ? c : visible(String(c))));
  return element;
}

export const by_id = id => document.getElementById(id);

const is_same = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName &&
  (a.nodeType !== 1 || (a.getAttribute("data-key") === b.getAttribute("data-key") && a.id === b.id));

// By getAttributeNames(): a form's property "attributes" may be its field of that name.
function patch_element(old, wanted) {
  const is_state = name => name === "open" && old.nodeName === "DETAILS";
  for (const name of old.getAttributeNames())
    if (!wanted.hasAttribute(name) && !is_state(name)) old.removeAttribute(name);
  for (const name of wanted.getAttributeNames())
    if (old.getAttribute(name) !== wanted.getAttribute(name) && !is_state(name))
      old.setAttribute(name, wanted.getAttribute(name));
  for (const name of handlers) if (old[name] !== wanted[name]) old[name] = wanted[name];
  if (old.type === "checkbox") old.checked = wanted.checked; // its attribute counts only until it is clicked
  patch(old, [...wanted.childNodes]);
}

/// Changes the children of an element into these.
export function patch(parent, wanted) {
  const keyed = new Map([...parent.children].filter(c => c.dataset.key).map(c => [c.dataset.key, c]));
  // First remove unwanted elements: the others stay in their place, since an element that moves loses the focus.
  const keys = new Set(wanted.map(node => node.dataset?.key));
  for (const [key, old] of keyed) if (!keys.has(key)) old.remove();
  let at = parent.firstChild;
  for (const node of wanted) {
    const known = node.nodeType === 1 && node.dataset.key ? keyed.get(node.dataset.key) : undefined;
    if (known && known !== at && is_same(known, node)) parent.insertBefore(known, at), at = known;
    if (at && is_same(at, node)) {
      if (at.nodeType === 1) patch_element(at, node);
      else if (at.nodeValue !== node.nodeValue) at.nodeValue = node.nodeValue;
      at = at.nextSibling;
    } else {
      parent.insertBefore(node, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

const short_max = 14; // texts up to this length stay on their line
const class_of_cell = cell => typeof cell === "number" ? "number"
  : typeof cell === "string" && cell.length <= short_max ? "short" : "";

/// A table of rows [cell...] or {key, cells}; on a phone each row is a block.
export function table(caption, heads, rows) {
  if (rows.length === 0) return make("p", {class: "dim"}, `${caption}: none.`);
  const cells_of = row => row.cells ?? row;
  const is_number = column => rows.some(r => typeof cells_of(r)[column] === "number");
  return make("div", {class: "table", "data-key": caption}, make("table", {class: "rows"}, make("caption", {}, caption),
    make("thead", {}, make("tr", {}, ...heads.map((head, i) =>
      make("th", {scope: "col", class: is_number(i) ? "number" : ""}, head)))),
    make("tbody", {}, ...rows.map(row => make("tr", {"data-key": row.key, class: row.class},
      ...cells_of(row).map((cell, i) => make("td", {"data-label": heads[i],
        class: class_of_cell(cell)}, cell)))))));
}

/// Names and values; those without a value are left out.
export function facts(pairs) {
  return make("dl", {class: "facts"}, ...pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

async function copy(event) {
  const button = event.currentTarget;
  const text = button.parentNode.querySelector("code, pre");
  try {
    await navigator.clipboard.writeText(text.textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(text); // without a secure context the viewer copies by hand
    button.textContent = "Selected";
  }
}

/// SQL, or another text, with a button that copies it.
export const copyable = text => make("p", {"data-key": text}, make("code", {}, text), " ",
  make("button", {type: "button", onclick: copy, "aria-label": `Copy ${text}`}, "Copy"));

/// A payload as views have it: cut at 64 kB, or hidden.
export function payload(name, value, sees) {
  if (!value) return make("p", {class: "dim"}, `${name}: ${sees ? "none" : "hidden. Log in to see it."}`);
  let text = value.text;
  const is_cut = value.bytes > new TextEncoder().encode(text).length;
  if (!is_cut) try { if (!/\d{16}/.test(text)) text = JSON.stringify(JSON.parse(text), null, 2); } catch { /* no JSON */ }
  return make("details", {open: true, "data-key": name}, make("summary", {}, `${name}, ${value.bytes} bytes${is_cut ? ", cut at 64 kB" : ""}`),
    make("pre", {tabindex: 0, role: "region", "aria-label": name}, text));
}

const beginning_length = 300;

/// A text that may be long, as errors are: its beginning, which opens to the whole.
export const long_text = text => !text ? ""
  : text.length <= beginning_length ? make("span", {class: "lines"}, text)
  : make("details", {"data-key": "whole"}, make("summary", {}, `${text.slice(0, beginning_length)}…`),
      make("pre", {tabindex: 0, role: "region", "aria-label": "The whole text"}, text));

/// How SQL writes a text.
export const quoted = text => `'${String(text).replaceAll("'", "''")}'`;
