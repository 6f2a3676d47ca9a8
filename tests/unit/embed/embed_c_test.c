/* SPDX-License-Identifier: Apache-2.0 */
/* A program in C11 that embeds the runtime: what a caller does, and what a careless one does. */
#include <frt/embed.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures = 0;

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      ++failures;                                                     \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
    }                                                                 \
  } while (0)
#define CHECK_OK(call)                                                  \
  do {                                                                  \
    memset(&error, 0, sizeof(error));                                   \
    const frt_status status_ = (call);                                  \
    if (status_ != FRT_OK) {                                            \
      ++failures;                                                       \
      fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #call, \
              frt_embed_status_name(status_), error.message);           \
    }                                                                   \
  } while (0)

static frt_error error;
static const char* const kFolders[] = {FRT_PLUGIN_DIR};

static frt_runtime open_demo(void) {
  frt_runtime runtime = NULL;
  frt_runtime_options options = {.struct_size = sizeof(options)};
  options.manifest = FRT_SOURCE_DIR "/hosts/manifests/demo.toml";
  options.plugin_folders = kFolders;
  options.plugin_folder_count = 1;
  CHECK_OK(frt_runtime_open(&options, &runtime, &error));
  return runtime;
}

/* The text of an answer, which the caller frees. */
static char* text_of(frt_generation generation) {
  char* text = calloc(1, 1);
  size_t bytes = 0;
  frt_generation_event event = {.struct_size = sizeof(event)};
  for (;;) {
    if (frt_generation_next(generation, FRT_NO_TIMEOUT, &event, &error) != FRT_OK) {
      ++failures;
      fprintf(stderr, "an answer failed: %s\n", error.message);
      return text;
    }
    if (event.kind == FRT_EVENT_END) return text;
    text = realloc(text, bytes + event.bytes + 1);
    memcpy(text + bytes, event.text, event.bytes + 1);
    bytes += event.bytes;
  }
}

static char* continuation(frt_lm lm, frt_session session, const char* prompt, uint32_t flags) {
  frt_generation generation = NULL;
  frt_generate_request request = {.struct_size = sizeof(request)};
  request.flags = FRT_GENERATE_GREEDY | flags;
  request.prompt = prompt;
  request.max_tokens = 12;
  CHECK_OK(frt_lm_generate(lm, session, &request, &generation, &error));
  char* text = text_of(generation);
  CHECK_OK(frt_generation_close(generation));
  return text;
}

static void answers_and_capsules(frt_lm lm) {
  frt_session session = NULL;
  CHECK_OK(frt_session_open(lm, &session, &error));
  char* begun = continuation(lm, session, "Once upon a time, there was a little", 0);
  char* alone = continuation(lm, NULL, "Once upon a time, there was a little", 0);
  CHECK(strlen(begun) > 0 && strcmp(begun, alone) == 0);

  uint64_t tokens = 0, held = 0;
  CHECK_OK(frt_session_tokens(session, NULL, 0, &tokens, &error));
  CHECK_OK(frt_session_held(session, &held, &error));
  CHECK(tokens > 12 && held > 0 && held <= tokens);

  frt_lm_capsule capsule = NULL;
  CHECK_OK(frt_session_snapshot(session, FRT_SPACE_DEVICE, &capsule, &error));
  frt_capsule_facts facts = {.struct_size = sizeof(facts)};
  CHECK_OK(frt_lm_capsule_facts(capsule, &facts, &error));
  CHECK(facts.tokens == tokens);
  CHECK(facts.bytes > 0);
  CHECK(facts.space == FRT_SPACE_DEVICE || facts.space == FRT_SPACE_SHARED);

  frt_session fork = NULL;
  CHECK_OK(frt_session_fork(session, &fork, &error));
  char* first = continuation(lm, session, NULL, FRT_GENERATE_CONTINUE);
  char* forked = continuation(lm, fork, NULL, FRT_GENERATE_CONTINUE);
  CHECK(strlen(first) > 0 && strcmp(first, forked) == 0);
  /* Another text in between, then back. */
  char* other = continuation(lm, session, " The dog", FRT_GENERATE_CONTINUE);
  CHECK_OK(frt_session_restore(session, capsule, &error));
  uint64_t restored = 0;
  CHECK_OK(frt_session_tokens(session, NULL, 0, &restored, &error));
  CHECK(restored == tokens);
  char* again = continuation(lm, session, NULL, FRT_GENERATE_CONTINUE);
  CHECK(strcmp(first, again) == 0);
  char* texts[] = {begun, alone, first, forked, other, again};
  for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); ++i) free(texts[i]);

  CHECK_OK(frt_session_close(session));
  CHECK_OK(frt_session_close(fork));
  CHECK_OK(frt_lm_capsule_close(capsule));
}

static void texts(frt_lm lm) {
  int32_t ids[64];
  char text[64];
  uint64_t count = 0, bytes = 0;
  const char* said = "a little girl";
  CHECK_OK(frt_lm_encode(lm, said, strlen(said), 0, NULL, 0, &count, &error));
  CHECK(count > 0 && count < 64);
  CHECK_OK(frt_lm_encode(lm, said, strlen(said), 0, ids, 64, &count, &error));
  CHECK_OK(frt_lm_decode(lm, ids, count, 0, text, sizeof(text), &bytes, &error));
  CHECK(strcmp(text, said) == 0 && bytes == strlen(said));
  text[4] = 'x';
  CHECK_OK(frt_lm_decode(lm, ids, count, 0, text, 4, &bytes, &error));
  CHECK(bytes == strlen(said) && text[4] == 'x');
  CHECK_OK(frt_lm_render(lm, "[{\"role\":\"user\",\"content\":\"hi\"}]", NULL, NULL, NULL, 0,
                         &bytes, &error));
  CHECK(bytes > 2);
  ids[0] = -5;
  CHECK(frt_lm_decode(lm, ids, 1, 0, text, 64, &bytes, &error) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(frt_lm_decode(lm, NULL, 3, 0, text, 64, &bytes, &error) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(frt_lm_encode(lm, said, UINT64_MAX, 0, ids, 64, &count, &error) == FRT_ERR_OUT_OF_RANGE);
  CHECK(frt_lm_encode(lm, said, 3, 0, ids, 64, NULL, &error) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(frt_lm_render(lm, "[", NULL, NULL, text, 64, &bytes, &error) == FRT_ERR_FORMAT);
  CHECK(frt_lm_render(lm, NULL, NULL, NULL, text, 64, &bytes, &error) == FRT_ERR_INVALID_ARGUMENT);
}

static void careless_requests(frt_lm lm) {
  frt_generation generation = NULL;
  frt_generate_request request = {.struct_size = sizeof(request)};
  CHECK(frt_lm_generate(lm, NULL, NULL, &generation, &error) == FRT_ERR_ABI);
  CHECK(frt_lm_generate(lm, NULL, &request, NULL, &error) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(frt_lm_generate(lm, NULL, &request, &generation, &error) == FRT_ERR_INVALID_ARGUMENT);
  request.prompt = "x";
  request.messages = "[]";
  CHECK(frt_lm_generate(lm, NULL, &request, &generation, &error) == FRT_ERR_INVALID_ARGUMENT);
  request.messages = NULL;
  request.flags = FRT_GENERATE_CONTINUE;
  CHECK(frt_lm_generate(lm, NULL, &request, &generation, &error) == FRT_ERR_INVALID_ARGUMENT);
  request.flags = 1u << 31;
  CHECK(frt_lm_generate(lm, NULL, &request, &generation, &error) == FRT_ERR_UNSUPPORTED);
  request.flags = 0;
  request.struct_size = 3;
  CHECK(frt_lm_generate(lm, NULL, &request, &generation, &error) == FRT_ERR_ABI);
  request.struct_size = sizeof(request);
  request.stop_count = 2;
  CHECK(frt_lm_generate(lm, NULL, &request, &generation, &error) == FRT_ERR_INVALID_ARGUMENT);
  const char* const stops[] = {"a", NULL};
  request.stops = stops;
  CHECK(frt_lm_generate(lm, NULL, &request, &generation, &error) == FRT_ERR_INVALID_ARGUMENT);
  request.stop_count = UINT32_MAX;
  CHECK(frt_lm_generate(lm, NULL, &request, &generation, &error) == FRT_ERR_OUT_OF_RANGE);
  request.stop_count = 0;
  request.sampling.given = 1u << 31;
  CHECK(frt_lm_generate(lm, NULL, &request, &generation, &error) == FRT_ERR_UNSUPPORTED);
  request.sampling.given = FRT_GIVEN_TOP_P;
  request.sampling.top_p = -3;
  CHECK(frt_lm_generate(lm, NULL, &request, &generation, &error) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "top_p") || strstr(error.message, "top-p"));
  request.sampling.given = 0;
  request.prompt = NULL;
  request.prompt_id_count = UINT64_MAX;
  CHECK(frt_lm_generate(lm, NULL, &request, &generation, &error) == FRT_ERR_OUT_OF_RANGE);
  const int32_t beyond = INT32_MAX;
  request.prompt_ids = &beyond;
  request.prompt_id_count = 1;
  CHECK(frt_lm_generate(lm, NULL, &request, &generation, &error) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(generation == NULL);
}

static void an_answer_that_is_not_over(frt_lm lm) {
  frt_session session = NULL;
  CHECK_OK(frt_session_open(lm, &session, &error));
  frt_lm_capsule capsule = NULL;
  CHECK(frt_session_snapshot(session, FRT_SPACE_DEVICE, &capsule, &error) == FRT_ERR_BAD_STATE);
  CHECK(frt_session_snapshot(session, 77, &capsule, &error) == FRT_ERR_INVALID_ARGUMENT);

  frt_generation generation = NULL, second = NULL;
  frt_generate_request request = {.struct_size = sizeof(request)};
  request.flags = FRT_GENERATE_GREEDY | FRT_GENERATE_IGNORE_STOPS;
  request.prompt = "Once upon a time";
  request.max_tokens = UINT64_MAX;
  CHECK_OK(frt_lm_generate(lm, session, &request, &generation, &error));
  CHECK(frt_lm_generate(lm, session, &request, &second, &error) == FRT_ERR_BAD_STATE);
  frt_generation_result result = {.struct_size = sizeof(result)};
  CHECK(frt_generation_result_of(generation, &result, &error) == FRT_ERR_NOT_READY);
  CHECK_OK(frt_generation_cancel(generation));
  free(text_of(generation));
  CHECK_OK(frt_generation_result_of(generation, &result, &error));
  CHECK(result.finish == FRT_FINISH_CANCELLED || result.finish == FRT_FINISH_CONTEXT);
  CHECK(result.prompt_tokens > 0);
  /* The end is given as often as it is asked for. */
  frt_generation_event event = {.struct_size = sizeof(event)};
  CHECK_OK(frt_generation_next(generation, 0, &event, &error));
  CHECK(event.kind == FRT_EVENT_END);
  CHECK_OK(frt_generation_close(generation));
  CHECK(frt_generation_next(generation, 0, &event, &error) == FRT_ERR_INVALID_ARGUMENT);
  CHECK_OK(frt_session_close(session));
}

static void careless_handles(frt_runtime runtime, frt_lm lm) {
  frt_lm_facts facts = {.struct_size = sizeof(facts)};
  CHECK(frt_lm_facts_of(NULL, &facts, &error) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(strstr(error.message, "NULL") != NULL);
  CHECK(frt_lm_facts_of((frt_lm)runtime, &facts, &error) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(frt_lm_facts_of((frt_lm)(void*)&facts, &facts, &error) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(frt_lm_facts_of(lm, NULL, &error) == FRT_ERR_INVALID_ARGUMENT);
  facts.struct_size = 0;
  CHECK(frt_lm_facts_of(lm, &facts, &error) == FRT_ERR_ABI);
  CHECK(frt_lm_facts_of(lm, &facts, NULL) == FRT_ERR_ABI);
  CHECK(frt_lm_close((frt_lm)runtime) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(frt_session_close(NULL) == FRT_ERR_INVALID_ARGUMENT);
  /* A caller of an earlier version knows less, one of a later version more. */
  struct {
    frt_lm_facts facts;
    uint64_t later;
  } wide = {.facts = {.struct_size = sizeof(wide)}, .later = 7};
  CHECK_OK(frt_lm_facts_of(lm, &wide.facts, &error));
  CHECK(wide.facts.struct_size == sizeof(frt_lm_facts) && wide.later == 7);
  frt_lm_facts narrow = {.struct_size = 12, .slots = 77};
  CHECK_OK(frt_lm_facts_of(lm, &narrow, &error));
  CHECK(narrow.vocabulary > 0 && narrow.context > 0 && narrow.slots == 77);
}

/* While `lm` is open. */
static void careless_servers(frt_runtime runtime, frt_lm lm) {
  frt_server server = NULL;
  frt_server_options options = {.struct_size = sizeof(options)};
  options.listen = "127.0.0.1:0";
  CHECK(frt_server_open(NULL, &options, &server, &error) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(frt_server_open((frt_runtime)lm, &options, &server, &error) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(frt_server_open(runtime, &options, NULL, &error) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(frt_server_open(runtime, &options, &server, &error) == FRT_ERR_BAD_STATE);
  CHECK(strstr(error.message, "'demo'") != NULL);
  options.struct_size = 3;
  CHECK(frt_server_open(runtime, &options, &server, &error) == FRT_ERR_ABI);
  options.struct_size = sizeof(options);
  options.model_count = 1;
  CHECK(frt_server_open(runtime, &options, &server, &error) == FRT_ERR_INVALID_ARGUMENT);
  options.model_count = UINT32_MAX;
  CHECK(frt_server_open(runtime, &options, &server, &error) == FRT_ERR_OUT_OF_RANGE);
  const char* const names[] = {"demo", "none"};
  options.models = names;
  options.model_count = 2;
  CHECK(frt_server_open(runtime, &options, &server, &error) == FRT_ERR_NOT_FOUND);
  const char* const twice[] = {"demo", "demo"};
  options.models = twice;
  CHECK(frt_server_open(runtime, &options, &server, &error) == FRT_ERR_INVALID_ARGUMENT);
  options.model_count = 0;
  options.drain_ms = UINT64_MAX;
  CHECK(frt_server_open(runtime, &options, &server, &error) == FRT_ERR_OUT_OF_RANGE);
  options.drain_ms = 0;
  options.listen = "0.0.0.0:0";
  CHECK(frt_server_open(runtime, &options, &server, &error) == FRT_ERR_INVALID_ARGUMENT);
  options.listen = "nowhere";
  CHECK(frt_server_open(runtime, &options, &server, &error) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(server == NULL);
  CHECK(frt_server_close(NULL) == FRT_ERR_INVALID_ARGUMENT);
  frt_server_facts facts = {.struct_size = sizeof(facts)};
  CHECK(frt_server_facts_of(NULL, &facts, &error) == FRT_ERR_INVALID_ARGUMENT);
}

static void a_server(void) {
  frt_runtime runtime = open_demo();
  frt_server server = NULL;
  frt_server_options options = {.struct_size = sizeof(options)};
  options.listen = "127.0.0.1:0";
  CHECK_OK(frt_server_open(runtime, &options, &server, &error));
  CHECK_OK(frt_runtime_close(runtime)); /* the server keeps it */
  frt_server_facts facts = {.struct_size = sizeof(facts)};
  CHECK_OK(frt_server_facts_of(server, &facts, &error));
  char address[64];
  snprintf(address, sizeof(address), "http://127.0.0.1:%u", facts.port);
  CHECK(facts.port > 0 && strcmp(facts.address, address) == 0);
  CHECK(facts.model_count == 1 && strcmp(facts.models[0], "demo") == 0);
  CHECK(facts.device_lost == 0);
  facts.struct_size = 0;
  CHECK(frt_server_facts_of(server, &facts, &error) == FRT_ERR_ABI);
  facts.struct_size = sizeof(facts);
  CHECK_OK(frt_server_close(server));
  CHECK(frt_server_close(server) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(frt_server_facts_of(server, &facts, &error) == FRT_ERR_INVALID_ARGUMENT);
}

static void careless_runtimes(void) {
  frt_runtime runtime = NULL;
  frt_runtime_options options = {.struct_size = sizeof(options)};
  CHECK(frt_runtime_open(NULL, &runtime, &error) == FRT_ERR_ABI);
  CHECK(frt_runtime_open(&options, NULL, &error) == FRT_ERR_INVALID_ARGUMENT);
  CHECK(frt_runtime_open(&options, &runtime, &error) == FRT_ERR_INVALID_ARGUMENT);
  options.manifest = "nowhere.toml";
  CHECK(frt_runtime_open(&options, &runtime, &error) == FRT_ERR_NOT_FOUND);
  CHECK(strstr(error.message, "nowhere.toml") != NULL);
  options.manifest_text = "schema = 1\n";
  CHECK(frt_runtime_open(&options, &runtime, &error) == FRT_ERR_INVALID_ARGUMENT);
  options.manifest = NULL;
  options.manifest_text = "schema = ";
  CHECK(frt_runtime_open(&options, &runtime, &error) != FRT_OK);
  options.manifest_text = "schema = 1\n";
  options.set_count = 3;
  CHECK(frt_runtime_open(&options, &runtime, &error) == FRT_ERR_INVALID_ARGUMENT);
  options.set_count = 0;
  options.flags = 1u << 30;
  CHECK(frt_runtime_open(&options, &runtime, &error) == FRT_ERR_UNSUPPORTED);
  CHECK(runtime == NULL);
}

int main(void) {
  frt_embed_versions versions = {.struct_size = sizeof(versions)};
  CHECK_OK(frt_embed_version(&versions, &error));
  CHECK(versions.embed_minor == FRT_EMBED_MINOR && versions.abi_minor == FRT_ABI_MINOR);
  CHECK(strcmp(frt_embed_status_name(FRT_ERR_NOT_FOUND), "FRT_ERR_NOT_FOUND") == 0);
  CHECK(frt_embed_status_name(12345) != NULL);
  careless_runtimes();

  frt_runtime runtime = open_demo();
  frt_runtime_device device = {.struct_size = sizeof(device)};
  CHECK_OK(frt_runtime_device_at(runtime, 0, &device, &error));
  CHECK(strcmp(device.name, "cpu0") == 0 && strcmp(device.backend, "frt.cpu") == 0);
  CHECK(frt_runtime_device_at(runtime, 1, &device, &error) == FRT_ERR_OUT_OF_RANGE);
  frt_runtime_model model = {.struct_size = sizeof(model)};
  CHECK_OK(frt_runtime_model_at(runtime, 0, &model, &error));
  CHECK(strcmp(model.name, "demo") == 0 && strcmp(model.plugin, "frt.qwen36") == 0);
  CHECK(frt_runtime_model_at(runtime, 1, &model, &error) == FRT_ERR_OUT_OF_RANGE);

  frt_instance instance = NULL;
  CHECK(frt_instance_open(runtime, "none", &instance, &error) == FRT_ERR_NOT_FOUND);
  CHECK_OK(frt_instance_open(runtime, NULL, &instance, &error));
  const void* table = NULL;
  CHECK_OK(frt_instance_extension(instance, "frt.role.lm/1", &table, &error));
  CHECK(table != NULL);
  CHECK(frt_instance_extension(instance, "acme.none/1", &table, &error) == FRT_ERR_NOT_FOUND);
  frt_instance_tables tables = {.struct_size = sizeof(tables)};
  CHECK_OK(frt_instance_tables_of(instance, &tables, &error));
  CHECK(tables.model && tables.context && tables.exec_table);

  frt_policy policy = NULL;
  CHECK(frt_policy_open(runtime, "demo", &policy, &error) == FRT_ERR_UNSUPPORTED);
  frt_lm lm = NULL, same = NULL;
  CHECK_OK(frt_lm_open(runtime, "demo", NULL, &lm, &error));
  CHECK_OK(frt_lm_open(runtime, NULL, NULL, &same, &error));
  CHECK(lm != same);
  CHECK_OK(frt_lm_close(same));
  CHECK(frt_lm_close(same) == FRT_ERR_INVALID_ARGUMENT);

  texts(lm);
  careless_handles(runtime, lm);
  careless_requests(lm);
  careless_servers(runtime, lm);
  an_answer_that_is_not_over(lm);
  /* What leads to the model keeps it. */
  CHECK_OK(frt_instance_close(instance));
  CHECK_OK(frt_runtime_close(runtime));
  CHECK(frt_runtime_close(runtime) == FRT_ERR_INVALID_ARGUMENT);
  answers_and_capsules(lm);
  CHECK_OK(frt_lm_close(lm));
  a_server();
  if (failures) fprintf(stderr, "%d checks failed\n", failures);
  return failures ? 1 : 0;
}
