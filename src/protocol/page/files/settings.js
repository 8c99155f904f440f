// SPDX-License-Identifier: Apache-2.0
// What goes with the conversation: model, system prompt, sampling. An empty field leaves the choice
// to the model; what is typed is kept in this browser.
import { byId, el } from "./dom.js";

const STORED = "inflight-settings";
const NUMBERS = ["temperature", "top_p", "top_k", "max_tokens"];
const form = byId("settings-form");
const chooser = byId("model");

const load = () => {
  try {
    return JSON.parse(localStorage.getItem(STORED)) ?? {};
  } catch {
    return {};
  }
};

export function startSettings() {
  const stored = load();
  for (const field of form.elements) {
    if (field.name && typeof stored[field.name] === "string") field.value = stored[field.name];
  }
  form.addEventListener("input", store);
  form.addEventListener("submit", (event) => event.preventDefault());
  byId("reset-settings").addEventListener("click", () => {
    form.reset();
    store();
  });
  if (window.matchMedia("(max-width: 800px)").matches) byId("settings").open = false;
}

function store() {
  const values = Object.fromEntries([...form.elements].filter((f) => f.name).map((f) => [f.name, f.value]));
  localStorage.setItem(STORED, JSON.stringify({ ...values, model: chooser.value }));
}

export function showModels(names) {
  const wanted = chooser.value || load().model;
  chooser.replaceChildren(...names.map((name) => el("option", { value: name, textContent: name })));
  if (names.includes(wanted)) chooser.value = wanted;
}

// The first field that is wrong, told by the browser; true where all are right.
export function checkSettings() {
  if (form.checkValidity()) return true;
  byId("settings").open = true;
  return form.reportValidity();
}

// The body of POST v1/chat/completions. A seed keeps its 64 bits only as the text that it is.
export function bodyOf(messages) {
  const system = form.elements.system.value.trim();
  const body = {};
  if (chooser.value) body.model = chooser.value;
  body.messages = system ? [{ role: "system", content: system }, ...messages] : messages;
  for (const name of NUMBERS) {
    const { value } = form.elements[name];
    if (value !== "") body[name] = Number(value);
  }
  const seed = form.elements.seed.value.trim();
  if (seed) body.seed = seed;
  return { ...body, stream: true, stream_options: { include_usage: true } };
}

// JSON with the seed as a number, however large.
export function jsonOf(body, indent) {
  const text = JSON.stringify({ ...body, seed: undefined }, null, indent);
  if (body.seed === undefined) return text;
  const separator = indent ? ",\n" + " ".repeat(indent) + '"seed": ' : ',"seed":';
  return text.replace(/\n?\}$/, (end) => separator + body.seed + end);
}
