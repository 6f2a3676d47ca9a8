/* SPDX-License-Identifier: Apache-2.0 */
/* frt/log.h - messages from a plugin to the host's log. The host adds the plugin's id and decides
 * what is shown. Forbidden in [hot] functions and inside capture. */
#ifndef FRT_LOG_H_
#define FRT_LOG_H_

#include <frt/base.h>

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

FRT_EXTERN_C_END

#endif /* FRT_LOG_H_ */
