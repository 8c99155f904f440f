// SPDX-License-Identifier: Apache-2.0
// Elements without markup: text that comes from a model or a server only ever becomes text nodes.

// `props`: on<Event> is a listener, a name with a dash or `role` an attribute, others are properties.
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2).toLowerCase(), value);
    else if (name.includes("-") || name === "role") node.setAttribute(name, value);
    else node[name] = value;
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const byId = (id) => document.getElementById(id);

// What a screen reader says next.
export function announce(text) {
  byId("status").textContent = text;
}

// Copies, and says so on the button for a moment.
export function copyButton(text, label = "Copy") {
  const button = el("button", { type: "button", className: "link", textContent: label });
  button.addEventListener("click", () => copyTo(button, text()));
  return button;
}

export async function copyTo(button, text) {
  const label = button.textContent;
  let said = "Copied";
  try {
    await write(text);
  } catch {
    said = "Not allowed";
  }
  button.textContent = said;
  announce(said);
  setTimeout(() => { button.textContent = label; }, 1500);
}

// navigator.clipboard is for secure pages alone, and a server is often called by http.
async function write(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text);
  const area = el("textarea", { value: text, className: "visually-hidden", readOnly: true });
  const owner = document.querySelector("dialog[open]") ?? document.body;
  const focused = document.activeElement;
  owner.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  focused?.focus();
  if (!done) throw new Error("copy");
}

// A list of tabs: arrows move, the chosen one alone is in the order of Tab. `onChoose` gets its id.
export function makeTabs(list, onChoose) {
  const tabs = [...list.querySelectorAll('[role="tab"]')];
  const choose = (chosen) => {
    for (const tab of tabs) {
      tab.setAttribute("aria-selected", String(tab === chosen));
      tab.tabIndex = tab === chosen ? 0 : -1;
    }
    onChoose(chosen.id);
  };
  for (const [index, tab] of tabs.entries()) {
    tab.type = "button";
    tab.addEventListener("click", () => choose(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, Home: -index, End: tabs.length - 1 - index }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      const next = tabs[(index + step + tabs.length) % tabs.length];
      next.focus();
      choose(next);
    });
  }
  return (id) => choose(tabs.find((tab) => tab.id === id));
}
