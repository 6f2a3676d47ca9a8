// SPDX-License-Identifier: Apache-2.0
// Requests to the server that the page came from, with the user's key.
import {load, save} from "./store.js";

export class ApiFailure extends Error {
  constructor(status, message, code) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

// What the server's key file can hold; anything else a header cannot carry, or nobody has.
export function isKey(text) {
  return /^[!-~]+$/.test(text);
}

let key = load("key", "");
if (!isKey(key)) key = "";
let keyNeeded = () => {};

export function setKey(value) {
  key = value;
  save("key", value);
}

export function hasKey() {
  return key !== "";
}

// `needed` is called when the server refuses the key, or that there is none.
export function onKeyNeeded(needed) {
  keyNeeded = needed;
}

// {"error": {"message", "code"}} of a reply or of an event.
export function failure(status, body) {
  const error = body?.error ?? {};
  return new ApiFailure(status, String(error.message ?? `the server answered ${status}`), error.code);
}

// The answer of a request that was served; throws ApiFailure for any other.
export async function request(method, path, {body, headers = {}, signal} = {}) {
  const sent = {...headers};
  if (key) sent.Authorization = `Bearer ${key}`;
  if (body !== undefined) sent["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, {
      method, headers: sent, signal, cache: "no-store", credentials: "omit", redirect: "error",
      body: body === undefined ? undefined : JSON.stringify(body)});
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiFailure(0, "the server cannot be reached");
  }
  if (answer.ok) return answer;
  let told = null;
  try {
    told = await answer.json();
  } catch {
    // Not JSON: the status alone says what it is.
  }
  if (answer.status === 401) keyNeeded();
  throw failure(answer.status, told);
}

export async function json(method, path, options) {
  return (await request(method, path, options)).json();
}

export async function text(path) {
  return (await request("GET", path)).text();
}

// The path of a route about sessions or capsules of a model.
export function statePath(kind, model, id = "", verb = "") {
  const parts = ["/v1/" + kind, id && encodeURIComponent(id), verb].filter((part) => part !== "");
  return parts.join("/") + (model ? `?model=${encodeURIComponent(model)}` : "");
}
