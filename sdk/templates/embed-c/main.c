/* SPDX-License-Identifier: Apache-2.0 */
/* embed-c MANIFEST [PROMPT] - streams an answer, keeps the state behind it, and goes on from there
 * twice: in the session that was restored from the capsule, and in a fork. Both write the same. */
#include <frt/embed.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static frt_error error;

/* Ends the program with the library's text. */
static void must(frt_status status, const char* what) {
  if (status == FRT_OK) return;
  fprintf(stderr, "%s: %s: %s\n", what, frt_embed_status_name(status), error.message);
  exit(1);
}

/* Streams the answer to stdout; `text` (may be NULL) gets a copy. */
static void generate(frt_lm lm, frt_session session, const frt_generate_request* request,
                     char* text, size_t room) {
  frt_generation generation = NULL;
  must(frt_lm_generate(lm, session, request, &generation, &error), "generate");
  size_t used = 0;
  frt_generation_event event = {.struct_size = sizeof(event)};
  for (;;) {
    must(frt_generation_next(generation, FRT_NO_TIMEOUT, &event, &error), "next");
    if (event.kind == FRT_EVENT_END) break;
    fwrite(event.text, 1, event.bytes, stdout);
    fflush(stdout);
    if (text && used + event.bytes < room) {
      memcpy(text + used, event.text, event.bytes + 1);
      used += event.bytes;
    }
  }
  frt_generation_result result = {.struct_size = sizeof(result)};
  must(frt_generation_result_of(generation, &result, &error), "result");
  printf("\n  [%llu tokens read, %llu of them reused, %llu written]\n",
         (unsigned long long)result.prompt_tokens, (unsigned long long)result.reused_tokens,
         (unsigned long long)result.new_tokens);
  frt_generation_close(generation);
}

int main(int argc, char** argv) {
  if (argc < 2) {
    fprintf(stderr, "usage: %s MANIFEST [PROMPT]\n", argv[0]);
    return 2;
  }
  frt_runtime_options options = {.struct_size = sizeof(options), .manifest = argv[1]};
  frt_runtime runtime = NULL;
  must(frt_runtime_open(&options, &runtime, &error), "runtime");
  frt_lm lm = NULL; /* NULL: the only model of the manifest */
  must(frt_lm_open(runtime, NULL, NULL, &lm, &error), "language model");
  frt_session session = NULL;
  must(frt_session_open(lm, &session, &error), "session");

  frt_generate_request request = {.struct_size = sizeof(request)};
  request.flags = FRT_GENERATE_GREEDY;
  request.prompt = argc > 2 ? argv[2] : "Once upon a time, there was a little";
  request.max_tokens = 16;
  generate(lm, session, &request, NULL, 0);

  frt_lm_capsule capsule = NULL;
  must(frt_session_snapshot(session, FRT_SPACE_DEVICE, &capsule, &error), "snapshot");
  frt_session fork = NULL;
  must(frt_session_fork(session, &fork, &error), "fork");

  request.flags |= FRT_GENERATE_CONTINUE; /* behind what the session holds */
  request.prompt = NULL;
  char first[4096] = "", second[4096] = "";
  generate(lm, fork, &request, first, sizeof(first));
  must(frt_session_restore(session, capsule, &error), "restore");
  generate(lm, session, &request, second, sizeof(second));
  const int same = strcmp(first, second) == 0;
  printf("%s\n", same ? "the same continuation twice" : "the continuations differ");

  frt_lm_capsule_close(capsule);
  frt_session_close(fork);
  frt_session_close(session);
  frt_lm_close(lm);
  frt_runtime_close(runtime);
  return same ? 0 : 1;
}
