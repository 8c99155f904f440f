// SPDX-License-Identifier: Apache-2.0
// The next request, or the last one, as something to run elsewhere.
import { base, curlOf, hasKey } from "./api.js";
import { byId, copyTo, makeTabs } from "./dom.js";
import { jsonOf } from "./settings.js";

const OF_OPENAI = ["model", "messages", "temperature", "top_p", "max_tokens", "stream", "stream_options"];

const toCurl = (body) => `${curlOf("v1/chat/completions", { method: "POST", body: jsonOf(body, 2) })}\n`;

// A value as Python writes it: strings of JSON are strings of Python.
function python(value, indent) {
  const inner = indent + "    ";
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[\n${value.map((v) => `${inner}${python(v, inner)},\n`).join("")}${indent}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([name, v]) => `${JSON.stringify(name)}: ${python(v, inner)}`).join(", ")}}`;
  }
  return JSON.stringify(value);
}

export function toPython(body) {
  const lines = [];
  const extra = [];
  for (const [name, value] of Object.entries(body)) {
    if (name === "seed") lines.push(`    seed=${value},`);
    else if (OF_OPENAI.includes(name)) lines.push(`    ${name}=${python(value, "    ")},`);
    else extra.push(`${JSON.stringify(name)}: ${python(value, "    ")}`);
  }
  if (extra.length > 0) lines.push(`    extra_body={${extra.join(", ")}},`);
  const key = hasKey() ? 'os.environ["INFLIGHT_API_KEY"]' : '"none"';
  return `${hasKey() ? "import os\n\n" : ""}import openai

client = openai.OpenAI(base_url=${JSON.stringify(new URL("v1", base).href)}, api_key=${key})
stream = client.chat.completions.create(
${lines.join("\n")}
)
for chunk in stream:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)
print()
`;
}

const FORMS = { "tab-curl": toCurl, "tab-python": toPython, "tab-json": (body) => `${jsonOf(body, 2)}\n` };

// `bodyNow` is what would be sent.
export function startRequestView(bodyNow) {
  const dialog = byId("request-dialog");
  const code = byId("request-code");
  let body = {};
  const choose = makeTabs(dialog.querySelector('[role="tablist"]'), (id) => {
    code.textContent = FORMS[id](body);
    code.setAttribute("aria-labelledby", id);
  });
  byId("show-request").addEventListener("click", () => {
    body = bodyNow();
    choose("tab-curl");
    dialog.showModal();
  });
  byId("request-copy").addEventListener("click", (event) => copyTo(event.target, code.textContent));
  byId("request-close").addEventListener("click", () => dialog.close());
}
