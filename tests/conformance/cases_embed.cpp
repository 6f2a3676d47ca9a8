// SPDX-License-Identifier: Apache-2.0
// Cases of frt/ops/embed.h and frt/ops/rows.h: everything is moved, so everything is exact.
#include <frt/ops/embed.h>
#include <frt/ops/rows.h>

#include <algorithm>

#include "check.hpp"
#include "refusal.hpp"

namespace frt::conformance {
namespace {

constexpr frt_dtype kTypes[] = {FRT_DTYPE_F32, FRT_DTYPE_BF16};

const Packing kTables[] = {{"f32", kWeightF32}, {"bf16", kWeightBf16}};

// Some ids are outside of 0 .. vocabulary.
Tensor& ids_of(Case& c, int64_t count, int32_t vocabulary) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) {
    const auto id = static_cast<int32_t>(c.random()() % static_cast<uint64_t>(vocabulary));
    ids.push_back(i % 7 == 3 ? -1 - id : i % 11 == 5 ? vocabulary + id : id);
  }
  if (count > 1) ids[0] = vocabulary - 1;
  return c.integers("ids", ids);
}

void embed(Case& c, const Packing& packing, frt_dtype y_dtype, int32_t vocabulary, int32_t width,
           int32_t rows, int64_t gap, int32_t row_count) {
  const Weight table = c.weight("table", packing, vocabulary, width);
  const Tensor& ids = ids_of(c, rows, vocabulary);
  const int64_t stride = width + gap;
  Tensor& y = c.output("y", y_dtype, rows * stride);
  Tensor& count = c.integers("row_count", {row_count});
  c.run<frt_embed_args>(FRT_OP_EMBED, types_of(FRT_DTYPE_NONE, y_dtype), packing.format,
                        [&](frt_embed_args& args, const At& at) {
                          args.y_dtype = y_dtype;
                          args.rows = rows;
                          if (row_count >= 0) args.row_count = at.operator()<int32_t>(count);
                          args.ids = at.operator()<int32_t>(ids);
                          args.table = Case::at(table, at);
                          args.y = at(y);
                          args.y_stride = stride;
                        });
  c.compare(y, kExact, row_count < 0 ? Untouched::kLeave : Untouched::kIgnore);

  Expected expected(y_dtype, rows * stride);
  const std::vector<double> values = Case::values(table, 0, vocabulary);
  const std::vector<double> id = Case::values(ids);
  for (int32_t row = 0; row < rows; ++row) {
    if (row_count >= 0 && row >= row_count) {
      expected.ignore(row * stride, width);
      continue;
    }
    const auto chosen = static_cast<int32_t>(id[static_cast<std::size_t>(row)]);
    for (int32_t i = 0; i < width; ++i) {
      const bool inside = chosen >= 0 && chosen < vocabulary;
      expected.code(row * stride + i,
                    inside ? values[static_cast<std::size_t>(int64_t{chosen} * width + i)] : 0.0);
    }
  }
  c.require(y, expected);
}

void embed_refusals(Case& c) {
  const Weight table = c.weight("table", kTables[0], 4, 8);
  const Tensor& ids = c.integers("ids", {1, 2});
  Tensor& y = c.output("y", FRT_DTYPE_F32, 16);
  const auto refuse = [&](auto spoil) {
    refused<frt_embed_args>(
        c, FRT_OP_EMBED, KernelTypes(FRT_DTYPE_F32), {},
        [&](frt_embed_args& args, const At& at) {
          args.y_dtype = FRT_DTYPE_F32;
          args.rows = 2;
          args.ids = at.operator()<int32_t>(ids);
          args.table = Case::at(table, at);
          args.y = at(y);
          args.y_stride = 8;
        },
        spoil);
  };
  refuse([](frt_embed_args& args) { args.y_dtype = FRT_DTYPE_F16; });
  refuse([](frt_embed_args& args) { args.rows = 0; });
  refuse([](frt_embed_args& args) { args.ids = nullptr; });
  refuse([](frt_embed_args& args) { args.table.format.data = FRT_DTYPE_COUNT; });
  refuse([](frt_embed_args& args) { args.table.format.layout = 7; });
  refuse([](frt_embed_args& args) { args.table.rows = 0; });
  refuse([](frt_embed_args& args) { args.table.cols = 0; });
  refuse([](frt_embed_args& args) { args.table.data = nullptr; });
  refuse([](frt_embed_args& args) { args.y = nullptr; });
  refuse([](frt_embed_args& args) { args.y_stride = 7; });
}

// ---- sequences --------------------------------------------------------------------------------

struct Batch {
  std::string name;
  int32_t rows;
  std::vector<int32_t> slot, position, length;

  int64_t count() const { return static_cast<int64_t>(slot.size()); }
  int64_t total() const { return count() * rows; }
  int32_t slots() const { return *std::max_element(slot.begin(), slot.end()) + 1; }
  Case::Sequences make(Case& c) const { return c.sequences(rows, slot, position, length); }
  // Calls function(sequence, slot, position, length), all of one width of integer.
  template <class Function>
  void each(Function function) const {
    for (std::size_t b = 0; b < slot.size(); ++b) {
      function(static_cast<int64_t>(b), int64_t{slot[b]}, int64_t{position[b]}, int64_t{length[b]});
    }
  }
};

const Batch kBatches[] = {
    {"one row", 1, {2}, {9}, {1}},
    {"one row, position 0", 1, {0}, {0}, {1}},
    {"decode of 5", 1, {4, 0, 6, 1, 2}, {7, 0, 1, 30, 2}, {1, 1, 0, 1, 1}},
    {"prefill", 300, {1}, {0}, {257}},
    {"prefill goes on", 64, {1}, {64}, {64}},
    {"verify", 4, {3, 1, 0, 5}, {11, 0, 5, 0}, {4, 3, 0, 1}},
    {"nothing", 3, {1, 0}, {4, 0}, {0, 0}},
};

void select_tokens(Case& c, const Batch& batch, int64_t stride) {
  const Case::Sequences sequences = batch.make(c);
  std::vector<int32_t> values;
  for (int64_t i = 0; i < batch.total(); ++i) {
    values.push_back(i % 3 == 1 ? static_cast<int32_t>(c.random()() % 1000) : -1);
  }
  const Tensor& ids = c.integers("ids", values);
  values.clear();
  for (int64_t i = 0; i < batch.slots() * stride / 4; ++i) {
    values.push_back(static_cast<int32_t>(c.random()() % 250'000));
  }
  const Tensor& pending = c.integers("pending", values);
  Tensor& out = c.output("ids_out", FRT_DTYPE_I32, batch.total() + 3);
  c.run<frt_select_tokens_args>(FRT_OP_SELECT_TOKENS, KernelTypes(), {},
                                [&](frt_select_tokens_args& args, const At& at) {
                                  args.sequences = sequences.at(at);
                                  args.ids = at.operator()<int32_t>(ids);
                                  args.pending = at(pending);
                                  args.pending_stride = stride;
                                  args.ids_out = at.operator()<int32_t>(out);
                                });
  c.compare(out, kExact);

  Expected expected(FRT_DTYPE_I32, out.count);
  const std::vector<double> id = Case::values(ids), waiting = Case::values(pending);
  batch.each([&](int64_t b, int64_t slot, int64_t, int64_t length) {
    for (int64_t row = b * batch.rows; row < b * batch.rows + length; ++row) {
      const double own = id[static_cast<std::size_t>(row)];
      expected.value(row, own >= 0 ? own : waiting[static_cast<std::size_t>(slot * stride / 4)]);
    }
  });
  c.require(out, expected);
}

// Row `row` of `from` in row `at` of what is expected, both from elements on.
void expect_row(Expected& expected, int64_t at, const std::vector<double>& from, int64_t row,
                int32_t width) {
  for (int32_t i = 0; i < width; ++i) {
    expected.code(at + i, from[static_cast<std::size_t>(row + i)]);
  }
}

void last_rows(Case& c, frt_dtype dtype, const Batch& batch, int32_t width, int64_t gap) {
  const Case::Sequences sequences = batch.make(c);
  const int64_t x_stride = width + gap, y_stride = width + 2 * gap;
  Tensor& x = c.normal("x", dtype, batch.total() * x_stride);
  Tensor& y = c.output("y", dtype, batch.count() * y_stride);
  c.run<frt_last_rows_args>(FRT_OP_LAST_ROWS, KernelTypes(dtype), {},
                            [&](frt_last_rows_args& args, const At& at) {
                              args.dtype = dtype;
                              args.sequences = sequences.at(at);
                              args.width = width;
                              args.x = at(x);
                              args.x_stride = x_stride;
                              args.y = at(y);
                              args.y_stride = y_stride;
                            });
  c.compare(y, kExact);

  Expected expected(dtype, y.count);
  const std::vector<double> values = Case::values(x);
  batch.each([&](int64_t b, int64_t, int64_t, int64_t length) {
    if (length == 0) return;
    expect_row(expected, b * y_stride, values, (b * batch.rows + length - 1) * x_stride, width);
  });
  c.require(y, expected);
}

void lag_rows(Case& c, frt_dtype dtype, const Batch& batch, int32_t width, int64_t gap,
              bool with_x) {
  const Case::Sequences sequences = batch.make(c);
  std::vector<int32_t> values;
  for (int64_t i = 0; i < batch.total(); ++i) values.push_back(static_cast<int32_t>(100 + i));
  const Tensor& ids = c.integers("ids", values);
  Tensor& x = c.normal("x", dtype, batch.total() * width);
  Tensor& carry = c.normal("carry", dtype, batch.slots() * (width + gap));
  Tensor& ids_out = c.output("ids_out", FRT_DTYPE_I32, batch.total());
  Tensor& y = c.output("y", dtype, batch.total() * width);
  Tensor& position = c.output("position_out", FRT_DTYPE_I32, batch.count());
  Tensor& length = c.output("length_out", FRT_DTYPE_I32, batch.count());
  c.run<frt_lag_rows_args>(FRT_OP_LAG_ROWS, KernelTypes(dtype), {},
                           [&](frt_lag_rows_args& args, const At& at) {
                             args.dtype = dtype;
                             args.sequences = sequences.at(at);
                             args.width = width;
                             args.ids = at.operator()<int32_t>(ids);
                             if (with_x) args.x = at(x);
                             args.carry = at(carry);
                             args.slot_stride = (width + gap) * dtype_bits(dtype) / 8;
                             args.ids_out = at.operator()<int32_t>(ids_out);
                             args.y = at(y);
                             args.position_out = at.operator()<int32_t>(position);
                             args.length_out = at.operator()<int32_t>(length);
                           });
  c.compare(ids_out, kExact);
  c.compare(y, kExact);
  c.compare(position, kExact);
  c.compare(length, kExact);

  Expected pair_ids(FRT_DTYPE_I32, batch.total()), pairs(dtype, batch.total() * width);
  Expected positions(FRT_DTYPE_I32, batch.count()), lengths(FRT_DTYPE_I32, batch.count());
  const std::vector<double> id = Case::values(ids), row = Case::values(x),
                            kept = Case::values(carry);
  batch.each([&](int64_t b, int64_t slot, int64_t p, int64_t n) {
    const int64_t first = b * batch.rows;
    const int64_t count = n == 0 ? 0 : p > 0 ? n : n - 1;
    for (int64_t i = 0; i < count; ++i) {
      // Pair i has the token after the row it has: one token further where there is no carry.
      const int64_t token = p > 0 ? i : i + 1;
      pair_ids.value(first + i, id[static_cast<std::size_t>(first + token)]);
      const bool carried = p > 0 && i == 0;
      expect_row(pairs, (first + i) * width, carried ? kept : row,
                 carried ? slot * (width + gap) : (first + token - 1) * width, width);
    }
    lengths.value(b, static_cast<double>(count));
    if (n == 0) {
      positions.ignore(b, 1);
    } else {
      positions.value(b, static_cast<double>(p > 0 ? p - 1 : 0));
    }
  });
  c.require(ids_out, pair_ids);
  c.require(y, pairs);
  c.require(position, positions);
  c.require(length, lengths);
}

void store_rows(Case& c, frt_dtype dtype, const Batch& batch, int32_t width, int64_t gap) {
  const Case::Sequences sequences = batch.make(c);
  Tensor& x = c.normal("x", dtype, batch.total() * width);
  Tensor& target = c.output("target", dtype, batch.slots() * (width + gap));
  c.run<frt_store_rows_args>(FRT_OP_STORE_ROWS, KernelTypes(dtype), {},
                             [&](frt_store_rows_args& args, const At& at) {
                               args.dtype = dtype;
                               args.sequences = sequences.at(at);
                               args.width = width;
                               args.x = at(x);
                               args.target = at(target);
                               args.slot_stride = (width + gap) * dtype_bits(dtype) / 8;
                             });
  c.compare(target, kExact);

  Expected expected(dtype, target.count);
  const std::vector<double> values = Case::values(x);
  batch.each([&](int64_t b, int64_t slot, int64_t, int64_t n) {
    if (n == 0) return;
    expect_row(expected, slot * (width + gap), values, (b * batch.rows + n - 1) * width, width);
  });
  c.require(target, expected);
}

void sequence_refusals(Case& c) {
  const Case::Sequences sequences = c.sequences(2, {0}, {0}, {2});
  const Tensor& ids = c.integers("ids", {1, 2});
  Tensor& x = c.normal("x", FRT_DTYPE_F32, 64);
  const auto select = [&](auto spoil) {
    refused<frt_select_tokens_args>(
        c, FRT_OP_SELECT_TOKENS, KernelTypes(), {},
        [&](frt_select_tokens_args& args, const At& at) {
          args.sequences = sequences.at(at);
          args.ids = at.operator()<int32_t>(ids);
          args.pending = at(ids);
          args.pending_stride = 4;
          args.ids_out = static_cast<int32_t*>(at(x));
        },
        spoil);
  };
  select([](frt_select_tokens_args& args) { args.sequences.count = 0; });
  select([](frt_select_tokens_args& args) { args.sequences.rows = -2; });
  select([](frt_select_tokens_args& args) { args.sequences.length = nullptr; });
  select([](frt_select_tokens_args& args) { args.ids = nullptr; });
  select([](frt_select_tokens_args& args) { args.pending = nullptr; });
  select([](frt_select_tokens_args& args) { args.pending_stride = 6; });
  select([](frt_select_tokens_args& args) { args.pending_stride = 0; });
  select([](frt_select_tokens_args& args) { args.ids_out = nullptr; });

  const auto last = [&](auto spoil) {
    refused<frt_last_rows_args>(
        c, FRT_OP_LAST_ROWS, KernelTypes(FRT_DTYPE_F32), {},
        [&](frt_last_rows_args& args, const At& at) {
          args.dtype = FRT_DTYPE_F32;
          args.sequences = sequences.at(at);
          args.width = 8;
          args.x = at(x);
          args.y = at(x, 32);
          args.x_stride = args.y_stride = 8;
        },
        spoil);
  };
  last([](frt_last_rows_args& args) { args.dtype = FRT_DTYPE_F16; });
  last([](frt_last_rows_args& args) { args.sequences.slot = nullptr; });
  last([](frt_last_rows_args& args) { args.width = 0; });
  last([](frt_last_rows_args& args) { args.x = nullptr; });
  last([](frt_last_rows_args& args) { args.y = nullptr; });
  last([](frt_last_rows_args& args) { args.x_stride = 7; });
  last([](frt_last_rows_args& args) { args.y_stride = 7; });
}

void slot_row_refusals(Case& c) {
  const Case::Sequences sequences = c.sequences(2, {0}, {0}, {2});
  const Tensor& ids = c.integers("ids", {1, 2, 0, 0, 0, 0});
  Tensor& x = c.normal("x", FRT_DTYPE_F32, 64);
  const auto lag = [&](auto spoil) {
    refused<frt_lag_rows_args>(
        c, FRT_OP_LAG_ROWS, KernelTypes(FRT_DTYPE_F32), {},
        [&](frt_lag_rows_args& args, const At& at) {
          args.dtype = FRT_DTYPE_F32;
          args.sequences = sequences.at(at);
          args.width = 8;
          args.ids = at.operator()<int32_t>(ids);
          args.x = at(x);
          args.carry = at(x, 16);
          args.slot_stride = 32;
          args.ids_out = at.operator()<int32_t>(ids, 2);
          args.y = at(x, 32);
          args.position_out = at.operator()<int32_t>(ids, 4);
          args.length_out = at.operator()<int32_t>(ids, 5);
        },
        spoil);
  };
  lag([](frt_lag_rows_args& args) { args.dtype = FRT_DTYPE_F16; });
  lag([](frt_lag_rows_args& args) { args.width = 0; });
  lag([](frt_lag_rows_args& args) { args.sequences.position = nullptr; });
  lag([](frt_lag_rows_args& args) { args.ids = nullptr; });
  lag([](frt_lag_rows_args& args) { args.x = nullptr; });  // rows is 2
  lag([](frt_lag_rows_args& args) { args.carry = nullptr; });
  lag([](frt_lag_rows_args& args) { args.slot_stride = 28; });
  lag([](frt_lag_rows_args& args) { args.ids_out = nullptr; });
  lag([](frt_lag_rows_args& args) { args.ids_out = const_cast<int32_t*>(args.ids); });
  lag([](frt_lag_rows_args& args) { args.y = nullptr; });
  lag([](frt_lag_rows_args& args) { args.y = const_cast<void*>(args.x); });
  lag([](frt_lag_rows_args& args) { args.position_out = nullptr; });
  lag([](frt_lag_rows_args& args) { args.length_out = nullptr; });

  const auto store = [&](auto spoil) {
    refused<frt_store_rows_args>(
        c, FRT_OP_STORE_ROWS, KernelTypes(FRT_DTYPE_F32), {},
        [&](frt_store_rows_args& args, const At& at) {
          args.dtype = FRT_DTYPE_F32;
          args.sequences = sequences.at(at);
          args.width = 8;
          args.x = at(x);
          args.target = at(x, 32);
          args.slot_stride = 32;
        },
        spoil);
  };
  store([](frt_store_rows_args& args) { args.dtype = FRT_DTYPE_I32; });
  store([](frt_store_rows_args& args) { args.sequences.count = -1; });
  store([](frt_store_rows_args& args) { args.width = 0; });
  store([](frt_store_rows_args& args) { args.x = nullptr; });
  store([](frt_store_rows_args& args) { args.target = nullptr; });
  store([](frt_store_rows_args& args) { args.slot_stride = 0; });
}

}  // namespace

void add_embed_cases(Suite& suite) {
  for (const Packing& packing : kTables) {
    for (const frt_dtype dtype : kTypes) {
      const auto add = [&](int32_t vocabulary, int32_t width, int32_t rows, int64_t gap,
                           int32_t row_count) {
        suite.add(
            std::string(FRT_OP_EMBED) + " " + packing.name + " to " + dtype_name(dtype) + " " +
                std::to_string(rows) + "x" + std::to_string(width) +
                (row_count >= 0 ? " row count " + std::to_string(row_count) : ""),
            [=](Case& c) { embed(c, packing, dtype, vocabulary, width, rows, gap, row_count); });
      };
      add(1, 1, 1, 0, -1);
      add(3, 7, 9, 2, -1);
      add(500, 64, 33, 0, -1);
      add(40, 5120, 1, 0, -1);
      add(40, 5120, 17, 8, -1);
      add(99, 130, 40, 6, -1);
      add(20, 48, 50, 0, 31);
      add(20, 5, 50, 0, 0);
      add(7, 8, 70'000, 0, -1);
    }
  }
  suite.add(std::string(FRT_OP_EMBED) + " refusals", embed_refusals);
  for (const Batch& batch : kBatches) {
    for (const int64_t stride : {4, 20}) {
      suite.add(std::string(FRT_OP_SELECT_TOKENS) + " " + batch.name + " stride " +
                    std::to_string(stride),
                [=](Case& c) { select_tokens(c, batch, stride); });
    }
    for (const frt_dtype dtype : kTypes) {
      for (const auto& [width, gap] : {std::pair{1, 0}, {33, 1}, {640, 8}, {2560, 0}}) {
        const std::string name = std::string(" ") + dtype_name(dtype) + " " + batch.name +
                                 " width " + std::to_string(width);
        const auto w = width;
        const int64_t g = gap;
        suite.add(FRT_OP_LAST_ROWS + name, [=](Case& c) { last_rows(c, dtype, batch, w, g); });
        suite.add(FRT_OP_LAG_ROWS + name, [=](Case& c) { lag_rows(c, dtype, batch, w, g, true); });
        suite.add(FRT_OP_STORE_ROWS + name, [=](Case& c) { store_rows(c, dtype, batch, w, g); });
        if (batch.rows > 1) continue;
        suite.add(FRT_OP_LAG_ROWS + name + " without x",
                  [=](Case& c) { lag_rows(c, dtype, batch, w, g, false); });
      }
    }
  }
  suite.add(FRT_OP_LAST_ROWS " and " FRT_OP_SELECT_TOKENS " refusals", sequence_refusals);
  suite.add(FRT_OP_LAG_ROWS " and " FRT_OP_STORE_ROWS " refusals", slot_row_refusals);
}

}  // namespace frt::conformance
