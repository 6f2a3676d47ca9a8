/* SPDX-License-Identifier: Apache-2.0 */
/* A model plugin in C whose `open` always fails, with a text of the length that FRT_TEST_DEFECT
 * names: "short"; "long", which no frt_error holds; or "unheard", as long, of a plugin that has no
 * log. */
#include <frt/log.h>
#include <frt/plugin.h>
#include <stdlib.h>
#include <string.h>

/* The card is compared with the descriptor. */
FRT_PLUGIN_CARD(
    "id = \"test.talkative\"\nkind = \"model\"\nabi = \"0.9\"\nversion = \"1\"\n"
    "summary = \"a plugin in C\"\n");

#define CHARACTERS 1000

static frt_status open_plugin(const frt_host* host, const frt_config* config, frt_plugin* plugin,
                              frt_error* error) {
  const frt_log_v1* log = host->extension(host->self, FRT_EXT_LOG);
  const char* defect = getenv("FRT_TEST_DEFECT");
  char text[3 * CHARACTERS + 1];
  int i;
  (void)config;
  (void)plugin;
  if (!defect || strcmp(defect, "short") == 0) {
    return frt_log_error(log, error, FRT_ERR_DEVICE, "no such luck");
  }
  for (i = 0; i < CHARACTERS; ++i) memcpy(text + 3 * i, "\xe4\xb8\xad", 4);
  return frt_log_error(strcmp(defect, "unheard") == 0 ? NULL : log, error, FRT_ERR_DEVICE, text);
}

static void close_plugin(frt_plugin plugin) {
  (void)plugin;
}

static const void* extension(frt_plugin plugin, const char* id) {
  (void)plugin;
  (void)id;
  return NULL;
}

FRT_EXPORT const frt_plugin_desc frt_plugin_v1 = {sizeof(frt_plugin_desc),
                                                  FRT_ABI_MAJOR,
                                                  FRT_ABI_MINOR,
                                                  FRT_PLUGIN_MODEL,
                                                  FRT_BUILD_SANITIZER,
                                                  "test.talkative",
                                                  "1",
                                                  "test",
                                                  open_plugin,
                                                  close_plugin,
                                                  extension};
