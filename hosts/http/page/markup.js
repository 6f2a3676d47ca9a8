// SPDX-License-Identifier: Apache-2.0
// A text of a model as elements: code between fences, everything else as it is.
import {element} from "./dom.js";

const FENCE = /^```[^\n`]*$/;

// Fences that are never closed end with the text.
export function textElements(text) {
  const found = [];
  let lines = [], code = false;
  const flush = () => {
    const part = lines.join("\n");
    if (part.trim() !== "") {
      found.push(code ? element("pre", {tabindex: 0}, element("code", {}, part))
                      : element("div", {class: "text"}, part.replace(/^\n+|\n+$/g, "")));
    }
    lines = [];
  };
  for (const line of text.split("\n")) {
    if (FENCE.test(line.trim())) {
      flush();
      code = !code;
    } else {
      lines.push(line);
    }
  }
  flush();
  return found;
}
