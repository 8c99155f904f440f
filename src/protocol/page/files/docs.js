// SPDX-License-Identifier: Apache-2.0
// Shows openapi.json: routes by tag, their bodies, and a form that calls them.
import { askForKey, curlOf, getJson, request } from "./api.js";
import { announce, byId, copyButton, el } from "./dom.js";
import { startTheme } from "./theme.js";

const MAX_SHOWN = 20000; // characters of an answer
let schemas = {};

const resolve = (schema) => (schema?.$ref ? schemas[schema.$ref.split("/").at(-1)] : schema);

function typeOf(schema) {
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const parts = [schema.type ?? "any"];
  if (schema.type === "array" && schema.items?.type) parts[0] = `array of ${schema.items.type}`;
  if (schema.minimum !== undefined && schema.maximum !== undefined) parts.push(`[${schema.minimum}, ${schema.maximum}]`);
  else if (schema.minimum !== undefined) parts.push(`≥ ${schema.minimum}`);
  if (schema.default !== undefined) parts.push(`default ${JSON.stringify(schema.default)}`);
  return parts.join(", ");
}

function members(schema) {
  const entries = Object.entries(schema.properties ?? {});
  if (entries.length === 0) return el("p", {}, schema.description ?? "A JSON object.");
  const required = schema.required ?? [];
  return el("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": "Members of the body" }, el("table", {},
    el("thead", {}, el("tr", {}, ...["Member", "Type", "Meaning"].map((name) => el("th", { scope: "col" }, name)))),
    el("tbody", {}, ...entries.map(([name, member]) => el("tr", {},
      el("td", {}, el("code", {}, name), required.includes(name) ? " (needed)" : ""),
      el("td", {}, typeOf(member)), el("td", {}, member.description ?? ""))))));
}

// What a body may look like: examples of its members, where it has none of its own.
function exampleOf(schema) {
  if (schema.example !== undefined) return schema.example;
  return Object.fromEntries(Object.entries(schema.properties ?? {})
    .filter(([name, member]) => member.example !== undefined && name !== "stream_options")
    .map(([name, member]) => [name, member.example]));
}

function form(path, method, parameters, schema) {
  const inputs = parameters.map(({ name, description }) => {
    const input = el("input", { name, required: true, autocomplete: "off" });
    return { name, input, node: el("label", {}, `${name}: ${description ?? ""} `, input) };
  });
  const body = schema && el("textarea", { rows: 6, spellcheck: false, value: JSON.stringify(exampleOf(schema), null, 2) });
  const output = el("pre", { className: "answer", tabIndex: 0, hidden: true, role: "region", "aria-label": "Answer" });
  const target = () => inputs.reduce((made, { name, input }) => made.replace(`{${name}}`, encodeURIComponent(input.value)), path).slice(1);
  const asked = () => ({ method: method.toUpperCase(), body: body?.value });
  const call = async (event) => {
    event.preventDefault();
    output.hidden = false;
    output.textContent = "…";
    try {
      const response = await request(target(), asked());
      const text = await response.text();
      output.textContent = `${response.status}\n${text.slice(0, MAX_SHOWN)}`;
    } catch (error) {
      output.textContent = `${error.status ?? ""}\n${error.message}`;
    }
    announce(`Answered: ${output.textContent.slice(0, 300)}`);
  };
  return el("form", { className: "try", onSubmit: call }, ...inputs.map(({ node }) => node),
    body && el("label", {}, "Body ", body),
    el("div", {}, el("button", { className: "primary" }, "Send"), copyButton(() => curlOf(target(), asked()), "Copy as curl")), output);
}

function operationView(path, method, operation) {
  const schema = resolve(operation.requestBody?.content?.["application/json"]?.schema);
  const view = el("details", { className: "operation" },
    el("summary", {}, el("span", { className: `method ${method}` }, method.toUpperCase()),
      el("code", {}, path), el("span", { className: "summary" }, operation.summary)));
  // Made when it is looked at.
  view.addEventListener("toggle", () => {
    if (view.childElementCount > 1) return;
    const answers = Object.entries(operation.responses ?? {}).map(([status, { description }]) => el("li", {}, `${status}: ${description}`));
    view.append(el("div", { className: "operation-body" },
      ...(schema ? [el("h3", {}, "Body"), members(schema)] : []),
      el("h3", {}, "Answers"), el("ul", {}, ...answers),
      el("h3", {}, "Try it"), form(path, method, operation.parameters ?? [], schema)));
  });
  view.dataset.words = `${method} ${path} ${operation.summary}`.toLowerCase();
  return view;
}

async function start() {
  const description = await getJson("openapi.json");
  schemas = description.components?.schemas ?? {};
  byId("description").textContent = description.info?.description ?? "";
  const byTag = new Map();
  for (const [path, operations] of Object.entries(description.paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      const tag = operation.tags?.[0] ?? "Other";
      if (!byTag.has(tag)) byTag.set(tag, []);
      byTag.get(tag).push(operationView(path, method, operation));
    }
  }
  byId("operations").append(...[...byTag].map(([tag, views]) => el("section", {}, el("h2", {}, tag), ...views)));
  byId("filter").addEventListener("input", (event) => {
    const wanted = event.target.value.trim().toLowerCase();
    for (const view of document.querySelectorAll(".operation")) view.hidden = !view.dataset.words.includes(wanted);
    for (const section of byId("operations").children) section.hidden = !section.querySelector(".operation:not([hidden])");
  });
}

startTheme();
byId("key-button").addEventListener("click", () => askForKey(false));
byId("key-cancel").addEventListener("click", () => byId("key-dialog").close("cancel"));
start().catch((error) => {
  byId("description").textContent = `The description cannot be read: ${error.message}`;
});
