/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/plugin.h - how a plugin presents itself: its card, its descriptor, and what the host gives.
 *
 * A plugin is one shared object. It exports ONE symbol, the data symbol FRT_PLUGIN_SYMBOL, and
 * imports none from the host: everything it may use arrives as function tables.
 *
 * The card is a TOML text in the ELF section `.frt.card`. The host reads it WITHOUT loading the
 * file and refuses from it alone: a wrong plugin never runs a single instruction. Keys:
 *
 *     id       = "acme.fast"         # required; equal to the descriptor's id
 *     kind     = "backend"           # required; "backend" | "model" | "environment"
 *     abi      = "0.9"               # required; the FRT_ABI_MAJOR.MINOR it was built with
 *     version  = "0.3.1"             # required
 *     targets  = ["sm_90"]           # device architectures with machine code, as devices name them
 *     portable = ["sm_90"]           # portable code (PTX, SPIR-V) for these and newer devices
 *     requires = ["driver>=580"]     # free text, shown when loading fails
 *     model_types = ["llama"]        # model: "model_type" of config.json in checkpoints it takes
 *     summary  = "one line"
 *
 * `targets` are compared as they are: list every architecture that the code runs on. `portable`
 * names the least device whose driver translates the code: "sm_90" is every architecture of the
 * same letters with no smaller number, "*" every device that the plugin sees. With neither key a
 * plugin runs on any device. `backend = "auto"` passes over a backend that does not fit; a plugin
 * that a manifest names is used, with a warning if its card does not fit the device. Ranking among
 * plugins that fit: machine code for the device, then portable code (the newest first), then
 * plugins for any device. By `model_types` a host finds the plugin of a checkpoint folder that
 * comes without a manifest.
 *
 * Errors longer than FRT_ERROR_CAPACITY: the record holds the beginning, the host's log all of it.
 * A plugin made with FRT_PLUGIN throws and need do nothing. One in C asks the host for FRT_EXT_LOG
 * at `open` and fills every record with frt_log_error (frt/log.h).
 *
 * Life: the host loads a plugin once a process, calls `open`, asks for extensions, and calls
 * `close` at the end. A process may hold several hosts at a time, each with an object from an
 * `open` of its own. Any thread may load, open and close, one at a time; other threads may exist.
 * Files are never unloaded.
 */
#ifndef FRT_PLUGIN_H_
#define FRT_PLUGIN_H_

#include <frt/base.h>
#include <frt/config.h>

FRT_EXTERN_C_BEGIN

/* ---- the host's side ------------------------------------------------------------------- */

/* What the plugin gets at `open`. Valid until `close` returns. */
typedef struct frt_host {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor; /* of the host */
  void* self;                    /* pass back unchanged */
  /* The host's function table called `id` ("frt.exec/1", "frt.log/1", ...), or NULL.  [any] */
  const void* (*extension)(void* self, const char* id);
} frt_host;
FRT_ASSERT_LAYOUT(frt_host, 24, extension, 16);

/* ---- the plugin's side ----------------------------------------------------------------- */

/* One opened plugin; the plugin's own object. */
typedef struct frt_plugin_s* frt_plugin;

#define FRT_PLUGIN_BACKEND 1u
#define FRT_PLUGIN_MODEL 2u
#define FRT_PLUGIN_ENVIRONMENT 3u
/* Sanitizers a plugin was built with; a host of another kind refuses it by name. */
#define FRT_SANITIZER_NONE 0u
#define FRT_SANITIZER_ADDRESS 1u
#define FRT_SANITIZER_THREAD 2u

/* The exported descriptor. All strings live as long as the file is loaded. */
typedef struct frt_plugin_desc {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor;
  uint32_t kind;
  uint32_t sanitizer;
  const char* id;      /* equal to the card's */
  const char* version; /* equal to the card's */
  const char* build;   /* compiler, flags, revision: for people */

  /* Makes the plugin's object. `config` holds the plugin options of its schema. Must not touch a
   * device beyond discovery. On failure nothing is left behind.  [setup] */
  frt_status (*open)(const frt_host* host, const frt_config* config, frt_plugin* plugin,
                     frt_error* error);

  /* Destroys the object. Everything made from it is gone before.  [setup] */
  void (*close)(frt_plugin plugin);

  /* The table called `id`, revision included, or NULL. Same answer every time; the table lives
   * until `close`. `plugin` is NULL for tables that are needed before `open`
   * (FRT_EXT_CONFIG_SCHEMA).  [any] */
  const void* (*extension)(frt_plugin plugin, const char* id);
} frt_plugin_desc;
FRT_ASSERT_LAYOUT(frt_plugin_desc, 64, extension, 56);

/* The name of the exported symbol. */
#define FRT_PLUGIN_SYMBOL "frt_plugin_v1"

/* The ELF section that holds the card. */
#define FRT_CARD_SECTION ".frt.card"

#if defined(__GNUC__)
#define FRT_EXPORT __attribute__((visibility("default"), used))
#define FRT_CARD_ATTRIBUTES __attribute__((used, retain, section(FRT_CARD_SECTION)))
#else
#define FRT_EXPORT
#define FRT_CARD_ATTRIBUTES
#endif

/* Emits the card. Once per plugin, at file scope. */
#define FRT_PLUGIN_CARD(text) FRT_CARD_ATTRIBUTES static const char frt_plugin_card_v1[] = text

#if defined(__SANITIZE_ADDRESS__)
#define FRT_BUILD_SANITIZER FRT_SANITIZER_ADDRESS
#elif defined(__SANITIZE_THREAD__)
#define FRT_BUILD_SANITIZER FRT_SANITIZER_THREAD
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FRT_BUILD_SANITIZER FRT_SANITIZER_ADDRESS
#elif __has_feature(thread_sanitizer)
#define FRT_BUILD_SANITIZER FRT_SANITIZER_THREAD
#else
#define FRT_BUILD_SANITIZER FRT_SANITIZER_NONE
#endif
#else
#define FRT_BUILD_SANITIZER FRT_SANITIZER_NONE
#endif

FRT_EXTERN_C_END

#endif /* FRT_PLUGIN_H_ */
