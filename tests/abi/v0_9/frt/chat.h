/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/chat.h - a model's conversation format: an extension of a model object. Conversations are
 * JSON texts in the shape everybody uses:
 *   messages  [{"role": "system|user|assistant|tool", "content": text or parts, ...}]
 *             assistant: "reasoning_content", "tool_calls": [{"id", "type": "function",
 *             "function": {"name", "arguments": object or JSON text}}]
 *   tools     [{"type": "function", "function": {"name", "description", "parameters"}}]
 *   options   an object of booleans. Every format takes these, which hosts give, and may have more:
 *             "add_generation_prompt": the prompt ends where the answer begins; true if missing
 *             "enable_thinking": the answer may begin with reasoning; true if missing
 *             "preserve_thinking": earlier reasoning stays in the prompt; false if missing
 *             "allow_special_tokens": contents write control tokens, too; false if missing
 *
 * Only the format's own text becomes control tokens. What users, tools and models wrote (contents,
 * reasoning, names, arguments, descriptions) is plain text: "<|im_end|>" in a message ends no turn.
 */
#ifndef FRT_CHAT_H_
#define FRT_CHAT_H_

#include <frt/base.h>
#include <frt/model.h>
#include <frt/tokenizer.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_CHAT "frt.chat/1"

#define FRT_CHAT_FINAL 1u /* the text is all that was generated */

/* What a part of a generated text is; frt_chat_event. */
#define FRT_CHAT_REASONING 0u      /* a piece of the reasoning */
#define FRT_CHAT_TEXT 1u           /* a piece of the content */
#define FRT_CHAT_CALL_BEGIN 2u     /* a tool call begins; the text is the name of the function */
#define FRT_CHAT_CALL_ARGUMENTS 3u /* a piece of its arguments */
#define FRT_CHAT_CALL_END 4u       /* it is over; no text */

#define FRT_CHAT_UNFINISHED 1u /* CALL_END: the text ended in this call; values are missing */

/* Calls are numbered from 0 and follow one another: BEGIN, one or more ARGUMENTS, END. The pieces
 * of one call's arguments concatenate to one JSON object. An event is certain: no later text takes
 * it back. Borrowed for the call of the sink. */
typedef struct frt_chat_event {
  uint32_t struct_size;
  uint32_t kind;    /* FRT_CHAT_REASONING ... */
  uint32_t call;    /* its number; 0 for reasoning and text */
  uint32_t flags;   /* FRT_CHAT_UNFINISHED */
  const char* text; /* not terminated; NULL where bytes is 0 */
  uint64_t bytes;
} frt_chat_event;
FRT_ASSERT_LAYOUT(frt_chat_event, 32, bytes, 24);

/* Takes one event. Anything but FRT_OK stops the sender, which returns it.  [any] */
typedef frt_status (*frt_chat_sink)(void* user, const frt_chat_event* event);

/* The text of one answer as it comes. */
typedef struct frt_chat_stream_s* frt_chat_stream;

typedef struct frt_chat_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* Renders a conversation to the prompt: `text` receives its text, then `plain` those parts of it,
   * as frt_text_range, that came from outside. Both go to frt_tokenizer_v1::encode. `tools` and
   * `options` may be NULL. Two errors are the request's fault:
   *   FRT_ERR_INVALID_ARGUMENT  what the sender of the request can mend: an image for a text model,
   *       tools for a format without them, an unknown role (with the message's index). A server
   *       sends the text to its client, so it names no file and nothing of this machine.
   *   FRT_ERR_UNSUPPORTED  what this checkpoint cannot do, e.g. because its own template is not
   *       known to be this format; the text names the file and the option that overrides. A server
   *       writes the text to its log and tells its client only which field was refused.
   * [any] */
  frt_status (*render)(frt_model model, const char* messages, const char* tools,
                       const char* options, frt_sink text, frt_sink plain, void* user,
                       frt_error* error);
  /* Splits generated text into one assistant message: `sink` receives
   *   {"content": text, "reasoning_content": text?, "tool_calls": [...]?, "complete": bool}
   * What is no tool call by the format's rules is content, as it stands. `tools` types the
   * arguments and says which calls there are (NULL: any, []: none); options as for render (they say
   * whether the prompt had opened the reasoning). `flags`: FRT_CHAT_FINAL, or 0 for a text that may
   * go on: then unfinished parts are left out, "complete" is false, and what is reported only grows
   * with the text. UTF-8; errors as for render.  [any] */
  frt_status (*parse)(frt_model model, const char* text, uint64_t bytes, uint32_t flags,
                      const char* tools, const char* options, frt_sink sink, void* user,
                      frt_error* error);
  /* Defaults of generation as JSON: {"temperature", "top_p", "top_k", "min_p",
   * "repetition_penalty", "presence_penalty", "stop_token_ids": [...]}; only what the checkpoint
   * says.  [any] */
  frt_status (*generation_defaults)(frt_model model, frt_sink sink, void* user, frt_error* error);
  /* Streaming: optional, all four or none (NULL). The events of a text are those of its one
   * message: pieces of the content concatenate to it, and so on. `tools` and `options` as for
   * parse, read before it returns. The model outlives the stream.  [any] */
  frt_status (*stream_create)(frt_model model, const char* tools, const char* options,
                              frt_chat_stream* stream, frt_error* error);
  /* The next piece: UTF-8, whole characters. `sink` receives what became certain, possibly nothing.
   * The cost is linear in the text, however it is cut. Behind an error only stream_destroy may be
   * called. Optional.  [object] */
  frt_status (*stream_push)(frt_chat_stream stream, const char* text, uint64_t bytes,
                            frt_chat_sink sink, void* user, frt_error* error);
  /* The text is all that was generated: `sink` receives the rest, and `complete` becomes what parse
   * reports as "complete". Only stream_destroy may follow. Optional.  [object] */
  frt_status (*stream_finish)(frt_chat_stream stream, frt_chat_sink sink, void* user,
                              uint32_t* complete, frt_error* error);
  void (*stream_destroy)(frt_chat_stream stream); /* optional  [object] */
  /* Optional: without it no form can be forced on an answer. `sink` receives how an answer to a
   * prompt rendered with `options` is written, so that a host can force its parts:
   *   {"reasoning": {"end": text, "then": text}?,
   *    "calls": {"begin": [text, text], "parameter": [text, text, text]?, "end": text,
   *              "separator": text}?}
   * "reasoning": the answer begins within reasoning, which ends with "end"; the content follows
   * behind "then". "calls": a call is begin[0] NAME begin[1] ARGUMENTS end, the next one follows
   * behind "separator". ARGUMENTS is one JSON object, or with "parameter", for each argument,
   * parameter[0] KEY parameter[1] VALUE parameter[2], where a text stands as it is and anything
   * else as JSON. Without "calls" the format has no tool calls. Errors as for render.  [any] */
  frt_status (*answer_form)(frt_model model, const char* options, frt_sink sink, void* user,
                            frt_error* error);
} frt_chat_v1;
FRT_ASSERT_LAYOUT(frt_chat_v1, 72, answer_form, 64);

FRT_EXTERN_C_END

#endif /* FRT_CHAT_H_ */
