// SPDX-License-Identifier: Apache-2.0
#include <frt/config.h>
#include <frt/selftest.h>
#include <frt/model.hpp>
#include <frt/role/contracts.hpp>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "defect.hpp"
#include "model.hpp"
#include "text.hpp"

namespace small {
namespace {

frt_status run_selftest(frt_model, const char* path, frt_selftest_report report, void* user,
                        frt_error* error) {
  return frt::guard(error, [&]() -> frt_status {
    if (has_defect("selftest_takes_anything")) return FRT_OK;
    std::ifstream file(path);
    if (!file) throw frt::Error(FRT_ERR_NOT_FOUND, std::string(path) + ": no such file");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (text != "goldens of test.small\n") {
      throw frt::Error(FRT_ERR_FORMAT, std::string(path) + ": no goldens of this model");
    }
    frt_selftest_row row{};
    row.struct_size = sizeof(row);
    row.tensor = "chunk";
    row.gate = "equal";
    return report(user, &row);
  });
}

constexpr frt_selftest_v1 kSelftest = {sizeof(frt_selftest_v1), 0, run_selftest};
constexpr frt_capsule_v1 kCapsule = frt::capsule_table<Model>();

// A language model's width between 1 and 8 in words: text has no limits.
constexpr frt_config_option kTextOfLimits[] = {
    {"width", FRT_CONFIG_STRING, 0, "1", nullptr, 1, 8, "a number"}};
constexpr frt_config_option kOptions[] = {
    {"width", FRT_CONFIG_INT, 0, "1", nullptr, 1, 8, "a number"},
    {"rate", FRT_CONFIG_FLOAT, 0, "1", nullptr, 0, 0, "0 to 1000"},
    {"mode", FRT_CONFIG_ENUM, 0, "fast", "fast|exact", 0, 0, "how"},
    {"notes", FRT_CONFIG_PATH, 0, "", nullptr, 0, 0, "a file that must be there; empty: none"},
};

class Plugin {
 public:
  Plugin(const frt::Host& host, const frt::ConfigView&)
      : exec_(host.require<frt_exec_v1>(FRT_EXT_EXEC)),
        states_(host.require<frt_state_v1>(FRT_EXT_STATE)) {}

  std::unique_ptr<Model> create(const frt_model_params& params) const {
    const frt::ConfigView options(params.config);
    if (options.has("rate") &&
        !(options.get_float("rate") >= 0 && options.get_float("rate") <= 1000)) {
      const bool unnamed = has_defect("option_refused_unnamed");
      throw frt::Error(FRT_ERR_INVALID_ARGUMENT, unnamed ? "no" : "rate must be 0 to 1000");
    }
    if (options.has("notes") && !std::string(options.get_string("notes")).empty() &&
        !std::filesystem::exists(std::string(options.get_string("notes")))) {
      throw frt::Error(FRT_ERR_NOT_FOUND,
                       "notes: no file " + std::string(options.get_string("notes")));
    }
    const frt::Context context(exec_, params.context);
    if (std::string_view(context.info().native_kind) != "cpu") {
      throw frt::Error(FRT_ERR_UNSUPPORTED, "test.small runs on the CPU alone");
    }
    return std::make_unique<Model>(context, states_, params.checkpoint);
  }
  const void* extension(std::string_view id) noexcept {
    static constexpr frt_model_v1 kModel = frt::model_table<Plugin, Model>();
    static constexpr frt_model_v1 kAnyFlag = [] {
      frt_model_v1 table = kModel;
      table.create = [](frt_plugin plugin, const frt_model_params* params, frt_model* model,
                        frt_error* error) {
        frt_model_params given = *params;
        given.flags = 0;
        return kModel.create(plugin, &given, model, error);
      };
      return table;
    }();
    if (id != FRT_EXT_MODEL) return nullptr;
    return has_defect("create_any_flag") ? &kAnyFlag : &kModel;
  }
  static const void* static_extension(std::string_view id) noexcept {
    static constexpr frt_config_schema_v1 kSchema = frt::config_schema(frt::kNoOptions, kOptions);
    static constexpr frt_config_schema_v1 kText =
        frt::config_schema(frt::kNoOptions, kTextOfLimits);
    if (id != FRT_EXT_CONFIG_SCHEMA) return nullptr;
    return has_defect("option_out_of_range") ? &kText : &kSchema;
  }

 private:
  const frt_exec_v1* exec_;
  const frt_state_v1* states_;
};

}  // namespace

Model::Model(const frt::Context& context, const frt_state_v1* states,
             const std::string& checkpoint) {
  info_.struct_size = sizeof(info_);
  info_.architecture = "host functions";
  info_.formats = "none";
  if (checkpoint == "synthetic:lm") {
    lm_ = std::make_unique<Lm>(context, states);
  } else if (checkpoint == "synthetic:policy") {
    policy_ = std::make_unique<Policy>(context, states);
  } else {
    throw frt::Error(FRT_ERR_NOT_FOUND,
                     checkpoint + ": give synthetic:lm or synthetic:policy as the checkpoint");
  }
}

const void* Model::extension(std::string_view id) noexcept {
  if (id == FRT_EXT_CAPSULE) return &kCapsule;
  if (id == FRT_EXT_SELFTEST) return &kSelftest;
  if (lm_) {
    if (id == FRT_EXT_ROLE_LM) return &lm_table();
    if (id == FRT_EXT_TOKENIZER) return &tokenizer_table();
    return id == FRT_EXT_CHAT ? &chat_table() : nullptr;
  }
  if (id == FRT_EXT_ROLE_POLICY) return &policy_table();
  if (id == FRT_EXT_OBSERVATION) return &observation_table();
  return id == FRT_EXT_CALIBRATION ? &calibration_table() : nullptr;
}

}  // namespace small

FRT_PLUGIN(small::Plugin, model, "test.small", "1.0.0",
           "summary = \"For tests: a language model and a policy of host functions\"\n");
