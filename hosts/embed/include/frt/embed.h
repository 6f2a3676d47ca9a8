/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/embed.h - the runtime inside another program: what libfrt.so exports, and all it exports.
 *
 *     frt_runtime runtime;  frt_lm lm;  frt_generation answer;  frt_error error;
 *     frt_runtime_options options = {.struct_size = sizeof(options), .manifest = "demo.toml"};
 *     frt_runtime_open(&options, &runtime, &error);       // plugins and devices of the manifest
 *     frt_lm_open(runtime, "demo", NULL, &lm, &error);    // the model, and its thread
 *     frt_generate_request request = {.struct_size = sizeof(request), .prompt = "Once"};
 *     frt_lm_generate(lm, NULL, &request, &answer, &error);
 *     frt_generation_event event = {.struct_size = sizeof(event)};
 *     while (!frt_generation_next(answer, FRT_NO_TIMEOUT, &event, &error)) {
 *       if (event.kind == FRT_EVENT_END) break;
 *       fwrite(event.text, 1, event.bytes, stdout);
 *     }
 *
 * C11 and C++20. The rules of frt/base.h hold: growable structs start with struct_size, out
 * parameters are written only on FRT_OK, every call that can fail takes a frt_error (may be NULL).
 * A struct_size that no version has is FRT_ERR_ABI. No exception and no signal crosses; a caller's
 * callback must not throw.
 *
 * HANDLES. Every object is an opaque handle. It is a number, not an address: NULL, a handle that
 * was closed and one of another kind are FRT_ERR_INVALID_ARGUMENT, whatever the thread, and no
 * number is used twice. Objects are reference counted: a session, a generation and a capsule keep
 * their model alive, a model its runtime. So handles may be closed in any order; a model ends when
 * the last handle that leads to it is closed. Close all of them before the program leaves main().
 *
 * THREADS. Every function is [any]: it may be called from every thread at the same time, on the
 * same handle, too. Calls on one runtime's setup (frt_runtime_open, frt_*_open) wait for each
 * other, and so do calls on one policy. Any number of generations run beside each other: the
 * model's own thread makes all steps. One language model drives a device alone: opening a second
 * model on its device is FRT_ERR_BAD_STATE. A model that a server serves is the server's alone:
 * opening it, or another one on its device, is FRT_ERR_BAD_STATE, too. Policies share a device.
 *
 * TEXTS AND ARRAYS come out in one of two ways. A call with (room, capacity, count) writes as much
 * as there is room for and sets `count` to what there is, so that a first call with capacity 0 asks
 * for the size. Texts are UTF-8; a text in a room ends with a zero if there is room for one, and
 * `count` does not count it. Pointers in *_info structs live as long as the handle that was asked.
 *
 * fork(2): a child process uses none of its parent's handles.
 */
#ifndef FRT_EMBED_H_
#define FRT_EMBED_H_

#include <frt/base.h>
#include <frt/log.h>
#include <frt/observation.h>

FRT_EXTERN_C_BEGIN

#define FRT_EMBED_API __attribute__((visibility("default")))

/* The version of this API; the soname is libfrt.so.MAJOR, and from 1.0 on a minor version only
 * adds. While it is 0 the soname is libfrt.so.0.MINOR. */
#define FRT_EMBED_MAJOR 0
#define FRT_EMBED_MINOR 1

typedef struct frt_runtime_s* frt_runtime; /* a manifest at work: plugins and devices */
typedef struct frt_device_s* frt_device;   /* an open device, for buffers and graphs of one's own */
typedef struct frt_instance_s* frt_instance; /* a loaded model, whatever its roles */
typedef struct frt_lm_s* frt_lm;             /* a language model and the thread that drives it */
typedef struct frt_session_s* frt_session;   /* one text that goes on: its tokens, its state */
typedef struct frt_generation_s* frt_generation;         /* one answer that is being written */
typedef struct frt_lm_capsule_s* frt_lm_capsule;         /* a session's tokens and state, kept */
typedef struct frt_server_s* frt_server;                 /* language models behind HTTP */
typedef struct frt_policy_s* frt_policy;                 /* a robot policy */
typedef struct frt_policy_capsule_s* frt_policy_capsule; /* all that a policy carries on, kept */

/* ---- versions ------------------------------------------------------------------------------ */

typedef struct frt_embed_versions {
  uint32_t struct_size;
  uint32_t embed_major, embed_minor; /* of this API */
  uint32_t abi_major, abi_minor;     /* of plugins (frt/base.h) */
  uint32_t reserved;
} frt_embed_versions;
FRT_ASSERT_LAYOUT(frt_embed_versions, 24, reserved, 20);

/* What the library is, as opposed to the header that the program was compiled with. */
FRT_EMBED_API frt_status frt_embed_version(frt_embed_versions* versions, frt_error* error);
/* "FRT_ERR_NOT_FOUND"; never NULL, lives for ever. */
FRT_EMBED_API const char* frt_embed_status_name(frt_status status);

/* ---- the runtime --------------------------------------------------------------------------- */

#define FRT_RUNTIME_TRY_PLUGINS                                                                    \
  1u                               /* load each plugin in a child process first, as frt-host does; \
                                      it forks, so no other thread of the program may be running */
#define FRT_RUNTIME_ALL_DEVICES 2u /* open the devices that no model uses, too */

typedef struct frt_runtime_options {
  uint32_t struct_size;
  uint32_t flags;            /* FRT_RUNTIME_* */
  const char* manifest;      /* a file, or a folder with a checkpoint; or NULL, and */
  const char* manifest_text; /* TOML, */
  const char* base_folder;   /* and where its relative paths start; NULL: the current folder */
  const char* const* plugin_folders; /* [plugin_folder_count] searched first; then $FRT_PLUGIN_PATH,
                                        then frt/plugins beside libfrt.so */
  uint32_t plugin_folder_count;
  uint32_t set_count;
  const char* const* sets; /* [set_count] "model.demo.options.slots=2", over the manifest */
  uint32_t log_level;      /* FRT_LOG_*: the least that is logged. 0 (FRT_LOG_DEBUG): everything */
  uint32_t reserved;
  /* Takes messages; NULL: warnings and errors go to stderr, and log_level is ignored. It makes no
   * call of this API. Whatever thread of the library speaks calls it, also two at a time.  [any] */
  void (*log)(void* user, uint32_t level, const char* source, const char* text);
  void* log_user;
  /* Hears how a load goes: `done` of `total` (0: unknown) FRT_PROGRESS_* units (frt/progress.h) of
   * a phase. Anything but FRT_OK ends the load with FRT_ERR_CANCELLED. May be NULL.  [any] */
  frt_status (*progress)(void* user, const char* phase, uint32_t unit, uint64_t done,
                         uint64_t total);
  void* progress_user;
} frt_runtime_options;
FRT_ASSERT_LAYOUT(frt_runtime_options, 96, progress_user, 88);

/* Reads and checks the manifest, loads the plugins it uses and opens the devices its models use.
 * FRT_ERR_NOT_FOUND, FRT_ERR_IO, FRT_ERR_FORMAT or FRT_ERR_INVALID_ARGUMENT for the manifest; what
 * a plugin or a device reports. */
FRT_EMBED_API frt_status frt_runtime_open(const frt_runtime_options* options, frt_runtime* runtime,
                                          frt_error* error);
FRT_EMBED_API frt_status frt_runtime_close(frt_runtime runtime);

typedef struct frt_runtime_device {
  uint32_t struct_size;
  uint32_t compute_units; /* cores or multiprocessors */
  const char* name;       /* in the manifest */
  const char* backend;    /* the plugin's id */
  const char* product;    /* as people know it */
  const char* architecture;
  uint64_t memory_total, memory_free; /* bytes; when the device was opened */
} frt_runtime_device;
FRT_ASSERT_LAYOUT(frt_runtime_device, 56, memory_free, 48);

typedef struct frt_runtime_model {
  uint32_t struct_size;
  uint32_t reserved;
  const char* name; /* in the manifest */
  const char* plugin;
  const char* device; /* in the manifest */
  const char* checkpoint;
} frt_runtime_model;
FRT_ASSERT_LAYOUT(frt_runtime_model, 40, checkpoint, 32);

/* The device `index`, 0 and up, of those that are open; FRT_ERR_OUT_OF_RANGE behind the last. */
FRT_EMBED_API frt_status frt_runtime_device_at(frt_runtime runtime, uint32_t index,
                                               frt_runtime_device* device, frt_error* error);
/* The same of the manifest's models, loaded or not. */
FRT_EMBED_API frt_status frt_runtime_model_at(frt_runtime runtime, uint32_t index,
                                              frt_runtime_model* model, frt_error* error);

/* ---- a device: buffers and graphs of one's own ---------------------------------------------- */

/* The device `name` of those that are open (NULL: the only one), for programs that make buffers and
 * graphs on it, or share memory with another library there. While it is open no language model
 * drives the device, as beside a policy. FRT_ERR_NOT_FOUND; FRT_ERR_BAD_STATE while a language
 * model is open on it. */
FRT_EMBED_API frt_status frt_device_open(frt_runtime runtime, const char* name, frt_device* device,
                                         frt_error* error);
/* Release everything that was made on the device before its last handle is closed. */
FRT_EMBED_API frt_status frt_device_close(frt_device device);

typedef struct frt_device_tables {
  uint32_t struct_size;
  uint32_t reserved;
  const char* name;       /* in the manifest */
  void* context;          /* its frt_context */
  const void* exec_table; /* frt_exec_v1 (frt/exec.h) */
} frt_device_tables;
FRT_ASSERT_LAYOUT(frt_device_tables, 32, exec_table, 24);

/* The tables have their own thread rules: one thread at a time per device, and a call of a policy
 * of that device counts as one. They live as long as the handle. */
FRT_EMBED_API frt_status frt_device_tables_of(frt_device device, frt_device_tables* tables,
                                              frt_error* error);
/* Another table of core by its name: "frt.plan/draft1" (frt/draft/plan.h), "frt.state/1"
 * (frt/capsule.h). FRT_ERR_NOT_FOUND. */
FRT_EMBED_API frt_status frt_device_extension(frt_device device, const char* id, const void** table,
                                              frt_error* error);

/* ---- a model and its tables ---------------------------------------------------------------- */

/* Loads a model without a driver of it: for programs that speak to its tables themselves. `name`
 * NULL: the manifest's only one. A model that is loaded already is not loaded twice. */
FRT_EMBED_API frt_status frt_instance_open(frt_runtime runtime, const char* name,
                                           frt_instance* instance, frt_error* error);
FRT_EMBED_API frt_status frt_instance_close(frt_instance instance);

typedef struct frt_instance_tables {
  uint32_t struct_size;
  uint32_t reserved;
  const char* name;
  const void* model_table;    /* frt_model_v1 (frt/model.h) */
  void* model;                /* its frt_model */
  const void* exec_table;     /* frt_exec_v1 (frt/exec.h) */
  void* context;              /* the device's frt_context */
  const void* state_table;    /* frt_state_v1 (frt/capsule.h) */
  const void* capsules_table; /* frt_capsules_v1 */
} frt_instance_tables;
FRT_ASSERT_LAYOUT(frt_instance_tables, 64, capsules_table, 56);

/* The tables of the SDK, with their own thread rules: one thread at a time per device, and none
 * while a frt_lm, a frt_policy or a frt_server of that device is open. Opening another model on the
 * device, and closing the last handle of one, use its tables, too. They live as long as the
 * instance. */
FRT_EMBED_API frt_status frt_instance_tables_of(frt_instance instance, frt_instance_tables* tables,
                                                frt_error* error);
/* A role or another extension by its name, "frt.role.lm/1"; FRT_ERR_NOT_FOUND if the model has
 * none. The caller reads it as frt/base.h says: by its struct_size. */
FRT_EMBED_API frt_status frt_instance_extension(frt_instance instance, const char* id,
                                                const void** table, frt_error* error);

/* ---- language models ----------------------------------------------------------------------- */

typedef struct frt_lm_options {
  uint32_t struct_size;
  uint32_t queue_limit; /* generations that may wait for a slot; 0: 1024 */
} frt_lm_options;
FRT_ASSERT_LAYOUT(frt_lm_options, 8, queue_limit, 4);

/* The model `name` (NULL: the manifest's only one) as a language model; `options` may be NULL.
 * Asked again for one that is open it gives one more handle to it, and ignores `options`.
 * FRT_ERR_NOT_FOUND, FRT_ERR_UNSUPPORTED if it is none, FRT_ERR_BAD_STATE if another model is open
 * on the same device. */
FRT_EMBED_API frt_status frt_lm_open(frt_runtime runtime, const char* name,
                                     const frt_lm_options* options, frt_lm* lm, frt_error* error);
FRT_EMBED_API frt_status frt_lm_close(frt_lm lm);

typedef struct frt_lm_facts {
  uint32_t struct_size;
  uint32_t vocabulary;    /* ids are below */
  uint32_t context;       /* tokens of one sequence, prompt and answer */
  uint32_t slots;         /* sessions whose state the device holds at a time */
  uint32_t has_tokenizer; /* 1: it reads and writes text, else ids alone */
  uint32_t has_chat;      /* 1: it has a format of conversations */
  const char* name;
} frt_lm_facts;
FRT_ASSERT_LAYOUT(frt_lm_facts, 32, name, 24);

FRT_EMBED_API frt_status frt_lm_facts_of(frt_lm lm, frt_lm_facts* facts, frt_error* error);
/* `flags`: FRT_ENCODE_* (frt/tokenizer.h). FRT_ERR_OUT_OF_RANGE for more than the context. */
FRT_EMBED_API frt_status frt_lm_encode(frt_lm lm, const char* text, uint64_t bytes, uint32_t flags,
                                       int32_t* ids, uint64_t capacity, uint64_t* count,
                                       frt_error* error);
/* `flags`: FRT_DECODE_*. */
FRT_EMBED_API frt_status frt_lm_decode(frt_lm lm, const int32_t* ids, uint64_t id_count,
                                       uint32_t flags, char* text, uint64_t capacity,
                                       uint64_t* count, frt_error* error);
/* The prompt of a conversation. `messages`, and `tools` and `options`, which may be NULL: JSON as
 * frt/chat.h has it. */
FRT_EMBED_API frt_status frt_lm_render(frt_lm lm, const char* messages, const char* tools,
                                       const char* options, char* text, uint64_t capacity,
                                       uint64_t* count, frt_error* error);

/* ---- generating ---------------------------------------------------------------------------- */

#define FRT_GIVEN_TEMPERATURE 1u
#define FRT_GIVEN_TOP_P 2u
#define FRT_GIVEN_MIN_P 4u
#define FRT_GIVEN_TOP_K 8u
#define FRT_GIVEN_REPETITION_PENALTY 16u
#define FRT_GIVEN_PRESENCE_PENALTY 32u
#define FRT_GIVEN_FREQUENCY_PENALTY 64u
#define FRT_GIVEN_SEED 128u

/* What the caller says over what the checkpoint says; frozen. */
typedef struct frt_sampling_options {
  uint32_t given;    /* FRT_GIVEN_*: which members count */
  float temperature; /* 0: greedy */
  float top_p, min_p;
  int32_t top_k;
  float repetition_penalty, presence_penalty, frequency_penalty;
  uint64_t seed; /* not given: drawn, and reported with the end */
} frt_sampling_options;
FRT_ASSERT_LAYOUT(frt_sampling_options, 40, seed, 32);

#define FRT_GENERATE_GREEDY 1u /* the likeliest token each time; `sampling` is ignored */
#define FRT_GENERATE_CONTINUE                                                                      \
  2u                                 /* the prompt stands behind what the session holds; it may be \
                                        empty then */
#define FRT_GENERATE_READ_ONLY 4u    /* read the prompt, write nothing */
#define FRT_GENERATE_IGNORE_STOPS 8u /* tokens that end a text do not */

/* Exactly one of prompt, prompt_ids and messages. FRT_GENERATE_CONTINUE goes with a session, and
 * with prompt, prompt_ids or none of the three: not with messages. All is copied before the call
 * returns. */
typedef struct frt_generate_request {
  uint32_t struct_size;
  uint32_t flags;        /* FRT_GENERATE_* */
  const char* prompt;    /* text */
  uint64_t prompt_bytes; /* 0: up to its zero */
  const int32_t* prompt_ids;
  uint64_t prompt_id_count;
  const char* messages;     /* JSON: a conversation (frt/chat.h). Events tell reasoning, text and
                               calls apart */
  const char* tools;        /* JSON, with messages; NULL: none */
  const char* chat_options; /* JSON, with messages; NULL: none */
  uint64_t max_tokens;      /* 0: 256 */
  frt_sampling_options sampling;
  const char* const* stops; /* [stop_count] texts that end the answer and are not part of it */
  uint32_t stop_count;
  int32_t priority;        /* higher first */
  const int32_t* stop_ids; /* [stop_id_count] beside those of the checkpoint */
  uint64_t stop_id_count;
  uint64_t deadline_ms; /* from now; 0: none */
} frt_generate_request;
FRT_ASSERT_LAYOUT(frt_generate_request, 152, deadline_ms, 144);

/* Submits an answer; it is written whether or not anybody reads it. `session` NULL: no state is
 * kept. FRT_ERR_BAD_STATE if the session has an answer that is not over; FRT_ERR_NOT_READY if the
 * queue is full; FRT_ERR_OUT_OF_RANGE for a prompt longer than the context. */
FRT_EMBED_API frt_status frt_lm_generate(frt_lm lm, frt_session session,
                                         const frt_generate_request* request,
                                         frt_generation* generation, frt_error* error);
/* Cancels what is not over. */
FRT_EMBED_API frt_status frt_generation_close(frt_generation generation);

#define FRT_EVENT_TEXT 0u
#define FRT_EVENT_REASONING 1u      /* of a conversation, as the next three */
#define FRT_EVENT_CALL_BEGIN 2u     /* `text` is the tool's name */
#define FRT_EVENT_CALL_ARGUMENTS 3u /* pieces of one JSON object */
#define FRT_EVENT_CALL_END 4u
#define FRT_EVENT_TOKEN 5u /* of a model without a tokenizer: no text */
#define FRT_EVENT_END 6u   /* the last; every later call gives it again */

typedef struct frt_generation_event {
  uint32_t struct_size;
  uint32_t kind;    /* FRT_EVENT_* */
  const char* text; /* whole characters, zero-terminated; until the next call on this generation */
  uint64_t bytes;   /* without the zero; may be 0 */
  uint32_t call;    /* its number, of FRT_EVENT_CALL_* */
  int32_t token;    /* the last that is part of what was given so far; -1: none */
  float log_probability; /* of `token`, natural logarithm */
  uint32_t reserved;
} frt_generation_event;
FRT_ASSERT_LAYOUT(frt_generation_event, 40, reserved, 36);

#define FRT_NO_TIMEOUT UINT64_MAX

/* Waits for the next event, at most `timeout_ms`: FRT_ERR_NOT_READY then. An answer that failed
 * gives what was written, then its error at each call. One thread at a time reads an answer. */
FRT_EMBED_API frt_status frt_generation_next(frt_generation generation, uint64_t timeout_ms,
                                             frt_generation_event* event, frt_error* error);

/* Takes one event, FRT_EVENT_END excepted. Anything but FRT_OK cancels the answer, and
 * frt_generation_run() returns it.  [any] */
typedef frt_status (*frt_event_sink)(void* user, const frt_generation_event* event);
/* Gives all events to `sink` on this thread, until the answer is over. */
FRT_EMBED_API frt_status frt_generation_run(frt_generation generation, frt_event_sink sink,
                                            void* user, frt_error* error);
/* The answer ends with FRT_FINISH_CANCELLED within one step. What is over stays as it is. */
FRT_EMBED_API frt_status frt_generation_cancel(frt_generation generation);

#define FRT_FINISH_LENGTH 0u  /* max_tokens were written */
#define FRT_FINISH_STOP 1u    /* a stop token or a stop text */
#define FRT_FINISH_CONTEXT 2u /* the context is full */
#define FRT_FINISH_CANCELLED 3u
#define FRT_FINISH_DEADLINE 4u

typedef struct frt_generation_result {
  uint32_t struct_size;
  uint32_t finish; /* FRT_FINISH_* */
  uint64_t prompt_tokens;
  uint64_t reused_tokens; /* of these, not read again */
  uint64_t new_tokens;
  uint64_t seed; /* that was used */
  double queue_seconds, prefill_seconds, decode_seconds;
  const char* stop_text; /* the one that ended it, or NULL */
} frt_generation_result;
FRT_ASSERT_LAYOUT(frt_generation_result, 72, stop_text, 64);

/* FRT_ERR_NOT_READY before FRT_EVENT_END was given. */
FRT_EMBED_API frt_status frt_generation_result_of(frt_generation generation,
                                                  frt_generation_result* result, frt_error* error);

/* ---- sessions and capsules of language models ---------------------------------------------- */

/* A text that goes on: tokens in host memory, state in a slot of the device. A model has `slots` of
 * these; a session whose slot was given to another one reads its tokens again when it goes on,
 * which takes time, or goes on from a capsule. */
FRT_EMBED_API frt_status frt_session_open(frt_lm lm, frt_session* session, frt_error* error);
FRT_EMBED_API frt_status frt_session_close(frt_session session);
/* All tokens that it holds: what was read, and what was written behind it. */
FRT_EMBED_API frt_status frt_session_tokens(frt_session session, int32_t* ids, uint64_t capacity,
                                            uint64_t* count, frt_error* error);
/* Tokens whose state a slot holds now; fewer than its tokens, or 0. FRT_ERR_BAD_STATE while it
 * writes. */
FRT_EMBED_API frt_status frt_session_held(frt_session session, uint64_t* tokens, frt_error* error);
/* Another session that holds the same, rows shared where the model can. FRT_ERR_BAD_STATE while
 * `session` writes; FRT_ERR_NOT_READY while answers are written in all other slots;
 * FRT_ERR_OUT_OF_MEMORY. */
FRT_EMBED_API frt_status frt_session_fork(frt_session session, frt_session* other,
                                          frt_error* error);
/* Keeps what the session holds, in `space`: FRT_SPACE_DEVICE or FRT_SPACE_HOST_PINNED. A device
 * with shared memory has one space for both. FRT_ERR_BAD_STATE while it writes, or where no slot
 * holds its state. FRT_ERR_OUT_OF_MEMORY. */
FRT_EMBED_API frt_status frt_session_snapshot(frt_session session, frt_space space,
                                              frt_lm_capsule* capsule, frt_error* error);
/* The session goes on from the capsule, which stays, whatever it held: as often as wanted, each
 * time with the same tokens for the same request and seed. FRT_ERR_MISMATCH for one of another
 * model; FRT_ERR_BAD_STATE while the session writes; FRT_ERR_NOT_READY while answers are written in
 * all slots; FRT_ERR_OUT_OF_MEMORY. */
FRT_EMBED_API frt_status frt_session_restore(frt_session session, frt_lm_capsule capsule,
                                             frt_error* error);

typedef struct frt_capsule_facts {
  uint32_t struct_size;
  frt_space space;
  uint64_t tokens; /* of a language model's; 0 of a policy's */
  uint64_t bytes;  /* of its payload */
  /* Another build of the plugins or device computed it or a part of it, so what follows may differ
   * from what that build gives: the fields that differ, a line each, for people. NULL: this build,
   * and always of a policy's. */
  const char* other_build;
} frt_capsule_facts;
FRT_ASSERT_LAYOUT(frt_capsule_facts, 32, other_build, 24);

FRT_EMBED_API frt_status frt_lm_capsule_facts(frt_lm_capsule capsule, frt_capsule_facts* facts,
                                              frt_error* error);
FRT_EMBED_API frt_status frt_lm_capsule_close(frt_lm_capsule capsule);
/* Writes it to FOLDER/NAME.capsule, as `frt-host run --save-capsule` does; `replace` 1: over what
 * is there. The folder must be this user's own: nobody else may write to it. FRT_ERR_EXISTS,
 * FRT_ERR_INVALID_ARGUMENT for a name against FRT_CAPSULE_NAME_RULE, FRT_ERR_BAD_STATE for a folder
 * that others can write to, FRT_ERR_IO. */
FRT_EMBED_API frt_status frt_lm_capsule_save(frt_lm_capsule capsule, const char* folder,
                                             const char* name, uint32_t replace, frt_error* error);
/* Every byte is verified. A capsule that another build of the plugins stored is loaded, with a
 * warning in the log and in `other_build` of its facts: tokens may differ from those of that build.
 * FRT_ERR_NOT_FOUND, FRT_ERR_FORMAT
 * (damaged), FRT_ERR_MISMATCH (of another model, weights or configuration), FRT_ERR_BAD_STATE
 * (others can write to it), FRT_ERR_IO. */
FRT_EMBED_API frt_status frt_lm_capsule_load(frt_lm lm, const char* folder, const char* name,
                                             frt_lm_capsule* capsule, frt_error* error);

/* ---- language models behind HTTP ----------------------------------------------------------- */

typedef struct frt_server_options {
  uint32_t struct_size;
  uint32_t model_count;
  const char* const* models; /* [model_count] names in the manifest, the default one first; 0: those
                                of [host.http], else the only one */
  const char* listen; /* "127.0.0.1:0", port 0: any that is free; "unix:PATH"; NULL: [host.http] */
  uint64_t drain_ms;  /* time for answers when the server closes, at most a day; 0: [host.http] */
} frt_server_options;
FRT_ASSERT_LAYOUT(frt_server_options, 32, drain_ms, 24);

/* Serves language models of the runtime on threads of its own, as `frt-host serve` does with
 * [host.http] of the manifest: keys, TLS, limits, the log of requests, the built-in page. It takes
 * no signal and reads keys and certificate once. It loads models that are not loaded, and answers
 * 503 until they are. A served model is the server's alone: close its handles before, and close the
 * server before the model is opened. Policies are not served: `frt-host serve` serves them.
 * `options` may be NULL.
 * FRT_ERR_NOT_FOUND for a model that the manifest does not have; FRT_ERR_UNSUPPORTED for one that
 * is no language model; FRT_ERR_BAD_STATE for one whose device has an open model or is open itself,
 * and for a key file that others can read; FRT_ERR_INVALID_ARGUMENT for settings that contradict
 * each other, and an address that other machines reach without a key_file; FRT_ERR_OUT_OF_RANGE for
 * drain_ms; FRT_ERR_IO for an address that is taken, which the text names. */
FRT_EMBED_API frt_status frt_server_open(frt_runtime runtime, const frt_server_options* options,
                                         frt_server* server, frt_error* error);
/* Accepts nothing more and waits until answers are complete, at most `drain_ms`. It ends what is
 * left with an error by which clients send the request again: within 5 s, one step of each model,
 * and the time to write capsules that are on their way to the disk. Then the models may be opened.
 */
FRT_EMBED_API frt_status frt_server_close(frt_server server);

typedef struct frt_server_facts {
  uint32_t struct_size;
  uint32_t port;        /* that it listens on; 0: a UNIX socket */
  uint32_t device_lost; /* 1: requests fail from now on; close the server */
  uint32_t model_count;
  const char* const* models; /* [model_count] as clients name them, the default one first */
  const char* address;       /* "http://127.0.0.1:41234", "https://...", "unix:/run/frt.sock" */
} frt_server_facts;
FRT_ASSERT_LAYOUT(frt_server_facts, 32, address, 24);

FRT_EMBED_API frt_status frt_server_facts_of(frt_server server, frt_server_facts* facts,
                                             frt_error* error);

/* ---- policies ------------------------------------------------------------------------------ */

/* The model `name` (NULL: the manifest's only one) as a policy; asked again it gives one more
 * handle to it. Errors as frt_lm_open. */
FRT_EMBED_API frt_status frt_policy_open(frt_runtime runtime, const char* name, frt_policy* policy,
                                         frt_error* error);
FRT_EMBED_API frt_status frt_policy_close(frt_policy policy);

typedef struct frt_policy_facts {
  uint32_t struct_size;
  uint32_t horizon;       /* actions of a chunk */
  uint32_t action_dim;    /* values of an action, in the robot's units */
  uint32_t network_dim;   /* the same in the network's space */
  uint32_t state_dim;     /* values of the raw state; 0: not read */
  uint32_t views;         /* camera images */
  uint32_t default_steps; /* denoising steps of an inference */
  /* Branches that have a strength: those of frt_policy_info (frt/role/policy.h) less its last,
   * unconditional one; 0: no guidance. */
  uint32_t guidance_branches;
  const char* name;
  const char* inputs;   /* JSON: [{"name", "kind": "image" | "state", "shape", "required"}, ...] */
  const char* metadata; /* JSON: what the checkpoint tells clients */
} frt_policy_facts;
FRT_ASSERT_LAYOUT(frt_policy_facts, 56, metadata, 48);

FRT_EMBED_API frt_status frt_policy_facts_of(frt_policy policy, frt_policy_facts* facts,
                                             frt_error* error);
/* An observation (frt/observation.h): arrays in host memory by the names of `inputs`, read before
 * it returns. Names that the policy does not know are ignored; what is missing, of another type or
 * shape, NaN or infinite is an error that names it, and what was there before stays. An array
 * "noise", f32 (horizon, network_dim), is the noise of the inferences to come. */
FRT_EMBED_API frt_status frt_policy_observe(frt_policy policy, const frt_observation* observation,
                                            frt_error* error);
/* Strengths of the guided branches, 1 to 100: `rows` rows of `branches` values, a row per denoising
 * step and the last one for all beyond. FRT_ERR_UNSUPPORTED without guidance. */
FRT_EMBED_API frt_status frt_policy_guide(frt_policy policy, const double* strengths, uint32_t rows,
                                          uint32_t branches, frt_error* error);

typedef struct frt_infer_options {
  uint32_t struct_size;
  uint32_t steps; /* 0: default_steps */
  uint64_t seed;  /* of the noise, where the observation brought none */
  uint64_t draw;  /* number of the draw: (seed, draw) give the noise */
} frt_infer_options;
FRT_ASSERT_LAYOUT(frt_infer_options, 24, draw, 16);

/* One inference on the observation that is there; waits. `actions`: (horizon, action_dim) f64 in
 * the robot's units; `network` (may be NULL): (horizon, network_dim) f32. Capacities count values;
 * FRT_ERR_OUT_OF_RANGE for too small ones. `options` may be NULL. FRT_ERR_BAD_STATE before the
 * first observation; FRT_ERR_FORMAT if a value is not finite: such a chunk must not reach a robot.
 */
FRT_EMBED_API frt_status frt_policy_infer(frt_policy policy, const frt_infer_options* options,
                                          double* actions, uint64_t capacity, float* network,
                                          uint64_t network_capacity, frt_error* error);
/* Keeps all that one inference leaves for the next, observation included. Whatever follows a
 * restore equals what followed the snapshot, bit for bit. FRT_ERR_BAD_STATE before the first
 * observation. */
FRT_EMBED_API frt_status frt_policy_snapshot(frt_policy policy, frt_policy_capsule* capsule,
                                             frt_error* error);
/* FRT_ERR_MISMATCH for a capsule of another policy. */
FRT_EMBED_API frt_status frt_policy_restore(frt_policy policy, frt_policy_capsule capsule,
                                            frt_error* error);
FRT_EMBED_API frt_status frt_policy_capsule_facts(frt_policy_capsule capsule,
                                                  frt_capsule_facts* facts, frt_error* error);
FRT_EMBED_API frt_status frt_policy_capsule_close(frt_policy_capsule capsule);

FRT_EXTERN_C_END

#endif /* FRT_EMBED_H_ */
