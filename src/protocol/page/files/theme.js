// SPDX-License-Identifier: Apache-2.0
// Light, dark, or as the system says.
import { byId } from "./dom.js";

const STORED = "inflight-theme";
const NEXT = { auto: "dark", dark: "light", light: "auto" };
const NAMES = { auto: "Auto", dark: "Dark", light: "Light" };

export function startTheme() {
  const button = byId("theme-button");
  const show = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    button.textContent = NAMES[theme];
    button.setAttribute("aria-label", `Theme: ${NAMES[theme]}`);
  };
  let theme = localStorage.getItem(STORED) in NEXT ? localStorage.getItem(STORED) : "auto";
  show(theme);
  button.addEventListener("click", () => {
    theme = NEXT[theme];
    localStorage.setItem(STORED, theme);
    show(theme);
  });
}
