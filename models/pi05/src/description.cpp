// SPDX-License-Identifier: Apache-2.0
// What a loaded model says of itself: sizes, ports and graphs, the role's limits and handles, the
// arrays that an observation has.
#include <algorithm>
#include <frt/model.hpp>
#include <frt/models/json.hpp>

#include "model.hpp"

namespace frt::pi05 {

void Model::describe() {
  const Parts& own = *parts_;
  const Setup& setup = own.engine->setup();
  formats_text_ = describe_formats(own.weights.totals);
  info_.parameters = own.weights.totals.parameters;
  info_.weight_bytes = own.weights.totals.bytes;
  info_.state_bytes = own.engine->state().slot_bytes() * static_cast<std::uint64_t>(setup.slots);
  info_.scratch_bytes = own.engine->memory_bytes();
  describe_ports();
  describe_role();
  describe_observation();
}

void Model::describe_ports() {
  const Parts& own = *parts_;
  const Setup& setup = own.engine->setup();
  const Ports& ports = own.engine->ports();
  const Dims& d = config_.dims;
  const auto add = [&](const char* name, const char* doc, const Buffer& buffer, bool input,
                       frt_dtype dtype, std::initializer_list<std::int64_t> shape) {
    if (!buffer) return;
    const uint32_t direction = input ? FRT_PORT_INPUT : FRT_PORT_OUTPUT;
    port_table_.push_back(make_port(name, doc, buffer, direction, dtype, shape));
  };
  const std::int64_t side = d.image;
  add("images", "camera images at the network's size", ports.images, true, setup.image_dtype,
      {setup.views, side, side, 3});
  add("view_mask", "1: the view is there", ports.view_mask, true, FRT_DTYPE_I32, {setup.views});
  add("prompt_tokens", "token ids of each branch", ports.prompt_tokens, true, FRT_DTYPE_I32,
      {setup.branches, setup.max_prompt});
  add("prompt_length", "of each branch", ports.prompt_length, true, FRT_DTYPE_I32,
      {setup.branches});
  add("noise", "standard normal", ports.noise, true, FRT_DTYPE_F32,
      {setup.samples, setup.horizon, d.action_dim});
  add("beta", "guidance strength by step and branch", ports.beta, true, FRT_DTYPE_F32,
      {setup.max_steps(), setup.branches - 1});
  add("previous", "the chunk before, from now on", ports.previous, true, FRT_DTYPE_F32,
      {setup.horizon, d.action_dim});
  add("previous_weights", "pull of each row to it", ports.previous_weights, true, FRT_DTYPE_F32,
      {setup.horizon});
  add("continuation", "frt_policy_continuation", ports.continuation, true, FRT_DTYPE_U8,
      {static_cast<std::int64_t>(sizeof(frt_policy_continuation))});
  add("actions", "normalised actions", ports.actions, false, FRT_DTYPE_F32,
      {setup.samples, setup.horizon, d.action_dim});
  graph_table_.push_back({"infer", "images and prompt to actions", own.infer});
  graph_table_.push_back({"observe", "images and prompt to the context", own.observe});
  graph_table_.push_back({"vision", "images to image tokens", own.vision});
  graph_table_.push_back({"prefix", "image tokens and prompt to the context", own.prefix});
  graph_table_.push_back({"act", "context and noise to actions", own.act});
}

void Model::describe_role() {
  const Parts& own = *parts_;
  const Setup& setup = own.engine->setup();
  const Ports& ports = own.engine->ports();
  const Dims& d = config_.dims;
  frt_policy_info& p = policy_info_;
  p.struct_size = sizeof(p);
  p.views = static_cast<std::uint32_t>(setup.views);
  p.image_height = p.image_width = static_cast<std::uint32_t>(d.image);
  p.image_dtype = setup.image_dtype;
  p.horizon = static_cast<std::uint32_t>(setup.horizon);
  p.action_dim = static_cast<std::uint32_t>(d.action_dim);
  p.max_prompt = static_cast<std::uint32_t>(setup.max_prompt);
  p.default_steps = static_cast<std::uint32_t>(setup.steps.front());
  p.max_steps = static_cast<std::uint32_t>(setup.max_steps());
  p.max_samples = static_cast<std::uint32_t>(setup.samples);
  p.guidance_branches = static_cast<std::uint32_t>(setup.branches);
  p.has_split = 2;
  p.has_continuation = 1;
  p.state = own.engine->state().handle();
  p.infer = own.infer;
  p.observe = own.observe;
  p.act = own.act;
  p.vision = own.vision;
  p.prefix = own.prefix;
  p.images = ports.images;
  p.view_mask = ports.view_mask;
  p.prompt_tokens = ports.prompt_tokens;
  p.prompt_length = ports.prompt_length;
  p.noise = ports.noise;
  p.beta = ports.beta ? ports.beta.handle() : nullptr;
  p.previous = ports.previous;
  p.previous_weights = ports.previous_weights;
  p.continuation = ports.continuation;
  p.actions = ports.actions;
}

void Model::describe_observation() {
  const Parts& own = *parts_;
  models::Json names = models::Json::array();
  for (const Camera& camera : own.face.cameras) {
    if (camera.key.empty()) continue;
    names.push_back(
        {{"name", camera.key},
         {"kind", "image"},
         {"shape", models::Json::array({nullptr, nullptr, 3})},  // any size: it is resized
         {"required", camera.required}});
  }
  for (const std::string& key : own.face.state_keys) {
    models::Json state = {{"name", key}, {"kind", "state"}, {"required", true}};
    // Of several the sizes are the client's: only their sum is known.
    if (own.face.state_keys.size() == 1 && own.face.state_dim > 0) {
      state["shape"] = models::Json::array({own.face.state_dim});
    }
    names.push_back(std::move(state));
  }
  names_json_ = names.dump();
  models::Json metadata = {{"model", name_},
                           {"policy", own.face.name},
                           {"horizon", config_.horizon},
                           {"action_dim", own.face.action_dim}};
  if (own.face.adapt_to_pi) metadata["reset_pose"] = {0, -1.5, 1.5, 0, 0, 0};
  metadata_json_ = metadata.dump();
}

}  // namespace frt::pi05
