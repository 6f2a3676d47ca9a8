// SPDX-License-Identifier: Apache-2.0
// The sequence operators against tensors of a real framework (tests/fixtures/qwen36/dense): one
// gated delta layer and one attention layer, f32, products in double by this test.
#include <doctest/doctest.h>
#include <frt/ops/attention.h>
#include <frt/ops/gated_delta.h>
#include <frt/ops/norm.h>

#include <frt/models/formats.hpp>
#include <frt/models/safetensors.hpp>

#include "sequence_tools.hpp"

namespace {

using namespace frt::cpu_test;
using frt::models::Checkpoint;

const std::string kFolder = std::string(FRT_FIXTURES_DIR) + "/qwen36/dense/";

std::vector<float> values(const Checkpoint& file, const std::string& name) {
  const frt::models::TensorView& tensor = file.get(name);
  std::vector<float> result(tensor.elements());
  frt::models::convert_to_f32(tensor.dtype, tensor.read().data(), result.size(), result.data());
  return result;
}

std::vector<int32_t> ids(const Checkpoint& file, const std::string& name) {
  const frt::models::TensorView& tensor = file.get(name);
  std::vector<int32_t> result(tensor.elements());
  tensor.read(0, std::as_writable_bytes(std::span(result)));
  return result;
}

// Norm weights of this family are stored less one.
std::vector<float> plus_one(std::vector<float> weight) {
  for (float& value : weight) value += 1.0f;
  return weight;
}

// y = x W^T, rows of `inputs` values.
std::vector<float> product(const std::vector<float>& x, const std::vector<float>& weight,
                           std::size_t inputs) {
  const std::size_t rows = x.size() / inputs;
  const std::size_t outputs = weight.size() / inputs;
  std::vector<float> y(rows * outputs);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t o = 0; o < outputs; ++o) {
      double sum = 0;
      for (std::size_t i = 0; i < inputs; ++i) {
        sum += static_cast<double>(x[r * inputs + i]) * static_cast<double>(weight[o * inputs + i]);
      }
      y[r * outputs + o] = static_cast<float>(sum);
    }
  }
  return y;
}

std::vector<float> normed(CpuDevice& device, std::vector<float>& x, std::vector<float> weight) {
  std::vector<float> y(x.size());
  frt_rms_norm_args args{};
  args.x_dtype = args.y_dtype = FRT_DTYPE_F32;
  args.width = static_cast<int32_t>(weight.size());
  args.rows = static_cast<int32_t>(x.size() / weight.size());
  args.epsilon = 1e-6f;
  args.x = x.data();
  args.weight = weight.data();
  args.y = y.data();
  args.x_stride = args.y_stride = args.width;
  device.run(FRT_OP_RMS_NORM, args);
  return y;
}

constexpr std::size_t kHidden = 128;

}  // namespace

TEST_CASE("a gated delta layer reproduces the framework's output, window and state") {
  const Checkpoint model = Checkpoint::open(kFolder + "model.safetensors");
  const Checkpoint golden = Checkpoint::open(kFolder + "goldens.safetensors");
  const std::string layer = "model.language_model.layers.0.";
  const auto weight = [&](const std::string& name) { return values(model, layer + name); };
  constexpr std::size_t kChannels = 1280, kHeads = 6, kDim = 128;
  const std::vector<int32_t> prompt = ids(golden, "t150.ids");
  const std::size_t rows = prompt.size();

  for (const char* numerics : {"fast", "reference"}) {
    for (const std::size_t first : {std::size_t{0}, std::size_t{64}, std::size_t{149}}) {
      CAPTURE(numerics);
      CAPTURE(first);
      CpuDevice device({.threads = 2, .numerics = numerics});
      const std::vector<float> table = values(model, "model.language_model.embed_tokens.weight");
      std::vector<float> x;
      for (const int32_t id : prompt) {
        const auto* row = table.data() + static_cast<std::size_t>(id) * kHidden;
        x.insert(x.end(), row, row + kHidden);
      }
      x = normed(device, x, plus_one(weight("input_layernorm.weight")));
      const std::vector<float> u = product(x, weight("linear_attn.in_proj_qkv.weight"), kHidden);
      const std::vector<float> z = product(x, weight("linear_attn.in_proj_z.weight"), kHidden);
      const std::vector<float> a = product(x, weight("linear_attn.in_proj_a.weight"), kHidden);
      const std::vector<float> b = product(x, weight("linear_attn.in_proj_b.weight"), kHidden);
      const std::vector<float> taps = weight("linear_attn.conv1d.weight");
      std::vector<float> conv_weight(taps.size());  // (width, channels)
      for (std::size_t i = 0; i < kChannels; ++i) {
        for (std::size_t w = 0; w < 4; ++w) conv_weight[w * kChannels + i] = taps[i * 4 + w];
      }
      std::vector<float> decay = weight("linear_attn.A_log");
      for (float& value : decay) value = -std::exp(value);
      const std::vector<float> dt_bias = weight("linear_attn.dt_bias");
      const std::vector<float> norm = weight("linear_attn.norm.weight");
      std::vector<float> c(u.size()), o(z.size()), y(z.size());
      std::vector<float> window(3 * kChannels, 0.0f), state(kHeads * kDim * kDim, 0.0f);

      // The prompt in one call, or cut in two.
      for (const auto& [begin, end] : {std::pair{std::size_t{0}, first}, std::pair{first, rows}}) {
        if (begin == end) continue;
        const Batch batch = one_sequence(static_cast<int32_t>(end - begin));
        frt_gated_delta_block_args args{};
        args.epsilon = 1e-6f;
        args.conv.struct_size = sizeof(args.conv);
        args.delta.struct_size = sizeof(args.delta);
        args.conv.dtype = args.delta.dtype = FRT_DTYPE_F32;
        args.conv.sequences = args.delta.sequences = batch.view();
        args.conv.channels = kChannels;
        args.conv.width = 4;
        args.conv.u = u.data() + begin * kChannels;
        args.conv.conv_weight = conv_weight.data();
        args.conv.window = window.data();
        args.conv.slot_stride = 3 * kChannels * 4;
        args.conv.c = c.data() + begin * kChannels;
        args.delta.key_heads = 2;
        args.delta.value_heads = kHeads;
        args.delta.key_dim = args.delta.value_dim = kDim;
        args.delta.chunk = 64;
        args.delta.c = args.conv.c;
        args.delta.a = a.data() + begin * kHeads;
        args.delta.b = b.data() + begin * kHeads;
        args.delta.decay = decay.data();
        args.delta.dt_bias = dt_bias.data();
        args.delta.state = state.data();
        args.delta.slot_stride = kHeads * kDim * kDim * 4;
        args.delta.o = o.data() + begin * kHeads * kDim;
        args.z = z.data() + begin * kHeads * kDim;
        args.norm_weight = norm.data();
        args.y = y.data() + begin * kHeads * kDim;
        device.run(FRT_OP_GATED_DELTA_BLOCK, args);
      }

      CHECK(worst_error(state, values(golden, "t150.S.0"), state.size()) < 1e-4);
      const std::vector<float> golden_conv = values(golden, "t150.conv.0");  // (channels, 3)
      std::vector<float> transposed(window.size());
      for (std::size_t i = 0; i < window.size(); ++i) {
        transposed[i % kChannels * 3 + i / kChannels] = window[i];
      }
      CHECK(worst_error(transposed, golden_conv, window.size()) < 1e-4);
      const std::vector<float> mixer =
          product(y, weight("linear_attn.out_proj.weight"), kHeads * kDim);
      const std::vector<float> golden_mixer = values(golden, "t150.mixer");
      const std::vector<int32_t> selected = ids(golden, "t150.rows");
      for (std::size_t i = 0; i < selected.size(); ++i) {
        const auto* found = mixer.data() + static_cast<std::size_t>(selected[i]) * kHidden;
        CHECK(worst_error(found, golden_mixer.data() + i * kHidden, kHidden) < 1e-4);
      }
    }
  }
}

TEST_CASE("an attention layer reproduces the framework's output, keys and values") {
  const Checkpoint model = Checkpoint::open(kFolder + "model.safetensors");
  const Checkpoint golden = Checkpoint::open(kFolder + "goldens.safetensors");
  const std::string layer = "model.language_model.layers.3.";
  const auto weight = [&](const std::string& name) { return values(model, layer + name); };
  constexpr std::size_t kHeads = 4, kKvHeads = 2, kDim = 256, kLayer = 3, kPositions = 150;
  const std::vector<int32_t> selected = ids(golden, "t150.rows");
  const std::size_t rows = selected.size();

  for (const char* numerics : {"fast", "reference"}) {
    CpuDevice device({.threads = 2, .numerics = numerics});
    const std::vector<float> residual = values(golden, "t150.residual");
    std::vector<float> x(
        residual.begin() + static_cast<std::ptrdiff_t>((kLayer - 1) * rows * kHidden),
        residual.begin() + static_cast<std::ptrdiff_t>(kLayer * rows * kHidden));
    x = normed(device, x, plus_one(weight("input_layernorm.weight")));
    const std::vector<float> qg = product(x, weight("self_attn.q_proj.weight"), kHidden);
    const std::vector<float> k = product(x, weight("self_attn.k_proj.weight"), kHidden);
    const std::vector<float> v = product(x, weight("self_attn.v_proj.weight"), kHidden);
    const std::vector<float> q_norm = plus_one(weight("self_attn.q_norm.weight"));
    const std::vector<float> k_norm = plus_one(weight("self_attn.k_norm.weight"));
    std::vector<float> inv_freq;
    for (int j = 0; j < 32; ++j) {
      inv_freq.push_back(static_cast<float>(std::pow(1e7, -2.0 * j / 64)));
    }
    // The framework's keys and values are (kv head, position, dim), ours (position, kv head, dim).
    const auto arranged = [&](const std::string& name) {
      const std::vector<float> from = values(golden, name);
      const std::size_t stored = from.size() / kKvHeads / kDim;
      std::vector<float> to(kPositions * kKvHeads * kDim);
      for (std::size_t i = 0; i < to.size(); ++i) {
        const std::size_t p = i / (kKvHeads * kDim), h = i / kDim % kKvHeads;
        to[i] = from[(h * stored + p) * kDim + i % kDim];
      }
      return to;
    };
    const std::vector<float> golden_keys = arranged("t150.k.3");
    const std::vector<float> golden_values = arranged("t150.v.3");
    std::vector<float> keys = golden_keys, all_values = golden_values;
    std::vector<float> q_out(rows * kHeads * kDim), y(q_out.size());
    for (std::size_t i = 0; i < rows; ++i) {
      const Batch batch = one_sequence(1, 1, selected[i]);
      frt_attention_block_args args{};
      args.append.struct_size = sizeof(args.append);
      args.attention.struct_size = sizeof(args.attention);
      args.append.dtype = args.attention.dtype = FRT_DTYPE_F32;
      args.append.kv_dtype = args.attention.kv_dtype = FRT_DTYPE_F32;
      args.append.epsilon = 1e-6f;
      args.append.sequences = args.attention.sequences = batch.view();
      args.append.heads = args.attention.heads = kHeads;
      args.append.kv_heads = args.attention.kv_heads = kKvHeads;
      args.append.head_dim = args.attention.head_dim = kDim;
      args.append.max_rows = args.attention.max_rows = kPositions;
      args.append.rotary_dim = 64;
      args.append.q = qg.data() + i * 2 * kHeads * kDim;
      args.append.q_row_stride = 2 * kHeads * kDim;
      args.append.q_head_stride = 2 * kDim;
      args.append.k = k.data() + i * kKvHeads * kDim;
      args.append.v = v.data() + i * kKvHeads * kDim;
      args.append.q_norm = q_norm.data();
      args.append.k_norm = k_norm.data();
      args.append.inv_freq = inv_freq.data();
      args.append.rope_scale = 1.0f;
      args.append.keys = keys.data();
      args.append.values = all_values.data();
      args.append.slot_stride = args.attention.slot_stride = kPositions * kKvHeads * kDim * 4;
      args.append.q_out = q_out.data() + i * kHeads * kDim;
      args.attention.scale = 1.0f / 16;
      args.attention.q = args.append.q_out;
      args.attention.keys = keys.data();
      args.attention.values = all_values.data();
      args.attention.gate = qg.data() + i * 2 * kHeads * kDim + kDim;
      args.attention.gate_row_stride = 2 * kHeads * kDim;
      args.attention.gate_head_stride = 2 * kDim;
      args.attention.y = y.data() + i * kHeads * kDim;
      device.run(FRT_OP_ATTENTION_BLOCK, args);
    }
    CHECK(keys != golden_keys);  // they were stored anew
    CHECK(worst_error(keys, golden_keys, keys.size()) < 1e-4);
    CHECK(worst_error(all_values, golden_values, keys.size()) < 1e-4);
    const std::vector<float> mixer = product(y, weight("self_attn.o_proj.weight"), kHeads * kDim);
    const std::vector<float> golden_mixer = values(golden, "t150.mixer");
    CHECK(worst_error(mixer.data(), golden_mixer.data() + kLayer * rows * kHidden, rows * kHidden) <
          1e-4);
  }
}
