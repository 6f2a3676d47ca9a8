// SPDX-License-Identifier: Apache-2.0
// frt/role/contracts.hpp - what the oldest version promises of the roles and of what goes with
// them, as frt/contracts.hpp does of the rest. For hosts, and for models, which read what a host
// gives with a call.
#pragma once

#include <frt/calibration.h>
#include <frt/chat.h>
#include <frt/environment.h>
#include <frt/observation.h>
#include <frt/role/critic.h>
#include <frt/role/lm.h>
#include <frt/role/policy.h>
#include <frt/selftest.h>
#include <frt/tokenizer.h>
#include <frt/table.hpp>

FRT_CONTRACT(frt_tokenizer_v1, FRT_EXT_TOKENIZER, token_bytes,
             FRT_REQUIRED(frt_tokenizer_v1, vocabulary), FRT_REQUIRED(frt_tokenizer_v1, encode),
             FRT_REQUIRED(frt_tokenizer_v1, decode), FRT_REQUIRED(frt_tokenizer_v1, token_id),
             FRT_REQUIRED(frt_tokenizer_v1, stream_create),
             FRT_REQUIRED(frt_tokenizer_v1, stream_push),
             FRT_REQUIRED(frt_tokenizer_v1, stream_flush),
             FRT_REQUIRED(frt_tokenizer_v1, stream_destroy));
FRT_CONTRACT(frt_chat_v1, FRT_EXT_CHAT, answer_form, FRT_REQUIRED(frt_chat_v1, render),
             FRT_REQUIRED(frt_chat_v1, parse), FRT_REQUIRED(frt_chat_v1, generation_defaults));
FRT_CONTRACT(frt_chat_event, "frt_chat_event", bytes);
FRT_CONTRACT(frt_selftest_v1, FRT_EXT_SELFTEST, run, FRT_REQUIRED(frt_selftest_v1, run));
FRT_CONTRACT(frt_selftest_row, "frt_selftest_row", argmax_agreement,
             FRT_REQUIRED(frt_selftest_row, tensor), FRT_REQUIRED(frt_selftest_row, gate));
FRT_CONTRACT(frt_calibration_v1, FRT_EXT_CALIBRATION, write,
             FRT_REQUIRED(frt_calibration_v1, begin), FRT_REQUIRED(frt_calibration_v1, note),
             FRT_REQUIRED(frt_calibration_v1, write));

FRT_CONTRACT(frt_role_lm_v1, FRT_EXT_ROLE_LM, verify_key, FRT_REQUIRED(frt_role_lm_v1, info),
             FRT_REQUIRED(frt_role_lm_v1, prefill_key), FRT_REQUIRED(frt_role_lm_v1, decode_key));
FRT_CONTRACT(frt_lm_info, "frt_lm_info", reserved, FRT_REQUIRED(frt_lm_info, state),
             FRT_REQUIRED(frt_lm_info, prefill), FRT_REQUIRED(frt_lm_info, decode),
             FRT_REQUIRED(frt_lm_info, tokens), FRT_REQUIRED(frt_lm_info, slot_ids),
             FRT_REQUIRED(frt_lm_info, positions), FRT_REQUIRED(frt_lm_info, lengths),
             FRT_REQUIRED(frt_lm_info, starts), FRT_REQUIRED(frt_lm_info, sampling),
             FRT_REQUIRED(frt_lm_info, next_tokens), FRT_REQUIRED(frt_lm_info, log_probabilities));
FRT_CONTRACT(frt_role_policy_v1, FRT_EXT_ROLE_POLICY, prefix_key,
             FRT_REQUIRED(frt_role_policy_v1, info), FRT_REQUIRED(frt_role_policy_v1, infer_key));
FRT_CONTRACT(frt_policy_info, "frt_policy_info", prefix, FRT_REQUIRED(frt_policy_info, infer),
             FRT_REQUIRED(frt_policy_info, actions));
FRT_CONTRACT(frt_observation_v1, FRT_EXT_OBSERVATION, finish,
             FRT_REQUIRED(frt_observation_v1, info), FRT_REQUIRED(frt_observation_v1, write),
             FRT_REQUIRED(frt_observation_v1, finish));
FRT_CONTRACT(frt_observation_info, "frt_observation_info", metadata);
FRT_CONTRACT(frt_role_critic_v1, FRT_EXT_ROLE_CRITIC, set_instruction,
             FRT_REQUIRED(frt_role_critic_v1, info));
FRT_CONTRACT(frt_critic_info, "frt_critic_info", value, FRT_REQUIRED(frt_critic_info, infer),
             FRT_REQUIRED(frt_critic_info, value));

// ---- an environment -------------------------------------------------------------------------

FRT_CONTRACT(frt_environment_v1, FRT_EXT_ENVIRONMENT, draw,
             FRT_REQUIRED(frt_environment_v1, create), FRT_REQUIRED(frt_environment_v1, destroy),
             FRT_REQUIRED(frt_environment_v1, info), FRT_REQUIRED(frt_environment_v1, reset),
             FRT_REQUIRED(frt_environment_v1, observe), FRT_REQUIRED(frt_environment_v1, step));
FRT_CONTRACT(frt_environment_info, "frt_environment_info", action_high,
             FRT_REQUIRED(frt_environment_info, doc), FRT_REQUIRED(frt_environment_info, ports),
             FRT_REQUIRED(frt_environment_info, action));
FRT_CONTRACT(frt_environment_result, "frt_environment_result", reward);

// ---- what a host gives with a call ----------------------------------------------------------

FRT_CONTRACT(frt_encode_params, "frt_encode_params", max_tokens);
FRT_CONTRACT(frt_policy_shape, "frt_policy_shape", branches);
FRT_CONTRACT(frt_policy_previous, "frt_policy_previous", actions);
FRT_CONTRACT(frt_observation, "frt_observation", options);
FRT_CONTRACT(frt_observed, "frt_observed", state);
FRT_CONTRACT(frt_environment_params, "frt_environment_params", config,
             FRT_REQUIRED(frt_environment_params, name),
             FRT_REQUIRED(frt_environment_params, config));
FRT_CONTRACT(frt_environment_start, "frt_environment_start", seed);
