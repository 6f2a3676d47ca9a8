// SPDX-License-Identifier: Apache-2.0
// Server-sent events of a chat completion.
import {ApiFailure, failure} from "./api.js";

// The data of each event.
async function* records(answer) {
  const reader = answer.body.getReader();
  const decoder = new TextDecoder();
  let text = "";
  for (let done = false; !done;) {
    const part = await reader.read();
    done = part.done;
    text += decoder.decode(part.value ?? new Uint8Array(), {stream: !done});
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const lines = text.slice(0, end).split("\n");
      text = text.slice(end + 2);
      const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
      if (data.length > 0) yield data.join("\n");
    }
  }
}

// The chunks of a stream, as objects. Throws ApiFailure for an error in it and for a stream that
// ends too early.
export async function* chunks(answer) {
  for await (const data of records(answer)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw failure(answer.status, chunk);
    yield chunk;
  }
  throw new ApiFailure(0, "the connection ended before the answer was complete");
}
