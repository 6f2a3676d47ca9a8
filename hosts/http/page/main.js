// SPDX-License-Identifier: Apache-2.0
// The page: models, panels, the key, keys of the keyboard.
import {AboutPanel} from "./about.js";
import {hasKey, isKey, json, onKeyNeeded, setKey} from "./api.js";
import {Chat} from "./chat.js";
import {ask, element, tell} from "./dom.js";
import {RobotPanel} from "./robot.js";
import {settingsElements} from "./settings.js";
import {StatePanel} from "./state.js";
import {load, save} from "./store.js";

const LOADING_MS = 2000;  // between two looks at a model that loads
const ROBOT_MS = 2000;    // between two looks at a policy's metrics

const find = (id) => document.getElementById(id);
const picker = find("model"), badge = find("model-state"), tabs = [...document.querySelectorAll("[role=tab]")];
let models = [];

const chosen = () => picker.value;
const chat = new Chat(find("chat"), {model: chosen, stateChanged: () => state.refresh()});
const state = new StatePanel(find("state"), chat, chosen);
const about = new AboutPanel(find("about"), () => models.filter((each) => each.type === "model").map((each) => each.id));
const robot = new RobotPanel(find("robot"), () => models.filter((each) => each.type === "policy"));
find("settings").replaceChildren(...settingsElements());

// ---- models ----

function showModels() {
  const wanted = chosen() || load("model", "");
  const served = models.filter((each) => each.type === "model");
  picker.replaceChildren(...served.map((each) => element("option", {value: each.id}, `${each.id} (${each.state})`)));
  if (served.some((each) => each.id === wanted)) picker.value = wanted;
  const now = served.find((each) => each.id === chosen());
  badge.textContent = now ? [now.state, now.max_model_len ? `${now.max_model_len.toLocaleString("en")} tokens` : ""]
    .filter(Boolean).join(" · ") : "no model";
  badge.className = `badge ${now?.state === "ready" ? "good" : "warn"}`;
  find("tab-robot").hidden = !models.some((each) => each.type === "policy");
}

async function refreshModels() {
  try {
    models = (await json("GET", "/v1/models")).data;
  } catch (error) {
    badge.textContent = error.status === 401 ? "key needed" : "not reached";
    badge.className = "badge warn";
    if (error.status !== 401) setTimeout(refreshModels, LOADING_MS);
    return;
  }
  showModels();
  const loading = models.some((each) => each.state === "loading");
  if (loading) setTimeout(refreshModels, LOADING_MS);
  if (models.find((each) => each.id === chosen())?.state === "ready") state.refresh();
}

picker.addEventListener("change", () => {
  save("model", chosen());
  showModels();
  state.refresh();
});

// ---- the key ----

// A dialog that the user cancelled is not opened again until he asks for it.
let asking = false, cancelled = false;
async function askKey() {
  if (asking) return;
  asking = true;
  const text = hasKey() ? "The server does not know the key of this tab." : "This server asks for a key.";
  const given = await ask({title: "API key", text, ok: "Use",
    field: {label: "Key", type: "password", hint: "It stays in this tab, and is sent to this server alone.",
      fault: (value) => isKey(value.trim()) ? "" : "A key has letters, digits and signs of ASCII, and no spaces."}});
  asking = false;
  cancelled = given === null;
  if (cancelled) return;
  setKey(given.trim());
  refreshModels();
}
onKeyNeeded(() => cancelled || askKey());
find("key").addEventListener("click", askKey);

// ---- panels ----

const panels = {state, about, robot};
const wide = matchMedia("(min-width: 900px)");

// Of a wide window the conversation is always a part.
function view(name) {
  const shown = wide.matches && name === "chat" ? "state" : name;
  document.body.dataset.view = shown;
  for (const tab of tabs) {
    const selected = tab.id === `tab-${shown}`;
    tab.setAttribute("aria-selected", String(selected));
    tab.tabIndex = selected ? 0 : -1;
  }
  for (const panel of document.querySelectorAll("[role=tabpanel]")) panel.hidden = panel.id !== shown;
  if (chosen()) panels[shown]?.refresh();
}

for (const tab of tabs) {
  tab.addEventListener("click", () => view(tab.id.slice("tab-".length)));
  tab.addEventListener("keydown", (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step) return;
    event.preventDefault();
    const there = tabs.filter((each) => each.offsetParent !== null);
    const next = there[(there.indexOf(tab) + step + there.length) % there.length];
    next.focus();
    next.click();
  });
}
wide.addEventListener("change", () => view(document.body.dataset.view));

setInterval(() => {
  if (document.body.dataset.view === "robot" && document.visibilityState === "visible") robot.refresh();
}, ROBOT_MS);

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !document.querySelector("dialog[open]")) chat.stop();
});
addEventListener("unhandledrejection", (event) => tell(String(event.reason?.message ?? event.reason)));

view("chat");
refreshModels();
chat.active.input.focus();
