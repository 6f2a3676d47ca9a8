// SPDX-License-Identifier: Apache-2.0
// How answers are asked for.
import {element} from "./dom.js";
import {load, save} from "./store.js";

const DEFAULTS = {system: "", temperature: "", max_tokens: "", thinking: "", tools: ""};
const settings = {...DEFAULTS, ...load("settings", {})};

function field(name, label, input, hint) {
  input.value = settings[name];
  input.id = `setting-${name}`;
  input.addEventListener("input", () => {
    settings[name] = input.value;
    save("settings", settings);
  });
  return element("p", {class: "field"}, element("label", {for: input.id}, label), input,
    hint ? element("span", {class: "quiet"}, hint) : null);
}

export function settingsElements() {
  return [
    element("h2", {}, "Settings"),
    field("system", "System message", element("textarea", {rows: 3, spellcheck: "false"}),
      "Another system message makes the next prompt miss: the answer says where."),
    field("temperature", "Temperature", element("input", {type: "number", min: 0, max: 2, step: 0.1, placeholder: "model's default"})),
    field("max_tokens", "Tokens of an answer at most", element("input", {type: "number", min: 1, step: 1, placeholder: "server's limit"})),
    field("thinking", "Thinking", element("select", {}, element("option", {value: ""}, "model's default"),
      element("option", {value: "on"}, "on"), element("option", {value: "off"}, "off"))),
    field("tools", "Tools (JSON list, as in the API)", element("textarea", {rows: 6, spellcheck: "false"}),
      "Calls are shown; you give their results."),
  ];
}

// Fields of a request. Throws an Error with a text for the user.
export function requestFields() {
  const fields = {};
  if (settings.temperature !== "") fields.temperature = Number(settings.temperature);
  if (settings.max_tokens !== "") fields.max_tokens = Number(settings.max_tokens);
  if (settings.thinking) fields.chat_template_kwargs = {enable_thinking: settings.thinking === "on"};
  if (settings.tools.trim()) {
    try {
      fields.tools = JSON.parse(settings.tools);
    } catch (error) {
      throw new Error(`the tools in the settings are no JSON: ${error.message}`);
    }
  }
  return fields;
}

export function systemMessage() {
  return settings.system;
}
