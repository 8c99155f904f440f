// SPDX-License-Identifier: Apache-2.0
// The conversation: sent, streamed, stopped, answered again, edited.
import { events, request } from "./api.js";
import { announce, byId, copyButton, el } from "./dom.js";
import { MarkdownView } from "./markdown.js";
import { bodyOf, checkSettings, jsonOf } from "./settings.js";

const NAMES = { user: "You", assistant: "Answer" };
const list = byId("messages");
const input = byId("composer-text");

let turns = []; // in order
let running = null; // AbortController of the answer that comes

// One message and what the page shows of it.
class Turn {
  constructor(role, content = "") {
    this.role = role;
    this.content = content;
    this.reasoning = "";
    this.body = el("div", { className: "body" });
    this.foot = el("footer", { className: "turn-foot" });
    this.note = el("span", { className: "note" });
    this.node = el("article", { className: `turn ${role}`, "aria-label": NAMES[role] },
      el("header", {}, NAMES[role]), this.body, this.foot);
    this.render();
  }

  render() {
    this.body.replaceChildren();
    this.thinking = null;
    this.view = new MarkdownView(el("div", { className: "markdown" }));
    this.update();
    this.body.append(this.view.parent);
    this.foot.replaceChildren(this.note, copyButton(() => this.content),
      el("button", { type: "button", className: "link", textContent: "Edit", onClick: () => edit(this) }));
    if (this.role === "assistant") {
      this.foot.append(el("button", {
        type: "button", className: "link", textContent: "Regenerate", onClick: () => regenerate(this),
      }));
    }
  }

  update() {
    if (this.reasoning && !this.thinking) {
      this.thinking = el("div", { className: "plain-text" });
      this.body.prepend(el("details", { className: "thinking" }, el("summary", {}, "Reasoning"), this.thinking));
    }
    if (this.thinking) this.thinking.textContent = this.reasoning;
    if (this.role === "user") this.view.parent.textContent = this.content;
    else this.view.set(this.content);
    this.view.parent.classList.toggle("plain-text", this.role === "user");
  }

  fail(message) {
    this.body.append(el("p", { className: "error", role: "alert" }, message));
  }
}

const messages = () => turns.filter((turn) => turn.content !== "").map(({ role, content }) => ({ role, content }));

// What would be sent now, or what would come again.
export function nextBody() {
  const typed = input.value.trim();
  const said = messages();
  if (typed) said.push({ role: "user", content: typed });
  while (said.at(-1)?.role === "assistant") said.pop();
  if (said.length === 0) said.push({ role: "user", content: "Hello" });
  return bodyOf(said);
}

function add(turn) {
  turns.push(turn);
  list.append(turn.node);
  list.scrollTop = list.scrollHeight;
  return turn;
}

// Takes away this turn and what follows it.
function dropFrom(turn) {
  const at = turns.indexOf(turn);
  if (at < 0) return;
  for (const gone of turns.splice(at)) gone.node.remove();
}

function send() {
  const text = input.value.trim();
  if (!text || running || !checkSettings()) return;
  input.value = "";
  fitInput();
  add(new Turn("user", text));
  answer();
}

function regenerate(turn) {
  if (running || !checkSettings()) return;
  dropFrom(turn);
  if (turns.at(-1)?.role === "user") answer();
}

// An edited question is asked again; an edited answer is what the conversation goes on from.
function edit(turn) {
  if (running) return;
  const area = el("textarea", { value: turn.content, rows: Math.min(12, turn.content.split("\n").length + 1) });
  area.setAttribute("aria-label", `Edit: ${NAMES[turn.role]}`);
  const save = () => {
    const text = area.value.trim();
    if (!text || running || (turn.role === "user" && !checkSettings())) return;
    turn.content = text;
    turn.render();
    if (turn.role === "user") {
      const next = turns[turns.indexOf(turn) + 1];
      if (next) dropFrom(next);
      answer();
    }
    input.focus();
  };
  const cancel = () => {
    turn.render();
    input.focus();
  };
  area.addEventListener("keydown", (event) => {
    if (event.key === "Escape") cancel();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) save();
  });
  turn.body.replaceChildren(area);
  turn.foot.replaceChildren(
    el("button", { type: "button", className: "primary", textContent: turn.role === "user" ? "Save and ask" : "Save", onClick: save }),
    el("button", { type: "button", textContent: "Cancel", onClick: cancel }));
  area.focus();
}

function showRunning(isRunning) {
  byId("send").hidden = isRunning;
  byId("stop").hidden = !isRunning;
  list.setAttribute("aria-busy", String(isRunning));
}

// Tokens, their rate from the first to the last of them, and the time to the first.
function statsOf({ started, first, last, tokens, usage }) {
  const count = usage?.completion_tokens ?? tokens;
  const parts = [`${count} token${count === 1 ? "" : "s"}`];
  if (first && count > 1 && last > first) parts.push(`${(((count - 1) * 1000) / (last - first)).toFixed(1)} tokens/s`);
  if (first) parts.push(`first after ${Math.round(first - started)} ms`);
  if (usage) parts.push(`prompt ${usage.prompt_tokens}`);
  return parts.join(" · ");
}

async function answer() {
  const body = bodyOf(messages());
  const turn = add(new Turn("assistant"));
  turn.node.classList.add("coming");
  running = new AbortController();
  showRunning(true);
  announce("Answering");
  const run = { started: performance.now(), tokens: 0 };
  try {
    const response = await request("v1/chat/completions", { method: "POST", body: jsonOf(body), signal: running.signal });
    await read(response, turn, run);
    announce(turn.content ? `Answer: ${turn.content.slice(0, 2000)}` : "The answer is empty");
  } catch (error) {
    if (running.signal.aborted) {
      announce("Stopped");
    } else {
      turn.fail(error.message);
    }
  }
  running = null;
  turn.update();
  turn.note.textContent = run.first || run.usage ? statsOf(run) : "";
  turn.node.classList.remove("coming");
  showRunning(false);
}

async function read(response, turn, run) {
  let isDrawn = false;
  const draw = () => {
    isDrawn = false;
    const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
    turn.update();
    turn.note.textContent = statsOf(run);
    if (isAtEnd) list.scrollTop = list.scrollHeight;
  };
  for await (const event of events(response)) {
    if (event.error) throw new Error(event.error.message ?? String(event.error));
    run.usage = event.usage ?? run.usage;
    const delta = event.choices?.[0]?.delta;
    if (!delta?.content && !delta?.reasoning_content) continue;
    turn.content += delta.content ?? "";
    turn.reasoning += delta.reasoning_content ?? "";
    run.last = performance.now();
    run.first ??= run.last;
    ++run.tokens;
    if (isDrawn) continue;
    isDrawn = true;
    requestAnimationFrame(draw);
  }
}

export function stop() {
  running?.abort();
}

function fitInput() {
  input.style.height = "auto";
  input.style.height = `${Math.min(input.scrollHeight + 2, 200)}px`;
}

export function startChat() {
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  byId("stop").addEventListener("click", stop);
  byId("new-chat").addEventListener("click", () => {
    stop();
    if (turns.length > 0) dropFrom(turns[0]);
    input.focus();
  });
  input.addEventListener("input", fitInput);
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !document.querySelector("dialog[open]")) stop();
  });
}
