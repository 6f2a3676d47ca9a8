// SPDX-License-Identifier: Apache-2.0
#include "rig.hpp"

namespace {

frt_status launch_nothing(void*, frt_backend_stream, const void*, frt_error*) {
  return FRT_OK;
}

frt_kernel_desc describe(const char* name, frt_dtype_set activations, frt_weight_set weights,
                         void* self = nullptr) {
  return {sizeof(frt_kernel_desc), 8, name, activations, weights, {self, launch_nothing}};
}

frt_kernel resolve(const Rig& rig, const char* name, frt_dtype activation, frt_weight_set weights) {
  frt_kernel kernel{};
  frt_error error{};
  frt::check(rig.context.table().kernels_resolve(rig.handle, &name, 1, activation, weights, &kernel,
                                                 &error),
             error);
  return kernel;
}

constexpr frt_weight_set kBf16 = FRT_WEIGHT_BIT(FRT_WEIGHT_BF16);
constexpr frt_weight_set kFp8 = FRT_WEIGHT_BIT(FRT_WEIGHT_FP8_BLOCK);

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
  const std::string text = caught([&] { set.resolve(rig.context, FRT_DTYPE_F32, kBf16); }).message;
  CHECK(contains(text,
                 "lacks 3 operators: mock.absent/1 (unknown), mock.half/1 (not for f32 "
                 "activations), mock.gone/2 (unknown)"));
  CHECK_FALSE(contains(text, "optional"));
  CHECK_FAILS(FRT_ERR_NOT_FOUND, "mock.weights/1 (not for weights in fp8_block)",
              (void)resolve(rig, "mock.weights/1", FRT_DTYPE_BF16, kBf16 | kFp8));
  CHECK_FALSE(a);
}

TEST_CASE("a missing optional operator is false, the others work") {
  Rig rig;
  frt::Kernel<mock_append_args> here, not_here;
  frt::KernelSet()
      .add(here, "?mock.half/1")
      .add(not_here, "?mock.no/1")
      .resolve(rig.context, FRT_DTYPE_BF16, 0);
  CHECK(here);
  CHECK(here.name() == "mock.half/1");
  CHECK_FALSE(not_here);
  const frt::Stream stream = rig.context.create_stream("s");
  CHECK_FAILS(FRT_ERR_NOT_FOUND, "mock.no/1", not_here(frt::Recorder(stream), {0, 1}));
}

TEST_CASE("so many missing names that reasons do not fit are still all named") {
  Rig rig;
  std::vector<std::string> names;
  for (int i = 0; i < 20; ++i) names.push_back("vendor.operator_" + std::to_string(i) + "/1");
  std::vector<const char*> pointers;
  for (const auto& name : names) pointers.push_back(name.c_str());
  std::vector<frt_kernel> kernels(60);
  frt_error error{};
  CHECK(rig.context.table().kernels_resolve(rig.handle, pointers.data(), 20, 0, 0, kernels.data(),
                                            &error) == FRT_ERR_NOT_FOUND);
  for (const auto& name : names) CHECK(contains(error.message, name));
  pointers.resize(60, "vendor.some_operator_with_a_long_name/1");
  CHECK(rig.context.table().kernels_resolve(rig.handle, pointers.data(), 60, 0, 0, kernels.data(),
                                            &error) == FRT_ERR_NOT_FOUND);
  CHECK(contains(error.message, " more"));
  CHECK(contains(error.message, "lacks 60 operators"));
}

TEST_CASE("of several kernels that fit, the last one registered wins") {
  Rig rig;
  int general = 0, tuned = 0;
  const frt_kernel_desc both[] = {
      describe("my.linear/1", FRT_DTYPE_BIT(FRT_DTYPE_F32) | FRT_DTYPE_BIT(FRT_DTYPE_BF16),
               kBf16 | kFp8, &general),
      describe("my.linear/1", FRT_DTYPE_BIT(FRT_DTYPE_BF16), kBf16, &tuned)};
  rig.context.register_kernels(both);
  CHECK(resolve(rig, "my.linear/1", FRT_DTYPE_BF16, kBf16).self == &tuned);
  CHECK(resolve(rig, "my.linear/1", FRT_DTYPE_BF16, kBf16 | kFp8).self == &general);
  CHECK(resolve(rig, "my.linear/1", FRT_DTYPE_F32, kBf16).self == &general);
  CHECK(resolve(rig, "my.linear/1", FRT_DTYPE_NONE, 0).self == &tuned);
}

TEST_CASE("weights that only several kernels together take are reported as such") {
  Rig rig;
  const frt_kernel_desc two[] = {describe("my.part/1", 0, kBf16), describe("my.part/1", 0, kFp8)};
  rig.context.register_kernels(two);
  CHECK_FAILS(FRT_ERR_NOT_FOUND, "no single kernel for weights in bf16, fp8_block",
              (void)resolve(rig, "my.part/1", FRT_DTYPE_BF16, kBf16 | kFp8));
}

TEST_CASE("registration is all or none") {
  Rig rig;
  const auto refuses = [&](frt_status status, const char* part, const frt_kernel_desc& bad) {
    const frt_kernel_desc list[] = {describe("my.first/1", 0, 0), bad};
    CHECK_FAILS(status, part, rig.context.register_kernels(list));
    CHECK_FAILS(FRT_ERR_NOT_FOUND, "my.first/1", (void)resolve(rig, "my.first/1", 0, 0));
  };
  refuses(FRT_ERR_EXISTS, "my.first/1", describe("my.first/1", 0, 0));
  refuses(FRT_ERR_EXISTS, "mock.append/1", describe("mock.append/1", 0, 0));
  refuses(FRT_ERR_INVALID_ARGUMENT, "no name", describe("", 0, 0));
  refuses(FRT_ERR_INVALID_ARGUMENT, "no name", describe(nullptr, 0, 0));
  frt_kernel_desc desc = describe("my.second/1", 0, 0);
  desc.kernel.launch = nullptr;
  refuses(FRT_ERR_INVALID_ARGUMENT, "my.second/1", desc);
  desc = describe("my.second/1", 0, 0);
  desc.struct_size = 16;
  refuses(FRT_ERR_ABI, "descriptor", desc);
  const frt_kernel_desc other_types[] = {describe("mock.append/1", 0, kBf16)};
  CHECK_NOTHROW(rig.context.register_kernels(other_types));
}

TEST_CASE("an operator that fails is named in the error, once") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Kernel<mock_append_args> fails;
  frt::KernelSet().add(fails, "mock.fails/1").resolve(rig.context, FRT_DTYPE_NONE, 0);
  const std::string text = caught([&] { fails(frt::Recorder(stream), {0, 1}); }).message;
  CHECK(text == "mock.fails/1: the argument `value` is wrong");
}
