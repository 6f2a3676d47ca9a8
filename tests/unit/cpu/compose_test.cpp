// SPDX-License-Identifier: Apache-2.0
// frt/compose.hpp on the CPU backend: fused kernels and compositions give the same, and what is
// missing is reported at once.
#include <doctest/doctest.h>

#include <algorithm>
#include <frt/compose.hpp>
#include <set>

#include "sequence_tools.hpp"

namespace {

using namespace frt::cpu_test;

// An exec table that knows how to resolve kernels of a CpuDevice, less those it is told to hide.
// Kernels take the formats of their descriptors, but for an embedding, which takes `table_formats`.
class Exec {
 public:
  explicit Exec(CpuDevice& device, std::set<std::string> hidden = {},
                frt::WeightFormats table_formats = {})
      : device_(device), hidden_(std::move(hidden)), table_formats_(std::move(table_formats)) {
    table_.struct_size = sizeof(table_);
    table_.kernels_resolve = [](frt_context context, frt_kernel_owner, const char* const* names,
                                uint64_t count, frt_dtype_set, frt_dtype_set,
                                const frt_weight_format* formats, uint32_t format_count,
                                frt_kernel* kernels, frt_error*) -> frt_status {
      auto& self = *reinterpret_cast<Exec*>(context);
      for (uint64_t i = 0; i < count; ++i) {
        CHECK(names[i][0] == '?');  // which ones are required is decided afterwards
        const std::string name = names[i] + 1;
        kernels[i] = {};
        if (self.hidden_.count(name)) continue;
        if (name == FRT_OP_EMBED) {
          self.asked_ = {};
          for (uint32_t k = 0; k < format_count; ++k) self.asked_.add(formats[k]);
          if (!self.takes_table_formats(self.asked_)) continue;
        }
        try {
          kernels[i] = self.device_.kernel(name).kernel;
        } catch (const frt::Error&) {
        }
      }
      return FRT_OK;
    };
  }
  frt::Context context() { return {&table_, reinterpret_cast<frt_context>(this)}; }
  frt::Recorder recorder() {
    return {context(), frt_recorder{sizeof(frt_recorder), 0, context(), nullptr, device_.stream()}};
  }
  // The formats that an embedding was asked for last.
  const frt::WeightFormats& asked() const { return asked_; }
  void sync() { frt::check(device_.backend().stream_sync(device_.stream()), "stream_sync"); }

 private:
  bool takes_table_formats(const frt::WeightFormats& formats) const {
    return std::all_of(formats.begin(), formats.end(), [&](const frt_weight_format& format) {
      return frt::weight_taken({table_formats_.data(), table_formats_.size()}, format);
    });
  }

  CpuDevice& device_;
  std::set<std::string> hidden_;
  frt::WeightFormats table_formats_, asked_;
  frt_exec_v1 table_{};
};

frt_weight weight(Array& data, int32_t rows, int32_t cols) {
  frt_weight w{};
  w.format = data.dtype() == FRT_DTYPE_F32 ? frt::kWeightF32 : frt::kWeightBf16;
  w.rows = rows;
  w.cols = cols;
  w.data = data.data();
  return w;
}

double tolerance_of(frt_dtype dtype) {
  return dtype == FRT_DTYPE_F32 ? 1e-5 : 1e-2;
}

// Runs `body` with the fused kernels and composed; returns both results.
template <class Body>
std::pair<Array, Array> both(CpuDevice& device, frt_dtype dtype, Body&& body) {
  Exec exec(device);
  const frt::WeightFormats weights = {frt::kWeightBf16, frt::kWeightF32};
  const frt::Operators fused(exec.context(), frt::KernelTypes(dtype), weights);
  const frt::Operators composed(exec.context(), frt::KernelTypes(dtype), weights, {},
                                frt::Fusion::kCompose);
  return {body(fused, exec), body(composed, exec)};
}

}  // namespace

TEST_CASE("norm_linears and norm_gate_up: fused and composed agree") {
  CpuDevice device({.threads = 2});
  for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
    for (const int32_t rows : {1, 3, 40}) {
      const auto [fused, composed] =
          both(device, dtype, [&](const frt::Operators& ops, Exec& exec) {
            Random random(4);
            const auto n = static_cast<std::size_t>(rows);
            Array residual = random.array(dtype, n * 96);
            Array delta = random.array(dtype, n * 96);
            Array x(dtype, n * 96);
            Array w0 = random.array(dtype, 64 * 96, 0.1f);
            Array w1 = random.array(dtype, 32 * 96, 0.1f);
            Array y(dtype, n * (64 + 32 + 64 + 64));
            const std::vector<float> norm = random.floats(96, 0.5f, 1.5f);
            const auto part_of_y = [&](std::size_t columns) {
              return static_cast<std::byte*>(y.data()) + n * columns * y.element();
            };
            const frt_linear_part parts[2] = {{weight(w0, 64, 96), part_of_y(0), 64},
                                              {weight(w1, 32, 96), part_of_y(64), 32}};
            frt_norm_linears_args args{};
            args.residual_dtype = args.dtype = dtype;
            args.rows = rows;
            args.part_count = 2;
            args.epsilon = 1e-6f;
            args.residual = residual.data();
            args.delta = delta.data();
            args.norm_weight = norm.data();
            args.x = x.data();
            args.parts = parts;
            ops.norm_linears(exec.recorder(), args);
            frt_norm_gate_up_args mlp{};
            mlp.residual_dtype = mlp.dtype = dtype;
            mlp.rows = rows;
            mlp.epsilon = 1e-6f;
            mlp.residual = residual.data();
            mlp.norm_weight = norm.data();
            mlp.x = x.data();
            mlp.gate_weight = weight(w0, 64, 96);
            Array up = random.array(dtype, 64 * 96, 0.1f);
            mlp.up_weight = weight(up, 64, 96);
            Array gate(dtype, n * 64);
            mlp.gate = gate.data();
            mlp.h = part_of_y(96);
            ops.norm_gate_up(exec.recorder(), mlp);
            exec.sync();
            return y;
          });
      CHECK(worst_error(fused, composed, fused.size()) < tolerance_of(dtype));
    }
  }
}

TEST_CASE("moe_block: fused and composed agree, with and without a shared expert") {
  CpuDevice device({.threads = 2});
  for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
    for (const bool shared : {true, false}) {
      for (const int32_t rows : {1, 5}) {
        const auto [fused,
                    composed] = both(device, dtype, [&](const frt::Operators& ops, Exec& exec) {
          Random random(4);
          const auto n = static_cast<std::size_t>(rows);
          Array residual = random.array(dtype, n * 64);
          Array x(dtype, n * 64), y(dtype, n * 64);
          Array router = random.array(dtype, 6 * 64, 1.0f);
          Array gate = random.array(dtype, 6 * 32 * 64, 0.1f);
          Array up = random.array(dtype, 6 * 32 * 64, 0.1f);
          Array down = random.array(dtype, 6 * 32 * 64, 0.1f);
          Array shared_gate = random.array(dtype, 64, 0.1f);
          const std::vector<float> norm = random.floats(64, 0.5f, 1.5f);
          std::vector<float> logits(n * 6), weights(n * 2), shared_scale(n);
          std::vector<int32_t> ids(n * 2);
          Array shared_hidden(dtype, n * 64), shared_y(dtype, n * 64);
          const auto expert = [](Array& data, int32_t width, int32_t inputs) {
            return frt_expert_weight{weight(data, width, inputs),
                                     static_cast<int64_t>(32 * 64 * data.element()), 0, 0, nullptr};
          };
          frt_moe_block_args args{};
          args.residual_dtype = args.dtype = dtype;
          args.rows = rows;
          args.experts = 6;
          args.experts_per_token = 2;
          args.normalise = 1;
          args.epsilon = 1e-6f;
          args.residual = residual.data();
          args.norm_weight = norm.data();
          args.x = x.data();
          args.router = weight(router, 6, 64);
          args.gate = expert(gate, 32, 64);
          args.up = expert(up, 32, 64);
          args.down = expert(down, 64, 32);
          args.shared_gate_weight = weight(gate, shared ? 32 : 0, 64);
          args.shared_up_weight = weight(up, shared ? 32 : 0, 64);
          args.shared_down_weight = weight(down, 64, 32);
          args.shared_expert_gate = weight(shared_gate, 1, 64);
          args.logits = logits.data();
          args.ids = ids.data();
          args.weights = weights.data();
          args.shared_hidden = shared_hidden.data();
          args.shared_y = shared_y.data();
          args.shared_scale = shared_scale.data();
          args.y = y.data();
          ops.moe_block(exec.recorder(), args);
          exec.sync();
          return y;
        });
        CHECK(worst_error(fused, composed, fused.size()) < tolerance_of(dtype));
      }
    }
  }
}

TEST_CASE("the blocks of sequences: fused and composed agree bit for bit on valid rows") {
  CpuDevice device({.threads = 2});
  for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
    for (const int32_t length : {1, 20}) {
      const auto [fused,
                  composed] = both(device, dtype, [&](const frt::Operators& ops, Exec& exec) {
        Random random(6);
        const auto n = static_cast<std::size_t>(length);
        const Batch batch = one_sequence(length);
        // delta: 1 key head, 2 value heads of 8; attention: 2 heads over 1 of 8
        Array u = random.array(dtype, n * 32), c(dtype, n * 32), z = random.array(dtype, n * 16);
        Array a = random.array(dtype, n * 2), b = random.array(dtype, n * 2), o(dtype, n * 16);
        Array window(dtype, 3 * 32), y(dtype, 2 * n * 16);
        std::vector<float> state(2 * 64, 0.0f);
        const std::vector<float> conv = random.floats(4 * 32, -1, 1);
        const std::vector<float> decay = {-0.5f, -0.01f}, bias = {0.1f, 0.2f}, ones(8, 1.0f);
        frt_gated_delta_block_args delta{};
        delta.epsilon = 1e-6f;
        delta.conv.dtype = delta.delta.dtype = dtype;
        delta.conv.sequences = delta.delta.sequences = batch.view();
        delta.conv.channels = 32;
        delta.conv.width = 4;
        delta.conv.u = u.data();
        delta.conv.conv_weight = conv.data();
        delta.conv.window = window.data();
        delta.conv.slot_stride = 3 * 32 * 4;
        delta.conv.c = c.data();
        delta.delta.key_heads = 1;
        delta.delta.value_heads = 2;
        delta.delta.key_dim = delta.delta.value_dim = 8;
        delta.delta.chunk = 64;
        delta.delta.c = c.data();
        delta.delta.a = a.data();
        delta.delta.b = b.data();
        delta.delta.decay = decay.data();
        delta.delta.dt_bias = bias.data();
        delta.delta.state = state.data();
        delta.delta.slot_stride = 2 * 64 * 4;
        delta.delta.o = o.data();
        delta.z = z.data();
        delta.norm_weight = ones.data();
        delta.y = y.data();
        ops.gated_delta_block(exec.recorder(), delta);

        Array keys(dtype, 32 * 8), values(dtype, 32 * 8), q_out(dtype, n * 16);
        const std::vector<float> inv_freq = {1.0f, 0.1f};
        frt_attention_block_args block{};
        block.append.dtype = block.attention.dtype = dtype;
        block.append.kv_dtype = block.attention.kv_dtype = dtype;
        block.append.sequences = block.attention.sequences = batch.view();
        block.append.heads = block.attention.heads = 2;
        block.append.kv_heads = block.attention.kv_heads = 1;
        block.append.head_dim = block.attention.head_dim = 8;
        block.append.max_rows = block.attention.max_rows = 32;
        block.append.rotary_dim = 4;
        block.append.q = u.data();
        block.append.q_row_stride = 16;
        block.append.q_head_stride = 8;
        block.append.k = z.data();
        block.append.v = u.data();
        block.append.inv_freq = inv_freq.data();
        block.append.rope_scale = block.append.k_scale = block.append.v_scale = 1.0f;
        block.append.keys = keys.data();
        block.append.values = values.data();
        block.append.slot_stride = block.attention.slot_stride = 32 * 8 * 4;
        block.append.q_out = q_out.data();
        block.attention.scale = 0.3f;
        block.attention.q = q_out.data();
        block.attention.keys = keys.data();
        block.attention.values = values.data();
        block.attention.k_scale = block.attention.v_scale = 1.0f;
        block.attention.y = static_cast<std::byte*>(y.data()) + n * 16 * y.element();
        ops.attention_block(exec.recorder(), block);
        exec.sync();
        return y;
      });
      CHECK(fused.bytes() == composed.bytes());
    }
  }
}

TEST_CASE("the layers of a flow expert: fused and composed agree, layer by layer, too") {
  CpuDevice device({.threads = 2});
  constexpr int32_t kRows = 3, kWidth = 16, kHidden = 24, kContextRows = 5;
  for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
    const auto run = [&](const frt::Operators& ops, Exec& exec, bool single) {
      Random random(8);
      // Two heads over one of 8, two sequences that share a context.
      const std::size_t rows = 2 * kRows;
      Array x = random.array(dtype, rows * kWidth);
      Array normed(dtype, rows * kWidth), q(dtype, rows * 16), kv(dtype, rows * 16);
      Array y(dtype, rows * 16), gate(dtype, rows * kHidden), h(dtype, rows * kHidden);
      Array narrow = random.array(dtype, 16 * kWidth, 0.3f);
      Array wide = random.array(dtype, 2 * kHidden * kWidth, 0.3f);
      Array context = random.array(dtype, kContextRows * 16);
      const std::vector<float> table = random.floats((kContextRows + kRows) * 8, -1, 1);
      const std::vector<float> norms = random.floats(4 * 3 * kWidth, -0.5f, 0.5f);
      const int32_t length = 4, clean_rows = 1;
      frt_flow_layer layers[2] = {};
      for (int i = 0; i < 2; ++i) {
        frt_flow_layer& layer = layers[i];
        layer.query = layer.key_value = layer.output = weight(narrow, 16, kWidth);
        layer.gate = weight(wide, kHidden, kWidth);
        layer.up = layer.gate;
        layer.down = weight(wide, kWidth, kHidden);
        const float* norm = norms.data() + i * 2 * 3 * kWidth;
        layer.attention_norm = {norm, norms.data(), &clean_rows, kRows, 0};
        layer.hidden_norm = {norm + 3 * kWidth, norms.data(), &clean_rows, kRows, 0};
        layer.context_k = context.data();
        layer.context_v = static_cast<std::byte*>(context.data()) + 8 * context.element();
      }
      frt_flow_layers_args args{};
      args.x_dtype = args.dtype = dtype;
      args.layer_count = single ? 1 : 2;
      args.count = 2;
      args.rows = kRows;
      args.width = kWidth;
      args.hidden = kHidden;
      args.heads = 2;
      args.kv_heads = 1;
      args.head_dim = 8;
      args.epsilon = 1e-6f;
      args.scale = 0.3f;
      args.context_rows = kContextRows;
      args.sequences_per_context = 2;
      args.positions = kContextRows + kRows;
      args.context_length = &length;
      args.context_stride = 16;
      args.table = table.data();
      args.layers = layers;
      args.x = x.data();
      args.normed = normed.data();
      args.q = q.data();
      args.kv = kv.data();
      args.y = y.data();
      args.gate = gate.data();
      args.h = h.data();
      ops.flow_layers(exec.recorder(), args);
      if (single) {
        args.layers = layers + 1;
        ops.flow_layers(exec.recorder(), args);
      }
      exec.sync();
      return x;
    };
    const auto [whole, composed] = both(device, dtype, [&](const frt::Operators& ops, Exec& exec) {
      return run(ops, exec, false);
    });
    CHECK(worst_error(whole, composed, whole.size()) < tolerance_of(dtype));
    Exec exec(device);
    const frt::Operators ops(exec.context(), frt::KernelTypes(dtype), frt::kWeightF32);
    CHECK(run(ops, exec, true).bytes() == whole.bytes());
  }
}

TEST_CASE("a missing fused kernel is composed, a missing part is reported with everything else") {
  CpuDevice device({.threads = 1});
  {
    Exec exec(device, {FRT_OP_NORM_LINEARS, FRT_OP_ATTENTION_BLOCK});
    const frt::Operators ops(exec.context(), frt::KernelTypes(FRT_DTYPE_BF16), {});
    CHECK_FALSE(ops.has_kernel(FRT_OP_NORM_LINEARS));
    CHECK(ops.has_kernel(FRT_OP_ATTENTION));
  }
  {  // the parts of a kernel that is there need not be
    Exec exec(device, {FRT_OP_CAUSAL_CONV, FRT_OP_GATED_DELTA});
    CHECK_NOTHROW(frt::Operators(exec.context(), frt::KernelTypes(FRT_DTYPE_BF16), {},
                                 {FRT_OP_GATED_DELTA_BLOCK}));
  }
  Exec exec(device, {FRT_OP_EMBED, FRT_OP_ATTENTION_BLOCK, FRT_OP_ATTENTION, FRT_OP_SAMPLE});
  try {
    frt::Operators(exec.context(), frt::KernelTypes(FRT_DTYPE_BF16), {},
                   {FRT_OP_EMBED, FRT_OP_ATTENTION_BLOCK, FRT_OP_NORM_LINEARS, FRT_OP_SAMPLE});
    FAIL("nothing was reported");
  } catch (const frt::Error& error) {
    CHECK(error.status() == FRT_ERR_NOT_FOUND);
    const std::string text = error.what();
    CHECK(text.find(FRT_OP_EMBED) != std::string::npos);
    CHECK(text.find("frt.attention/1 (or frt.attention_block/1)") != std::string::npos);
    CHECK(text.find(FRT_OP_SAMPLE) != std::string::npos);
    CHECK(text.find(FRT_OP_NORM_LINEARS) == std::string::npos);
  }
}

TEST_CASE("an embedding table may have any of the model's formats that the backend's embed takes") {
  constexpr frt_weight_format kInt4 = {
      FRT_DTYPE_U4, FRT_DTYPE_F16, FRT_DTYPE_NONE, 1, 32, 0, FRT_WEIGHT_MIDPOINT_ZERO};
  CpuDevice device({.threads = 1});
  Exec exec(device, {}, {frt::kWeightBf16, kInt4});
  const frt::Operators ops(exec.context(), frt::KernelTypes(FRT_DTYPE_BF16),
                           {frt::kWeightBf16, frt::kWeightNvfp4, kInt4}, {FRT_OP_EMBED});
  CHECK(ops.has_kernel(FRT_OP_EMBED));
  CHECK(exec.asked() == frt::WeightFormats{frt::kWeightBf16, kInt4});
}

TEST_CASE("a name that is no operator of the headers is refused") {
  CpuDevice device({.threads = 1});
  Exec exec(device);
  CHECK_THROWS_AS(
      frt::Operators(exec.context(), frt::KernelTypes(FRT_DTYPE_F32), {}, {"acme.secret/1"}),
      frt::Error);
}
