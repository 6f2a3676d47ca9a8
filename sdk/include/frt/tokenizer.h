/* SPDX-License-Identifier: Apache-2.0 */
/* frt/tokenizer.h - text to token ids and back: an extension of a model object. */
#ifndef FRT_TOKENIZER_H_
#define FRT_TOKENIZER_H_

#include <frt/base.h>
#include <frt/model.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_TOKENIZER "frt.tokenizer/1"

#define FRT_ENCODE_PLAIN 1u     /* all of the text is plain, see frt_encode_params */
#define FRT_ENCODE_CONTINUES 2u /* the text continues a sequence: nothing is put in front */
#define FRT_DECODE_SKIP_SPECIAL 1u
#define FRT_TOKEN_CONTROL 1u /* no text becomes it but the format's own ("<|im_end|>") */
/* A border: the tokenizer never merges across this token. Outside plain parts its text always
 * becomes it, and encode(a + text + b) is encode(a), this id, and encode(b) with
 * FRT_ENCODE_CONTINUES. A host then encodes only what follows the last border that two texts have
 * in common. */
#define FRT_TOKEN_BORDER 2u

/* Bytes [begin, end) of a text; frozen. */
typedef struct frt_text_range {
  uint64_t begin;
  uint64_t end;
} frt_text_range;
FRT_ASSERT_LAYOUT(frt_text_range, 16, end, 8);

typedef struct frt_encode_params {
  uint32_t struct_size;
  uint32_t flags; /* FRT_ENCODE_* */
  /* Plain parts of the text, sorted and disjoint: there added tokens ("<|im_end|>") are ordinary
   * characters. What comes from outside must not be able to write control tokens. The borders are
   * no borders of words. NULL where plain_count is 0. */
  const frt_text_range* plain;
  uint64_t plain_count;
  uint64_t max_tokens; /* FRT_ERR_OUT_OF_RANGE for a text that has more; 0: no limit */
} frt_encode_params;
FRT_ASSERT_LAYOUT(frt_encode_params, 32, max_tokens, 24);

/* A decoder that gets ids one by one and gives out complete characters only. */
typedef struct frt_text_stream_s* frt_text_stream;

typedef struct frt_tokenizer_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* The number of ids, added tokens included; the largest id is one less.  [any] */
  uint32_t (*vocabulary)(frt_model model);
  /* Encodes UTF-8 text; `sink` receives int32 ids. In front of a text that begins a sequence go the
   * tokens that the checkpoint's tokenizer puts there ("<|begin_of_text|>"), unless the text begins
   * with them; nothing else is added. `params` may be NULL. Invalid UTF-8: FRT_ERR_FORMAT with the
   * byte offset. Time and memory grow with what `max_tokens` allows, not with the text: give the
   * room there is.  [any] */
  frt_status (*encode)(frt_model model, const char* text, uint64_t bytes,
                       const frt_encode_params* params, frt_sink sink, void* user,
                       frt_error* error);
  /* Decodes ids; `sink` receives UTF-8. Bytes of neighbouring tokens are joined; what is not UTF-8
   * becomes U+FFFD. FRT_ERR_OUT_OF_RANGE: no such id.  [any] */
  frt_status (*decode)(frt_model model, const int32_t* ids, uint64_t count, uint32_t flags,
                       frt_sink sink, void* user, frt_error* error);
  /* The id of exactly this token text ("<|im_end|>"), or -1.  [any] */
  int32_t (*token_id)(frt_model model, const char* token);
  /* A streaming decoder. Its functions are [object].  [any] */
  frt_status (*stream_create)(frt_model model, uint32_t flags, frt_text_stream* stream,
                              frt_error* error);
  /* Takes one id; `sink` receives what is complete now, possibly nothing.  [object] */
  frt_status (*stream_push)(frt_text_stream stream, int32_t id, frt_sink sink, void* user,
                            frt_error* error);
  /* Gives out the rest (an unfinished character as U+FFFD) and starts anew.  [object] */
  frt_status (*stream_flush)(frt_text_stream stream, frt_sink sink, void* user, frt_error* error);
  void (*stream_destroy)(frt_text_stream stream); /* [object] */
  /* Optional: without it no text can be forced on the model. `sink` receives the bytes that a token
   * adds to a text that goes on, which need not be UTF-8; *flags becomes FRT_TOKEN_*. An id that no
   * token has, as the padding of an embedding table, adds nothing. FRT_ERR_OUT_OF_RANGE: the model
   * has no such id.  [any] */
  frt_status (*token_bytes)(frt_model model, int32_t id, uint32_t* flags, frt_sink sink, void* user,
                            frt_error* error);
} frt_tokenizer_v1;
FRT_ASSERT_LAYOUT(frt_tokenizer_v1, 80, token_bytes, 72);

FRT_EXTERN_C_END

#endif /* FRT_TOKENIZER_H_ */
