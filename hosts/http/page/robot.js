// SPDX-License-Identifier: Apache-2.0
// Policies that are served beside the models: how fast they answer, and what was missed.
import {text} from "./api.js";
import {count, element, facts, milliseconds} from "./dom.js";
import {histogramOf, parseMetrics, quantileBound, valueOf} from "./metrics.js";

const TIMES = [["Inference", "frt_robot_inference_seconds"], ["Waiting for its turn", "frt_robot_wait_seconds"],
  ["Request to reply", "frt_robot_request_seconds"]];
const COUNTERS = [["clients", "clients"], ["requests", "requests_total"], ["replies", "replies_total"],
  ["missed deadlines", "deadline_miss_total"], ["errors", "errors_total"],
  ["observations too old", "stale_drop_total"], ["clients cut off", "slow_client_total"],
  ["silent clients", "silent_client_total"]];

function boundText(bound) {
  return Number.isFinite(bound) ? `≤ ${milliseconds(bound * 1000)}` : "above";
}

function histogramElement(title, histogram) {
  const used = histogram.counts.map((number) => number > 0);
  const first = used.indexOf(true), last = used.lastIndexOf(true);
  if (first < 0) return element("div", {}, element("h4", {}, title), element("p", {class: "quiet"}, "no request yet"));
  const most = Math.max(...histogram.counts);
  const part = (share) => boundText(quantileBound(histogram, share));
  return element("div", {}, element("h4", {}, title),
    element("p", {}, `p50 ${part(0.5)} · p99 ${part(0.99)} · p99.9 ${part(0.999)} · ` +
      `mean ${milliseconds(histogram.sum / histogram.count * 1000)}`),
    element("ul", {class: "histogram"}, ...histogram.counts.slice(first, last + 1).map((number, i) =>
      element("li", {}, element("span", {}, boundText(histogram.bounds[first + i])),
        element("meter", {min: 0, max: most, value: number, "aria-hidden": "true"}), element("span", {}, count(number))))));
}

export class RobotPanel {
  constructor(root, policies) {
    this.root = root;
    this.policies = policies;
  }

  async refresh() {
    const parts = await Promise.all(this.policies().map((policy) => this.policyElements(policy)));
    this.root.replaceChildren(element("h2", {}, "Robot"), ...parts.flat(),
      element("p", {class: "quiet"}, "A served policy answers observations one by one. Episodes and interrupts are those of " +
        "frt-host rollout and frt-host handoff, in their terminal."));
  }

  async policyElements({id, state}) {
    const head = element("h3", {}, `${id} `, element("span", {class: `badge ${state === "ready" ? "good" : "warn"}`}, state));
    try {
      const samples = parseMetrics(await text(`/v1/policies/${encodeURIComponent(id)}/metrics`));
      return [head, facts(COUNTERS.map(([label, name]) => [label, count(valueOf(samples, `frt_robot_${name}`))])),
        ...TIMES.map(([title, name]) => histogramElement(title, histogramOf(samples, name)))];
    } catch (error) {
      return [head, element("p", {class: "error"}, error.message)];
    }
  }
}
