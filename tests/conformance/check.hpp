// SPDX-License-Identifier: Apache-2.0
// check.hpp - one conformance case: the same random inputs given to the backend under test and to
// the reference backend, the same operator called on both, the outputs compared.
//
//     void silu_mul_case(Case& c) {
//       Tensor& a = c.normal("a", FRT_DTYPE_BF16, 7 * 33);
//       Tensor& b = c.normal("b", FRT_DTYPE_BF16, 7 * 33);
//       Tensor& y = c.output("y", FRT_DTYPE_BF16, 7 * 33);
//       c.run<frt_binary_args>(FRT_OP_SILU_MUL, FRT_DTYPE_BF16, {},
//                              [&](frt_binary_args& args, const At& at) {
//                                args.dtype = FRT_DTYPE_BF16;
//                                args.rows = 7;
//                                args.a = at(a);
//                                args.y = at(y);
//                              });
//       c.compare(y, kBf16);
//     }
//     suite.add("silu_mul bf16 7x33", silu_mul_case);
//
// run() submits three times on the backend under test: eagerly, recorded and launched once, and
// launched again; each time all tensors are first set back to their initial contents. All three
// must give the same bits. The reference runs eagerly, once.
//
// require() judges the reference, too: by a value computed here in double from the operator's
// header (expected.hpp). compare() is for what has no such reference, and for bits that a header
// leaves open.
//
// Outputs are poisoned: elements that the reference leaves poisoned must be left alone by the
// backend under test, too, or are ignored, as `Untouched` says.
#pragma once

#include <frt/kernels.h>
#include <frt/ops/moe.h>
#include <frt/ops/sequences.h>

#include <cstdint>
#include <deque>
#include <frt/error.hpp>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "backend.hpp"
#include "expected.hpp"

namespace frt::conformance {

// A block of memory that exists on both sides.
struct Tensor {
  std::string name;
  frt_dtype dtype = FRT_DTYPE_NONE;
  int64_t count = 0;                 // elements
  std::vector<std::byte> initial;    // contents before every run
  void* at[2] = {nullptr, nullptr};  // under test, reference
  std::vector<std::byte> result[2];
};

// The pointers of one side.
class At {
 public:
  explicit At(int side) : side_(side) {}
  // A tensor's address, moved by `elements`.
  template <class Element = void>
  Element* operator()(const Tensor& tensor, int64_t elements = 0) const {
    return static_cast<Element*>(static_cast<void*>(static_cast<std::byte*>(tensor.at[side_]) +
                                                    elements * dtype_bits(tensor.dtype) / 8));
  }
  int side() const { return side_; }

 private:
  int side_;
};

// How far the result may be from the reference. `norm`: ||out - ref|| / ||ref|| over the tensor;
// `element`: |out - ref| <= element * (|ref| + rms(ref)) for each one, but that one of 4,000 may be
// `rare` off in place of `element`. `row`: as `norm`, of each row alone, where the rows are known:
// a few wrong ones are hidden by many.
struct Tolerance {
  double norm, element;
  double rare = 0;  // 0: none may
  double row = 0;   // 0: not judged
};
inline constexpr Tolerance kExact = {0, 0};
inline constexpr Tolerance kF32 = {1e-4, 1e-3};
inline constexpr Tolerance kBf16 = {1e-2, 4e-2};
// Where both sides round to e4m3 by themselves, and what they round went through bf16 (2^-9 off),
// one of 30 values meets on two sides of a halfway point; a step of the format is up to an eighth
// of the value. The error of a tensor is then some 1.5e-2 (measured: 1.1e-2 to 1.8e-2), twice of
// which is allowed. An element's error is a sum of many such steps, times its gate: one of 10^4 is
// four deviations off where its gate is 2.5 times the typical one (measured: one of 12,800 at 0.152
// to 0.18 in 4 of 273 cases, all others below 0.15).
//
// Where one side rounds x to FP8 and the other does not, a product is off by as much: 2.7e-2, a row
// of 33 outputs by 5.1e-2 (simulated).
inline constexpr Tolerance kFp8 = {3e-2, 0.15, 0.3, 0.15};
// The same of a gated product: 4.1e-2, a row of 33 outputs 0.13, one of 10^6 elements 0.54.
inline constexpr Tolerance kFp8Gated = {5.2e-2, 0.8, 0, 0.25};
// Where one side rounds x to NVFP4 and the other does not. Rounding moves normal values by 0.095 of
// their size, and a sum of products with them as much. A tensor may be off by twice that, an
// element by six such deviations. A row of 33 outputs is off by up to 0.19 (simulated), one that
// was not computed by 1.
inline constexpr Tolerance kFp4 = {0.19, 0.57, 0, 0.4};
// The same of a gated product, which is off by both factors, and of a product with its rounded
// results: sqrt(3) times as much. Rows differ in size, and errors with them: in one of twice the
// typical size an element may be off by six deviations. A row of 64 outputs is off by up to 0.59
// (simulated), one of an expert that was not computed by 1.
inline constexpr Tolerance kFp4Gated = {0.33, 2.0, 0, 0.8};
inline constexpr Tolerance tolerance_of(frt_dtype dtype) {
  return dtype == FRT_DTYPE_F32 ? kF32 : kBf16;
}

// What the backend under test must do with elements that the reference did not write.
enum class Untouched { kLeave, kIgnore };

// The tensors of one weight matrix.
struct Weight {
  frt_weight shape{};  // without pointers
  const Tensor* data = nullptr;
  const Tensor* scale = nullptr;
  const Tensor* zero = nullptr;
};
// The tensors of one matrix of several experts.
struct ExpertWeight {
  Weight experts;                                              // rows of one expert; tensors of all
  int64_t data_stride = 0, scale_stride = 0, zero_stride = 0;  // bytes
  const Tensor* global_scales = nullptr;
};

struct Packing {
  std::string name;
  frt_weight_format format;
};
// bf16, f32, FP8 in blocks (128x128 and odd ones, both scale types), per tensor, per channel,
// NVFP4.
const std::vector<Packing>& all_packings();
// Integers of four and eight bits with scales and zero points of every kind, and values with powers
// of two for scales: what a backend may take by its general form, or not at all.
const std::vector<Packing>& general_packings();

// What an operator reads and writes, where that differs; FRT_DTYPE_NONE asks for nothing.
inline KernelTypes types_of(frt_dtype input, frt_dtype output) {
  return {KernelTypes(input).inputs, KernelTypes(output).outputs};
}

// Operators one after the other, with nothing between them. What `fill` refers to must outlive
// the run.
class Chain {
 public:
  // `fill` sets everything but struct_size.
  template <class Args, class Fill>
  void then(const std::string& name, const KernelTypes& types, const WeightFormats& weights,
            Fill fill) {
    links_.push_back(
        {name, types, weights, sizeof(Args),
         [fill](const frt_kernel& kernel, frt_backend_stream stream, int side, frt_error* error) {
           Args args{};
           args.struct_size = sizeof(Args);
           fill(args, At(side));
           return kernel.launch(kernel.self, stream, &args, error);
         }});
  }

  struct Link {
    std::string name;
    KernelTypes types;
    WeightFormats weights;
    std::size_t args_size;
    std::function<frt_status(const frt_kernel&, frt_backend_stream, int, frt_error*)> call;
  };
  const std::vector<Link>& links() const { return links_; }

 private:
  std::vector<Link> links_;
};

class Case {
 public:
  // once: run() submits eagerly alone. activations: what the backend under test may round x to in
  // products with weights of that format.
  Case(Backend& under_test, Backend& reference, uint64_t seed, bool once = false,
       Rounding activations = Rounding::kNone);
  ~Case();
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  std::mt19937_64& random() { return random_; }
  Backend& under_test() { return *sides_[0]; }

  // ---- tensors; the references stay valid for the life of the case ----
  // Normal values rounded to dtype (f32, bf16, f8_e4m3).
  Tensor& normal(const std::string& name, frt_dtype dtype, int64_t count, float deviation = 1.0f,
                 float mean = 0.0f);
  Tensor& uniform(const std::string& name, frt_dtype dtype, int64_t count, float low, float high);
  Tensor& integers(const std::string& name, const std::vector<int32_t>& values);
  Tensor& raw(const std::string& name, frt_dtype dtype, const void* data, int64_t count);
  // Poisoned before every run.
  Tensor& output(const std::string& name, frt_dtype dtype, int64_t count);

  // A random weight whose values have the deviation 1 / sqrt(cols). cols % 16 == 0 for NVFP4.
  Weight weight(const std::string& name, const Packing& packing, int32_t rows, int32_t cols);
  ExpertWeight experts(const std::string& name, const Packing& packing, int32_t count, int32_t rows,
                       int32_t cols);
  static frt_weight at(const Weight& weight, const At& at);
  static frt_expert_weight at(const ExpertWeight& weight, const At& at);

  // Three tensors slot, position, length of frt_sequences.
  struct Sequences {
    int32_t count, rows;
    const Tensor *slot, *position, *length;
    frt_sequences at(const At& at) const;
  };
  Sequences sequences(int32_t rows, const std::vector<int32_t>& slot,
                      const std::vector<int32_t>& position, const std::vector<int32_t>& length);

  // ---- running and comparing ----
  // Calls the operators on both sides. The case is skipped (Skip is thrown) where the backend under
  // test has no kernel of a name for these types, or a launch returns FRT_ERR_UNSUPPORTED. What
  // `supports` of a kernel answers must be what its launch answers.
  void run(const Chain& chain);
  // One operator.
  template <class Args, class Fill>
  void run(const std::string& name, const KernelTypes& types, const WeightFormats& weights,
           Fill fill) {
    Chain chain;
    chain.then<Args>(name, types, weights, fill);
    run(chain);
  }
  void compare(const Tensor& tensor, Tolerance tolerance, Untouched untouched = Untouched::kLeave);
  // Each of some ranges of whole rows of `width` elements within `tolerance`. Where `rounding` is
  // not kNone all of them together may be within `rounded` instead, which then counts as a product
  // of rounded activations.
  struct Range {
    int64_t first, count;  // elements
  };
  void compare_rounded(const Tensor& tensor, std::span<const Range> ranges, int64_t width,
                       Tolerance tolerance, Rounding rounding, Tolerance rounded);
  // The same of all rows.
  void compare_rounded(const Tensor& tensor, int64_t width, Tolerance tolerance, Rounding rounding,
                       Tolerance rounded);
  // Both sides' tensor by what the operator's header says.
  void require(const Tensor& tensor, const Expected& expected);
  // Elements [first, first + count) alone.
  void compare_range(const Tensor& tensor, int64_t first, int64_t count, Tolerance tolerance,
                     Untouched untouched = Untouched::kLeave);
  // y = x W^T, or y += it, of a product over the first `rows` rows; other rows below `ignored` may
  // hold anything. Judged in double (rounded_product of expected.hpp), in large products some of
  // the outputs.
  struct ProductShape {
    int32_t rows, ignored;
    int64_t x_stride, y_stride;  // elements
    bool accumulate = false;
  };
  void require_product(const Tensor& x, const Weight& weight, const Tensor& y,
                       const ProductShape& shape);
  // What the backend under test may round `x` to before it multiplies; and whether some product was
  // beyond what it may be otherwise.
  Rounding may_round(const Tensor& x, const Weight& weight) const;
  bool has_rounded() const { return has_rounded_; }
  // The contents before every run.
  static std::vector<double> values(const Tensor& tensor);
  // `rows` of them dequantised, (rows, cols).
  static std::vector<double> values(const Weight& weight, int32_t first_row, int32_t rows);
  // One row of the matrix of expert `index`.
  static std::vector<double> values(const ExpertWeight& weight, int32_t index, int32_t row);
  // The value of an element after run(), 0: under test, 1: reference.
  static double value(const Tensor& tensor, int side, int64_t index);
  [[noreturn]] static void fail(const std::string& text);
  double worst() const { return worst_; }  // largest ||out - ref|| / ||ref|| seen
  // Largest |out - ref| / (|ref| + rms(ref)) of one element.
  double worst_element() const { return worst_element_; }

 private:
  Tensor& make(const std::string& name, frt_dtype dtype, int64_t count);
  // `width`: of a row; 0: the ranges are of no rows.
  void compare_ranges(const Tensor& tensor, std::span<const Range> ranges, int64_t width,
                      Tolerance tolerance, Untouched untouched);
  static void require(const Tensor& tensor, const Expected& under_test, const Expected& reference);
  void reset(int side);
  void fetch(int side);

  Backend* sides_[2];
  std::mt19937_64 random_;
  bool once_, has_rounded_ = false;
  Rounding activations_;
  std::deque<Tensor> tensors_;
  double worst_ = 0, worst_element_ = 0;
};

struct Skip {
  std::string why;
  bool declined = false;  // the operator is offered: FRT_ERR_UNSUPPORTED
};

// Thrown by a case that passes with something to be said.
struct Warn {
  std::string why;
};

// The cases, by name.
class Suite {
 public:
  void add(const std::string& name, std::function<void(Case&)> body) {
    cases_.push_back({name, std::move(body)});
  }
  struct Entry {
    std::string name;
    std::function<void(Case&)> body;
  };
  const std::vector<Entry>& cases() const { return cases_; }

 private:
  std::vector<Entry> cases_;
};

// One function per operator family, in cases_<family>.cpp.
void add_attention_cases(Suite& suite);
void add_dense_cases(Suite& suite);  // also norms of every kind
void add_dense_attention_cases(Suite& suite);
void add_dense_fp8_cases(Suite& suite);    // FP8 activations of both
void add_draft_cases(Suite& suite);        // the operators that check drafted tokens
void add_elementwise_cases(Suite& suite);  // also convert, fill, checksum
void add_embed_cases(Suite& suite);        // also rows that stay with a slot
void add_flow_cases(Suite& suite);         // also images and prompts of policies
void add_flow_layers_cases(Suite& suite);
void add_gated_delta_cases(Suite& suite);  // also the convolution and the block
void add_linear_cases(Suite& suite);
void add_linear_gemm_cases(Suite& suite);  // many rows
void add_moe_cases(Suite& suite);
void add_norm_cases(Suite& suite);
void add_runtime_cases(Suite& suite);  // streams, events, executables: frt/backend.h
void add_sample_cases(Suite& suite);   // also argmax and token counts
void add_weight_cases(Suite& suite);   // formats by their description

}  // namespace frt::conformance
