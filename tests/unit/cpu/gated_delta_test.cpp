// SPDX-License-Identifier: Apache-2.0
// frt.causal_conv/1, frt.gated_delta/1 and frt.gated_delta_block/1 against double precision loops.
#include <doctest/doctest.h>
#include <frt/ops/gated_delta.h>
#include <frt/ops/norm.h>

#include <limits>

#include "sequence_tools.hpp"

namespace {

using namespace frt::cpu_test;

struct Shape {
  int32_t key_heads = 2, value_heads = 4, key_dim = 16, value_dim = 16, width = 4, chunk = 64;
  std::size_t channels() const {
    return static_cast<std::size_t>(2 * key_heads * key_dim + value_heads * value_dim);
  }
  std::size_t values() const { return static_cast<std::size_t>(value_heads * value_dim); }
  std::size_t state() const { return values() * static_cast<std::size_t>(key_dim); }
};

// Everything one block needs, for `slots` slots.
struct Data {
  Data(const Shape& s, frt_dtype dtype, const Batch& sequences, int32_t slot_count, uint32_t seed)
      : shape(s),
        batch(sequences),
        slots(static_cast<std::size_t>(slot_count)),
        random(seed),
        u(random.array(dtype, sequences.all_rows() * s.channels())),
        c(dtype, u.size(), 7.0f),
        a(random.array(dtype, sequences.all_rows() * static_cast<std::size_t>(s.value_heads),
                       2.0f)),
        b(random.array(dtype, a.size(), 2.0f)),
        z(random.array(dtype, sequences.all_rows() * s.values())),
        o(dtype, z.size(), 7.0f),
        y(dtype, z.size(), 7.0f),
        window(random.array(dtype, slots * s.channels() * static_cast<std::size_t>(s.width - 1))),
        state(random.floats(slots * s.state(), -0.5f, 0.5f)),
        conv_weight(random.floats(s.channels() * static_cast<std::size_t>(s.width), -1.0f, 1.0f)),
        decay(random.floats(static_cast<std::size_t>(s.value_heads), -1.5f, -0.001f)),
        dt_bias(random.floats(static_cast<std::size_t>(s.value_heads), -3.0f, 1.0f)),
        norm_weight(random.floats(static_cast<std::size_t>(s.value_dim), 0.5f, 1.5f)) {}

  frt_causal_conv_args conv_args() {
    frt_causal_conv_args args{};
    args.struct_size = sizeof(args);
    args.dtype = u.dtype();
    args.sequences = batch.view();
    args.channels = static_cast<int32_t>(shape.channels());
    args.width = shape.width;
    args.u = u.data();
    args.conv_weight = conv_weight.data();
    args.window = window.data();
    args.slot_stride = static_cast<int64_t>(window.bytes().size() / slots);
    args.c = c.data();
    return args;
  }
  frt_gated_delta_args delta_args() {
    frt_gated_delta_args args{};
    args.struct_size = sizeof(args);
    args.dtype = u.dtype();
    args.sequences = batch.view();
    args.key_heads = shape.key_heads;
    args.value_heads = shape.value_heads;
    args.key_dim = shape.key_dim;
    args.value_dim = shape.value_dim;
    args.chunk = shape.chunk;
    args.c = c.data();
    args.a = a.data();
    args.b = b.data();
    args.decay = decay.data();
    args.dt_bias = dt_bias.data();
    args.state = state.data();
    args.slot_stride = static_cast<int64_t>(shape.state() * sizeof(float));
    args.o = o.data();
    return args;
  }
  frt_gated_delta_block_args block_args() {
    frt_gated_delta_block_args args{};
    args.epsilon = 1e-6f;
    args.conv = conv_args();
    args.delta = delta_args();
    args.z = z.data();
    args.norm_weight = norm_weight.data();
    args.y = y.data();
    return args;
  }

  Shape shape;
  Batch batch;
  std::size_t slots;
  Random random;
  Array u, c, a, b, z, o, y, window;
  std::vector<float> state, conv_weight, decay, dt_bias, norm_weight;
};

// c and the new windows, by definition.
void expect_conv(const Data& before, const Data& after, double tolerance) {
  const Shape& s = before.shape;
  const std::size_t channels = s.channels();
  const auto history = static_cast<std::size_t>(s.width - 1);
  std::vector<double> c(before.c.size());
  for (std::size_t i = 0; i < c.size(); ++i) c[i] = static_cast<double>(before.c[i]);
  std::vector<double> window(before.window.size());
  for (std::size_t i = 0; i < window.size(); ++i) window[i] = static_cast<double>(before.window[i]);
  for (std::size_t b = 0; b < before.batch.count(); ++b) {
    const auto slot = static_cast<std::size_t>(before.batch.slot[b]);
    const auto length = static_cast<std::size_t>(before.batch.length[b]);
    const std::size_t row0 = b * static_cast<std::size_t>(before.batch.rows);
    for (std::size_t i = 0; i < channels && length > 0; ++i) {
      std::vector<double> line;
      for (std::size_t w = 0; w < history; ++w) {
        line.push_back(static_cast<double>(before.window[(slot * history + w) * channels + i]));
      }
      for (std::size_t t = 0; t < length; ++t) {
        line.push_back(static_cast<double>(before.u[(row0 + t) * channels + i]));
        double sum = 0;
        for (std::size_t w = 0; w <= history; ++w) {
          sum += static_cast<double>(before.conv_weight[w * channels + i]) * line[t + w];
        }
        c[(row0 + t) * channels + i] = silu(sum);
      }
      for (std::size_t w = 0; w < history; ++w) {
        window[(slot * history + w) * channels + i] = line[line.size() - history + w];
      }
    }
  }
  CHECK(worst_error(after.c, c, c.size()) < tolerance);
  CHECK(worst_error(after.window, window, window.size()) == 0.0);
}

// o and the new states from the c of `after`, as the recurrence.
void expect_delta(const Data& before, const Data& after, double tolerance) {
  const Shape& s = before.shape;
  const std::size_t channels = s.channels();
  const auto keys = static_cast<std::size_t>(s.key_dim);
  const auto values = static_cast<std::size_t>(s.value_dim);
  const auto value_heads = static_cast<std::size_t>(s.value_heads);
  std::vector<double> o(before.o.size());
  for (std::size_t i = 0; i < o.size(); ++i) o[i] = static_cast<double>(before.o[i]);
  std::vector<double> state(before.state.begin(), before.state.end());
  for (std::size_t b = 0; b < before.batch.count(); ++b) {
    for (std::size_t head = 0; head < value_heads; ++head) {
      const std::size_t key_head = head / (value_heads / static_cast<std::size_t>(s.key_heads));
      double* S = state.data() + static_cast<std::size_t>(before.batch.slot[b]) * s.state() +
                  head * keys * values;
      for (std::size_t t = 0; t < static_cast<std::size_t>(before.batch.length[b]); ++t) {
        const std::size_t row = b * static_cast<std::size_t>(before.batch.rows) + t;
        std::vector<double> q(keys), k(keys), d(values);
        double q_squares = 1e-6, k_squares = 1e-6;
        for (std::size_t j = 0; j < keys; ++j) {
          q[j] = static_cast<double>(after.c[row * channels + key_head * keys + j]);
          k[j] = static_cast<double>(
              after.c[row * channels + (static_cast<std::size_t>(s.key_heads) + key_head) * keys +
                      j]);
          q_squares += q[j] * q[j];
          k_squares += k[j] * k[j];
        }
        const double x = static_cast<double>(before.a[row * value_heads + head]) +
                         static_cast<double>(before.dt_bias[head]);
        const double g =
            static_cast<double>(before.decay[head]) * (x > 20 ? x : std::log1p(std::exp(x)));
        const double beta = sigmoid(static_cast<double>(before.b[row * value_heads + head]));
        for (std::size_t j = 0; j < keys; ++j) {
          q[j] /= std::sqrt(q_squares) * std::sqrt(static_cast<double>(keys));
          k[j] /= std::sqrt(k_squares);
          for (std::size_t i = 0; i < values; ++i) {
            S[j * values + i] *= std::exp(g);
            d[i] += S[j * values + i] * k[j];
          }
        }
        for (std::size_t i = 0; i < values; ++i) {
          const std::size_t channel =
              2 * static_cast<std::size_t>(s.key_heads) * keys + head * values + i;
          d[i] = beta * (static_cast<double>(after.c[row * channels + channel]) - d[i]);
          double sum = 0;
          for (std::size_t j = 0; j < keys; ++j) {
            S[j * values + i] += k[j] * d[i];
            sum += S[j * values + i] * q[j];
          }
          o[(row * value_heads + head) * values + i] = sum;
        }
      }
    }
  }
  CHECK(worst_error(after.o, o, o.size()) < tolerance);
  CHECK(worst_error(after.state, state, state.size()) < (tolerance > 1e-3 ? 1e-3 : tolerance));
}

double tolerance_of(frt_dtype dtype) {
  return dtype == FRT_DTYPE_F32 ? 2e-5 : 5e-3;
}

const Shape kShapes[] = {
    {2, 4, 16, 16, 4, 64}, {1, 1, 128, 128, 4, 64}, {2, 6, 20, 33, 3, 16},
    {1, 3, 7, 5, 2, 7},    {2, 2, 64, 128, 8, 32},
};

}  // namespace

TEST_CASE("the convolution continues from the window of its slot and replaces it") {
  CpuDevice device({.threads = 2});
  for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
    for (const Shape& shape : kShapes) {
      const Batch batches[] = {
          one_sequence(1, 1, 5, 2), one_sequence(2, 7), {5, {3, 0, 1}, {9, 0, 4}, {5, 0, 3}}};
      for (const Batch& batch : batches) {
        CAPTURE(shape.width);
        CAPTURE(dtype);
        const Data before(shape, dtype, batch, 4, 11);
        Data after = before;
        device.run(FRT_OP_CAUSAL_CONV, after.conv_args());
        expect_conv(before, after, tolerance_of(dtype));
      }
    }
  }
}

TEST_CASE("the delta rule agrees with the recurrence for every length and shape") {
  CpuDevice device({.threads = 2});
  for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
    for (const Shape& shape : kShapes) {
      for (const int32_t length : {1, 2, 16, 17, 63, 64, 65, 127, 128, 129}) {
        CAPTURE(shape.key_dim);
        CAPTURE(shape.chunk);
        CAPTURE(length);
        CAPTURE(dtype);
        Data before(shape, dtype, one_sequence(length, length + 2, 0, 1), 2, 5);
        before.c = before.random.array(dtype, before.c.size());
        Data after = before;
        device.run(FRT_OP_GATED_DELTA, after.delta_args());
        expect_delta(before, after, tolerance_of(dtype));
      }
    }
  }
}

TEST_CASE("several slots, lengths and empty sequences in one call stay apart") {
  CpuDevice device({.threads = 2});
  Data before(kShapes[0], FRT_DTYPE_F32, {70, {4, 2, 0, 3}, {0, 7, 64, 1}, {70, 0, 18, 1}}, 5, 3);
  before.c = before.random.array(FRT_DTYPE_F32, before.c.size());
  Data after = before;
  device.run(FRT_OP_GATED_DELTA, after.delta_args());
  expect_delta(before, after, 2e-5);
}

TEST_CASE(
    "every instruction set computes the delta rule, eager and captured, any number of threads") {
  for (const std::string& isa : isa_caps()) {
    CAPTURE(isa);
    std::vector<std::byte> bits;
    for (const int64_t threads : {1, 2, 3}) {
      CpuDevice device({.threads = threads, .isa = isa});
      for (const bool captured : {false, true}) {
        for (const int32_t length : {1, 5, 130}) {
          Data before(kShapes[2], FRT_DTYPE_F32, one_sequence(length), 1, 9);
          before.c = before.random.array(FRT_DTYPE_F32, before.c.size());
          Data after = before;
          if (captured) {
            device.run_captured(FRT_OP_GATED_DELTA, after.delta_args());
          } else {
            device.run(FRT_OP_GATED_DELTA, after.delta_args());
          }
          expect_delta(before, after, 2e-5);
          if (length != 130) continue;
          if (bits.empty()) bits = after.o.bytes();
          CHECK(bits == after.o.bytes());
        }
      }
    }
  }
}

TEST_CASE("reference numerics are the recurrence itself") {
  CpuDevice device({.threads = 2, .numerics = "reference"});
  for (const Shape& shape : kShapes) {
    const Data before(shape, FRT_DTYPE_F32, one_sequence(65), 1, 21);
    Data after = before;
    device.run(FRT_OP_GATED_DELTA_BLOCK, after.block_args());
    expect_conv(before, after, 2e-6);
    expect_delta(before, after, 1e-5);
  }
}

TEST_CASE("rows computed together equal rows computed one at a time, bit for bit up to 16") {
  CpuDevice device({.threads = 2});
  for (const int32_t length : {2, 16, 40}) {
    const Data before(kShapes[1], FRT_DTYPE_BF16, one_sequence(length), 1, 31);
    Data together = before;
    device.run(FRT_OP_GATED_DELTA_BLOCK, together.block_args());
    Data apart = before;
    frt_gated_delta_block_args args = apart.block_args();
    const Batch single = one_sequence(1);
    args.conv.sequences = args.delta.sequences = single.view();
    for (int32_t t = 0; t < length; ++t) {
      device.run(FRT_OP_GATED_DELTA_BLOCK, args);
      const auto move = [&](auto& pointer, std::size_t elements) {
        pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(
            reinterpret_cast<uintptr_t>(pointer) + elements * 2);
      };
      move(args.conv.u, before.shape.channels());
      move(args.conv.c, before.shape.channels());
      move(args.delta.c, before.shape.channels());
      move(args.delta.a, 1);
      move(args.delta.b, 1);
      move(args.delta.o, before.shape.values());
      move(args.z, before.shape.values());
      move(args.y, before.shape.values());
    }
    if (length <= 16) {
      CHECK(together.y.bytes() == apart.y.bytes());
      CHECK(together.state == apart.state);
    }
    CHECK(worst_error(together.y, apart.y, apart.y.size()) < 2e-2);
    CHECK(worst_error(together.state, apart.state, apart.state.size()) < 1e-4);
    CHECK(together.window.bytes() == apart.window.bytes());
  }
}

TEST_CASE("a prompt in two parts equals a prompt in one") {
  CpuDevice device({.threads = 2});
  for (const int32_t cut : {1, 17, 64, 100}) {
    const Data before(kShapes[0], FRT_DTYPE_F32, one_sequence(129), 1, 77);
    Data once = before;
    device.run(FRT_OP_GATED_DELTA_BLOCK, once.block_args());
    Data twice = before;
    frt_gated_delta_block_args args = twice.block_args();
    const Batch head = one_sequence(cut);
    args.conv.sequences = args.delta.sequences = head.view();
    device.run(FRT_OP_GATED_DELTA_BLOCK, args);
    const Batch tail = one_sequence(129 - cut, 0, cut);
    args.conv.sequences = args.delta.sequences = tail.view();
    const auto move = [&](auto& pointer, std::size_t row) {
      pointer = reinterpret_cast<std::remove_reference_t<decltype(pointer)>>(
          reinterpret_cast<uintptr_t>(pointer) + static_cast<std::size_t>(cut) * row * 4);
    };
    move(args.conv.u, before.shape.channels());
    move(args.conv.c, before.shape.channels());
    move(args.delta.c, before.shape.channels());
    move(args.delta.a, 4);
    move(args.delta.b, 4);
    move(args.delta.o, before.shape.values());
    move(args.z, before.shape.values());
    move(args.y, before.shape.values());
    device.run(FRT_OP_GATED_DELTA_BLOCK, args);
    CHECK(worst_error(twice.y, once.y, once.y.size()) < 1e-4);
    CHECK(worst_error(twice.state, once.state, once.state.size()) < 1e-5);
    CHECK(twice.window.bytes() == once.window.bytes());
  }
}

TEST_CASE("the fused block equals its three parts bit for bit") {
  for (const int64_t threads : {1, 2, 8}) {  // with 8, heads are handed out one by one
    CpuDevice device({.threads = threads});
    for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
      for (const Shape& shape : kShapes) {
        const Data before(shape, dtype, {20, {1, 0, 2}, {0, 3, 3}, {20, 1, 0}}, 3, 41);
        Data fused = before;
        device.run(FRT_OP_GATED_DELTA_BLOCK, fused.block_args());
        Data parts = before;
        device.run(FRT_OP_CAUSAL_CONV, parts.conv_args());
        device.run(FRT_OP_GATED_DELTA, parts.delta_args());
        frt_gated_rms_norm_args norm{};
        norm.x_dtype = norm.dtype = dtype;
        norm.rows = 60;
        norm.heads = shape.value_heads;
        norm.width = shape.value_dim;
        norm.epsilon = 1e-6f;
        norm.x = parts.o.data();
        norm.z = parts.z.data();
        norm.weight = parts.norm_weight.data();
        norm.y = parts.y.data();
        device.run(FRT_OP_GATED_RMS_NORM, norm);
        CHECK(fused.state == parts.state);
        CHECK(fused.window.bytes() == parts.window.bytes());
        const std::size_t row = shape.values();
        for (const std::size_t valid : {std::size_t{0}, std::size_t{19}, std::size_t{20}}) {
          CHECK(fused.y[valid * row] == parts.y[valid * row]);
          CHECK(fused.y[valid * row + row - 1] == parts.y[valid * row + row - 1]);
        }
        CHECK(fused.y[21 * row] == 7.0f);  // padding stays as it was
        CHECK(fused.o[21 * row] == 7.0f);
        CHECK(fused.c[21 * shape.channels()] == 7.0f);
      }
    }
  }
}

TEST_CASE("a strong decay erases the state and nothing overflows") {
  CpuDevice device({.threads = 2});
  for (const int32_t length : {3, 100}) {
    Data before(kShapes[0], FRT_DTYPE_F32, one_sequence(length), 1, 13);
    before.c = before.random.array(FRT_DTYPE_F32, before.c.size());
    for (std::size_t i = 0; i < before.a.size(); i += 5) before.a.set(i, 3e4f);
    before.a.set(7, std::numeric_limits<float>::infinity());
    Data after = before;
    device.run(FRT_OP_GATED_DELTA, after.delta_args());
    before.a.set(7, 1e30f);  // the same in the end; the reference is spared the infinity
    expect_delta(before, after, 2e-5);
  }
}

TEST_CASE("NaN in a row reaches the rows after it and not those before") {
  CpuDevice device({.threads = 2});
  for (const int32_t length : {10, 100}) {
    Data before(kShapes[0], FRT_DTYPE_F32, one_sequence(length), 1, 13);
    before.c = before.random.array(FRT_DTYPE_F32, before.c.size());
    const std::size_t channels = before.shape.channels();
    const auto bad = static_cast<std::size_t>(length) - 3;
    for (std::size_t i = 0; i < channels; ++i) before.c.set(bad * channels + i, NAN);
    Data after = before;
    device.run(FRT_OP_GATED_DELTA, after.delta_args());
    CHECK(std::isnan(after.o[bad * before.shape.values()]));
    CHECK(std::isnan(after.o[after.o.size() - 1]));
    if (length <= 16) CHECK_FALSE(std::isnan(after.o[bad * before.shape.values() - 1]));
    CHECK(std::isnan(after.state[0]));
  }
}

TEST_CASE("arguments that make no sense are refused by name") {
  CpuDevice device({.threads = 1});
  Data data(kShapes[0], FRT_DTYPE_F32, one_sequence(2), 1, 1);
  std::string message;
  const auto refuses = [&](const char* argument, auto&& change) {
    frt_gated_delta_block_args args = data.block_args();
    change(args);
    CHECK(device.refusal(FRT_OP_GATED_DELTA_BLOCK, args, &message) == FRT_ERR_INVALID_ARGUMENT);
    CHECK(message.find(FRT_OP_GATED_DELTA_BLOCK) != std::string::npos);
    CHECK_MESSAGE(message.find(argument) != std::string::npos, message);
  };
  refuses("width", [](auto& args) { args.conv.width = 9; });
  refuses("value_heads", [](auto& args) { args.delta.value_heads = 3; });
  refuses("conv.channels", [](auto& args) { args.conv.channels += 1; });
  refuses("delta.c", [&](auto& args) { args.delta.c = args.y; });
  refuses("dtype", [](auto& args) { args.delta.dtype = FRT_DTYPE_F16; });
  refuses("chunk", [](auto& args) { args.delta.chunk = 0; });
  refuses("sequences.length", [](auto& args) { args.delta.sequences.length = nullptr; });
  refuses("norm_weight", [](auto& args) { args.norm_weight = nullptr; });
}
