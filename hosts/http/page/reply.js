// SPDX-License-Identifier: Apache-2.0
// One message on the screen, and an answer while it comes.
import {button, element} from "./dom.js";
import {replyFacts} from "./latency.js";
import {textElements} from "./markup.js";

function readable(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function reasoningElement(open, ...children) {
  return element("details", {class: "reasoning", open}, element("summary", {}, "Reasoning"), ...children);
}

function callElement(call) {
  return element("div", {class: "call"}, element("b", {}, `calls ${call.name}`),
    element("pre", {tabindex: 0}, readable(call.arguments)));
}

export function userElement(entry) {
  return element("article", {class: `message ${entry.role}`, "aria-label": entry.role === "tool" ? "Result" : "You"},
    entry.role === "tool" ? element("b", {}, `result of ${entry.name}`) : null,
    element("div", {class: "text"}, entry.content));
}

// `actions`: {rewind}, called with the entry.
export function answerElement(entry, actions) {
  return element("article", {class: "message assistant", "aria-label": "Answer"},
    entry.reasoning ? reasoningElement(false, ...textElements(entry.reasoning)) : null,
    ...textElements(entry.content), ...entry.calls.map(callElement),
    entry.error ? element("p", {class: "error", role: "alert"}, entry.error) : null,
    replyFacts(entry),
    element("div", {class: "buttons rewind"},
      button("Rewind to here", () => actions.rewind(entry),
        {title: "Drop what comes after this answer, and take the session back"})));
}

// Takes chunks of a stream and shows them as they come.
export class LiveAnswer {
  constructor() {
    this.entry = {role: "assistant", content: "", reasoning: "", calls: []};
    this.text = document.createTextNode("");
    this.thoughts = document.createTextNode("");
    this.calls = element("div");
    this.reasoning = reasoningElement(false, element("div", {class: "text"}, this.thoughts));
    this.reasoning.hidden = true;
    this.element = element("article", {class: "message assistant live", "aria-label": "Answer", "aria-busy": "true"},
      this.reasoning, element("div", {class: "text"}, this.text), this.calls,
      element("span", {class: "cursor", "aria-hidden": "true"}));
    this.began = performance.now();
  }

  take(chunk) {
    if (chunk.usage) this.entry.usage = chunk.usage;
    if (chunk.frt) this.entry.frt = chunk.frt;
    const choice = chunk.choices?.[0];
    if (!choice) return;
    const {content, reasoning_content: thought, tool_calls: calls} = choice.delta ?? {};
    if (content || thought || calls) this.entry.firstTokenMs ??= performance.now() - this.began;
    if (thought) {
      this.entry.reasoning += thought;
      this.thoughts.appendData(thought);
      this.reasoning.hidden = false;
    }
    if (content) {
      this.entry.content += content;
      this.text.appendData(content);
    }
    for (const call of calls ?? []) this.takeCall(call);
    if (choice.finish_reason) this.entry.finish = choice.finish_reason;
  }

  takeCall({index, id, function: made}) {
    this.entry.calls[index] ??= {id: "", name: "", arguments: ""};
    const call = this.entry.calls[index];
    if (id) call.id = id;
    if (made?.name) call.name += made.name;
    if (made?.arguments) call.arguments += made.arguments;
    this.calls.replaceChildren(...this.entry.calls.map(callElement));
  }

  // The complete entry.
  finish() {
    this.entry.seconds = (performance.now() - this.began) / 1000;
    const {usage} = this.entry;
    if (usage) this.entry.end = usage.prompt_tokens + usage.completion_tokens;
    return this.entry;
  }
}
