/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/config.h - options: what a plugin accepts (its schema) and what the user chose (a config).
 *
 * A plugin exports a schema under FRT_EXT_CONFIG_SCHEMA. The host checks the user's tables
 * against it before `open` or `create` is called, fills in the defaults, and hands over a config
 * that holds exactly the schema's keys, each of its declared type. So a plugin never parses, and
 * a user's typo is an error with a position and a suggestion.
 */
#ifndef FRT_CONFIG_H_
#define FRT_CONFIG_H_

#include <frt/base.h>

FRT_EXTERN_C_BEGIN

/* ---- values ---------------------------------------------------------------------------- */

typedef uint32_t frt_config_type;

#define FRT_CONFIG_BOOL 0u   /* integer: 0 or 1 */
#define FRT_CONFIG_INT 1u    /* integer */
#define FRT_CONFIG_SIZE 2u   /* integer >= 0; the user may write "32k" (1024s), "1.5M", "2G" */
#define FRT_CONFIG_FLOAT 3u  /* number */
#define FRT_CONFIG_STRING 4u /* text */
#define FRT_CONFIG_ENUM 5u   /* text: one of `choices` */
#define FRT_CONFIG_PATH 6u   /* text: absolute when handed over (relative to the manifest) */

/* One value; frozen. Only the member of its type is meaningful. */
typedef struct frt_config_value {
  const char* key;
  frt_config_type type;
  uint32_t is_default; /* 1: the schema's default, the user said nothing */
  int64_t integer;     /* BOOL, INT, SIZE */
  double number;       /* FLOAT */
  const char* text;    /* STRING, ENUM, PATH; never NULL for them */
} frt_config_value;
FRT_ASSERT_LAYOUT(frt_config_value, 40, text, 32);

/* What the user chose, completed with defaults, in schema order. Borrowed for the call. */
typedef struct frt_config {
  uint32_t struct_size;
  uint32_t count;
  const frt_config_value* values; /* [count] */
} frt_config;
FRT_ASSERT_LAYOUT(frt_config, 16, values, 8);

/* ---- schema ---------------------------------------------------------------------------- */

#define FRT_EXT_CONFIG_SCHEMA "frt.config-schema/1"

/* Flags of an option. */
/* Of a backend alone: the value decides the bits that are computed, so that a capsule says it among
 * the builds (frt/capsule.h). BOOL, INT, SIZE, FLOAT or ENUM; at most 8 in a list. */
#define FRT_OPTION_NUMERICS 1u

/* One accepted key; frozen. */
typedef struct frt_config_option {
  const char* key; /* lower case, words joined by '_' */
  frt_config_type type;
  uint32_t flags;           /* FRT_OPTION_* */
  const char* default_text; /* as the user would write it, without quotes; NULL: required */
  const char* choices;      /* ENUM: "a|b|c"; NULL otherwise */
  double minimum, maximum;  /* INT, SIZE, FLOAT: inclusive; both 0: no limit */
  const char* doc;          /* one line, with the unit */
} frt_config_option;
FRT_ASSERT_LAYOUT(frt_config_option, 56, doc, 48);

/* The extension table. Both lists live as long as the plugin. */
typedef struct frt_config_schema_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* For `open`: manifest table [plugin-options.<id>]; NULL: none. */
  const frt_config_option* plugin_options;
  uint64_t plugin_option_count;
  const frt_config_option* options; /* backend: per device; model: per model; NULL: none */
  uint64_t option_count;
} frt_config_schema_v1;
FRT_ASSERT_LAYOUT(frt_config_schema_v1, 40, option_count, 32);

FRT_EXTERN_C_END

#endif /* FRT_CONFIG_H_ */
