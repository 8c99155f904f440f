// SPDX-License-Identifier: Apache-2.0
// The metrics page, read: the samples of each family.
import { request } from "./api.js";

// { name: [{ labels, value }] } of Prometheus text.
export function parse(text) {
  const families = new Map();
  for (const line of text.split("\n")) {
    if (line === "" || line[0] === "#") continue;
    const space = line.lastIndexOf(" ");
    const brace = line.indexOf("{");
    const name = line.slice(0, brace < 0 ? space : brace);
    const labels = {};
    for (const [, key, value] of line.slice(0, space).matchAll(/([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g)) labels[key] = value;
    if (!families.has(name)) families.set(name, []);
    families.get(name).push({ labels, value: Number(line.slice(space + 1)) });
  }
  return families;
}

export const fetchMetrics = async () => parse(await (await request("page/metrics", { asks: false })).text());

// The sum over all series whose labels are these; undefined where there is none.
export function sum(families, name, labels = {}) {
  const samples = (families.get(name) ?? []).filter((sample) => Object.entries(labels).every(([k, v]) => sample.labels[k] === v));
  return samples.length === 0 ? undefined : samples.reduce((total, { value }) => total + value, 0);
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
export function bytes(value) {
  let unit = 0;
  while (value >= 1024 && unit + 1 < UNITS.length) {
    value /= 1024;
    ++unit;
  }
  return `${value < 10 && unit > 0 ? value.toFixed(1) : Math.round(value)} ${UNITS[unit]}`;
}

export const count = (value) => (Math.abs(value) >= 100 || Number.isInteger(value)
  ? Math.round(value).toLocaleString("en") : value.toFixed(1));
