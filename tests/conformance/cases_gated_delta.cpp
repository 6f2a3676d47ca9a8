// SPDX-License-Identifier: Apache-2.0
// Cases of frt/ops/gated_delta.h: the convolution, the delta rule, the block of both and the gated
// norm. Windows and states are compared like outputs.
#include <frt/ops/gated_delta.h>
#include <frt/ops/linear.h>

#include <algorithm>
#include <array>

#include "check.hpp"

namespace frt::conformance {
namespace {

struct Shape {
  int32_t key_heads, value_heads, key_dim, value_dim, width;
  int64_t keys() const { return static_cast<int64_t>(key_heads) * key_dim; }
  int64_t values() const { return static_cast<int64_t>(value_heads) * value_dim; }
  int64_t channels() const { return 2 * keys() + values(); }
  std::string text() const {
    return std::to_string(key_heads) + "/" + std::to_string(value_heads) + " heads of " +
           std::to_string(key_dim) + "x" + std::to_string(value_dim) + " width " +
           std::to_string(width);
  }
};

struct Batch {
  int32_t rows;
  std::vector<int32_t> slots, lengths;
  int64_t count() const { return static_cast<int64_t>(slots.size()); }
  int64_t total() const { return count() * rows; }
  int64_t arena() const { return *std::max_element(slots.begin(), slots.end()) + 2; }
  std::string text() const {
    std::string made = " rows " + std::to_string(rows) + " lengths";
    for (const int32_t length : lengths) made += " " + std::to_string(length);
    return made;
  }
};

// How much a row forgets: g = decay * softplus(a + dt_bias).
struct Decay {
  const char* name;
  float low, high, deviation;
};
constexpr Decay kUsual = {"", -4.0f, -0.01f, 1.0f};
constexpr Decay kLong = {" long memory", -1e-3f, -1e-5f, 1.0f};
constexpr Decay kStrong = {" strong decay", -30.0f, -5.0f, 4.0f};

// The tensors of one case, and argument structs over them. `pad`: elements between slots.
struct Data {
  Data(Case& c, const Shape& s, const Batch& batch, frt_dtype type, const Decay& decays,
       int64_t pad)
      : shape(s),
        dtype(type),
        sequences(c.sequences(batch.rows, batch.slots, std::vector<int32_t>(batch.slots.size(), 7),
                              batch.lengths)),
        window_stride((s.width - 1) * s.channels() + pad),
        state_stride(s.values() * s.key_dim + pad),
        u(c.normal("u", type, batch.total() * s.channels())),
        weight(c.normal("conv_weight", FRT_DTYPE_F32, s.width * s.channels(), 0.6f)),
        window(c.normal("window", type, batch.arena() * window_stride)),
        convolved(c.normal("c", type, batch.total() * s.channels())),
        a(c.normal("a", type, batch.total() * s.value_heads, decays.deviation)),
        b(c.normal("b", type, batch.total() * s.value_heads)),
        decay(c.uniform("decay", FRT_DTYPE_F32, s.value_heads, decays.low, decays.high)),
        dt_bias(c.normal("dt_bias", FRT_DTYPE_F32, s.value_heads)),
        state(c.normal("state", FRT_DTYPE_F32, batch.arena() * state_stride, 0.3f)),
        z(c.normal("z", type, batch.total() * s.values())),
        norm_weight(c.normal("norm_weight", FRT_DTYPE_F32, s.value_dim, 0.3f, 1.0f)) {}

  frt_causal_conv_args conv_args(const At& at, const Tensor& c) const {
    frt_causal_conv_args args{};
    args.struct_size = sizeof(args);
    args.dtype = dtype;
    args.sequences = sequences.at(at);
    args.channels = static_cast<int32_t>(shape.channels());
    args.width = shape.width;
    args.u = at(u);
    args.conv_weight = at.operator()<float>(weight);
    args.window = at(window);
    args.slot_stride = window_stride * dtype_bits(dtype) / 8;
    args.c = at(c);
    return args;
  }
  frt_gated_delta_args delta_args(const At& at, const Tensor& c, const Tensor& o) const {
    frt_gated_delta_args args{};
    args.struct_size = sizeof(args);
    args.dtype = dtype;
    args.sequences = sequences.at(at);
    args.key_heads = shape.key_heads;
    args.value_heads = shape.value_heads;
    args.key_dim = shape.key_dim;
    args.value_dim = shape.value_dim;
    args.chunk = 64;
    args.c = at(c);
    args.a = at(a);
    args.b = at(b);
    args.decay = at.operator()<float>(decay);
    args.dt_bias = at.operator()<float>(dt_bias);
    args.state = at(state);
    args.slot_stride = state_stride * 4;
    args.o = at(o);
    return args;
  }
  frt_gated_delta_block_args block_args(const At& at, const Tensor& c, const Tensor& o,
                                        const Tensor& y) const {
    frt_gated_delta_block_args args{};
    args.struct_size = sizeof(args);
    args.epsilon = 1e-6f;
    args.conv = conv_args(at, c);
    args.delta = delta_args(at, c, o);
    args.z = at(z);
    args.norm_weight = at.operator()<float>(norm_weight);
    args.y = at(y);
    return args;
  }

  Shape shape;
  frt_dtype dtype;
  Case::Sequences sequences;
  int64_t window_stride, state_stride;  // elements
  Tensor &u, &weight, &window, &convolved, &a, &b, &decay, &dt_bias, &state, &z, &norm_weight;
};

void conv_case(Case& c, const Shape& shape, const Batch& batch, frt_dtype dtype, int64_t pad) {
  const Data data(c, shape, batch, dtype, kUsual, pad);
  Tensor& out = c.output("out", dtype, batch.total() * shape.channels());
  c.run<frt_causal_conv_args>(
      FRT_OP_CAUSAL_CONV, KernelTypes(dtype), {},
      [&](frt_causal_conv_args& args, const At& at) { args = data.conv_args(at, out); });
  c.compare(out, tolerance_of(dtype));
  c.compare(data.window, kExact);
}

void delta_case(Case& c, const Shape& shape, const Batch& batch, frt_dtype dtype,
                const Decay& decays, int64_t pad, int32_t chunk) {
  const Data data(c, shape, batch, dtype, decays, pad);
  Tensor& o = c.output("o", dtype, batch.total() * shape.values());
  c.run<frt_gated_delta_args>(FRT_OP_GATED_DELTA, KernelTypes(dtype), {},
                              [&](frt_gated_delta_args& args, const At& at) {
                                args = data.delta_args(at, data.convolved, o);
                                args.chunk = chunk;
                              });
  c.compare(o, tolerance_of(dtype));
  c.compare(data.state, tolerance_of(dtype));
}

void block_case(Case& c, const Shape& shape, const Batch& batch, frt_dtype dtype,
                const Decay& decays, int64_t pad) {
  const Data data(c, shape, batch, dtype, decays, pad);
  Tensor& convolved = c.output("c", dtype, batch.total() * shape.channels());
  Tensor& o = c.output("o", dtype, batch.total() * shape.values());
  Tensor& y = c.output("y", dtype, batch.total() * shape.values());
  c.run<frt_gated_delta_block_args>(FRT_OP_GATED_DELTA_BLOCK, KernelTypes(dtype), {},
                                    [&](frt_gated_delta_block_args& args, const At& at) {
                                      args = data.block_args(at, convolved, o, y);
                                    });
  c.compare(y, tolerance_of(dtype));
  c.compare(data.state, tolerance_of(dtype));
  c.compare(data.window, kExact);
}

// Rows one after the other, as models submit them: what the block reads comes of products, window
// and state come of the row before. A backend may begin a block while the kernel ahead still runs,
// and reads what is old enough by then; one block follows the other directly.
void decode_case(Case& c, const Shape& shape, const Batch& batch, frt_dtype dtype) {
  constexpr int32_t kRows = 6, kNoProducts = 3, kInputs = 64;
  const Data data(c, shape, batch, dtype, kUsual, 0);
  const int64_t total = batch.total();
  Tensor& x = c.normal("x", dtype, kRows * total * kInputs);
  Tensor& convolved = c.output("c", dtype, total * shape.channels());
  Tensor& o = c.output("o", dtype, total * shape.values());
  Tensor& y = c.output("y", dtype, kRows * total * shape.values());
  const std::array<const Tensor*, 4> made = {&data.u, &data.z, &data.a, &data.b};
  std::array<Weight, 4> weights;
  std::array<frt_linear_part, 4> parts{};
  for (std::size_t i = 0; i < made.size(); ++i) {
    weights[i] = c.weight("weight " + made[i]->name, all_packings().front(),
                          static_cast<int32_t>(made[i]->count / total), kInputs);
  }
  Chain chain;
  for (int32_t row = 0; row < kRows; ++row) {
    if (row != kNoProducts) {
      chain.then<frt_norm_linears_args>(
          FRT_OP_NORM_LINEARS, KernelTypes(dtype), kWeightBf16,
          [&, row](frt_norm_linears_args& args, const At& at) {
            args.dtype = dtype;
            args.rows = static_cast<int32_t>(total);
            args.x = at(x, row * total * kInputs);
            for (std::size_t i = 0; i < parts.size(); ++i) {
              parts[i] = {Case::at(weights[i], at), at(*made[i]), made[i]->count / total};
            }
            args.part_count = static_cast<int32_t>(parts.size());
            args.parts = parts.data();
          });
    }
    chain.then<frt_gated_delta_block_args>(
        FRT_OP_GATED_DELTA_BLOCK, KernelTypes(dtype), {},
        [&, row](frt_gated_delta_block_args& args, const At& at) {
          args = data.block_args(at, convolved, o, y);
          args.y = at(y, row * total * shape.values());
        });
  }
  c.run(chain);
  c.compare(y, tolerance_of(dtype));
  c.compare(data.state, tolerance_of(dtype));
  c.compare(data.window, tolerance_of(dtype));
}

// Rows that leave window and state as they are.
void keep_case(Case& c, const Shape& shape, const Batch& batch, frt_dtype dtype, int64_t pad) {
  const Data data(c, shape, batch, dtype, kUsual, pad);
  Tensor& convolved = c.output("c", dtype, batch.total() * shape.channels());
  Tensor& o = c.output("o", dtype, batch.total() * shape.values());
  Tensor& y = c.output("y", dtype, batch.total() * shape.values());
  c.run<frt_gated_delta_block_args>(FRT_OP_GATED_DELTA_BLOCK, KernelTypes(dtype), {},
                                    [&](frt_gated_delta_block_args& args, const At& at) {
                                      args = data.block_args(at, convolved, o, y);
                                      args.conv.keep_window = 1;
                                      args.delta.keep_state = 1;
                                    });
  c.compare(y, tolerance_of(dtype));
  c.require(data.state, Expected(FRT_DTYPE_F32, data.state.count));
  c.require(data.window, Expected(dtype, data.window.count));
}

void require_same(const char* what, const Tensor& a, const Tensor& b, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    if (Case::value(a, 0, i) == Case::value(b, 0, i)) continue;
    Case::fail(std::string(what) + " " + std::to_string(i) + ": " +
               std::to_string(Case::value(a, 0, i)) + " is not " +
               std::to_string(Case::value(b, 0, i)) + " of one row at a time");
  }
}

// A check of drafts in two layers: rows that keep window and state give the bits that they give one
// at a time, and the commit of the first `accepted` of them moves window and state as far.
void round_case(Case& c, const Shape& shape, int32_t rows, int32_t accepted, frt_dtype dtype) {
  const Batch batch = {rows, {1}, {rows}};
  const std::mt19937_64 begin = c.random();
  const std::array<Data, 2> checked = {Data(c, shape, batch, dtype, kUsual, 0),
                                       Data(c, shape, batch, dtype, kUsual, 0)};
  c.random() = begin;  // the same contents
  const std::array<Data, 2> stepped = {Data(c, shape, batch, dtype, kUsual, 0),
                                       Data(c, shape, batch, dtype, kUsual, 0)};
  const Case::Sequences committed = c.sequences(rows, {1}, {7}, {accepted});
  Tensor& convolved = c.output("c", dtype, rows * shape.channels());
  Tensor& o = c.output("o", dtype, rows * shape.values());
  std::array<std::array<const Tensor*, 2>, 2> y{};
  Chain chain;
  for (std::size_t layer = 0; layer < 2; ++layer) {
    for (const Tensor*& each : y[layer]) each = &c.output("y", dtype, rows * shape.values());
    chain.then<frt_gated_delta_block_args>(
        FRT_OP_GATED_DELTA_BLOCK, KernelTypes(dtype), {},
        [&, layer](frt_gated_delta_block_args& args, const At& at) {
          args = checked[layer].block_args(at, convolved, o, *y[layer][0]);
          args.conv.keep_window = 1;
          args.delta.keep_state = 1;
        });
  }
  std::array<frt_gated_delta_layer, 2> layers{};
  chain.then<frt_gated_delta_commit_args>(FRT_OP_GATED_DELTA_COMMIT, KernelTypes(dtype), {},
                                          [&](frt_gated_delta_commit_args& args, const At& at) {
                                            for (std::size_t layer = 0; layer < 2; ++layer) {
                                              const Data& data = checked[layer];
                                              layers[layer] = {at(data.u),
                                                               at(data.a),
                                                               at(data.b),
                                                               at.operator()<float>(data.weight),
                                                               at.operator()<float>(data.decay),
                                                               at.operator()<float>(data.dt_bias),
                                                               at(data.window),
                                                               at(data.state)};
                                            }
                                            args.layer_count = 2;
                                            args.conv = checked[0].conv_args(at, convolved);
                                            args.delta = checked[0].delta_args(at, convolved, o);
                                            args.conv.sequences = args.delta.sequences =
                                                committed.at(at);
                                            args.layers = layers.data();
                                          });
  std::vector<Case::Sequences> single;
  for (int32_t row = 0; row < accepted; ++row) {
    single.push_back(c.sequences(1, {1}, {7 + row}, {1}));
  }
  for (std::size_t layer = 0; layer < 2; ++layer) {
    for (int32_t row = 0; row < accepted; ++row) {
      chain.then<frt_gated_delta_block_args>(
          FRT_OP_GATED_DELTA_BLOCK, KernelTypes(dtype), {},
          [&, layer, row](frt_gated_delta_block_args& args, const At& at) {
            const Data& data = stepped[layer];
            args = data.block_args(at, convolved, o, *y[layer][1]);
            args.conv.sequences = args.delta.sequences =
                single[static_cast<std::size_t>(row)].at(at);
            args.conv.u = at(data.u, row * shape.channels());
            args.delta.a = at(data.a, row * shape.value_heads);
            args.delta.b = at(data.b, row * shape.value_heads);
            args.z = at(data.z, row * shape.values());
            args.y = at(*y[layer][1], row * shape.values());
          });
    }
  }
  c.run(chain);
  for (std::size_t layer = 0; layer < 2; ++layer) {
    require_same("y", *y[layer][0], *y[layer][1], accepted * shape.values());
    require_same("state", checked[layer].state, stepped[layer].state, checked[layer].state.count);
    require_same("window", checked[layer].window, stepped[layer].window,
                 checked[layer].window.count);
    c.compare(checked[layer].state, tolerance_of(dtype));
    c.compare(checked[layer].window, kExact);
  }
}

// Several sequences, some of which take no part.
void commit_case(Case& c, const Shape& shape, const Batch& batch, frt_dtype dtype, int64_t pad) {
  const Data data(c, shape, batch, dtype, kUsual, pad);
  Tensor& convolved = c.output("c", dtype, batch.total() * shape.channels());
  Tensor& o = c.output("o", dtype, batch.total() * shape.values());
  frt_gated_delta_layer layer{};
  c.run<frt_gated_delta_commit_args>(
      FRT_OP_GATED_DELTA_COMMIT, KernelTypes(dtype), {},
      [&](frt_gated_delta_commit_args& args, const At& at) {
        args.conv = data.conv_args(at, convolved);
        args.delta = data.delta_args(at, convolved, o);
        layer = {args.conv.u,      args.delta.a,       args.delta.b,     args.conv.conv_weight,
                 args.delta.decay, args.delta.dt_bias, args.conv.window, args.delta.state};
        args.layer_count = 1;
        args.layers = &layer;
      });
  c.compare(data.state, tolerance_of(dtype));
  c.compare(data.window, kExact);
}

// The reference gets good arguments, the backend under test the changed ones.
template <class Args, class Make, class Change>
void refuses(Case& c, const char* name, const char* argument, Make make, Change change) {
  try {
    c.run<Args>(name, KernelTypes(FRT_DTYPE_F32), {}, [&](Args& args, const At& at) {
      args = make(at);
      if (at.side() == 0) change(args);
    });
  } catch (const Error& error) {
    const std::string text = error.what();
    if (error.status() == FRT_ERR_INVALID_ARGUMENT && text.find(name) != std::string::npos &&
        text.find(argument) != std::string::npos) {
      return;
    }
    Case::fail(std::string(argument) + ": refused with " + frt::status_name(error.status()) + " " +
               text);
  }
  Case::fail(std::string(argument) + " is wrong and was not refused");
}

constexpr Shape kRefusalShape = {1, 2, 8, 8, 4};
const Batch kRefusalBatch = {2, {0}, {2}};

template <class Change>
void conv_refusal(Case& c, const char* argument, Change change) {
  const Data data(c, kRefusalShape, kRefusalBatch, FRT_DTYPE_F32, kUsual, 0);
  const auto make = [&](const At& at) { return data.conv_args(at, data.convolved); };
  refuses<frt_causal_conv_args>(c, FRT_OP_CAUSAL_CONV, argument, make, change);
}

template <class Change>
void delta_refusal(Case& c, const char* argument, Change change) {
  const Data data(c, kRefusalShape, kRefusalBatch, FRT_DTYPE_F32, kUsual, 0);
  const auto make = [&](const At& at) { return data.delta_args(at, data.convolved, data.z); };
  refuses<frt_gated_delta_args>(c, FRT_OP_GATED_DELTA, argument, make, change);
}

template <class Change>
void block_refusal(Case& c, const char* argument, Change change) {
  const Data data(c, kRefusalShape, kRefusalBatch, FRT_DTYPE_F32, kUsual, 0);
  Tensor& o = c.output("o", FRT_DTYPE_F32, kRefusalBatch.total() * kRefusalShape.values());
  Tensor& y = c.output("y", FRT_DTYPE_F32, kRefusalBatch.total() * kRefusalShape.values());
  const auto make = [&](const At& at) { return data.block_args(at, data.convolved, o, y); };
  refuses<frt_gated_delta_block_args>(c, FRT_OP_GATED_DELTA_BLOCK, argument, make, change);
}

void add_refusals(Suite& suite) {
  const auto conv = [&](const char* argument, void (*change)(frt_causal_conv_args&)) {
    suite.add(std::string(FRT_OP_CAUSAL_CONV) + " refuses " + argument,
              [=](Case& c) { conv_refusal(c, argument, change); });
  };
  conv("dtype", [](frt_causal_conv_args& args) { args.dtype = FRT_DTYPE_F16; });
  conv("channels", [](frt_causal_conv_args& args) { args.channels = 0; });
  conv("width", [](frt_causal_conv_args& args) { args.width = 9; });
  conv("window", [](frt_causal_conv_args& args) { args.window = nullptr; });
  conv("keep_window", [](frt_causal_conv_args& args) { args.keep_window = 2; });
  conv("c", [](frt_causal_conv_args& args) { args.c = const_cast<void*>(args.u); });

  const auto delta = [&](const char* argument, void (*change)(frt_gated_delta_args&)) {
    suite.add(std::string(FRT_OP_GATED_DELTA) + " refuses " + argument,
              [=](Case& c) { delta_refusal(c, argument, change); });
  };
  delta("sequences.rows", [](frt_gated_delta_args& args) { args.sequences.rows = 0; });
  delta("value_heads", [](frt_gated_delta_args& args) {
    args.key_heads = 2;
    args.value_heads = 3;
  });
  delta("key_dim", [](frt_gated_delta_args& args) { args.key_dim = -1; });
  delta("chunk", [](frt_gated_delta_args& args) { args.chunk = 0; });
  delta("state", [](frt_gated_delta_args& args) { args.state = nullptr; });
  delta("keep_state", [](frt_gated_delta_args& args) { args.keep_state = 2; });
  delta("sequences.rows", [](frt_gated_delta_args& args) {
    args.keep_state = 1;
    args.sequences.rows = FRT_DELTA_KEEP_ROWS + 1;
  });

  const auto block = [&](const char* argument, void (*change)(frt_gated_delta_block_args&)) {
    suite.add(std::string(FRT_OP_GATED_DELTA_BLOCK) + " refuses " + argument,
              [=](Case& c) { block_refusal(c, argument, change); });
  };
  block("conv.dtype", [](frt_gated_delta_block_args& args) { args.conv.dtype = FRT_DTYPE_BF16; });
  block("conv.channels", [](frt_gated_delta_block_args& args) { args.conv.channels += 1; });
  block("delta.c", [](frt_gated_delta_block_args& args) { args.delta.c = args.y; });
  block("norm_weight", [](frt_gated_delta_block_args& args) { args.norm_weight = nullptr; });
  block("y", [](frt_gated_delta_block_args& args) { args.y = nullptr; });
}

}  // namespace

void add_gated_delta_cases(Suite& suite) {
  const auto both = {FRT_DTYPE_F32, FRT_DTYPE_BF16};
  const auto conv = [&](const Shape& shape, const Batch& batch, frt_dtype dtype, int64_t pad) {
    suite.add(std::string(FRT_OP_CAUSAL_CONV) + " " + dtype_name(dtype) + " " +
                  std::to_string(shape.channels()) + " channels width " +
                  std::to_string(shape.width) + batch.text(),
              [=](Case& c) { conv_case(c, shape, batch, dtype, pad); });
  };
  const auto delta = [&](const Shape& shape, const Batch& batch, frt_dtype dtype,
                         const Decay& decays, int64_t pad, int32_t chunk) {
    suite.add(std::string(FRT_OP_GATED_DELTA) + " " + dtype_name(dtype) + " " + shape.text() +
                  batch.text() + " chunk " + std::to_string(chunk) + decays.name,
              [=](Case& c) { delta_case(c, shape, batch, dtype, decays, pad, chunk); });
  };
  const auto block = [&](const Shape& shape, const Batch& batch, frt_dtype dtype,
                         const Decay& decays, int64_t pad) {
    suite.add(std::string(FRT_OP_GATED_DELTA_BLOCK) + " " + dtype_name(dtype) + " " + shape.text() +
                  batch.text() + decays.name + (pad % 4 ? " slots not aligned" : ""),
              [=](Case& c) { block_case(c, shape, batch, dtype, decays, pad); });
  };

  for (const frt_dtype dtype : both) {
    for (const int32_t width : {2, 3, 4, 5, 8}) {
      const Shape odd = {1, 1, 3, 5, width};
      const Shape wide = {2, 4, 64, 64, width};
      conv(odd, {1, {0}, {1}}, dtype, 3);
      conv(odd, {9, {2, 0, 1}, {9, 0, 2}}, dtype, 3);
      conv(wide, {2, {3, 1}, {2, 1}}, dtype, 0);
      conv(wide, {200, {1, 0}, {200, 77}}, dtype, 0);
    }
    conv({16, 48, 128, 128, 4}, {1, {4, 2, 0, 5}, {1, 1, 0, 1}}, dtype, 0);
    conv({16, 48, 128, 128, 4}, {70, {1}, {66}}, dtype, 0);
  }

  // Every shape with a row, a few, and with chunks that end early or late.
  const Batch batches[] = {
      {1, {2, 0, 3}, {1, 0, 1}}, {2, {1, 0}, {2, 1}},       {5, {0, 3, 1, 2}, {5, 4, 0, 1}},
      {63, {1}, {63}},           {64, {1, 0}, {64, 63}},    {65, {0}, {65}},
      {128, {2, 1}, {128, 3}},   {200, {0, 2}, {200, 129}},
  };
  for (const frt_dtype dtype : both) {
    for (const Shape& shape : {Shape{1, 1, 8, 8, 2}, Shape{1, 1, 33, 16, 3}, Shape{2, 4, 16, 33, 4},
                               Shape{2, 4, 64, 128, 5}, Shape{1, 3, 128, 128, 4},
                               Shape{2, 2, 128, 128, 8}, Shape{1, 1, 256, 256, 4}}) {
      for (const Batch& batch : batches) {
        delta(shape, batch, dtype, kUsual, 0, 64);
        block(shape, batch, dtype, kUsual, 0);
      }
    }
    for (const Decay& decays : {kLong, kStrong}) {
      for (const int32_t rows : {1, 8, 300}) {
        delta({1, 2, 128, 128, 4}, {rows, {1}, {rows}}, dtype, decays, 0, 64);
        block({1, 2, 128, 128, 4}, {rows, {1}, {rows}}, dtype, decays, 0);
      }
    }
    delta({1, 2, 128, 128, 4}, {150, {1}, {150}}, dtype, kUsual, 0, 16);
    delta({1, 2, 128, 128, 4}, {150, {1}, {150}}, dtype, kUsual, 0, 128);
    for (const int32_t rows : {1, 3, 130}) {
      block({1, 2, 128, 128, 4}, {rows, {2, 0}, {rows, 1}}, dtype, kUsual, 1);
    }
    // More value heads per key head than a cluster of blocks holds; the shapes of real models.
    block({1, 16, 128, 128, 4}, {2, {0, 1}, {2, 1}}, dtype, kUsual, 0);
    block({16, 48, 128, 128, 4}, {1, {1, 0}, {1, 1}}, dtype, kUsual, 0);
    block({16, 32, 128, 128, 4}, {4, {0}, {3}}, dtype, kUsual, 0);
  }
  // Enough sequences to fill a device.
  block({16, 48, 128, 128, 4}, {1, {8, 2, 0, 5, 1, 3, 9, 4, 6}, {1, 1, 1, 0, 1, 1, 1, 1, 1}},
        FRT_DTYPE_BF16, kUsual, 0);
  block({16, 32, 128, 128, 3}, {6, {7, 6, 5, 4, 3, 2, 1, 0}, {6, 1, 5, 4, 0, 2, 3, 6}},
        FRT_DTYPE_BF16, kUsual, 0);
  block({16, 48, 128, 128, 4}, {130, {0}, {130}}, FRT_DTYPE_BF16, kUsual, 0);
  block({16, 32, 128, 128, 4}, {192, {1}, {190}}, FRT_DTYPE_BF16, kUsual, 0);
  block({1, 2, 128, 128, 4}, {2048, {0}, {2040}}, FRT_DTYPE_BF16, kLong, 0);
  for (const frt_dtype dtype : both) {
    for (const auto& [shape, batch] :
         {std::pair{Shape{1, 2, 128, 128, 4}, Batch{1, {1}, {1}}},
          {Shape{2, 4, 64, 128, 4}, Batch{1, {1, 0}, {1, 1}}},
          {Shape{16, 48, 128, 128, 4}, Batch{1, {1}, {1}}},
          {Shape{16, 32, 128, 128, 4}, Batch{2, {0, 2, 1}, {2, 0, 1}}},
          {Shape{16, 48, 128, 128, 4},
           Batch{1, {8, 2, 0, 5, 1, 3, 9, 4}, {1, 1, 1, 0, 1, 1, 1, 1}}}}) {
      suite.add(
          std::string(FRT_OP_GATED_DELTA_BLOCK) + " row after row " + dtype_name(dtype) + " " +
              shape.text() + batch.text(),
          [=, shape = shape, batch = batch](Case& c) { decode_case(c, shape, batch, dtype); });
    }
  }
  for (const frt_dtype dtype : both) {
    for (const Shape& shape :
         {Shape{1, 1, 33, 16, 3}, Shape{2, 4, 32, 32, 4}, Shape{16, 48, 128, 128, 4},
          Shape{16, 32, 128, 128, 4}, Shape{1, 16, 128, 128, 8}}) {
      const std::string what = std::string(dtype_name(dtype)) + " " + shape.text();
      for (const auto& [rows, accepted] :
           {std::pair{2, 1}, {4, 4}, {4, 2}, {5, 5}, {8, 7}, {16, 13}}) {
        suite.add(std::string(FRT_OP_GATED_DELTA_COMMIT) + " of a round " + what + " rows " +
                      std::to_string(rows) + " accepted " + std::to_string(accepted),
                  [=, rows = rows, accepted = accepted](Case& c) {
                    round_case(c, shape, rows, accepted, dtype);
                  });
      }
      for (const auto& [batch, pad] : {std::pair{Batch{4, {2, 0, 3}, {4, 0, 1}}, 0},
                                       {Batch{2, {1, 0, 5, 3}, {2, 1, 2, 2}}, 1}}) {
        suite.add(
            std::string(FRT_OP_GATED_DELTA_COMMIT) + " " + what + batch.text() +
                (pad != 0 ? " slots not aligned" : ""),
            [=, batch = batch, pad = pad](Case& c) { commit_case(c, shape, batch, dtype, pad); });
        suite.add(
            std::string(FRT_OP_GATED_DELTA_BLOCK) + " keeps its state " + what + batch.text() +
                (pad != 0 ? " slots not aligned" : ""),
            [=, batch = batch, pad = pad](Case& c) { keep_case(c, shape, batch, dtype, pad); });
      }
    }
  }
  add_refusals(suite);
}

}  // namespace frt::conformance
