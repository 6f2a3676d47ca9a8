// SPDX-License-Identifier: Apache-2.0
// A language model whose graphs do nothing.
#include <frt/chat.h>
#include <frt/log.h>
#include <frt/observation.h>
#include <frt/role/critic.h>
#include <frt/role/lm.h>
#include <frt/role/policy.h>
#include <frt/selftest.h>
#include <frt/tokenizer.h>
#include <frt/capsule_layout.hpp>
#include <frt/exec.hpp>
#include <frt/model.hpp>

#include <cstdlib>
#include <cstring>
#include <sstream>

#include "defects.hpp"

namespace {

using defects::is;

constexpr uint32_t kVocabulary = 64;
constexpr uint32_t kSlots = 2;
constexpr uint32_t kChunk = 8;
constexpr uint32_t kBatch = 2;
constexpr uint32_t kContext = 32;

class Model {
 public:
  Model(const frt::Context& context, const frt_state_v1* states) : context_(context) {
    layout_.add_rows("rows", FRT_DTYPE_U8, 4, kContext);
    state_ = frt::State(states, context, layout_.table(), kSlots, "arena");
    graph_ = context.create_graph("step", 1);
    ports_ = context.alloc(FRT_SPACE_DEVICE, 4096, "ports");
    frt_port port{"values", "any", ports_.handle(), FRT_PORT_INPUT, FRT_DTYPE_F32, 1, 0, {1024}};
    if (is("port_no_buffer")) port.buffer = nullptr;
    if (is("port_f64")) port.dtype = FRT_DTYPE_F64;
    if (is("port_no_type")) port.dtype = 999;
    if (is("port_extent")) port.shape[0] = INT64_MAX;
    if (is("port_rank")) port.rank = FRT_PORT_MAX_RANK + 1;
    if (is("port_direction")) port.direction = 4;
    if (is("port_null_name")) port.name = nullptr;
    port_table_.push_back(port);
    info_.struct_size = sizeof(info_);
    info_.architecture = is("info_garbage") ? defects::kGarbage : "nothing";
    info_.formats = is("info_null_text") ? nullptr : "none";
  }
  ~Model() {
    defects::may_hang("destroy");
    if (is("leaks")) (void)ports_.release();
  }

  const frt_model_info& info() const {
    if (is("info_status")) throw frt::Error(defects::kUnknownStatus, "");
    return info_;
  }
  const std::vector<frt_port>& ports() const { return port_table_; }
  const std::vector<frt_model_graph>& graphs() const { return graph_table_; }
  const void* extension(std::string_view id) noexcept;

  frt_lm_info lm_info() const {
    frt_lm_info info{};
    info.struct_size = sizeof(info);
    info.vocabulary = kVocabulary;
    info.max_context = kContext;
    info.slots = is("lm_info_slots") ? 1000 : kSlots;
    info.prefill_chunk = kChunk;
    info.max_batch = is("lm_info_batch") ? 1u << 30 : kBatch;
    info.state = state_.handle();
    info.prefill = info.decode = graph_.handle();
    info.tokens = info.slot_ids = info.positions = info.lengths = info.starts = info.sampling =
        info.next_tokens = info.log_probabilities = info.logits = info.mask = ports_.handle();
    info.mask_words = (kVocabulary + 31) / 32;
    if (is("lm_info_zero")) {
      const uint32_t size = info.struct_size;
      info = {};
      info.struct_size = size;
    }
    if (is("lm_info_vocabulary")) info.vocabulary = 0;
    if (is("lm_info_numbers")) {
      info.vocabulary = info.max_context = info.slots = info.max_batch = 0xffffffff;
    }
    if (is("lm_info_mask")) info.mask_words = ~uint64_t{0};
    if (is("lm_info_no_tokens")) info.tokens = nullptr;
    if (is("lm_info_draft")) info.has_draft = 1;
    if (is("lm_info_drafts")) info.max_drafts = 3;
    return info;
  }

  // Every buffer has 4096 bytes.
  frt_policy_info policy_info() const {
    frt_policy_info info{};
    info.struct_size = sizeof(info);
    info.views = 1;
    info.image_height = info.image_width = 8;
    info.image_dtype = FRT_DTYPE_U8;
    info.state_dim = 4;
    info.horizon = 10;
    info.action_dim = 4;
    info.max_prompt = 16;
    info.default_steps = info.max_steps = 10;
    info.max_samples = 1;
    info.guidance_branches = 2;
    info.has_continuation = 1;
    info.infer = graph_.handle();
    info.images = info.view_mask = info.proprioception = info.prompt_tokens = info.prompt_length =
        info.noise = info.beta = info.previous = info.previous_weights = info.continuation =
            info.actions = ports_.handle();
    if (is("policy_images")) info.image_height = 1024;
    if (is("policy_image_dtype")) info.image_dtype = FRT_DTYPE_F16;
    if (is("policy_image_f32")) {
      info.image_height = 32;  // 3072 bytes as u8
      info.image_width = 32;
      info.image_dtype = FRT_DTYPE_F32;
    }
    if (is("policy_views")) info.views = 0xffffffff;
    if (is("policy_no_views")) info.views = 0;
    if (is("policy_state")) info.state_dim = 1025;
    if (is("policy_prompt")) info.max_prompt = 1000;
    if (is("policy_noise")) info.max_samples = 100;
    if (is("policy_beta")) info.max_steps = 2000;
    if (is("policy_steps")) info.max_steps = 0xffffffff;
    if (is("policy_branches")) info.guidance_branches = 0xffffffff;
    if (is("policy_horizon")) info.horizon = 0;
    if (is("policy_actions")) {
      info.noise = info.previous = nullptr;
      info.has_continuation = 0;
      info.horizon = 1000;
    }
    if (is("policy_split")) info.has_split = 1;
    if (is("policy_split_3")) info.has_split = 3;
    if (is("policy_continuation")) info.continuation = nullptr;
    return info;
  }
  frt_critic_info critic_info() const {
    frt_critic_info info{};
    info.struct_size = sizeof(info);
    info.views = info.image_height = info.image_width = 1;
    info.infer = graph_.handle();
    info.images = info.value = ports_.handle();
    if (is("critic_images")) {  // 3 * views * height * width is 0 in 64 bits
      info.views = info.image_height = 1u << 31;
      info.image_width = 4;
    }
    return info;
  }

  const frt_capsule_layout& capsule_layout() {
    changed_layout_ = layout_.table();
    if (is("layout_size_3")) changed_layout_.struct_size = 3;
    if (is("layout_count")) changed_layout_.region_count = 0xffffffff;
    if (is("layout_null")) changed_layout_.regions = nullptr;
    if (is("layout_lag")) {
      changed_region_ = changed_layout_.regions[0];
      changed_region_.row_lag = INT64_MIN;
      changed_layout_.regions = &changed_region_;
    }
    return changed_layout_;
  }
  frt_state capsule_state() { return is("capsule_no_state") ? nullptr : state_.handle(); }
  const std::vector<frt_fingerprint_field>& fingerprint() {
    defects::may_hang("fingerprint");
    if (is("fingerprint_no_version")) fields_.resize(1);
    if (is("fingerprint_no_value")) fields_[0].value = nullptr;
    if (is("fingerprint_no_name")) fields_[0].name = nullptr;
    if (is("fingerprint_garbage")) fields_[0].value = defects::kGarbage;
    return fields_;
  }

 private:
  frt::Context context_;
  frt::CapsuleLayout layout_;
  frt_capsule_layout changed_layout_{};
  frt_region changed_region_{};
  frt::State state_;
  frt::Graph graph_;
  frt::Buffer ports_;
  frt_model_info info_{};
  std::vector<frt_port> port_table_;
  std::vector<frt_model_graph> graph_table_;
  std::vector<frt_fingerprint_field> fields_ = {{"config", "tiny"}, {"state", "1"}};
};

frt_status role_info(frt_model model, frt_lm_info* out) {
  if (is("lm_info_status")) return defects::kUnknownStatus;
  if (is("lm_info_throws")) throw std::runtime_error("no numbers today");
  const frt_lm_info known = frt::object<Model>(model)->lm_info();
  const frt_status status = frt::fill(out, known);
  if (is("lm_info_size_3")) out->struct_size = 3;
  if (is("lm_info_ignores_size")) *out = known;
  return status;
}

frt_status key(frt_model, uint32_t, frt_shape_key* out) {
  if (is("prefill_key_fails")) return FRT_ERR_NO_VARIANT;
  if (is("prefill_key_grows_text")) {  // in code of the C++ library
    std::ostringstream text;
    text << "longer than what a stream has room for without memory of its own";
  }
  if (is("prefill_key_aligns")) {
    void* block = nullptr;
    if (::posix_memalign(&block, 64, 64) != 0) return FRT_ERR_OUT_OF_MEMORY;
    *static_cast<volatile char*>(block) = 1;
    std::free(block);
  }
  *out = 0;
  return FRT_OK;
}

frt_status no_key(frt_model, uint32_t, frt_shape_key*) {
  return FRT_ERR_NO_VARIANT;
}

frt_status policy_role_info(frt_model model, frt_policy_info* out) {
  return frt::fill(out, frt::object<Model>(model)->policy_info());
}

frt_status critic_role_info(frt_model model, frt_critic_info* out) {
  return frt::fill(out, frt::object<Model>(model)->critic_info());
}

frt_status policy_key(frt_model, const frt_policy_shape*, frt_shape_key* out) {
  *out = 0;
  return FRT_OK;
}

constexpr frt_role_policy_v1 kPolicy = {sizeof(frt_role_policy_v1),
                                        0,
                                        policy_role_info,
                                        policy_key,
                                        nullptr,
                                        nullptr,
                                        nullptr,
                                        nullptr,
                                        [](frt_model, const frt_policy_previous*, frt_stream,
                                           frt_error*) -> frt_status { return FRT_OK; },
                                        nullptr,
                                        nullptr};
constexpr frt_role_critic_v1 kCritic = {sizeof(frt_role_critic_v1), 0, critic_role_info, nullptr};
constexpr frt_observation_v1 kObservation = {
    sizeof(frt_observation_v1), 0,
    [](frt_model, frt_observation_info* out) -> frt_status {
      frt_observation_info info{};
      info.struct_size = sizeof(info);
      info.action_dim = is("policy_robot") ? 0xffffffff : 4;
      return frt::fill(out, info);
    },
    [](frt_model, const frt_observation*, frt_stream, frt_observed*, frt_error*) -> frt_status {
      return FRT_OK;
    },
    [](frt_model, const frt_observed*, const float*, double*, frt_error*) -> frt_status {
      return FRT_OK;
    }};

// Reports one row of a self-test, which has a defect.
frt_status report_row(frt_model, const char*, frt_selftest_report report, void* user, frt_error*) {
  frt_selftest_row row{};
  row.struct_size = sizeof(row);
  row.tensor = "logits";
  row.gate = "max abs <= 1";
  if (is("row_size_3")) row.struct_size = 3;
  if (is("row_no_tensor")) row.tensor = nullptr;
  if (is("row_no_gate")) row.gate = nullptr;
  if (is("row_garbage")) row.gate = defects::kGarbage;
  // A host that believes it reads behind this block.
  const std::unique_ptr<char[]> block(new char[sizeof(row.struct_size) + 4]);
  const bool is_short = is("row_size_3");
  if (is_short) std::memcpy(block.get(), &row, sizeof(row.struct_size));
  report(user, is("row_null") ? nullptr
               : is_short     ? reinterpret_cast<const frt_selftest_row*>(block.get())
                              : &row);
  return FRT_OK;  // whatever the host said
}
constexpr frt_selftest_v1 kSelftest = {sizeof(frt_selftest_v1), 0, report_row};

// A tokenizer and a chat format that fail at every call.
constexpr frt_tokenizer_v1 kFailingTokenizer = {
    sizeof(frt_tokenizer_v1),
    0,
    [](frt_model) { return 1u; },
    [](frt_model, const char*, uint64_t, const frt_encode_params*, frt_sink, void*,
       frt_error* error) {
      const bool long_text = is("fails_long_prompt");
      return frt::set_error(error, long_text ? FRT_ERR_OUT_OF_RANGE : FRT_ERR_FORMAT,
                            long_text ? "9 tokens; shorten it" : "no such letter");
    },
    [](frt_model, const int32_t*, uint64_t, uint32_t, frt_sink, void*, frt_error* error) {
      return frt::set_error(error, FRT_ERR_FORMAT, "no such id");
    },
    [](frt_model, const char*) { return int32_t{-1}; },
    [](frt_model, uint32_t, frt_text_stream*, frt_error* error) {
      return frt::set_error(error, FRT_ERR_FORMAT, "no more streams");
    },
    [](frt_text_stream, int32_t, frt_sink, void*, frt_error* error) {
      return frt::set_error(error, FRT_ERR_FORMAT, "no such id");
    },
    [](frt_text_stream, frt_sink, void*, frt_error* error) {
      return frt::set_error(error, FRT_ERR_FORMAT, "no more text");
    },
    [](frt_text_stream) {},
    nullptr};
constexpr frt_chat_v1 kFailingChat = {
    sizeof(frt_chat_v1),
    0,
    [](frt_model, const char*, const char*, const char*, frt_sink, frt_sink, void*,
       frt_error* error) { return frt::set_error(error, FRT_ERR_FORMAT, "no such role"); },
    [](frt_model, const char*, uint64_t, uint32_t, const char*, const char*, frt_sink, void*,
       frt_error* error) { return frt::set_error(error, FRT_ERR_FORMAT, "no such mark"); },
    [](frt_model, frt_sink, void*, frt_error* error) {
      return frt::set_error(error, FRT_ERR_FORMAT, "no such file");
    },
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr};

// A chat format that streams, and a parse for one that does not.
constexpr frt_chat_v1 kStreamingChat = {
    sizeof(frt_chat_v1),
    0,
    kFailingChat.render,
    [](frt_model, const char*, uint64_t, uint32_t, const char*, const char*, frt_sink sink,
       void* user, frt_error*) { return sink(user, "[]", 2); },
    kFailingChat.generation_defaults,
    [](frt_model, const char*, const char*, frt_chat_stream* stream,
       frt_error* error) -> frt_status {
      if (is("stream_create")) return frt::set_error(error, FRT_ERR_FORMAT, "no such tool");
      *stream = reinterpret_cast<frt_chat_stream>(stream);
      return FRT_OK;
    },
    [](frt_chat_stream, const char*, uint64_t, frt_chat_sink sink, void* user,
       frt_error* error) -> frt_status {
      if (is("stream_push")) return frt::set_error(error, FRT_ERR_FORMAT, "no such tag");
      const char* text = is("stream_text") ? "\xff" : "{}";
      if (is("stream_finish")) return FRT_OK;
      frt_chat_event event{};
      event.struct_size = sizeof(event);
      event.kind = is("stream_kind") ? 77 : is("stream_order") ? FRT_CHAT_CALL_END : FRT_CHAT_TEXT;
      if (is("stream_open")) event.kind = FRT_CHAT_CALL_BEGIN;
      event.text = text;
      event.bytes = is("stream_text") ? 1 : 2;
      return sink(user, &event);
    },
    [](frt_chat_stream, frt_chat_sink, void*, uint32_t*, frt_error* error) -> frt_status {
      if (is("stream_open")) return FRT_OK;
      return frt::set_error(error, FRT_ERR_FORMAT, "no such end");
    },
    [](frt_chat_stream) {},
    nullptr};
// As above, without streaming.
constexpr frt_chat_v1 kParsingChat = {kStreamingChat.struct_size,
                                      0,
                                      kStreamingChat.render,
                                      kStreamingChat.parse,
                                      kStreamingChat.generation_defaults,
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      nullptr,
                                      nullptr};

frt_status batch_key(frt_model, uint32_t batch, frt_shape_key* out, uint32_t* entries) {
  *out = 0;
  *entries = is("entries_few") ? 0 : is("entries_many") ? 1u << 20 : batch;
  return FRT_OK;
}

const void* Model::extension(std::string_view id) noexcept {
  if (id == FRT_EXT_ROLE_LM) {
    // Text where a table should be.
    static const char kThreeBytes[4] = "abc";
    if (is("role_three_bytes")) return kThreeBytes;
    const frt_role_lm_v1 role = {sizeof(role), 0, role_info, key, batch_key, nullptr, nullptr};
    return defects::with_defect(role, "role", [](frt_role_lm_v1& table) {
      if (is("role_no_info")) table.info = nullptr;
      if (is("role_no_prefill_key")) table.prefill_key = nullptr;
      if (is("prefill_key_fails")) table.prefill_key = no_key;
      if (is("lm_info_draft")) table.draft_key = nullptr;
    });
  }
  if (id == FRT_EXT_CAPSULE) {
    return defects::with_defect(frt::capsule_table<Model>(), "capsule", [](frt_capsule_v1& table) {
      if (is("capsule_no_layout")) table.layout = nullptr;
      if (is("fingerprint_count") || is("fingerprint_null")) {
        table.fingerprint = [](frt_model, const frt_fingerprint_field** fields, uint64_t* count,
                               frt_error*) -> frt_status {
          static constexpr frt_fingerprint_field kField = {"config", "tiny"};
          *fields = is("fingerprint_null") ? nullptr : &kField;
          *count = is("fingerprint_null") ? 1 : ~uint64_t{0};
          return FRT_OK;
        };
      }
    });
  }
  if (id == FRT_EXT_SELFTEST) return &kSelftest;
  if (id == FRT_EXT_ROLE_POLICY) return &kPolicy;
  if (id == FRT_EXT_ROLE_CRITIC) return &kCritic;
  if (id == FRT_EXT_OBSERVATION) return &kObservation;
  if (id == FRT_EXT_CHAT && is("stream_parse")) return &kParsingChat;
  if (id == FRT_EXT_CHAT && defects::defect().starts_with("stream_")) return &kStreamingChat;
  if (id == FRT_EXT_TOKENIZER && defects::defect().starts_with("fails_")) return &kFailingTokenizer;
  if (id == FRT_EXT_CHAT && defects::defect().starts_with("fails_")) return &kFailingChat;
  if (id == FRT_EXT_TOKENIZER && defects::defect().starts_with("tokenizer")) {
    return defects::with_defect(
        frt_tokenizer_v1{sizeof(frt_tokenizer_v1), 0, nullptr, nullptr, nullptr, nullptr, nullptr,
                         nullptr, nullptr, nullptr, nullptr},
        "tokenizer", [](frt_tokenizer_v1&) {});
  }
  if (id == FRT_EXT_CHAT && defects::defect().starts_with("chat")) {
    return defects::with_defect(frt_chat_v1{sizeof(frt_chat_v1), 0, nullptr, nullptr, nullptr,
                                            nullptr, nullptr, nullptr, nullptr, nullptr},
                                "chat", [](frt_chat_v1&) {});
  }
  return nullptr;
}

class Plugin {
 public:
  Plugin(const frt::Host& host, const frt::ConfigView&)
      : exec_(host.require<frt_exec_v1>(FRT_EXT_EXEC)),
        states_(host.require<frt_state_v1>(FRT_EXT_STATE)) {
    if (is("open_long_text")) throw frt::Error(FRT_ERR_DEVICE, defects::long_text());
  }

  ~Plugin() { defects::may_hang("close"); }

  std::unique_ptr<Model> create(const frt_model_params& params) {
    defects::may_hang("create");
    if (is("create_tells_checkpoint")) throw frt::Error(FRT_ERR_FORMAT, params.checkpoint);
    if (is("create_slow")) std::this_thread::sleep_for(std::chrono::milliseconds(700));
    if (is("kernel_registered_twice")) register_twice(params.context, "test.own/1");
    if (is("kernel_reserved_name")) register_twice(params.context, "frt.own/1");
    if (is("create_long_text")) throw frt::Error(FRT_ERR_DEVICE, defects::long_text());
    return std::make_unique<Model>(frt::Context(exec_, params.context), states_);
  }

  static frt_status open(const frt_host* host, const frt_config* config, frt_plugin* plugin,
                         frt_error* error) {
    if (is("open_throws")) throw std::runtime_error("no key in the lock");
    if (is("open_forges")) throw std::runtime_error("no key\nok    plugin device\x1b[2J");
    if (is("open_without_object")) return FRT_OK;
    if (is("open_status")) return defects::kUnknownStatus;
    if (is("open_endless_text")) {
      std::memset(error->message, 'x', sizeof(error->message));
      return FRT_ERR_DEVICE;
    }
    defects::may_hang("open");
    const auto* exec = static_cast<const frt_exec_v1*>(host->extension(host->self, FRT_EXT_EXEC));
    if (is("open_wants_same_size") && exec && exec->struct_size != sizeof(*exec)) {
      return FRT_ERR_ABI;
    }
    if (is("open_refuses_newer") && host->abi_minor > FRT_ABI_MINOR) {
      return frt::set_error(error, FRT_ERR_ABI, "no such version");
    }
    if (is("open_refuses_oddly") && host->abi_minor > FRT_ABI_MINOR) {
      return frt::set_error(error, FRT_ERR_DEVICE, "no such version");
    }
    if (is("open_log_unchecked")) {
      const auto* log = static_cast<const frt_log_v1*>(host->extension(host->self, FRT_EXT_LOG));
      if (exec) log->write(log->self, "", FRT_LOG_INFO, "here");
    }
    return frt::detail::PluginTrampolines<Plugin>::open(host, config, plugin, error);
  }
  static const void* any_extension(frt_plugin plugin, const char* id) {
    if (!plugin) defects::misbehave_when_asked();
    if (plugin && is("extension_throws")) throw std::runtime_error("ask again later");
    return frt::detail::PluginTrampolines<Plugin>::extension(plugin, id);
  }
  const void* extension(std::string_view id) noexcept {
    if (id != FRT_EXT_MODEL || is("model_missing")) return nullptr;
    return defects::with_defect(
        frt::model_table<Plugin, Model>(), "model", [](frt_model_v1& table) {
          if (is("model_no_create")) table.create = nullptr;
          if (is("create_throws")) {
            table.create = [](frt_plugin, const frt_model_params*, frt_model*,
                              frt_error*) -> frt_status {
              throw std::runtime_error("out of paper");
            };
          }
          if (is("create_throws_number")) {
            table.create = [](frt_plugin, const frt_model_params*, frt_model*,
                              frt_error*) -> frt_status { throw 42; };
          }
          if (is("create_crashes")) {
            table.create = [](frt_plugin, const frt_model_params*, frt_model*,
                              frt_error*) -> frt_status { std::abort(); };
          }
          if (is("create_without_object")) {
            table.create = [](frt_plugin, const frt_model_params*, frt_model*,
                              frt_error*) -> frt_status { return FRT_OK; };
          }
          if (is("create_code_alone")) {
            table.create = [](frt_plugin, const frt_model_params*, frt_model*,
                              frt_error*) -> frt_status { return FRT_ERR_IO; };
          }
          if (is("create_status")) {
            table.create = [](frt_plugin, const frt_model_params*, frt_model*,
                              frt_error* error) -> frt_status {
              return frt::set_error(error, defects::kUnknownStatus, "half done");
            };
          }
          if (is("destroy_throws")) {
            table.destroy = [](frt_model) { throw std::runtime_error("the door is stuck"); };
          }
          if (is("model_extension_throws")) {
            table.extension = [](frt_model, const char*) -> const void* { throw 7; };
          }
        });
  }
  static const void* static_extension(std::string_view id) noexcept {
    if (id != FRT_EXT_CONFIG_SCHEMA) return nullptr;
    static constexpr frt_config_option kOptions[] = {
        {"width", FRT_CONFIG_INT, 0, "1", nullptr, 1, 8, "a number"}};
    static constexpr frt_config_option kGarbage[] = {
        {"width", FRT_CONFIG_INT, 0, "1", nullptr, 1, 8, "\xff\xfe"}};
    static constexpr frt_config_option kTwice[] = {kOptions[0], kOptions[0]};
    static constexpr frt_config_option kNameless[] = {
        {nullptr, FRT_CONFIG_INT, 0, "1", nullptr, 1, 8, "a number"}};
    return defects::with_defect(frt::config_schema(frt::kNoOptions, kOptions), "schema",
                                [](frt_config_schema_v1& table) {
                                  if (is("schema_null_list")) table.options = nullptr;
                                  if (is("schema_count")) table.option_count = ~uint64_t{0};
                                  if (is("schema_garbage")) table.options = kGarbage;
                                  if (is("schema_no_key")) table.options = kNameless;
                                  if (is("schema_key_twice")) {
                                    table.options = kTwice;
                                    table.option_count = 2;
                                  }
                                });
  }

 private:
  void register_twice(frt_context context, const char* name) const {
    frt_kernel_desc kernel{};
    kernel.struct_size = sizeof(kernel);
    kernel.name = name;
    kernel.kernel.launch = [](void*, frt_backend_stream, const void*, frt_error*) -> frt_status {
      return FRT_OK;
    };
    const frt_kernel_desc list[] = {kernel, kernel};
    frt_kernel_owner owner = nullptr;
    frt_error error{};
    frt::check(exec_->kernels_register(context, list, 2, sizeof(kernel), &owner, &error), error);
  }

  const frt_exec_v1* exec_;
  const frt_state_v1* states_;
};

}  // namespace

DEFECT_PLUGIN(Plugin, model, "test.model");
