// SPDX-License-Identifier: Apache-2.0
// Requests to the server that the page came from, with the key that it asks for.
import { byId } from "./dom.js";

const STORED_KEY = "inflight-key"; // of this tab alone

// Paths are relative to the page, which a proxy may have under a prefix.
export const base = new URL(".", document.baseURI);
const urlOf = (path) => new URL(path, base).href;
export const hasKey = () => Boolean(sessionStorage.getItem(STORED_KEY));

const quote = (text) => `'${text.replaceAll("'", "'\\''")}'`;

// The request as a command of a shell. A key stays here: the command has a variable for it.
export function curlOf(path, { method = "GET", body } = {}) {
  const parts = [`curl -N ${quote(urlOf(path))}`];
  if (method !== (body === undefined ? "GET" : "POST")) parts.push(`-X ${method}`);
  if (body !== undefined) parts.push("-H 'Content-Type: application/json'");
  if (hasKey()) parts.push('-H "Authorization: Bearer $INFLIGHT_API_KEY"');
  if (body !== undefined) parts.push(`-d ${quote(body)}`);
  return parts.join(" \\\n  ");
}

export class ServerError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

// An answer with a good status. A server that wants a key makes the page ask for one, once a call.
export async function request(path, { method = "GET", body, signal, asks = true } = {}) {
  const headers = {};
  const key = sessionStorage.getItem(STORED_KEY);
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(urlOf(path), { method, headers, body, signal, cache: "no-cache" });
  if (response.ok) return response;
  if (response.status === 401 && asks && (await askForKey(Boolean(key)))) {
    return request(path, { method, body, signal, asks: false });
  }
  throw new ServerError(response.status, await messageOf(response));
}

export const getJson = async (path, options) => (await request(path, options)).json();

// {"error": {"message": ...}} of OpenAI's API, {"error": ...} of KServe.
async function messageOf(response) {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text);
    return error?.message ?? String(error ?? text);
  } catch {
    return text.slice(0, 500) || `${response.status} ${response.statusText}`;
  }
}

let pending = null; // the dialog's answer: several calls may wait for it

// True once there is a new key.
export function askForKey(isWrong) {
  pending ??= new Promise((resolve) => {
    const dialog = byId("key-dialog");
    byId("key-reason").textContent = (isWrong ? "The server does not take this key. " : "The server asks for a key. ")
      + "It is kept in this tab until the tab is closed.";
    byId("key-value").value = "";
    dialog.returnValue = "";
    dialog.addEventListener("close", () => {
      const key = byId("key-value").value.trim();
      byId("key-value").value = "";
      pending = null;
      if (dialog.returnValue !== "ok") return resolve(false);
      if (key) sessionStorage.setItem(STORED_KEY, key);
      else sessionStorage.removeItem(STORED_KEY);
      resolve(Boolean(key));
    }, { once: true });
    dialog.showModal();
  });
  return pending;
}

// The data of each event of a stream, as JSON, until [DONE].
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        if (!line.startsWith("data:")) continue;
        const data = line.slice(5).trim();
        if (data === "[DONE]") return;
        yield JSON.parse(data);
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
