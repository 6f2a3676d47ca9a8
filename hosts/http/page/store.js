// SPDX-License-Identifier: Apache-2.0
// What the page keeps until its tab is closed: the key, the settings, the conversations.

const PREFIX = "frt.";

export function load(name, fallback) {
  try {
    return JSON.parse(sessionStorage.getItem(PREFIX + name)) ?? fallback;
  } catch {
    return fallback;
  }
}

// False: the browser has no room for it, or keeps nothing.
export function save(name, value) {
  try {
    sessionStorage.setItem(PREFIX + name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}
