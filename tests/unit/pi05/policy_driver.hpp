// SPDX-License-Identifier: Apache-2.0
// policy_driver.hpp - a policy driven by hand through its role, as a host does it.
#pragma once

#include <frt/observation.h>
#include <frt/role/policy.h>

#include <random>
#include <string>
#include <vector>

#include "model_rig.hpp"

namespace frt::test {

inline std::string policy_checkpoint(const std::string& name) {
  return (kFixtures / "pi05" / name).string();
}
inline std::string tokenizer_option() {
  return "\ntokenizer = \"" + (kFixtures / "pi05" / "tokenizer" / "tokenizer.model").string() +
         "\"\n";
}

class PolicyDriver {
 public:
  explicit PolicyDriver(const ModelRig& rig)
      : rig_(rig),
        role(rig.extension<frt_role_policy_v1>(FRT_EXT_ROLE_POLICY)),
        stream(rig.context.create_stream("test")) {
    info.struct_size = sizeof(info);
    check(role->info(rig.model, &info), "role info");
  }

  template <class T>
  void write(frt_buffer buffer, const std::vector<T>& values, uint64_t offset = 0) const {
    Buffer::retain(rig_.context, buffer).upload(values, stream, offset);
  }
  template <class T>
  std::vector<T> read(frt_buffer buffer, uint64_t count) const {
    return Buffer::retain(rig_.context, buffer).download<T>(count, stream);
  }

  // Random images and noise; every view is there.
  void fill(uint64_t seed) const {
    std::mt19937_64 random(seed);
    const uint64_t pixels = uint64_t{info.views} * info.image_height * info.image_width * 3;
    if (info.image_dtype == FRT_DTYPE_U8) {
      std::vector<uint8_t> images(pixels);
      for (uint8_t& pixel : images) pixel = static_cast<uint8_t>(random());
      write(info.images, images);
    } else {
      std::vector<float> images(pixels);
      for (float& pixel : images) pixel = static_cast<float>(random() % 256) / 127.5f - 1;
      write(info.images, images);
    }
    set_mask(std::vector<int32_t>(info.views, 1));
    set_noise(seed);
  }
  void set_noise(uint64_t seed) const {
    std::mt19937_64 random(seed + 1);
    std::normal_distribution<float> normal;
    std::vector<float> noise(uint64_t{info.max_samples} * info.horizon * info.action_dim);
    for (float& value : noise) value = normal(random);
    write(info.noise, noise);
  }
  void set_mask(const std::vector<int32_t>& mask) const { write(info.view_mask, mask); }
  void set_tokens(uint32_t branch, const std::vector<int32_t>& ids) const {
    write(info.prompt_tokens, ids, uint64_t{branch} * info.max_prompt * 4);
    write(info.prompt_length, std::vector<int32_t>{static_cast<int32_t>(ids.size())},
          uint64_t{branch} * 4);
  }

  using KeyFunction = frt_status (*)(frt_model, const frt_policy_shape*, frt_shape_key*);
  frt_shape_key key(KeyFunction function, const frt_policy_shape& shape) const {
    frt_shape_key key = 0;
    check(function(rig_.model, &shape, &key), "key");
    return key;
  }
  void replay(frt_graph graph, KeyFunction function, const frt_policy_shape& shape) const {
    check(rig_.context.table().graph_replay(graph, key(function, shape), stream), "replay");
  }
  void observe(const frt_policy_shape& shape) const {
    replay(info.observe, role->observe_key, shape);
  }
  void vision(const frt_policy_shape& shape) const { replay(info.vision, role->vision_key, shape); }
  void prefix(const frt_policy_shape& shape) const { replay(info.prefix, role->prefix_key, shape); }
  static frt_policy_shape shape(uint32_t views, uint32_t prompt, uint32_t branches = 0) {
    return {sizeof(frt_policy_shape), views, prompt, 0, 0, branches};
  }
  std::vector<float> act(const frt_policy_shape& shape) const {
    replay(info.act, role->act_key, shape);
    return actions(shape);
  }
  std::vector<float> infer(const frt_policy_shape& shape) const {
    replay(info.infer, role->infer_key, shape);
    return actions(shape);
  }
  std::vector<float> actions(const frt_policy_shape& shape) const {
    return read<float>(info.actions,
                       uint64_t{std::max(1u, shape.samples)} * info.horizon * info.action_dim);
  }

 private:
  const ModelRig& rig_;

 public:
  const frt_role_policy_v1* role;
  frt_policy_info info{};
  Stream stream;
};

}  // namespace frt::test
