// SPDX-License-Identifier: Apache-2.0
// Sessions and capsules of the chosen model, as a tree, and what can be done with them.
import {json, statePath} from "./api.js";
import {ask, button, bytes, count, element, tell} from "./dom.js";

const MOST_SHOWN = 300;
const TIERS = {device: "device", host: "memory", disk: "disk"};
const SIZES = {device: "device_bytes", host: "host_bytes", disk: "file_bytes"};

function badge(text, kind = "") {
  return element("span", {class: `badge ${kind}`}, text);
}

function sizeOf(capsule) {
  return Math.max(capsule.device_bytes, capsule.host_bytes, capsule.file_bytes);
}

// The bytes of each tier, of all capsules.
function tierLine(capsules) {
  const sums = Object.keys(TIERS).map((tier) => {
    const there = capsules.filter((capsule) => capsule.tiers.includes(tier));
    return [TIERS[tier], there.length, there.reduce((sum, capsule) => sum + capsule[SIZES[tier]], 0)];
  }).filter(([, number]) => number > 0);
  if (sums.length === 0) return null;
  const most = Math.max(...sums.map(([, , size]) => size), 1);
  return element("ul", {class: "tiers", "aria-label": "Bytes by tier"}, ...sums.map(([name, number, size]) =>
    element("li", {}, element("span", {}, name), element("meter", {min: 0, max: most, value: size, "aria-hidden": "true"}),
      element("span", {}, `${bytes(size)} in ${count(number)}`))));
}

// Capsules below their parents; one whose parent is gone begins a tree.
function childrenOf(capsules) {
  const names = new Set(capsules.map((capsule) => capsule.id));
  const children = new Map();
  for (const capsule of capsules) {
    const parent = names.has(capsule.parent) && capsule.parent !== capsule.id ? capsule.parent : "";
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push(capsule);
  }
  return children;
}

export class StatePanel {
  constructor(root, chat, model) {
    this.root = root;
    this.chat = chat;
    this.model = model;
    this.trouble = element("p", {class: "error", role: "alert", hidden: true});
    this.body = element("div");
    this.root.replaceChildren(
      element("header", {}, element("h2", {}, "State"), button("Refresh", () => this.refresh())), this.trouble, this.body);
  }

  async refresh() {
    const model = this.model();
    if (!model) return;
    try {
      const [sessions, capsules] = await Promise.all(["sessions", "capsules"].map((kind) =>
        json("GET", statePath(kind, model))));
      this.show(sessions.data, capsules.data);
      this.fail("");
    } catch (error) {
      this.fail(error.message);
    }
  }

  fail(text) {
    this.trouble.textContent = text;
    this.trouble.hidden = text === "";
  }

  // Runs a verb and shows what has become of the state.
  async act(method, path, body, then = () => {}) {
    try {
      then(await json(method, path, {body}));
      this.fail("");
    } catch (error) {
      this.fail(error.message);
      return;
    }
    await this.refresh();
  }

  show(sessions, capsules) {
    this.sessions = sessions;
    const focused = document.activeElement?.dataset?.focus;
    const kept = new Set(capsules.map((capsule) => capsule.id));
    this.body.replaceChildren(
      element("h3", {}, `Sessions (${sessions.length})`),
      sessions.length > 0
        ? element("ul", {class: "tree"}, ...sessions.map((session) => this.sessionElement(session, kept)))
        : element("p", {class: "quiet"}, "No slot holds a conversation of yours."),
      element("h3", {}, `Capsules (${capsules.length})`),
      ...[tierLine(capsules)].filter(Boolean),
      this.capsuleTree(capsules));
    if (focused) this.body.querySelector(`[data-focus="${CSS.escape(focused)}"]`)?.focus();
  }

  // A button that keeps the focus when the list is made anew.
  action(label, of, click, attributes = {}) {
    return button(label, click, {"aria-label": `${label} ${of}`, "data-focus": `${label} ${of}`, ...attributes});
  }

  sessionElement(session, kept) {
    const {id, tokens, busy, pinned, boundaries} = session;
    const path = (verb) => statePath("sessions", this.model(), id, verb);
    const known = this.chat.knows(id);
    return element("li", {class: this.chat.pane(id) ? "here" : ""},
      element("div", {class: "node"},
        element("b", {title: id}, id), badge(`${count(tokens)} tokens`),
        busy ? badge("busy", "warn") : null, pinned ? badge("pinned", "good") : null,
        this.chat.pane(id) ? badge("shown", "good") : null),
      element("div", {class: "buttons"},
        known && !this.chat.pane(id) ? this.action("Open", id, () => this.chat.open(id)) : null,
        this.action(pinned ? "Unpin" : "Pin", id, () => this.act("POST", path(pinned ? "unpin" : "pin"))),
        this.action("Snapshot", id, () => this.chat.snapshot(id), {disabled: busy}),
        known ? this.action("Fork", id, () => this.chat.fork(id), {disabled: busy}) : null,
        this.action("Forget", id, () => this.forget(id), {disabled: busy, class: "danger"})),
      element("ul", {}, ...boundaries.map((boundary) => element("li", {class: "boundary"},
        element("div", {class: "node"}, element("span", {}, `${count(boundary.tokens)} tokens`), badge(boundary.kind),
          this.action("Rewind", `${id} to ${boundary.tokens} tokens`, () => this.rewind(id, boundary.tokens),
            {disabled: busy || !kept.has(boundary.capsule), title: boundary.capsule}))))));
  }

  capsuleTree(capsules) {
    if (capsules.length === 0) return element("p", {class: "quiet"}, "Nothing is kept. Snapshot keeps a session.");
    const children = childrenOf(capsules);
    let room = MOST_SHOWN;
    const list = (parent) => element("ul", {class: parent === "" ? "tree" : ""},
      ...(children.get(parent) ?? []).filter(() => room-- > 0).map((capsule) =>
        element("li", {}, ...this.capsuleElements(capsule), children.has(capsule.id) ? list(capsule.id) : null)));
    const tree = list("");
    if (capsules.length <= MOST_SHOWN) return tree;
    return element("div", {}, tree, element("p", {class: "quiet"}, `${count(capsules.length - MOST_SHOWN)} more are not shown.`));
  }

  capsuleElements(capsule) {
    const {id, kind, tokens, tiers, pinned} = capsule;
    const path = (verb) => statePath("capsules", this.model(), id, verb);
    return [
      element("div", {class: "node"},
        element("b", {title: id}, id), badge(kind), badge(`${count(tokens)} tokens`), badge(bytes(sizeOf(capsule))),
        ...tiers.map((tier) => badge(TIERS[tier] ?? tier)), pinned ? badge("pinned", "good") : null,
        capsule.exact ? badge("exact", "good") : null),
      element("div", {class: "buttons"},
        this.action("Restore", id, () => this.chat.restore(capsule, this.heldBy(id)),
          {title: "The conversation in use holds this state"}),
        this.action(pinned ? "Unpin" : "Pin", id, () => this.act("POST", path(pinned ? "unpin" : "pin"))),
        this.action("Delete", id, () => this.remove(id), {class: "danger"}))];
  }

  // The session and the position that a capsule is of.
  heldBy(id) {
    for (const session of this.sessions) {
      const boundary = session.boundaries.find((each) => each.capsule === id);
      if (boundary && this.chat.knows(session.id)) return {session: session.id, tokens: boundary.tokens};
    }
    return null;
  }

  async forget(id) {
    const sure = await ask({title: "Forget the session?", ok: "Forget", danger: true,
      text: `The slot of ${id} forgets it. Capsules stay.`});
    if (sure === null) return;
    await this.act("DELETE", statePath("sessions", this.model(), id), undefined, () => this.chat.forgotten(id));
  }

  async rewind(id, tokens) {
    await this.act("POST", statePath("sessions", this.model(), id, "rewind"), {tokens}, () => {
      this.chat.rewound(id, tokens);
      tell(`${id} is back at ${count(tokens)} tokens.`);
    });
  }

  async remove(id) {
    const sure = await ask({title: "Delete the capsule?", ok: "Delete", danger: true,
      text: `${id} is removed from every tier, the disk too. This cannot be undone.`});
    if (sure === null) return;
    await this.act("DELETE", statePath("capsules", this.model(), id), undefined, () => tell(`${id} is deleted.`));
  }
}
