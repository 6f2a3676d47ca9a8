/* SPDX-License-Identifier: Apache-2.0 */
/* frt/tokenizer.h - text to token ids and back: an extension of a model object. */
#ifndef FRT_TOKENIZER_H_
#define FRT_TOKENIZER_H_

#include <frt/base.h>
#include <frt/model.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_TOKENIZER "frt.tokenizer/1"

#define FRT_ENCODE_PLAIN 1u /* added tokens in the text are ordinary characters, never ids */
#define FRT_DECODE_SKIP_SPECIAL 1u

/* A decoder that gets ids one by one and gives out complete characters only. */
typedef struct frt_text_stream_s* frt_text_stream;

typedef struct frt_tokenizer_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* The number of ids, added tokens included; ids are 0 .. count.  [any] */
  uint32_t (*vocabulary)(frt_model model);
  /* Encodes UTF-8 text; `sink` receives int32 ids. Nothing is added around them. Invalid UTF-8:
   * FRT_ERR_FORMAT with the byte offset.  [any] */
  frt_status (*encode)(frt_model model, const char* text, uint64_t bytes, uint32_t flags,
                       frt_sink sink, void* user, frt_error* error);
  /* Decodes ids; `sink` receives UTF-8. Bytes of neighbouring tokens are joined; what is not UTF-8
   * becomes U+FFFD. FRT_ERR_OUT_OF_RANGE: no such id.  [any] */
  frt_status (*decode)(frt_model model, const int32_t* ids, uint64_t count, uint32_t flags,
                       frt_sink sink, void* user, frt_error* error);
  /* The id of exactly this token text ("<|im_end|>"), or -1.  [any] */
  int32_t (*token_id)(frt_model model, const char* token);
  /* A streaming decoder; one thread at a time.  [any] */
  frt_status (*stream_create)(frt_model model, uint32_t flags, frt_text_stream* stream,
                              frt_error* error);
  /* Takes one id; `sink` receives what is complete now, possibly nothing.  [any] */
  frt_status (*stream_push)(frt_text_stream stream, int32_t id, frt_sink sink, void* user,
                            frt_error* error);
  /* Gives out the rest (an unfinished character as U+FFFD) and starts anew.  [any] */
  frt_status (*stream_flush)(frt_text_stream stream, frt_sink sink, void* user, frt_error* error);
  void (*stream_destroy)(frt_text_stream stream); /* [any] */
} frt_tokenizer_v1;
FRT_ASSERT_LAYOUT(frt_tokenizer_v1, 72, stream_destroy, 64);

FRT_EXTERN_C_END

#endif /* FRT_TOKENIZER_H_ */
