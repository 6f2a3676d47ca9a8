// SPDX-License-Identifier: Apache-2.0
// Conversations. A branch is a list of messages and the session of the server that holds their
// state; one or two branches are shown, each in a pane.
//
// A branch's messages: {role: "user", content}, {role: "tool", id, name, content}, and answers
// {role: "assistant", content, reasoning, calls, usage, frt, finish, end, ...}, whose `end` is the
// number of tokens of the session behind it.
import {json, request, statePath} from "./api.js";
import {ask, button, count, element, tell} from "./dom.js";
import {answerElement, LiveAnswer, userElement} from "./reply.js";
import {requestFields, systemMessage} from "./settings.js";
import {load, save} from "./store.js";
import {chunks} from "./stream.js";

const MOST_PANES = 2;

// Without a prototype: "constructor" is a name like others.
const branches = Object.assign(Object.create(null), load("branches", {}));  // session -> messages
const capsules = Object.assign(Object.create(null), load("capsules", {}));  // name -> messages that it holds

function keep() {
  if (!save("branches", branches) || !save("capsules", capsules)) {
    tell("The browser has no room for more of this conversation; it is lost when the tab is closed.");
  }
}

function newSession() {
  const bytes = crypto.getRandomValues(new Uint8Array(4));
  return "page-" + Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// The part of the messages whose state is within the first tokens of a session.
function messagesWithin(messages, tokens) {
  const last = messages.findLastIndex((entry) => entry.role === "assistant" && entry.end <= tokens + 1);
  return messages.slice(0, last + 1);
}

function apiMessage(entry) {
  if (entry.role === "user") return {role: "user", content: entry.content};
  if (entry.role === "tool") return {role: "tool", tool_call_id: entry.id, content: entry.content};
  const message = {role: "assistant", content: entry.content};
  if (entry.reasoning) message.reasoning_content = entry.reasoning;
  if (entry.calls.length > 0) {
    message.tool_calls = entry.calls.map((call) => (
      {id: call.id, type: "function", function: {name: call.name, arguments: call.arguments}}));
  }
  return message;
}

class Pane {
  constructor(chat, session) {
    this.chat = chat;
    this.session = session;
    this.running = null;  // AbortController of an answer
    this.log = element("div", {class: "log", role: "log", "aria-live": "off", tabindex: 0,
      "aria-label": `Messages of ${session}`});
    this.results = element("div", {class: "results"});
    this.trouble = element("p", {class: "error", role: "alert", hidden: true});
    this.input = element("textarea", {rows: 2, placeholder: "Message", "aria-label": "Message",
      keydown: (event) => this.typed(event)});
    this.sender = button("Send", () => this.submit(), {class: "primary"});
    this.stopper = button("Stop", () => this.stop(), {title: "Esc", hidden: true});
    this.closer = button("Close", () => chat.close(this), {"aria-label": `Close ${session}`});
    this.element = element("section", {class: "pane", "aria-label": `Branch ${session}`, focusin: () => chat.focus(this)},
      element("header", {}, element("h2", {title: session}, session),
        button("New", () => chat.begin(this), {title: "Begin another conversation here"}),
        button("Fork", () => chat.fork(session), {title: "Open a second branch with the same state"}),
        button("Snapshot", () => chat.snapshot(session), {title: "Keep the session's state as a capsule"}),
        this.closer),
      this.log, this.trouble, this.results,
      element("form", {class: "composer", submit: (event) => event.preventDefault()},
        this.input, element("div", {class: "buttons"}, this.stopper, this.sender)),
      element("p", {class: "quiet keys"}, "Enter sends, Shift+Enter is a new line, Esc stops"));
    this.render();
  }

  get messages() {
    return branches[this.session];
  }

  typed(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.submit();
  }

  // `results`: what is typed already in the fields of calls that are open.
  render(results = []) {
    const actions = {rewind: (entry) => this.rewind(entry)};
    this.log.replaceChildren(...this.messages.map((entry) =>
      entry.role === "assistant" ? answerElement(entry, actions) : userElement(entry)));
    if (this.messages.length === 0) {
      this.log.append(element("p", {class: "quiet empty"}, "Nothing was said yet. What you write goes to the model above."));
    }
    this.log.scrollTop = this.log.scrollHeight;
    this.showOpenCalls(results);
  }

  fail(text) {
    this.trouble.textContent = text;
    this.trouble.hidden = text === "";
  }

  // ---- calls of tools ----

  openCalls() {
    const last = this.messages.at(-1);
    return last?.role === "assistant" ? last.calls : [];
  }

  showOpenCalls(results) {
    const calls = this.openCalls();
    this.fields = calls.map((call) =>
      element("textarea", {rows: 2, "aria-label": `Result of ${call.name}`, placeholder: `Result of ${call.name}`}));
    this.fields.forEach((field, i) => {
      field.value = results[i] ?? "";
    });
    this.results.replaceChildren(...this.fields);
    if (calls.length > 0) this.results.append(button("Send results", () => this.submit(true), {class: "primary"}));
  }

  takeResults() {
    this.openCalls().forEach((call, i) =>
      this.messages.push({role: "tool", id: call.id, name: call.name, content: this.fields[i].value}));
  }

  // ---- an answer ----

  submit(resultsAlone = false) {
    const text = this.input.value;
    if (this.running || (!resultsAlone && text.trim() === "")) return;
    const before = this.messages.length;
    const results = this.fields.map((field) => field.value);
    this.takeResults();
    if (!resultsAlone) this.messages.push({role: "user", content: text});
    if (!resultsAlone) this.input.value = "";
    this.render();
    this.answer(before, text, results);
  }

  // `before`: how many messages there were without the question, whose text is `question`, and without `results`.
  async answer(before, question, results) {
    this.fail("");
    this.running = new AbortController();
    this.changed();
    const live = new LiveAnswer();
    this.log.append(live.element);
    this.follow(true);
    let trouble = "";
    try {
      const answer = await request("POST", "/v1/chat/completions", {
        body: this.body(), headers: {"X-Session-Id": this.session}, signal: this.running.signal});
      for await (const chunk of chunks(answer)) {
        const following = this.following();
        live.take(chunk);
        this.follow(following);
      }
    } catch (error) {
      trouble = this.running.signal.aborted ? "" : error.message;
    }
    const entry = live.finish();
    entry.stopped = this.running.signal.aborted;
    this.running = null;
    const came = entry.content || entry.reasoning || entry.calls.length > 0 || entry.finish;
    if (came) {
      if (trouble) entry.error = trouble;
      this.messages.push(entry);
    } else {
      // The question can be asked again, and the results sent.
      this.messages.length = before;
      if (this.input.value === "") this.input.value = question;
      this.fail(trouble);
    }
    keep();
    this.render(came ? [] : results);
    this.changed();
    tell(entry.stopped ? "Stopped." : trouble ? "" : "The answer is complete.");
    this.chat.stateChanged();
  }

  body() {
    const system = systemMessage();
    const messages = this.messages.map(apiMessage);
    if (system) messages.unshift({role: "system", content: system});
    return {model: this.chat.model(), messages, stream: true, stream_options: {include_usage: true}, ...requestFields()};
  }

  stop() {
    this.running?.abort();
    this.input.focus();
  }

  changed() {
    this.sender.disabled = this.running !== null;
    this.stopper.hidden = this.running === null;
    this.closer.hidden = this.chat.panes.length < 2;
  }

  // The end of the log stays in sight unless the user looks at something else.
  following() {
    return this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 40;
  }

  follow(following) {
    if (following) this.log.scrollTop = this.log.scrollHeight;
  }

  // ---- state ----

  async rewind(entry) {
    if (this.running) return;
    this.messages.length = this.messages.indexOf(entry) + 1;
    keep();
    this.render();
    this.input.focus();
    try {
      const session = await json("GET", statePath("sessions", this.chat.model(), this.session));
      const kept = session.boundaries.map((boundary) => boundary.tokens).filter((tokens) => tokens <= entry.end + 1);
      if (kept.length > 0 && session.tokens > entry.end + 1) {
        await json("POST", statePath("sessions", this.chat.model(), this.session, "rewind"),
          {body: {tokens: Math.max(...kept)}});
      }
      tell("The conversation ends at that answer again.");
    } catch (error) {
      tell(`The messages are dropped; the session was not taken back: ${error.message}`);
    }
    this.chat.stateChanged();
  }
}

// The panes. `model`: the name of the chosen model; `stateChanged`: sessions or capsules may be
// others now.
export class Chat {
  constructor(root, {model, stateChanged}) {
    this.root = root;
    this.model = model;
    this.stateChanged = stateChanged;
    this.panes = [];
    for (const session of load("shown", [newSession()])) this.add(session);
  }

  add(session) {
    branches[session] ??= [];
    const pane = new Pane(this, session);
    this.panes.push(pane);
    this.arrange();
    this.focus(pane);
    return pane;
  }

  replace(pane, session) {
    branches[session] ??= [];
    pane.stop();
    const fresh = new Pane(this, session);
    this.panes[this.panes.indexOf(pane)] = fresh;
    this.arrange();
    this.focus(fresh);
    fresh.input.focus();
  }

  arrange() {
    for (const [session, messages] of Object.entries(branches)) {
      if (messages.length === 0 && !this.pane(session)) delete branches[session];
    }
    this.root.replaceChildren(...this.panes.map((pane) => pane.element));
    this.panes.forEach((pane) => pane.changed());
    save("shown", this.panes.map((pane) => pane.session));
    keep();
  }

  pane(session) {
    return this.panes.find((each) => each.session === session);
  }

  focus(pane) {
    this.active = pane;
    this.panes.forEach((each) => each.element.classList.toggle("active", each === pane));
  }

  close(pane) {
    pane.stop();
    this.panes.splice(this.panes.indexOf(pane), 1);
    this.arrange();
    this.focus(this.panes[0]);
    this.panes[0].input.focus();
  }

  // Esc: of the pane that the user is in, else of any.
  stop() {
    (this.active?.running ? this.active : this.panes.find((pane) => pane.running))?.stop();
  }

  begin(pane) {
    this.replace(pane, newSession());
    this.stateChanged();
  }

  knows(session) {
    return session in branches;
  }

  // Shows a branch that the page knows.
  open(session) {
    const pane = this.pane(session);
    if (pane) {
      pane.input.focus();
    } else if (this.panes.length < MOST_PANES) {
      this.add(session).input.focus();
    } else {
      this.replace(this.active, session);
    }
  }

  // Both branches side by side. What the server has not read yet is only copied.
  async fork(session) {
    const copy = newSession();
    try {
      await json("POST", statePath("sessions", this.model(), session, "fork"), {body: {as: copy}});
    } catch (error) {
      if (error.status !== 404) return this.pane(session)?.fail(`The session was not forked: ${error.message}`);
    }
    branches[copy] = structuredClone(branches[session] ?? []);
    if (this.panes.length >= MOST_PANES) {
      this.replace(this.panes.find((pane) => pane.session !== session), copy);
    } else {
      this.open(copy);
    }
    this.stateChanged();
  }

  async snapshot(session) {
    const name = await ask({title: "Keep as a capsule", ok: "Keep", text: `The state of ${session} is kept on the server's disk.`,
      field: {label: "Name", pattern: "[A-Za-z0-9][A-Za-z0-9_.\\-]*", hint: "Letters, digits, dots, dashes and underscores"}});
    if (name === null) return;
    try {
      const capsule = await json("POST", statePath("sessions", this.model(), session, "snapshot"), {body: {name}});
      capsules[name] = structuredClone(messagesWithin(branches[session] ?? [], capsule.tokens));
      keep();
      tell(`Kept ${count(capsule.tokens)} tokens as ${name}.`);
    } catch (error) {
      this.report(session, `Not kept: ${error.message}`);
    }
    this.stateChanged();
  }

  // The active branch holds the capsule. `held`: the branch and the position that it is of, where
  // that is known.
  async restore(capsule, held) {
    const {session} = this.active;
    const body = {capsule: capsule.id};
    const known = capsules[capsule.id] ?? (held && branches[held.session] && messagesWithin(branches[held.session], held.tokens));
    try {
      await json("POST", statePath("sessions", this.model(), session, "restore"), {body});
    } catch (error) {
      return this.report(session, `Not restored: ${error.message}`);
    }
    branches[session] = structuredClone(known ?? []);
    keep();
    this.pane(session)?.render();
    this.report(session, known ? "" : `The session holds ${count(capsule.tokens)} tokens of ${capsule.id}, whose text this ` +
      "page does not have. Clients that send that conversation go on from there.");
    tell(`Restored ${count(capsule.tokens)} tokens of ${capsule.id}.`);
    this.stateChanged();
  }

  // The server took a session back: so does the page.
  rewound(session, tokens) {
    if (!branches[session]) return;
    branches[session] = messagesWithin(branches[session], tokens);
    keep();
    this.pane(session)?.render();
  }

  forgotten(session) {
    if (!this.pane(session)) delete branches[session];
    keep();
  }

  report(session, text) {
    const pane = this.pane(session);
    if (pane) return pane.fail(text);
    tell(text);
  }
}
