// SPDX-License-Identifier: Apache-2.0
// What models write of Markdown, as elements: headings, paragraphs, lists, quotes, tables, code, and
// within a line code, emphasis and links. Anything else stays the text that it is; markup of HTML is
// text, pictures are links. Takes time in proportion to the text, whatever it is.
import { copyButton, el } from "./dom.js";

const MAX_DEPTH = 6; // of lists, quotes and emphasis within each other
const MAX_SPAN = 2000; // characters of an emphasis, a link or a code span
const MAX_PAIRS = 8; // ** that * passes by on its way to its end
const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*)$/;
const RULE = /^ {0,3}([-*_])\s*(?:\1\s*){2,}$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const TABLE_RULE = /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/;

// Elements of a text that grows: those of blocks that stay the same stay where they are.
export class MarkdownView {
  constructor(parent) {
    this.parent = parent;
    this.blocks = []; // { source, node }
  }

  set(text) {
    const sources = blocksOf(text.split("\n"));
    let same = 0;
    while (same < sources.length && same < this.blocks.length && sources[same] === this.blocks[same].source) ++same;
    for (const { node } of this.blocks.splice(same)) node.remove();
    for (const source of sources.slice(same)) {
      const node = renderBlock(source.split("\n"), 0);
      this.blocks.push({ source, node });
      this.parent.append(node);
    }
  }
}

const indentOf = (line) => line.length - line.trimStart().length;

function startsBlock(line) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || ITEM.test(line) || QUOTE.test(line);
}

// The line behind the fence that begins at `at`.
function endOfFence(lines, at) {
  const fence = FENCE.exec(lines[at])[1];
  for (let i = at + 1; i < lines.length; ++i) {
    const line = lines[i].trim();
    if (line.startsWith(fence) && line.replaceAll(fence[0], "") === "") return i + 1;
  }
  return lines.length;
}

// Of an item: whether it is numbered; null: the line is none.
function kindOf(line) {
  const item = ITEM.exec(line);
  return item && /\d/.test(item[2]);
}

// A list goes on over blank lines for as long as what follows is indented or an item.
function endOfList(lines, at) {
  const indent = indentOf(lines[at]);
  const kind = kindOf(lines[at]);
  let i = at + 1;
  while (i < lines.length) {
    if (lines[i].trim() !== "") {
      const goesOn = indentOf(lines[i]) > indent || (kindOf(lines[i]) === kind && !RULE.test(lines[i]));
      const afterBlank = lines[i - 1].trim() === "";
      if (!goesOn && (afterBlank || startsBlock(lines[i]))) break;
    }
    ++i;
  }
  while (lines[i - 1].trim() === "") --i;
  return i;
}

const isTable = (lines, at) => lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("-")
  && lines[at + 1].length <= MAX_SPAN && TABLE_RULE.test(lines[at + 1]);

function endOfBlock(lines, at) {
  const line = lines[at];
  if (FENCE.test(line)) return endOfFence(lines, at);
  if (HEADING.test(line) || RULE.test(line)) return at + 1;
  if (ITEM.test(line)) return endOfList(lines, at);
  const stays = QUOTE.test(line) ? (l) => QUOTE.test(l)
    : isTable(lines, at) ? (l) => l.includes("|")
      : (l) => l.trim() !== "" && !startsBlock(l);
  let i = at + 1;
  while (i < lines.length && stays(lines[i])) ++i;
  return i;
}

function blocksOf(lines) {
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (lines[at].trim() === "") { ++at; continue; }
    const end = endOfBlock(lines, at);
    blocks.push(lines.slice(at, end).join("\n"));
    at = end;
  }
  return blocks;
}

function renderBlock(lines, depth) {
  const first = lines[0];
  if (depth > MAX_DEPTH) return el("p", {}, lines.join("\n"));
  if (FENCE.test(first)) return renderCode(lines);
  const heading = HEADING.exec(first);
  if (heading) return renderHeading(heading);
  if (RULE.test(first)) return el("hr");
  if (ITEM.test(first)) return renderList(lines, depth);
  if (QUOTE.test(first)) {
    const inner = lines.map((line) => QUOTE.exec(line)[1]);
    return el("blockquote", {}, ...blocksOf(inner).map((block) => renderBlock(block.split("\n"), depth + 1)));
  }
  if (isTable(lines, 0)) return renderTable(lines);
  const paragraph = el("p");
  inline(lines.join("\n"), paragraph, 0);
  return paragraph;
}

// Those of a message stand below those of the page.
function renderHeading([, marks, text]) {
  const node = el(`h${Math.min(marks.length + 2, 6)}`);
  inline(text.trimEnd(), node, 0);
  return node;
}

function renderCode(lines) {
  const [, fence, language] = FENCE.exec(lines[0]);
  const last = lines.at(-1).trim();
  const isClosed = lines.length > 1 && last.startsWith(fence) && last.replaceAll(fence[0], "") === "";
  const text = lines.slice(1, isClosed ? -1 : undefined).join("\n");
  return el("figure", { className: "code" },
    el("figcaption", {}, el("span", {}, language || "code"), copyButton(() => text)),
    el("pre", { tabIndex: 0, role: "region", "aria-label": `Code${language ? `, ${language}` : ""}` },
      el("code", {}, text)));
}

function renderList(lines, depth) {
  const [, , mark] = ITEM.exec(lines[0]);
  const isNumbered = kindOf(lines[0]);
  const list = el(isNumbered ? "ol" : "ul");
  if (isNumbered && parseInt(mark, 10) !== 1) list.start = parseInt(mark, 10);
  const indent = indentOf(lines[0]);
  let item = [];
  const finish = () => {
    if (item.length === 0) return;
    const node = el("li");
    for (const block of blocksOf(item)) {
      const rendered = renderBlock(block.split("\n"), depth + 1);
      if (rendered.tagName === "P") node.append(...rendered.childNodes, "\n");
      else node.append(rendered);
    }
    list.append(node);
  };
  let width = 0;
  for (const line of lines) {
    const match = ITEM.exec(line);
    if (match && indentOf(line) < indent + 2) {
      finish();
      item = [match[3]];
      width = line.length - match[3].length;
    } else {
      item.push(line.slice(Math.min(indentOf(line), width)));
    }
  }
  finish();
  return list;
}

const cellsOf = (line) => line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|").map((cell) => cell.trim());

function renderTable(lines) {
  const row = (line, tag) => el("tr", {}, ...cellsOf(line).map((cell) => {
    const node = el(tag);
    inline(cell, node, 0);
    return node;
  }));
  return el("div", { className: "wide", tabIndex: 0, role: "region", "aria-label": "Table" },
    el("table", {}, el("thead", {}, row(lines[0], "th")), el("tbody", {}, ...lines.slice(2).map((line) => row(line, "td")))));
}

const DELIMITERS = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];
const isWord = (char) => char !== undefined && /[\p{L}\p{N}]/u.test(char);

// The place of `end` behind `from`, within MAX_SPAN; -1: none.
function find(text, end, from) {
  const at = text.slice(from, from + MAX_SPAN).indexOf(end);
  return at < 0 ? -1 : from + at;
}

// Elements of a line's text. Each character begins at most one search of bounded length.
function inline(text, parent, depth) {
  let plain = "";
  const flush = () => {
    if (plain) parent.append(plain);
    plain = "";
  };
  for (let i = 0; i < text.length;) {
    const found = /[\\`*_~[!h\n]/.test(text[i]) ? spanAt(text, i, depth) : null;
    if (found) {
      flush();
      parent.append(found.node);
      i = found.end;
    } else if (text[i] === "\\" && /[\\`*_~[\]!#>|{}()+.-]/.test(text[i + 1] ?? "")) {
      plain += text[i + 1];
      i += 2;
    } else {
      plain += text[i++];
    }
  }
  flush();
}

function spanAt(text, at, depth) {
  const char = text[at];
  if (char === "\n") return { node: el("br"), end: at + 1 };
  if (char === "`") return codeAt(text, at);
  if (char === "h") return addressAt(text, at);
  if (char === "[" || (char === "!" && text[at + 1] === "[")) return linkAt(text, at, depth);
  if (depth >= MAX_DEPTH) return null;
  return emphasisAt(text, at, depth);
}

function codeAt(text, at) {
  let length = 1;
  while (text[at + length] === "`") ++length;
  if (length > 8) return { node: document.createTextNode(text.slice(at, at + length)), end: at + length };
  const end = find(text, "`".repeat(length), at + length);
  if (end < 0) return null;
  return { node: el("code", {}, text.slice(at + length, end).trim()), end: end + length };
}

function emphasisAt(text, at, depth) {
  for (const [mark, tag] of DELIMITERS) {
    if (!text.startsWith(mark, at)) continue;
    const begin = at + mark.length;
    if (text[begin] === undefined || /\s/.test(text[begin])) return null;
    if (mark[0] === "_" && isWord(text[at - 1])) return null; // snake_case
    let end = find(text, mark, begin + 1);
    for (let i = 0; i < MAX_PAIRS && end >= 0 && text[end + 1] === mark; ++i) end = find(text, mark, end + 2);
    if (end < 0 || /\s/.test(text[end - 1]) || (mark[0] === "_" && isWord(text[end + mark.length]))) continue;
    const node = el(tag);
    inline(text.slice(begin, end), node, depth + 1);
    return { node, end: end + mark.length };
  }
  return null;
}

// An anchor for addresses of the web alone, which learns nothing of this page.
function anchor(address) {
  if (!/^(https?|mailto):/i.test(address)) return null;
  return el("a", { href: address, rel: "noopener noreferrer nofollow", target: "_blank", title: address });
}

function linkAt(text, at, depth) {
  const begin = at + (text[at] === "!" ? 2 : 1);
  const middle = find(text, "](", begin);
  const end = middle < 0 ? -1 : find(text, ")", middle + 2);
  if (end < 0 || depth >= MAX_DEPTH) return null;
  const node = anchor(text.slice(middle + 2, end).trim().split(/\s/)[0]);
  if (!node) return null;
  const label = text.slice(begin, middle);
  if (label) inline(label.replaceAll("[", ""), node, MAX_DEPTH);
  else node.append(node.href);
  return { node, end: end + 1 };
}

function addressAt(text, at) {
  if (isWord(text[at - 1]) || !/^https?:\/\//.test(text.slice(at, at + 8))) return null;
  const address = /^[^\s<>"'`]+/.exec(text.slice(at, at + MAX_SPAN))[0].replace(/[.,;:!?)\]*_]+$/, "");
  const node = anchor(address);
  if (!node) return null;
  node.append(address);
  return { node, end: at + address.length };
}
