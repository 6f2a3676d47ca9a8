// SPDX-License-Identifier: Apache-2.0
// A model plugin with options of every type, and a table that reports what it got.
#include <frt/model.hpp>
#include <frt/plugin.hpp>
#include <memory>
#include <vector>

#include "probe_table.hpp"

namespace {

constexpr frt_config_option kPluginOptions[] = {
    {"threads", FRT_CONFIG_INT, 0, "2", nullptr, 1, 64, "worker threads"},
    {"fail_open", FRT_CONFIG_BOOL, 0, "false", nullptr, 0, 0, "refuse to open"},
};
constexpr frt_config_option kOptions[] = {
    {"slots", FRT_CONFIG_INT, 0, "4", nullptr, 1, 64, "concurrent sequences"},
    {"max_context", FRT_CONFIG_SIZE, 0, "32k", nullptr, 0, 0, "rows per slot"},
    {"scale", FRT_CONFIG_FLOAT, 0, "0.5", nullptr, 0, 1, "a fraction"},
    {"numerics", FRT_CONFIG_ENUM, 0, "fast", "fast|reference", 0, 0, "arithmetic"},
    {"warm", FRT_CONFIG_BOOL, 0, "true", nullptr, 0, 0, "touch all pages"},
    {"adapter", FRT_CONFIG_PATH, 0, "", nullptr, 0, 0, "an adapter file; empty: none"},
    {"label", FRT_CONFIG_STRING, 0, "plain", nullptr, 0, 0, "free text"},
};
constexpr frt_config_schema_v1 kSchema = frt::config_schema(kPluginOptions, kOptions);

// The tests make none.
struct NoModel {
  const frt_model_info& info() const { throw frt::Error(FRT_ERR_UNSUPPORTED, "no model"); }
  const std::vector<frt_port>& ports() const { throw frt::Error(FRT_ERR_UNSUPPORTED, "no model"); }
  const std::vector<frt_model_graph>& graphs() const {
    throw frt::Error(FRT_ERR_UNSUPPORTED, "no model");
  }
  const void* extension(std::string_view) noexcept { return nullptr; }
};

class GoodModel {
 public:
  std::unique_ptr<NoModel> create(const frt_model_params&) {
    throw frt::Error(FRT_ERR_UNSUPPORTED, "no model");
  }
  GoodModel(const frt::Host& host, const frt::ConfigView& config) : host_(host) {
    if (config.get_bool("fail_open")) {
      throw frt::Error(FRT_ERR_UNSUPPORTED, "asked not to open; set fail_open = false");
    }
    host.log(FRT_LOG_INFO, "opened with " + std::to_string(config.get_int("threads")), "start");
    probe_ = {sizeof(ProbeTable),
              0,
              config.get_int("threads"),
              host.find<void>("frt.exec/1") != nullptr,
              host.find<void>("frt.state/1") != nullptr,
              host.find<void>("frt.nothing/1") != nullptr};
    host.progress("weights", FRT_PROGRESS_BYTES, 1, 2);
    model_ = frt::model_table<GoodModel, NoModel>();
  }
  const void* extension(std::string_view id) noexcept {
    if (id == kProbeId) return &probe_;
    return id == FRT_EXT_MODEL ? &model_ : nullptr;
  }
  static const void* static_extension(std::string_view id) noexcept {
    return id == FRT_EXT_CONFIG_SCHEMA ? &kSchema : nullptr;
  }

 private:
  frt::Host host_;
  ProbeTable probe_{};
  frt_model_v1 model_{};
};

}  // namespace

FRT_PLUGIN(GoodModel, model, "test.model", "1.2.3", "summary = \"for tests\"\n");
