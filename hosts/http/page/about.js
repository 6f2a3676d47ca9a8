// SPDX-License-Identifier: Apache-2.0
// The server: how its engines do, what it is made of, and the values of its manifest.
import {json, text} from "./api.js";
import {button, count, element, facts, milliseconds, share, table} from "./dom.js";
import {histogramOf, parseMetrics, quantileBound, valueOf} from "./metrics.js";

const TIMES = [["first token", "gen_ai_server_time_to_first_token_seconds"],
  ["between tokens", "gen_ai_server_time_per_output_token_seconds"],
  ["queue", "frt_lm_queue_seconds"], ["restore", "frt_lm_restore_seconds"]];

function within(bound) {
  if (bound === undefined) return "–";
  return Number.isFinite(bound) ? `≤ ${milliseconds(bound * 1000)}` : "above all bounds";
}

function engineElements(samples, model) {
  const labels = {model};
  const value = (name, more = {}) => valueOf(samples, name, {...labels, ...more});
  const began = (action) => count(value("frt_lm_prefixes_total", {action}));
  const prompt = value("frt_lm_prompt_tokens_total"), cached = value("frt_lm_cached_tokens_total");
  const drafted = value("frt_lm_draft_tokens_total");
  const rows = [
    ["slots in use", `${count(value("frt_lm_slots_used"))} of ${count(value("frt_lm_slots"))}`],
    ["waiting", count(value("frt_lm_queued_requests"))],
    ["prompts", `${began("read")} read, ${began("continue")} continued, ${began("restore")} restored`],
    ["prompt tokens reused", `${count(cached)} of ${count(prompt)}, ${share(cached, prompt)}`]];
  const pages = value("frt_lm_pages");
  if (pages > 0) rows.splice(1, 0, ["pages free", `${count(value("frt_lm_pages_free"))} of ${count(pages)}`]);
  if (drafted > 0) {
    const accepted = value("frt_lm_accepted_tokens_total");
    rows.push(["drafts accepted", `${count(accepted)} of ${count(drafted)}, ${share(accepted, drafted)}`]);
  }
  return [element("h3", {}, `Engine of ${model}`), facts(rows),
    table("Times by bucket", ["", "p50", "p99", "number"], TIMES.map(([label, name]) => {
      const histogram = histogramOf(samples, name, labels);
      return [label, within(quantileBound(histogram, 0.5)), within(quantileBound(histogram, 0.99)), count(histogram.count)];
    }))];
}

function shown(value) {
  if (value.redacted) return element("span", {class: "quiet"}, "not told");
  return value.value === "" ? element("span", {class: "quiet"}, "none") : String(value.value);
}

export class AboutPanel {
  constructor(root, models) {
    this.models = models;
    this.trouble = element("p", {class: "error", role: "alert", hidden: true});
    this.engines = element("div");
    this.body = element("div");
    root.replaceChildren(element("header", {}, element("h2", {}, "Server"), button("Refresh", () => this.refresh())),
      this.trouble, this.engines, this.body);
  }

  async refresh() {
    try {
      const [about, metrics] = await Promise.all([json("GET", "/v1/about"), text("/metrics")]);
      this.trouble.hidden = true;
      const samples = parseMetrics(metrics);
      this.engines.replaceChildren(...this.models().flatMap((model) => engineElements(samples, model)));
      this.show(about);
    } catch (error) {
      this.trouble.textContent = error.message;
      this.trouble.hidden = false;
    }
  }

  show(about) {
    this.body.replaceChildren(
      element("h3", {}, "Plugins"),
      element("p", {class: "quiet"}, `${about.program}, ABI ${about.abi}`),
      table("Models", ["model", "plugin", "version", "device"],
        about.models.map((model) => [model.id, model.plugin, model.plugin_version, model.device])),
      table("Devices", ["device", "backend", "version", "ordinal"],
        about.devices.map((device) => [device.id, device.backend, device.backend_version, String(device.ordinal)])),
      table("Plugins", ["plugin", "kind", "version", "ABI"],
        about.plugins.map((plugin) => [plugin.id, plugin.kind, plugin.version, plugin.abi])),
      element("h3", {}, "Manifest in effect"),
      element("p", {class: "quiet"}, "Paths and texts that were given are not told."),
      ...about.manifest.map((part) => element("details", {}, element("summary", {}, `[${part.table}]`),
        table(part.table, ["key", "value", "from"],
          part.values.map((value) => [value.key, shown(value), value.source])))));
  }
}
