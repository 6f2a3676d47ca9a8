// SPDX-License-Identifier: Apache-2.0
// Where the time of a reply went, what of its prompt was there already, and why not more.
import {count, element, facts, milliseconds, share} from "./dom.js";

const PARTS = ["template", "queue", "restore", "prefill", "decode"];
// As hosts/lm writes it: two quoted texts with >> where they part.
const DIFFERENCE =
  /^(.*?);? ?first difference at token (\d+): before ("(?:[^"\\]|\\.)*"|\[[^\]]*\]), now ("(?:[^"\\]|\\.)*"|\[[^\]]*\])(.*)$/s;
const ACTIONS = {read: "read anew", continue: "continued", restore: "restored from a capsule"};

function bar(parts) {
  const label = parts.map(([name, value]) => `${name} ${milliseconds(value)}`).join(", ");
  return element("div", {class: "bar", role: "img", "aria-label": label}, ...parts.map(([name, value]) => {
    const segment = element("span", {class: `part-${name}`, title: `${name} ${milliseconds(value)}`});
    segment.style.flexGrow = String(value);
    return segment;
  }));
}

function legend(parts) {
  return element("ul", {class: "legend"}, ...parts.map(([name, value]) =>
    element("li", {}, element("span", {class: `swatch part-${name}`}), `${name} ${milliseconds(value)}`)));
}

function side(name, quoted) {
  let text = quoted;
  try {
    text = quoted.startsWith("\"") ? JSON.parse(quoted) : quoted;
  } catch {
    // As it was sent.
  }
  const at = text.indexOf(">>");
  return element("div", {class: "side"}, element("b", {}, name),
    at < 0 ? text : text.slice(0, at), at < 0 ? null : element("mark", {}, text.slice(at + 2)));
}

// What the server says of a prefix that it did not find, with the texts that differ.
export function whyElement(why) {
  const match = DIFFERENCE.exec(why);
  if (!match) return element("p", {class: "why"}, why);
  const [, reason, token, before, now, rest] = match;
  return element("div", {class: "why"},
    element("p", {}, `${reason ? reason + "; " : ""}the prompt differs from token ${token} on${rest}`),
    side("before", before), side("now", now));
}

// `entry`: an answer of chat.js.
export function replyFacts(entry) {
  const {usage, frt, firstTokenMs, seconds, finish, stopped} = entry;
  const ending = stopped ? "stopped" : finish;
  if (!usage || !frt) return element("p", {class: "quiet"}, ending ?? "");
  const parts = PARTS.map((name) => [name, frt[`${name}_ms`] ?? 0]).filter(([, value]) => value > 0);
  const rate = frt.decode_ms > 0 ? `${(usage.completion_tokens / frt.decode_ms * 1000).toFixed(0)} tok/s` : "";
  const summary = [`${count(frt.reused_tokens)} cached + ${count(frt.new_prefill_tokens)} new`,
    `${count(usage.completion_tokens)} written`, firstTokenMs ? `first after ${milliseconds(firstTokenMs)}` : "",
    rate, ending].filter(Boolean).join(" · ");
  const rows = [["prompt", ACTIONS[frt.prefix_action] ?? String(frt.prefix_action)]];
  if (frt.capsule_id) rows.push(["capsule", String(frt.capsule_id)]);
  if (seconds) rows.push(["in all", milliseconds(seconds * 1000)]);
  if (frt.draft_tokens) {
    rows.push(["drafts", `${count(frt.accepted_tokens)} of ${count(frt.draft_tokens)} accepted, ` +
      share(frt.accepted_tokens, frt.draft_tokens)]);
  }
  if (frt.tools_left_out?.length) rows.push(["tools left out", frt.tools_left_out.join(", ")]);
  const seen = (event) => event.target.open && event.target.scrollIntoView({block: "nearest"});
  return element("details", {class: "reply-facts", toggle: seen},
    element("summary", {}, summary), bar(parts), legend(parts), facts(rows),
    frt.why ? element("h4", {}, frt.prefix_action === "read" ? "Why did this miss?" : "Why not more?") : null,
    frt.why ? whyElement(String(frt.why)) : null);
}
