// SPDX-License-Identifier: Apache-2.0
// The text format of Prometheus, as this server writes it.

const SAMPLE = /^([A-Za-z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

// [{name, labels, value}].
export function parseMetrics(text) {
  const samples = [];
  for (const line of text.split("\n")) {
    const match = SAMPLE.exec(line);
    if (!match) continue;
    const labels = {};
    for (const [, name, value] of (match[2] ?? "").matchAll(LABEL)) {
      labels[name] = value.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
    }
    samples.push({name: match[1], labels, value: Number(match[3])});
  }
  return samples;
}

function fits(sample, labels) {
  return Object.entries(labels).every(([name, value]) => sample.labels[name] === value);
}

export function valueOf(samples, name, labels = {}) {
  return samples.find((sample) => sample.name === name && fits(sample, labels))?.value ?? 0;
}

// {bounds, counts, count, sum}: `counts` by bucket, not cumulative; the last bound is Infinity.
export function histogramOf(samples, name, labels = {}) {
  const bounds = [], counts = [];
  let before = 0;
  for (const sample of samples) {
    if (sample.name !== name + "_bucket" || !fits(sample, labels)) continue;
    bounds.push(sample.labels.le === "+Inf" ? Infinity : Number(sample.labels.le));
    counts.push(sample.value - before);
    before = sample.value;
  }
  return {bounds, counts, count: before, sum: valueOf(samples, name + "_sum", labels)};
}

// The bound of the bucket in which a share of the values is reached; nothing without a value.
export function quantileBound(histogram, part) {
  let sum = 0;
  for (let i = 0; i < histogram.counts.length; ++i) {
    sum += histogram.counts[i];
    if (histogram.count > 0 && sum >= part * histogram.count) return histogram.bounds[i];
  }
  return undefined;
}
