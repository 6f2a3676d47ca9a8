/* SPDX-License-Identifier: Apache-2.0 */
/* frt/log.h - messages from a plugin to the host's log. The host adds the plugin's id and decides
 * what is shown. Forbidden in [hot] functions and inside capture.
 *
 * An error that does not fit into an frt_error goes here whole: frt_log_error. */
#ifndef FRT_LOG_H_
#define FRT_LOG_H_

#include <frt/base.h>

#include <stdio.h>
#include <string.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_LOG "frt.log/1"

typedef uint32_t frt_log_level;
#define FRT_LOG_DEBUG 0u
#define FRT_LOG_INFO 1u
#define FRT_LOG_WARNING 2u
#define FRT_LOG_ERROR 3u
#define FRT_LOG_HOST_MISBEHAVING 4u   /* the host broke a rule of the ABI */
#define FRT_LOG_PLUGIN_MISBEHAVING 5u /* the plugin caught itself breaking one */

typedef struct frt_log_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  void* self;
  /* Writes one message without a final newline.  [any] */
  void (*write)(void* self, const char* source, frt_log_level level, const char* text);
} frt_log_v1;
FRT_ASSERT_LAYOUT(frt_log_v1, 24, write, 16);

/* Fills `error` (may be NULL) with `status` and `text`, and returns `status`: how a plugin in C
 * reports. A text of FRT_ERROR_CAPACITY bytes or more is cut at a UTF-8 character and ends with
 * "... (N bytes; the log has all of it)"; `log` then gets all of it as one FRT_LOG_ERROR. `log` is
 * the host's frt.log/1; NULL: there is none, and the end tells the length alone. Plugins made with
 * FRT_PLUGIN (frt/plugin.hpp) throw instead; the same is done for them.  [setup] */
static inline frt_status frt_log_error(const frt_log_v1* log, frt_error* error, frt_status status,
                                       const char* text) {
  const size_t bytes = strlen(text);
  size_t kept = bytes;
  char end[64] = "";
  if (!error) return status;
  if (bytes >= FRT_ERROR_CAPACITY) {
    snprintf(end, sizeof(end), "... (%zu bytes%s", bytes, log ? "; the log has all of it)" : ")");
    kept = FRT_ERROR_CAPACITY - 1 - strlen(end);
    while (kept > 0 && ((unsigned char)text[kept] & 0xC0u) == 0x80u) --kept;
    if (log) log->write(log->self, "", FRT_LOG_ERROR, text);
  }
  memcpy(error->message, text, kept);
  memcpy(error->message + kept, end, strlen(end) + 1);
  error->code = status;
  return status;
}

FRT_EXTERN_C_END

#endif /* FRT_LOG_H_ */
