// SPDX-License-Identifier: Apache-2.0
// A small line of values over time, with its name and newest value as text.
import { el } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 240;
const HEIGHT = 56;

const svg = (tag, attributes) => {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};

export class Chart {
  // `format` makes text of a value; `length` values are shown; `most`: the top of the scale, where it is known.
  constructor(parent, { name, hint = "", format, length, most }) {
    Object.assign(this, { name, format, length, most, values: [] });
    this.value = el("strong", {}, "–");
    this.range = el("small");
    this.area = svg("path", { class: "chart-area" });
    this.line = svg("path", { class: "chart-line" });
    const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    picture.append(this.area, this.line);
    parent.append(el("figure", { className: "chart", title: hint },
      el("figcaption", {}, el("span", {}, name), this.value), picture, this.range));
  }

  push(value) {
    this.values.push(value);
    if (this.values.length > this.length) this.values.shift();
    this.draw();
  }

  draw() {
    const known = this.values.filter((value) => value !== undefined && Number.isFinite(value));
    const newest = this.values.at(-1);
    this.value.textContent = newest === undefined || !Number.isFinite(newest) ? "–" : this.format(newest);
    if (known.length === 0) return;
    const largest = known.reduce((a, b) => Math.max(a, b), 0);
    const top = this.most ?? (largest > 0 ? largest : 1);
    this.range.textContent = `highest ${this.format(largest)}`;
    const first = this.length - this.values.length;
    const points = [];
    for (const [index, value] of this.values.entries()) {
      if (value === undefined || !Number.isFinite(value)) continue;
      const x = ((first + index) / (this.length - 1)) * WIDTH;
      const y = HEIGHT - 2 - (Math.min(value, top) / top) * (HEIGHT - 6);
      points.push([x.toFixed(1), y.toFixed(1)]);
    }
    const path = points.map(([x, y]) => `${x} ${y}`).join("L");
    this.line.setAttribute("d", `M${path}`);
    this.area.setAttribute("d", `M${points[0][0]} ${HEIGHT}L${path}L${points.at(-1)[0]} ${HEIGHT}Z`);
  }
}
