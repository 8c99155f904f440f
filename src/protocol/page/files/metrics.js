// SPDX-License-Identifier: Apache-2.0
// Charts of the newest two minutes, read while they are seen.
import { Chart } from "./chart.js";
import { byId } from "./dom.js";
import { bytes, count, fetchMetrics, sum } from "./prometheus.js";

const INTERVAL_MS = 1000;
const LENGTH = 120;
const percent = (value) => `${(value * 100).toFixed(0)} %`;
const ms = (value) => `${count(value)} ms`;

const executor = (label, value) => (now) => sum(now, `nv_trt_llm_${label}_metrics`, value);
const perSecond = (name) => (now, before, seconds) => {
  const newer = sum(now, name);
  const older = before && sum(before, name);
  return newer === undefined || older === undefined ? undefined : Math.max(0, newer - older) / seconds;
};
// The mean of a histogram's values since the reading before.
const mean = (name) => (now, before) => {
  const of = (end) => (sum(now, name + end) ?? NaN) - (before ? sum(before, name + end) ?? 0 : 0);
  const number = of("_count");
  return number > 0 ? of("_sum") / number : undefined;
};
const ratio = (part, whole) => (now) => {
  const all = whole(now);
  return all > 0 ? part(now) / all : undefined;
};

const CHARTS = [
  { name: "Tokens generated", format: (v) => `${count(v)}/s`, read: perSecond("inflight_tokens_generated_total") },
  { name: "Prompt tokens", format: (v) => `${count(v)}/s`, read: perSecond("inflight_prompt_tokens_total") },
  { name: "Requests that run", format: count, read: executor("request", { request_type: "active" }) },
  { name: "Requests that wait", format: count, read: (now) => sum(now, "nv_inference_pending_request_count") },
  { name: "Time to first token", format: ms, read: mean("inflight_time_to_first_token_ms"), hint: "mean of the last second" },
  { name: "Time between tokens", format: ms, read: mean("inflight_inter_token_ms"), hint: "mean of the last second" },
  {
    name: "KV cache in use", format: percent, most: 1,
    read: ratio(executor("kv_cache_block", { kv_cache_block_type: "used" }), executor("kv_cache_block", { kv_cache_block_type: "max" })),
  },
  { name: "Held for requests", format: bytes, read: (now) => sum(now, "inflight_request_memory_bytes") },
  { name: "CPU of the machine", format: percent, most: 1, read: (now) => sum(now, "nv_cpu_utilization") },
  {
    name: "GPU memory", format: percent, most: 1, isOptional: true,
    read: ratio((now) => sum(now, "nv_gpu_memory_used_bytes"), (now) => sum(now, "nv_gpu_memory_total_bytes")),
  },
];

let charts = null;
let before = null;
let beforeMs = 0;
let timer = 0;
let isReading = false;

function tell(text) {
  byId("metrics-notice").textContent = text;
  byId("metrics-notice").hidden = !text;
}

async function read() {
  if (document.hidden || isReading) return;
  isReading = true;
  let now;
  const nowMs = performance.now();
  try {
    now = await fetchMetrics();
    tell("");
  } catch (error) {
    tell(`Metrics cannot be read: ${error.message}`);
    return;
  } finally {
    isReading = false;
  }
  charts ??= CHARTS.filter((row) => !row.isOptional || row.read(now) !== undefined)
    .map((row) => ({ ...row, chart: new Chart(byId("charts"), { ...row, length: LENGTH }) }));
  for (const { chart, read: value } of charts) chart.push(value(now, before, (nowMs - beforeMs) / 1000));
  before = now;
  beforeMs = nowMs;
}

export function showMetrics(isShown) {
  clearInterval(timer);
  if (!isShown) return;
  read();
  timer = setInterval(read, INTERVAL_MS);
}
