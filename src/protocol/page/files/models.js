// SPDX-License-Identifier: Apache-2.0
// What is served, and what it takes of memory.
import { getJson } from "./api.js";
import { byId, el } from "./dom.js";
import { bytes, count, fetchMetrics, sum } from "./prometheus.js";
import { showModels } from "./settings.js";

const table = (caption, names, rows) => el("div", { className: "wide" }, el("table", {},
  el("caption", { className: "visually-hidden" }, caption),
  el("thead", {}, el("tr", {}, ...names.map((name) => el("th", { scope: "col" }, name)))),
  el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells.map((cell) => el("td", {}, String(cell))))))));

export async function loadModels() {
  const { data } = await getJson("v1/models");
  showModels(data.map(({ id }) => id));
  byId("model-list").replaceChildren(data.length === 0
    ? el("p", {}, "No model here answers with text.")
    : table("Models", ["Name", "Tokens of prompt and answer", "Served since"],
      data.map(({ id, max_model_len: most, created }) => [id, count(most), new Date(created * 1000).toLocaleString()])));
  return data.length;
}

const POOLS = [["cpu", "host"], ["gpu", "GPU"], ["pinned", "pinned host"]];

function memoryRows(metrics) {
  const rows = [];
  for (const { labels, value } of metrics.get("nv_trt_llm_runtime_memory_metrics") ?? []) {
    const place = POOLS.find(([name]) => name === labels.memory_type)?.[1];
    if (place && value > 0) rows.push([labels.model ?? "", `weights, KV cache and workspace, ${place}`, bytes(value)]);
  }
  const add = (what, name, most) => {
    const used = sum(metrics, name);
    const limit = most && sum(metrics, most);
    if (used !== undefined) rows.push(["", what, limit ? `${bytes(used)} of ${bytes(limit)}` : bytes(used)]);
  };
  for (const { labels, value } of metrics.get("nv_trt_llm_kv_cache_block_metrics") ?? []) {
    if (labels.kv_cache_block_type === "max") rows.push([labels.model ?? "", "blocks of the KV cache", count(value)]);
  }
  add("held for requests", "inflight_request_memory_bytes", "inflight_request_memory_limit_bytes");
  add("GPU, all programs", "nv_gpu_memory_used_bytes", "nv_gpu_memory_total_bytes");
  add("machine, all programs", "nv_cpu_memory_used_bytes", "nv_cpu_memory_total_bytes");
  return rows;
}

export async function showMemory() {
  try {
    byId("memory").replaceChildren(table("Memory", ["Model", "What", "Amount"], memoryRows(await fetchMetrics())));
  } catch (error) {
    byId("memory").replaceChildren(el("p", { className: "notice" }, `Memory cannot be read: ${error.message}`));
  }
}
