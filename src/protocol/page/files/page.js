// SPDX-License-Identifier: Apache-2.0
// Puts the parts of the page together.
import { askForKey } from "./api.js";
import { nextBody, startChat } from "./chat.js";
import { announce, byId, makeTabs } from "./dom.js";
import { showMetrics } from "./metrics.js";
import { loadModels, showMemory } from "./models.js";
import { startRequestView } from "./request_view.js";
import { startSettings } from "./settings.js";
import { startTheme } from "./theme.js";

const VIEWS = ["chat", "models", "metrics"];

async function load() {
  try {
    if ((await loadModels()) === 0) announce("No model here answers with text");
  } catch (error) {
    byId("model-list").textContent = error.message;
    announce(`Models cannot be read: ${error.message}`);
  }
}

function show(tab) {
  const shown = tab.slice("tab-".length);
  for (const view of VIEWS) byId(view).hidden = view !== shown;
  history.replaceState(null, "", shown === "chat" ? location.pathname : `#${shown}`);
  showMetrics(shown === "metrics");
  if (shown === "models") {
    load();
    showMemory();
  }
}

startTheme();
startSettings();
startChat();
startRequestView(nextBody);
const choose = makeTabs(document.querySelector(".bar .tabs"), show);
const asked = location.hash.slice(1);
if (VIEWS.includes(asked)) choose(`tab-${asked}`);
byId("key-button").addEventListener("click", async () => {
  if (await askForKey(false)) load();
});
byId("key-cancel").addEventListener("click", () => byId("key-dialog").close("cancel"));
load();
