// SPDX-License-Identifier: Apache-2.0
// frt.attention_append/1, frt.attention/1 and frt.attention_block/1 against double precision loops.
#include <doctest/doctest.h>
#include <frt/ops/attention.h>

#include <limits>

#include "sequence_tools.hpp"

namespace {

using namespace frt::cpu_test;

struct Shape {
  int32_t heads = 4, kv_heads = 2, head_dim = 32, rotary_dim = 16, max_rows = 64;
  std::size_t width() const { return static_cast<std::size_t>(kv_heads * head_dim); }
  std::size_t q_width() const { return static_cast<std::size_t>(heads * head_dim); }
  std::size_t slot() const { return static_cast<std::size_t>(max_rows) * width(); }
};

struct Data {
  Data(const Shape& s, frt_dtype dtype, frt_dtype kv_dtype, const Batch& sequences,
       int32_t slot_count, uint32_t seed)
      : shape(s),
        batch(sequences),
        slots(static_cast<std::size_t>(slot_count)),
        random(seed),
        qg(random.array(dtype, sequences.all_rows() * 2 * s.q_width())),
        k(random.array(dtype, sequences.all_rows() * s.width())),
        v(random.array(dtype, k.size())),
        q_out(dtype, sequences.all_rows() * s.q_width(), 7.0f),
        y(dtype, q_out.size(), 7.0f),
        keys(random.array(kv_dtype, slots * s.slot())),
        values(random.array(kv_dtype, slots * s.slot())),
        q_norm(random.floats(static_cast<std::size_t>(s.head_dim), 0.5f, 1.5f)),
        k_norm(random.floats(static_cast<std::size_t>(s.head_dim), 0.5f, 1.5f)) {
    for (int32_t j = 0; j < s.rotary_dim / 2; ++j) {
      inv_freq.push_back(
          std::pow(1e4f, -2.0f * static_cast<float>(j) / static_cast<float>(s.rotary_dim)));
    }
  }

  // q and its gate stand side by side, head by head, as in a gated attention.
  frt_attention_append_args append_args() {
    frt_attention_append_args args{};
    args.struct_size = sizeof(args);
    args.dtype = k.dtype();
    args.kv_dtype = keys.dtype();
    args.epsilon = 1e-6f;
    args.sequences = batch.view();
    args.heads = shape.heads;
    args.kv_heads = shape.kv_heads;
    args.head_dim = shape.head_dim;
    args.rotary_dim = shape.rotary_dim;
    args.q = qg.data();
    args.q_row_stride = static_cast<int64_t>(2 * shape.q_width());
    args.q_head_stride = 2 * shape.head_dim;
    args.k = k.data();
    args.v = v.data();
    args.q_norm = with_norm ? q_norm.data() : nullptr;
    args.k_norm = with_norm ? k_norm.data() : nullptr;
    args.inv_freq = inv_freq.data();
    args.rope_scale = rope_scale;
    args.k_scale = k_scale;
    args.v_scale = v_scale;
    args.max_rows = shape.max_rows;
    args.keys = keys.data();
    args.values = values.data();
    args.slot_stride = static_cast<int64_t>(keys.bytes().size() / slots);
    args.q_out = q_out.data();
    return args;
  }
  frt_attention_args attention_args() {
    frt_attention_args args{};
    args.struct_size = sizeof(args);
    args.dtype = k.dtype();
    args.kv_dtype = keys.dtype();
    args.scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim));
    args.sequences = batch.view();
    args.heads = shape.heads;
    args.kv_heads = shape.kv_heads;
    args.head_dim = shape.head_dim;
    args.max_rows = shape.max_rows;
    args.q = q_out.data();
    args.keys = keys.data();
    args.values = values.data();
    args.slot_stride = static_cast<int64_t>(keys.bytes().size() / slots);
    args.k_scale = k_scale;
    args.v_scale = v_scale;
    args.gate = gated ? static_cast<std::byte*>(qg.data()) +
                            static_cast<std::size_t>(shape.head_dim) * qg.element()
                      : nullptr;
    args.gate_row_stride = static_cast<int64_t>(2 * shape.q_width());
    args.gate_head_stride = 2 * shape.head_dim;
    args.y = y.data();
    return args;
  }

  Shape shape;
  Batch batch;
  std::size_t slots;
  Random random;
  Array qg, k, v, q_out, y, keys, values;
  std::vector<float> q_norm, k_norm, inv_freq;
  float rope_scale = 1.0f, k_scale = 1.0f, v_scale = 1.0f;
  bool with_norm = true, gated = true;
};

double at(const Array& array, std::size_t i) {
  return static_cast<double>(array[i]);
}

std::vector<double> doubles(const Array& array) {
  std::vector<double> values(array.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = at(array, i);
  return values;
}

std::vector<double> normed_and_rotated(const Data& data, std::vector<double> x,
                                       const std::vector<float>& weight, int32_t position) {
  if (data.with_norm) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-6);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= factor * static_cast<double>(weight[i]);
  }
  const auto half = static_cast<std::size_t>(data.shape.rotary_dim / 2);
  for (std::size_t j = 0; j < half; ++j) {
    const auto angle = static_cast<double>(static_cast<float>(position) * data.inv_freq[j]);
    const double c = std::cos(angle) * static_cast<double>(data.rope_scale);
    const double s = std::sin(angle) * static_cast<double>(data.rope_scale);
    const double low = x[j];
    const double high = x[j + half];
    x[j] = low * c - high * s;
    x[j + half] = high * c + low * s;
  }
  return x;
}

void expect_append(const Data& before, const Data& after, double tolerance, double kv_tolerance) {
  const Shape& s = before.shape;
  const auto dim = static_cast<std::size_t>(s.head_dim);
  std::vector<double> q = doubles(before.q_out);
  std::vector<double> keys = doubles(before.keys), values = doubles(before.values);
  for (std::size_t b = 0; b < before.batch.count(); ++b) {
    for (int32_t t = 0; t < before.batch.length[b]; ++t) {
      const std::size_t row =
          b * static_cast<std::size_t>(before.batch.rows) + static_cast<std::size_t>(t);
      const int32_t position = before.batch.position[b] + t;
      for (std::size_t h = 0; h < static_cast<std::size_t>(s.heads); ++h) {
        std::vector<double> x(dim);
        for (std::size_t i = 0; i < dim; ++i) {
          x[i] = at(before.qg, row * 2 * s.q_width() + h * 2 * dim + i);
        }
        x = normed_and_rotated(before, x, before.q_norm, position);
        for (std::size_t i = 0; i < dim; ++i)
          q[(row * static_cast<std::size_t>(s.heads) + h) * dim + i] = x[i];
      }
      if (position >= s.max_rows) continue;
      const std::size_t target = static_cast<std::size_t>(before.batch.slot[b]) * s.slot() +
                                 static_cast<std::size_t>(position) * s.width();
      for (std::size_t h = 0; h < static_cast<std::size_t>(s.kv_heads); ++h) {
        std::vector<double> x(dim);
        for (std::size_t i = 0; i < dim; ++i) x[i] = at(before.k, row * s.width() + h * dim + i);
        x = normed_and_rotated(before, x, before.k_norm, position);
        for (std::size_t i = 0; i < dim; ++i) {
          keys[target + h * dim + i] = x[i] / static_cast<double>(before.k_scale);
          values[target + h * dim + i] =
              at(before.v, row * s.width() + h * dim + i) / static_cast<double>(before.v_scale);
        }
      }
    }
  }
  CHECK(worst_error(after.q_out, q, q.size()) < tolerance);
  CHECK(worst_error(after.keys, keys, keys.size()) < kv_tolerance);
  CHECK(worst_error(after.values, values, values.size()) < kv_tolerance);
}

// y from the q_out, keys and values of `after`.
void expect_attention(const Data& before, const Data& after, double tolerance) {
  const Shape& s = before.shape;
  const auto dim = static_cast<std::size_t>(s.head_dim);
  const auto heads = static_cast<std::size_t>(s.heads);
  std::vector<double> y = doubles(before.y);
  const std::vector<double> queries = doubles(after.q_out), keys = doubles(after.keys),
                            values = doubles(after.values);
  for (std::size_t b = 0; b < before.batch.count(); ++b) {
    const std::size_t slot = static_cast<std::size_t>(before.batch.slot[b]) * s.slot();
    for (int32_t t = 0; t < before.batch.length[b]; ++t) {
      const std::size_t row =
          b * static_cast<std::size_t>(before.batch.rows) + static_cast<std::size_t>(t);
      const auto seen =
          static_cast<std::size_t>(std::min(before.batch.position[b] + t + 1, s.max_rows));
      for (std::size_t h = 0; h < heads; ++h) {
        const std::size_t kv = h / (heads / static_cast<std::size_t>(s.kv_heads)) * dim;
        std::vector<double> scores(seen);
        double largest = -std::numeric_limits<double>::infinity();
        const double* query = &queries[(row * heads + h) * dim];
        for (std::size_t p = 0; p < seen; ++p) {
          const double* key = &keys[slot + p * s.width() + kv];
          for (std::size_t i = 0; i < dim; ++i) scores[p] += query[i] * key[i];
          scores[p] *= static_cast<double>(before.k_scale) / std::sqrt(static_cast<double>(dim));
          largest = std::max(largest, scores[p]);
        }
        double total = 0;
        for (double& score : scores) total += score = std::exp(score - largest);
        std::vector<double> sum(dim);
        for (std::size_t p = 0; p < seen; ++p) {
          const double* value = &values[slot + p * s.width() + kv];
          const double share = scores[p] / total;
          for (std::size_t i = 0; i < dim; ++i) sum[i] += share * value[i];
        }
        for (std::size_t i = 0; i < dim; ++i) {
          sum[i] *= static_cast<double>(before.v_scale);
          if (before.gated) {
            sum[i] *= sigmoid(at(before.qg, row * 2 * s.q_width() + (2 * h + 1) * dim + i));
          }
          y[(row * heads + h) * dim + i] = sum[i];
        }
      }
    }
  }
  CHECK(worst_error(after.y, y, y.size()) < tolerance);
}

double tolerance_of(frt_dtype dtype) {
  return dtype == FRT_DTYPE_F32 ? 1e-5 : 5e-3;
}
double kv_tolerance_of(frt_dtype dtype) {
  return dtype == FRT_DTYPE_F32 ? 1e-5 : dtype == FRT_DTYPE_BF16 ? 5e-3 : 6e-2;
}

const Shape kShapes[] = {{4, 2, 32, 16, 300}, {6, 1, 64, 64, 300}, {8, 1, 24, 6, 300},
                         {3, 3, 17, 8, 300},  {5, 1, 7, 0, 300},   {16, 2, 256, 64, 300}};

}  // namespace

TEST_CASE("append norms, rotates and stores at the position of the row, for every type") {
  CpuDevice device({.threads = 2});
  for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
    for (const frt_dtype kv : {FRT_DTYPE_F32, FRT_DTYPE_BF16, FRT_DTYPE_F8_E4M3}) {
      for (const Shape& shape : kShapes) {
        for (const bool norm : {true, false}) {
          CAPTURE(dtype);
          CAPTURE(kv);
          CAPTURE(shape.head_dim);
          Data before(shape, dtype, kv, {5, {2, 0, 1}, {7, 0, 297}, {5, 0, 5}}, 3, 2);
          before.with_norm = norm;
          before.rope_scale = norm ? 1.0f : 1.25f;
          if (kv == FRT_DTYPE_F8_E4M3) before.k_scale = 0.5f, before.v_scale = 0.25f;
          Data after = before;
          device.run(FRT_OP_ATTENTION_APPEND, after.append_args());
          expect_append(before, after, tolerance_of(dtype), kv_tolerance_of(kv));
        }
      }
    }
  }
}

TEST_CASE("values too large for f8 saturate, and positions behind the slot are dropped") {
  CpuDevice device({.threads = 2});
  const Shape shape{2, 1, 16, 0, 4};
  Data data(shape, FRT_DTYPE_F32, FRT_DTYPE_F8_E4M3, one_sequence(3, 3, 2), 1, 2);
  for (std::size_t i = 0; i < data.v.size(); ++i) data.v.set(i, i % 2 ? 1e6f : -1e6f);
  const Data before = data;
  device.run(FRT_OP_ATTENTION_APPEND, data.append_args());
  CHECK(data.values[2 * 16] == -448.0f);
  CHECK(data.values[3 * 16 + 1] == 448.0f);
  CHECK(data.values[0] == before.values[0]);
}

TEST_CASE("attention of one row over any history agrees with the definition") {
  CpuDevice device({.threads = 2});
  for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
    for (const frt_dtype kv : {FRT_DTYPE_F32, FRT_DTYPE_BF16, FRT_DTYPE_F8_E4M3}) {
      for (const Shape& shape : kShapes) {
        for (const int32_t position : {0, 1, 2, 3, 62, 63, 64, 65, 255, 256, 257, 299, 310}) {
          CAPTURE(dtype);
          CAPTURE(kv);
          CAPTURE(shape.head_dim);
          CAPTURE(position);
          Data before(shape, dtype, kv, one_sequence(1, 1, position, 1), 2, 8);
          before.q_out = before.random.array(dtype, before.q_out.size());
          before.gated = position % 2 == 0;
          if (kv == FRT_DTYPE_F8_E4M3) before.k_scale = 0.5f, before.v_scale = 2.0f;
          Data after = before;
          device.run(FRT_OP_ATTENTION, after.attention_args());
          expect_attention(before, after, tolerance_of(dtype));
        }
      }
    }
  }
}

TEST_CASE("attention of many rows over any history agrees with the definition") {
  CpuDevice device({.threads = 2});
  for (const frt_dtype dtype : {FRT_DTYPE_F32, FRT_DTYPE_BF16}) {
    for (const Shape& shape : kShapes) {
      for (const int32_t length : {2, 16, 17, 63, 64, 65, 127, 128, 129}) {
        for (const int32_t position : {0, 5, 64, 180}) {
          CAPTURE(dtype);
          CAPTURE(shape.head_dim);
          CAPTURE(length);
          CAPTURE(position);
          Data before(shape, dtype, FRT_DTYPE_BF16, one_sequence(length, length + 1, position), 1,
                      8);
          before.q_out = before.random.array(dtype, before.q_out.size());
          Data after = before;
          device.run(FRT_OP_ATTENTION, after.attention_args());
          expect_attention(before, after, tolerance_of(dtype));
        }
      }
    }
  }
}

TEST_CASE("long histories are split and merged, also where rows disagree about the splits") {
  CpuDevice device({.threads = 2});
  const Shape shape{4, 2, 16, 0, 20000};
  for (const int32_t position : {511, 8185, 8192, 16380, 19990}) {
    CAPTURE(position);
    Data before(shape, FRT_DTYPE_F32, FRT_DTYPE_BF16, one_sequence(9, 9, position), 1, 8);
    before.q_out = before.random.array(FRT_DTYPE_F32, before.q_out.size(), 3.0f);
    Data after = before;
    device.run(FRT_OP_ATTENTION, after.attention_args());
    expect_attention(before, after, 1e-5);
  }
}

TEST_CASE("a row's bits depend on neither its neighbours nor the number of workers") {
  const Shape shape{6, 2, 40, 0, 9000};
  for (const int32_t position : {0, 60, 250, 1000, 8188}) {
    CAPTURE(position);
    CpuDevice device({.threads = 3});
    Data together(shape, FRT_DTYPE_BF16, FRT_DTYPE_BF16,
                  {8, {2, 0, 1}, {position, 0, 77}, {8, 0, 3}}, 3, 8);
    together.q_out = together.random.array(FRT_DTYPE_BF16, together.q_out.size());
    device.run(FRT_OP_ATTENTION, together.attention_args());
    CpuDevice alone({.threads = 1});
    for (int32_t t = 0; t < 8; ++t) {
      Data one = together;
      one.y = Array(FRT_DTYPE_BF16, one.y.size());
      one.batch = one_sequence(1, 1, position + t, 2);
      frt_attention_args args = one.attention_args();
      const std::size_t offset = static_cast<std::size_t>(t) * shape.q_width();
      args.q = static_cast<const std::byte*>(args.q) + offset * 2;
      args.gate = static_cast<const std::byte*>(args.gate) + offset * 4;
      alone.run(FRT_OP_ATTENTION, args);
      bool same = true;
      for (std::size_t i = 0; i < shape.q_width(); ++i) {
        same = same && one.y[i] == together.y[offset + i];
      }
      CHECK(same);
    }
  }
}

TEST_CASE("every instruction set computes attention, eager and captured") {
  for (const std::string& isa : isa_caps()) {
    CAPTURE(isa);
    CpuDevice device({.threads = 2, .isa = isa});
    for (const int32_t length : {1, 9, 70}) {
      for (const frt_dtype kv : {FRT_DTYPE_F32, FRT_DTYPE_BF16, FRT_DTYPE_F8_E4M3}) {
        for (const bool captured : {false, true}) {
          const Shape& shape = kShapes[length % 2 ? 5 : 3];
          const Data before(shape, FRT_DTYPE_F32, kv, one_sequence(length, length, 200), 1, 3);
          Data after = before;
          frt_attention_block_args args{};
          args.append = after.append_args();
          args.attention = after.attention_args();
          if (captured) {
            device.run_captured(FRT_OP_ATTENTION_BLOCK, args, 2);
          } else {
            device.run(FRT_OP_ATTENTION_BLOCK, args);
          }
          expect_append(before, after, 1e-5, kv_tolerance_of(kv));
          expect_attention(before, after, 1e-5);
        }
      }
    }
  }
}

TEST_CASE("reference numerics agree with the definition") {
  CpuDevice device({.threads = 2, .numerics = "reference"});
  for (const Shape& shape : kShapes) {
    const Data before(shape, FRT_DTYPE_F32, FRT_DTYPE_F32, {70, {1, 0, 2}, {200, 0, 3}, {70, 0, 1}},
                      3, 3);
    Data after = before;
    frt_attention_block_args args{};
    args.append = after.append_args();
    args.attention = after.attention_args();
    device.run(FRT_OP_ATTENTION_BLOCK, args);
    expect_append(before, after, 1e-5, 1e-5);
    expect_attention(before, after, 1e-5);
  }
}

TEST_CASE("the fused block equals append and attention bit for bit") {
  CpuDevice device({.threads = 2});
  for (const int32_t length : {1, 33}) {
    const Data before(kShapes[1], FRT_DTYPE_BF16, FRT_DTYPE_BF16,
                      {33, {1, 0}, {20, 250}, {length, 2}}, 2, 3);
    Data fused = before;
    frt_attention_block_args args{};
    args.append = fused.append_args();
    args.attention = fused.attention_args();
    device.run(FRT_OP_ATTENTION_BLOCK, args);
    Data parts = before;
    device.run(FRT_OP_ATTENTION_APPEND, parts.append_args());
    device.run(FRT_OP_ATTENTION, parts.attention_args());
    CHECK(fused.y.bytes() == parts.y.bytes());
    CHECK(fused.keys.bytes() == parts.keys.bytes());
    CHECK(fused.values.bytes() == parts.values.bytes());
    CHECK(fused.y[(static_cast<std::size_t>(length)) * kShapes[1].q_width()] ==
          (length == 33 ? parts.y[33 * kShapes[1].q_width()] : 7.0f));
  }
}

TEST_CASE("what stands behind a row's own position is not even multiplied by zero") {
  CpuDevice device({.threads = 2});
  for (const int32_t length : {4, 40}) {
    Data data(kShapes[0], FRT_DTYPE_F32, FRT_DTYPE_F32, one_sequence(length, length, 30), 1, 3);
    data.q_out = data.random.array(FRT_DTYPE_F32, data.q_out.size());
    const auto last = static_cast<std::size_t>(30 + length - 1);
    for (std::size_t i = last * data.shape.width(); i < data.values.size(); ++i) {
      data.values.set(i, NAN);
      data.keys.set(i, NAN);
    }
    const Data before = data;
    device.run(FRT_OP_ATTENTION, data.attention_args());
    bool clean = true;
    for (std::size_t i = 0; i < data.y.size() - data.shape.q_width(); ++i) {
      clean = clean && !std::isnan(data.y[i]);
    }
    CHECK(clean);
    CHECK(std::isnan(data.y[data.y.size() - 1]));
  }
}

TEST_CASE("arguments that make no sense are refused by name") {
  CpuDevice device({.threads = 1});
  Data data(kShapes[0], FRT_DTYPE_F32, FRT_DTYPE_F8_E4M3, one_sequence(2), 1, 1);
  std::string message;
  const auto refuses = [&](const char* argument, auto&& change) {
    frt_attention_block_args args{};
    args.append = data.append_args();
    args.attention = data.attention_args();
    change(args);
    CHECK(device.refusal(FRT_OP_ATTENTION_BLOCK, args, &message) == FRT_ERR_INVALID_ARGUMENT);
    CHECK(message.find(FRT_OP_ATTENTION_BLOCK) != std::string::npos);
    CHECK_MESSAGE(message.find(argument) != std::string::npos, message);
  };
  refuses("rotary_dim", [](auto& args) { args.append.rotary_dim = 3; });
  refuses("rotary_dim", [](auto& args) { args.append.rotary_dim = 64; });
  refuses("heads", [](auto& args) { args.append.heads = 3; });
  refuses("kv_dtype", [](auto& args) { args.append.kv_dtype = FRT_DTYPE_F16; });
  refuses("k_scale", [](auto& args) { args.append.k_scale = 0; });
  refuses("max_rows", [](auto& args) { args.attention.max_rows = 0; });
  refuses("attention.q", [](auto& args) { args.attention.q = args.append.k; });
  refuses("keys", [](auto& args) { args.append.keys = nullptr; });
}
