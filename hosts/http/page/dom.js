// SPDX-License-Identifier: Apache-2.0
// Elements, dialogs and numbers for people. What a model or a server says becomes text nodes only:
// nothing here, and nothing else in the page, makes markup from a text.

// element("p", {class: "x", click: f, disabled: true}, "text", child). Functions listen to the
// event of their name; true sets an attribute, false and null leave it out.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") {
      made.addEventListener(name, value);
    } else if (value !== false && value !== null && value !== undefined) {
      made.setAttribute(name, value === true ? "" : String(value));
    }
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function button(label, click, attributes = {}) {
  return element("button", {type: "button", click, ...attributes}, label);
}

// Rows of [name, value].
export function facts(rows) {
  return element("dl", {class: "facts"}, ...rows.flatMap(([name, value]) =>
    [element("dt", {}, name), element("dd", {}, value)]));
}

export function table(caption, head, rows) {
  return element("div", {class: "scrolls"}, element("table", {},
    element("caption", {}, caption),
    element("thead", {}, element("tr", {}, ...head.map((text) => element("th", {scope: "col"}, text)))),
    element("tbody", {}, ...rows.map((row) =>
      element("tr", {}, ...row.map((value) => element("td", {}, value)))))));
}

// For people who do not look at the place where something happens.
export function tell(text) {
  document.getElementById("status").textContent = text;
}

// Waits for an answer: the text of the field, or "" where there is none; null if it is cancelled.
// `field`: {label, type, value, pattern, hint, fault}; `fault`: a value -> why it cannot be taken, or "".
export function ask({title, text, field, ok = "OK", danger = false}) {
  return new Promise((resolve) => {
    const input = field && element("input", {
      type: field.type ?? "text", value: field.value ?? "", required: true, autocomplete: "off",
      spellcheck: "false", maxlength: 512, pattern: field.pattern});
    const judge = () => input.setCustomValidity(input.value === "" ? "" : field.fault(input.value));
    if (field?.fault) input.addEventListener("input", judge);
    const dialog = element("dialog", {"aria-label": title, close: () => {
      dialog.remove();
      resolve(dialog.returnValue === "ok" ? (input ? input.value : "") : null);
    }});
    dialog.append(element("form", {submit: (event) => {
      event.preventDefault();
      dialog.close("ok");
    }},
    element("h2", {}, title),
    text ? element("p", {}, text) : null,
    input ? element("label", {}, field.label, input) : null,
    field?.hint ? element("p", {class: "quiet"}, field.hint) : null,
    element("div", {class: "buttons"},
      button("Cancel", () => dialog.close("")),
      element("button", {type: "submit", class: danger ? "danger" : "primary"}, ok))));
    document.body.append(dialog);
    dialog.showModal();
    input?.focus();
    input?.select();
  });
}

const whole = new Intl.NumberFormat("en");

export function count(value) {
  return whole.format(value);
}

export function milliseconds(value) {
  if (value >= 10000) return `${(value / 1000).toFixed(1)} s`;
  return value >= 100 ? `${value.toFixed(0)} ms` : `${value.toFixed(value >= 10 ? 1 : 2)} ms`;
}

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  for (; value >= 1024 && unit + 1 < units.length; ++unit) value /= 1024;
  return `${unit === 0 ? value : value.toFixed(1)} ${units[unit]}`;
}

export function share(part, all) {
  return all > 0 ? `${(100 * part / all).toFixed(0)} %` : "–";
}
