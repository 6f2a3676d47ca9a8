// SPDX-License-Identifier: Apache-2.0
// Broken roles beyond the language model, and the extensions that a command asks for: policies,
// critics, observations, text, selftest, calibration, device status.
#include <frt/reading.hpp>
#include <frt/role/contracts.hpp>
#include <frt/sender.hpp>

#include "robot/policy_model.hpp"
#include "trial.hpp"

using namespace broken;

namespace {

std::string sender(const core::RuntimeModel& model) {
  return model_sender("m", model.plugin->loaded().card.id);
}

// Asks for the table, as the command that needs it does.
template <class Table>
Use asks_for(const char* id) {
  return [id](const Context&, const core::Runtime&, const core::RuntimeModel& model) {
    (void)find_extension<Table>(*model.table, model.handle, id, sender(model));
  };
}

void uses_policy(const Context& context, const core::Runtime&, const core::RuntimeModel& model) {
  const host::PolicyModel policy(context, model.table, model.handle, "m",
                                 model.plugin->loaded().card.id);
  (void)policy.names();
  (void)policy.infer_key({sizeof(frt_policy_shape), 0, 0, 0, 0, 0});
}

void uses_critic(const Context& context, const core::Runtime&, const core::RuntimeModel& model) {
  const host::CriticModel critic(context, model.table, model.handle, "m",
                                 model.plugin->loaded().card.id);
  critic.set_instruction("fold", context.create_stream("main"));
}

void uses_text(const Context&, const core::Runtime&, const core::RuntimeModel& model) {
  const host::TextModel text(*model.table, model.handle, "m", sender(model));
  (void)text.encode_text("abc", 0, 0);
  (void)text.generation_defaults();
}

void uses_status(const Context&, const core::Runtime& runtime, const core::RuntimeModel&) {
  const core::OpenPlugin& plugin = *runtime.device("d").plugin;
  const auto* status = plugin.find<frt_device_status_v1>(FRT_EXT_DEVICE_STATUS);
  REQUIRE(status != nullptr);
  (void)ask<frt_device_status>(plugin.sender(), [&](frt_device_status* out) {
    return status->read(plugin.handle(), 0, out, nullptr);
  });
}

void prepare(Trial& trial, const Use& use) {
  trial.manifest = manifest_of("test.device", "test.roles");
  trial.use = use;
}

std::function<void(Trial&)> with(Use use) {
  return [use = std::move(use)](Trial& trial) { prepare(trial, use); };
}

}  // namespace

TEST_CASE("the roles and extensions of the plugins without a defect work") {
  for (const Use& use : {Use(uses_policy), Use(uses_critic), Use(uses_text), Use(uses_status),
                         asks_for<frt_selftest_v1>(FRT_EXT_SELFTEST),
                         asks_for<frt_calibration_v1>(FRT_EXT_CALIBRATION)}) {
    Trial trial;
    prepare(trial, use);
    CHECK_NOTHROW(trial.run());
  }
}

TEST_CASE("a broken policy is refused before its first use") {
  refuses(
      {
          {"roles", "policy_size_3", FRT_ERR_ABI, {"frt.role.policy/1 says that it has 3 bytes"}},
          {"roles", "policy_size_deadbeef", FRT_ERR_ABI, {"frt.role.policy/1", "3735928559"}},
          {"roles", "policy_no_info", FRT_ERR_ABI, {"frt.role.policy/1 has no info"}},
          {"roles", "policy_no_infer_key", FRT_ERR_ABI, {"frt.role.policy/1 has no infer_key"}},
          {"roles", "policy_info_status", FRT_ERR_INTERNAL, {"frt_policy_info", "status 12345"}},
          {"roles", "policy_info_throws", FRT_ERR_INTERNAL, {"frt_policy_info", "no plan today"}},
          {"roles", "policy_info_size_3", FRT_ERR_ABI, {"frt_policy_info says that it has 3"}},
          {"roles", "policy_info_no_infer", FRT_ERR_ABI, {"frt_policy_info has no infer"}},
          {"roles", "policy_info_no_actions", FRT_ERR_ABI, {"frt_policy_info has no actions"}},
          {"roles",
           "policy_info_horizon",
           FRT_ERR_MISMATCH,
           {"its buffer actions has 4096 bytes, its role says 32768"}},
          {"roles", "infer_key_fails", FRT_ERR_NO_VARIANT, {"without a variant for 0 views"}},
      },
      with(uses_policy));
}

TEST_CASE("broken observations are refused before the first is written") {
  refuses(
      {
          {"roles", "observation_missing", FRT_ERR_UNSUPPORTED, {"offers no frt.observation/1"}},
          {"roles", "observation_size_3", FRT_ERR_ABI, {"frt.observation/1 says that it has 3"}},
          {"roles", "observation_no_write", FRT_ERR_ABI, {"frt.observation/1 has no write"}},
          {"roles", "observation_no_finish", FRT_ERR_ABI, {"frt.observation/1 has no finish"}},
          {"roles",
           "observation_info_status",
           FRT_ERR_INTERNAL,
           {"frt_observation_info", "status 12345"}},
          {"roles",
           "observation_info_size_3",
           FRT_ERR_ABI,
           {"frt_observation_info says that it has 3 bytes"}},
          {"roles", "observation_names_garbage", FRT_ERR_FORMAT, {"the list of arrays it reads"}},
          {"roles", "observation_names_no_list", FRT_ERR_FORMAT, {"is no JSON list"}},
          {"roles", "observation_names_numbers", FRT_ERR_FORMAT, {"an entry that describes none"}},
          {"roles", "observation_names_no_text", FRT_ERR_FORMAT, {"an entry that describes none"}},
      },
      with(uses_policy));
}

TEST_CASE("a broken critic is refused before its first use") {
  refuses(
      {
          {"roles", "critic_missing", FRT_ERR_UNSUPPORTED, {"offers no frt.role.critic/1"}},
          {"roles", "critic_size_3", FRT_ERR_ABI, {"frt.role.critic/1 says that it has 3 bytes"}},
          {"roles", "critic_no_info", FRT_ERR_ABI, {"frt.role.critic/1 has no info"}},
          {"roles", "critic_info_status", FRT_ERR_INTERNAL, {"frt_critic_info", "status 12345"}},
          {"roles", "critic_info_size_3", FRT_ERR_ABI, {"frt_critic_info says that it has 3"}},
          {"roles", "critic_info_no_infer", FRT_ERR_ABI, {"frt_critic_info has no infer"}},
          {"roles", "critic_info_no_value", FRT_ERR_ABI, {"frt_critic_info has no value"}},
          {"roles",
           "critic_info_state",
           FRT_ERR_MISMATCH,
           {"its buffer proprioception has 4096 bytes, its role says 16384"}},
      },
      with(uses_critic));
}

TEST_CASE("a broken tokenizer or chat format is refused before its first use") {
  refuses(
      {
          {"roles", "tokenizer_size_3", FRT_ERR_ABI, {"frt.tokenizer/1 says that it has 3"}},
          {"roles", "tokenizer_size_deadbeef", FRT_ERR_ABI, {"frt.tokenizer/1", "3735928559"}},
          {"roles", "tokenizer_no_decode", FRT_ERR_ABI, {"frt.tokenizer/1 has no decode"}},
          {"roles",
           "tokenizer_no_stream_destroy",
           FRT_ERR_ABI,
           {"frt.tokenizer/1 has no stream_destroy"}},
          {"roles", "chat_size_3", FRT_ERR_ABI, {"frt.chat/1 says that it has 3 bytes"}},
          {"roles", "chat_no_parse", FRT_ERR_ABI, {"frt.chat/1 has no parse"}},
          {"roles",
           "chat_no_generation_defaults",
           FRT_ERR_ABI,
           {"frt.chat/1 has no generation_defaults"}},
      },
      with(uses_text));
}

TEST_CASE("a broken selftest or calibration is refused before it runs") {
  refuses(
      {
          {"roles", "selftest_size_3", FRT_ERR_ABI, {"frt.selftest/1 says that it has 3 bytes"}},
          {"roles", "selftest_no_run", FRT_ERR_ABI, {"frt.selftest/1 has no run"}},
      },
      with(asks_for<frt_selftest_v1>(FRT_EXT_SELFTEST)));
  refuses(
      {
          {"roles", "calibration_size_3", FRT_ERR_ABI, {"frt.calibration/1 says that it has 3"}},
          {"roles", "calibration_no_note", FRT_ERR_ABI, {"frt.calibration/1 has no note"}},
          {"roles", "calibration_no_write", FRT_ERR_ABI, {"frt.calibration/1 has no write"}},
      },
      with(asks_for<frt_calibration_v1>(FRT_EXT_CALIBRATION)));
}

TEST_CASE("a broken device status is refused") {
  refuses(
      {
          {"device", "device_status_size_3", FRT_ERR_ABI, {"frt.device-status/1 says that it has"}},
          {"device", "device_status_no_read", FRT_ERR_ABI, {"frt.device-status/1 has no read"}},
          {"device",
           "device_status_answer_size_3",
           FRT_ERR_ABI,
           {"frt_device_status says that it has 3 bytes"}},
      },
      with(uses_status));
}
