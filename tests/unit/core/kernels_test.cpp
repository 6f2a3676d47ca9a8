// SPDX-License-Identifier: Apache-2.0
#include "rig.hpp"

namespace {

frt_status launch_nothing(void*, frt_backend_stream, const void*, frt_error*) {
  return FRT_OK;
}

// `weights` outlives the descriptor.
frt_kernel_desc describe(const char* name, frt_dtype_set activations,
                         const frt::WeightFormats& weights, void* self = nullptr) {
  return {sizeof(frt_kernel_desc),
          8,
          name,
          activations,
          activations,
          weights.data(),
          static_cast<uint32_t>(weights.size()),
          0,
          {self, launch_nothing, nullptr}};
}

frt_kernel resolve(const Rig& rig, const char* name, frt::KernelTypes types,
                   const frt::WeightFormats& weights, frt_kernel_owner owner = nullptr) {
  frt_kernel kernel{};
  frt_error error{};
  frt::check(rig.context.table().kernels_resolve(
                 rig.handle, owner, &name, 1, types.inputs, types.outputs, weights.data(),
                 static_cast<uint32_t>(weights.size()), &kernel, &error),
             error);
  return kernel;
}

const frt::WeightFormats kNone;
const frt::WeightFormats kBf16 = frt::kWeightBf16;
const frt_weight_format kFp8Block = FRT_WEIGHT_FP8_BLOCK(FRT_DTYPE_F32, 128, 128);
const frt::WeightFormats kFp8 = kFp8Block;
const frt::WeightFormats kBoth = {frt::kWeightBf16, kFp8Block};

}  // namespace

TEST_CASE("missing operators are reported all at once, each with its reason") {
  Rig rig;
  frt::Kernel<mock_append_args> a, b, c, d, e;
  frt::KernelSet set;
  set.add(a, "mock.append/1")
      .add(b, "mock.absent/1")
      .add(c, "mock.half/1")
      .add(d, "?mock.optional/1")
      .add(e, "mock.gone/2");
  const std::string text =
      caught([&] { set.resolve(rig.context, frt::KernelTypes(FRT_DTYPE_F32), kBf16); }).message;
  CHECK(contains(text,
                 "no kernel for 3 operators: mock.absent/1 (not of the backend, and no owner was "
                 "given), mock.half/1 (not for f32 inputs), mock.gone/2 (not of the backend, and"));
  CHECK_FALSE(contains(text, "optional"));
  CHECK_FAILS(FRT_ERR_NOT_FOUND,
              "mock.weights/1 (not for weights in f8_e4m3 in blocks of 128 x 128 with f32 scales)",
              (void)resolve(rig, "mock.weights/1", frt::KernelTypes(FRT_DTYPE_BF16), kBoth));
  CHECK_FALSE(a);
}

TEST_CASE("an operator of the standard names is the backend's to have, any other the model's") {
  Rig rig;
  const auto refusal = [&](const char* name) -> std::string {
    return caught([&] { (void)resolve(rig, name, {}, kNone); }).message;
  };
  const std::string standard = refusal("frt.none/1");
  CHECK(contains(standard, "the backend lacks 1 operator: frt.none/1; use a backend"));
  CHECK_FALSE(contains(standard, "kernels_register"));
  const std::string own = refusal("stranger.mix/1");
  CHECK(contains(own,
                 "there is no kernel for 1 operator: stranger.mix/1 (not of the backend, and no "
                 "owner was given); a model's own operators are registered with "
                 "kernels_register"));
  CHECK_FALSE(contains(own, "use a backend"));
}

TEST_CASE("a missing optional operator is false, the others work") {
  Rig rig;
  frt::Kernel<mock_append_args> here, not_here;
  frt::KernelSet()
      .add(here, "?mock.half/1")
      .add(not_here, "?mock.no/1")
      .resolve(rig.context, frt::KernelTypes(FRT_DTYPE_BF16));
  CHECK(here);
  CHECK(here.name() == "mock.half/1");
  CHECK_FALSE(not_here);
  const frt::Stream stream = rig.context.create_stream("s");
  CHECK_FAILS(FRT_ERR_NOT_FOUND, "mock.no/1", not_here(frt::Recorder(stream), {0, 1}));
}

TEST_CASE(
    "so many missing names that reasons do not fit are all named, in the record or in the log") {
  Rig rig;
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i) names.push_back("vendor.operator_" + std::to_string(i) + "/1");
  std::vector<const char*> pointers;
  for (const auto& name : names) pointers.push_back(name.c_str());
  std::vector<frt_kernel> kernels(60);
  frt_error error{};
  CHECK(rig.context.table().kernels_resolve(rig.handle, nullptr, pointers.data(), 20, 0, 0, nullptr,
                                            0, kernels.data(), &error) == FRT_ERR_NOT_FOUND);
  for (const auto& name : names) CHECK(contains(error.message, name));
  pointers.resize(60, "vendor.some_operator_with_a_long_name/1");
  CHECK(rig.context.table().kernels_resolve(rig.handle, nullptr, pointers.data(), 60, 0, 0, nullptr,
                                            0, kernels.data(), &error) == FRT_ERR_NOT_FOUND);
  CHECK(std::string(error.message).ends_with(" bytes)"));
  CHECK(contains(error.message, "no kernel for 60 operators"));
  std::string log;
  const frt::ErrorSink sink(
      [](void* self, const char* text) { *static_cast<std::string*>(self) += text; }, &log);
  CHECK(rig.context.table().kernels_resolve(rig.handle, nullptr, pointers.data(), 60, 0, 0, nullptr,
                                            0, kernels.data(), &error) == FRT_ERR_NOT_FOUND);
  CHECK(std::string(error.message).ends_with("; the log has all of it)"));
  CHECK(contains(log, "vendor.operator_19/1 (not of the backend, and no owner was given)"));
  CHECK(contains(log, "registered with kernels_register"));
}

TEST_CASE("of several kernels that fit, the last one registered wins") {
  Rig rig;
  int general = 0, tuned = 0;
  const frt_kernel_desc both[] = {
      describe("my.linear/1", FRT_DTYPE_BIT(FRT_DTYPE_F32) | FRT_DTYPE_BIT(FRT_DTYPE_BF16), kBoth,
               &general),
      describe("my.linear/1", FRT_DTYPE_BIT(FRT_DTYPE_BF16), kBf16, &tuned)};
  const frt::KernelOwner mine = rig.context.register_kernels(both);
  CHECK(resolve(rig, "my.linear/1", frt::KernelTypes(FRT_DTYPE_BF16), kBf16, mine).self == &tuned);
  CHECK(resolve(rig, "my.linear/1", frt::KernelTypes(FRT_DTYPE_BF16), kBoth, mine).self ==
        &general);
  CHECK(resolve(rig, "my.linear/1", frt::KernelTypes(FRT_DTYPE_F32), kBf16, mine).self == &general);
  CHECK(resolve(rig, "my.linear/1", {}, kNone, mine).self == &tuned);
}

TEST_CASE("kernels are found by their owner alone, and go with it") {
  Rig rig;
  int first = 0, second = 0;
  const frt_kernel_desc of_first[] = {describe("my.scale/1", 0, kNone, &first)};
  const frt_kernel_desc of_second[] = {describe("my.scale/1", 0, kNone, &second)};
  const frt::KernelOwner one = rig.context.register_kernels(of_first);
  const frt::KernelOwner two = rig.context.register_kernels(of_second);
  CHECK(resolve(rig, "my.scale/1", {}, kNone, one).self == &first);
  CHECK(resolve(rig, "my.scale/1", {}, kNone, two).self == &second);
  CHECK_FAILS(FRT_ERR_NOT_FOUND, "my.scale/1 (not of the backend, and no owner was given)",
              (void)resolve(rig, "my.scale/1", {}, kNone));
  CHECK_FAILS(FRT_ERR_NOT_FOUND,
              "my.other/1 (neither registered with this owner nor of the backend)",
              (void)resolve(rig, "my.other/1", {}, kNone, one));
  for (int again = 0; again < 2; ++again) {  // a model that is made, destroyed and made again
    CHECK_NOTHROW(rig.context.register_kernels(of_first));
  }
}

TEST_CASE("an owner's kernels come before the backend's, which it still finds") {
  Rig rig;
  int own = 0;
  const frt_kernel_desc list[] = {describe("mock.append/1", 0, kBf16, &own)};
  const frt::KernelOwner mine = rig.context.register_kernels(list);
  CHECK(resolve(rig, "mock.append/1", {}, kBf16, mine).self == &own);
  CHECK(resolve(rig, "mock.append/1", {}, kBf16).self != &own);
  CHECK_NOTHROW((void)resolve(rig, "mock.mix/1", {}, kNone, mine));
}

TEST_CASE("an owner of one context is refused on another") {
  Rig rig, other;
  const frt_kernel_desc list[] = {describe("my.scale/1", 0, kNone)};
  const frt::KernelOwner mine = rig.context.register_kernels(list);
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "the owner registered its kernels on context 'dev0'",
              (void)resolve(other, "my.scale/1", {}, kNone, mine));
}

TEST_CASE("a context with kernels that nobody released cannot be closed") {
  Rig rig;
  const frt_kernel_desc list[] = {describe("my.scale/1", 0, kNone)};
  const frt::KernelOwner mine = rig.context.register_kernels(list);
  CHECK_FAILS(FRT_ERR_BAD_STATE, "1 kernel owner(s)", frt::core::close_context(rig.handle));
}

TEST_CASE("descriptors of a newer header are read by their stride") {
  struct Newer {
    frt_kernel_desc desc;
    uint64_t grown;
  };
  Rig rig;
  int last = 0;
  const Newer list[] = {{describe("my.one/1", 0, kNone), ~0ull},
                        {describe("my.two/1", 0, kNone, &last), ~0ull}};
  frt_kernel_owner owner = nullptr;
  frt_error error{};
  const frt_exec_v1& table = rig.context.table();
  CHECK(table.kernels_register(rig.handle, &list[0].desc, 2, sizeof(Newer), &owner, &error) ==
        FRT_OK);
  CHECK(resolve(rig, "my.two/1", {}, kNone, owner).self == &last);
  table.kernels_release(owner);
  CHECK(table.kernels_register(rig.handle, &list[0].desc, 2, 71, &owner, &error) == FRT_ERR_ABI);
  CHECK(contains(error.message, "a stride of 71 bytes, expected at least 72"));
}

TEST_CASE("weights that only several kernels together take are reported as such") {
  Rig rig;
  const frt_kernel_desc two[] = {describe("my.part/1", 0, kBf16), describe("my.part/1", 0, kFp8)};
  const frt::KernelOwner mine = rig.context.register_kernels(two);
  CHECK_FAILS(FRT_ERR_NOT_FOUND,
              "no single kernel for weights in bf16, f8_e4m3 in blocks of 128 x 128 with",
              (void)resolve(rig, "my.part/1", frt::KernelTypes(FRT_DTYPE_BF16), kBoth, mine));
}

TEST_CASE("a pattern fits every value of the members that are FRT_WEIGHT_ANY, and no other") {
  Rig rig;
  const frt::WeightFormats any_groups = frt_weight_format{
      FRT_DTYPE_U4, FRT_DTYPE_F16, FRT_DTYPE_U4, FRT_WEIGHT_ANY, FRT_WEIGHT_ANY, 0, 0};
  const frt_kernel_desc list[] = {describe("my.linear/1", 0, any_groups)};
  const frt::KernelOwner mine = rig.context.register_kernels(list);
  const frt_weight_format awq = {FRT_DTYPE_U4, FRT_DTYPE_F16, FRT_DTYPE_U4, 1, 128, 0, 0};
  frt_weight_format whole = awq;
  whole.group_rows = whole.group_cols = 0;
  CHECK_NOTHROW((void)resolve(rig, "my.linear/1", {}, {awq, whole}, mine));
  // Each other member, one after the other, is another format.
  const auto refused = [&](const char* words, auto change) {
    frt_weight_format other = awq;
    change(other);
    CHECK_FAILS(FRT_ERR_NOT_FOUND, words, (void)resolve(rig, "my.linear/1", {}, other, mine));
  };
  refused("4-bit signed in groups of 128 with f16 scales and u4 zero points",
          [](frt_weight_format& f) { f.data = FRT_DTYPE_I4; });
  refused("4-bit unsigned in groups of 128 with bf16 scales and u4 zero points",
          [](frt_weight_format& f) { f.scale = FRT_DTYPE_BF16; });
  refused("4-bit unsigned in groups of 128 with f16 scales)",
          [](frt_weight_format& f) { f.zero = FRT_DTYPE_NONE; });
  refused("f16 scales and u4 zero points, layout 7", [](frt_weight_format& f) { f.layout = 7; });
  refused("f16 scales, u4 zero points and a global scale",
          [](frt_weight_format& f) { f.flags = FRT_WEIGHT_GLOBAL_SCALE; });
  refused("unknown flags 64", [](frt_weight_format& f) { f.flags = 64; });
  CHECK_FAILS(FRT_ERR_NOT_FOUND, "4-bit e2m1 in groups of 16 with f8_e4m3 scales",
              (void)resolve(rig, "my.linear/1", {}, frt::kWeightNvfp4, mine));
}

TEST_CASE("inputs and outputs are asked for apart") {
  Rig rig;
  frt_kernel_desc desc = describe("my.quantise/1", FRT_DTYPE_BIT(FRT_DTYPE_BF16), kNone);
  desc.outputs = FRT_DTYPE_BIT(FRT_DTYPE_F8_E4M3);
  const frt::KernelOwner mine = rig.context.register_kernels(std::span(&desc, 1));
  const frt_dtype_set bf16 = FRT_DTYPE_BIT(FRT_DTYPE_BF16), fp8 = desc.outputs;
  CHECK_NOTHROW((void)resolve(rig, "my.quantise/1", {bf16, fp8}, kNone, mine));
  CHECK_NOTHROW((void)resolve(rig, "my.quantise/1", {0, fp8}, kNone, mine));
  CHECK_FAILS(FRT_ERR_NOT_FOUND, "not for f8_e4m3 inputs",
              (void)resolve(rig, "my.quantise/1", {fp8, fp8}, kNone, mine));
  CHECK_FAILS(FRT_ERR_NOT_FOUND, "not for bf16, f8_e4m3 outputs",
              (void)resolve(rig, "my.quantise/1", {bf16, bf16 | fp8}, kNone, mine));
}

TEST_CASE("registration is all or none") {
  Rig rig;
  const auto refuses = [&](frt_status status, const char* part, const frt_kernel_desc& bad) {
    const frt_kernel_desc list[] = {describe("my.first/1", 0, kNone), bad};
    CHECK_FAILS(status, part, (void)rig.context.register_kernels(list));
  };
  refuses(FRT_ERR_EXISTS, "my.first/1", describe("my.first/1", 0, kNone));
  refuses(FRT_ERR_INVALID_ARGUMENT, "kernel frt.rms_norm/1: names that begin with \"frt.\"",
          describe("frt.rms_norm/1", 0, kNone));
  refuses(FRT_ERR_INVALID_ARGUMENT, "no name", describe("", 0, kNone));
  refuses(FRT_ERR_ABI, "has no name", describe(nullptr, 0, kNone));
  frt_kernel_desc desc = describe("my.second/1", 0, kNone);
  desc.kernel.launch = nullptr;
  refuses(FRT_ERR_INVALID_ARGUMENT, "my.second/1", desc);
  desc = describe("my.second/1", 0, kNone);
  desc.weight_count = 3;
  refuses(FRT_ERR_ABI, "3 weight formats at NULL", desc);
  desc = describe("my.second/1", 0, kBf16);
  desc.weight_count = 1u << 31;
  refuses(FRT_ERR_ABI, "2147483648 weight formats", desc);
  desc = describe("my.second/1", 0, kNone);
  desc.struct_size = 16;
  refuses(FRT_ERR_ABI, "descriptor", desc);
}

TEST_CASE("an operator that fails is named in the error, once") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Kernel<mock_append_args> fails, refuses;
  frt::KernelSet()
      .add(fails, "mock.fails/1")
      .add(refuses, "frt.mock_refuses/1")
      .resolve(rig.context, frt::KernelTypes());
  const std::string text = caught([&] { fails(frt::Recorder(stream), {0, 1}); }).message;
  CHECK(text == "mock.fails/1 on backend 'test.mock': the argument `value` is wrong");

  // Inside a model's capture, too; a name of its own is the backend's.
  frt::Graph graph = rig.context.create_graph("decode", 1);
  const auto recipe = [&](const frt::Recorder& recorder) { refuses(recorder, {0, 1}); };
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT,
              "the record callback: backend 'test.mock': frt.mock_refuses/1: the argument",
              graph.capture(1, recipe));
}
