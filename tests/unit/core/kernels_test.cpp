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

frt_kernel resolve(const Rig& rig, const char* name, frt_dtype activation, frt_weight_set weights,
                   frt_kernel_owner owner = nullptr) {
  frt_kernel kernel{};
  frt_error error{};
  frt::check(rig.context.table().kernels_resolve(rig.handle, owner, &name, 1, activation, weights,
                                                 &kernel, &error),
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
  CHECK(rig.context.table().kernels_resolve(rig.handle, nullptr, pointers.data(), 20, 0, 0,
                                            kernels.data(), &error) == FRT_ERR_NOT_FOUND);
  for (const auto& name : names) CHECK(contains(error.message, name));
  pointers.resize(60, "vendor.some_operator_with_a_long_name/1");
  CHECK(rig.context.table().kernels_resolve(rig.handle, nullptr, pointers.data(), 60, 0, 0,
                                            kernels.data(), &error) == FRT_ERR_NOT_FOUND);
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
  const frt::KernelOwner mine = rig.context.register_kernels(both);
  CHECK(resolve(rig, "my.linear/1", FRT_DTYPE_BF16, kBf16, mine).self == &tuned);
  CHECK(resolve(rig, "my.linear/1", FRT_DTYPE_BF16, kBf16 | kFp8, mine).self == &general);
  CHECK(resolve(rig, "my.linear/1", FRT_DTYPE_F32, kBf16, mine).self == &general);
  CHECK(resolve(rig, "my.linear/1", FRT_DTYPE_NONE, 0, mine).self == &tuned);
}

TEST_CASE("kernels are found by their owner alone, and go with it") {
  Rig rig;
  int first = 0, second = 0;
  const frt_kernel_desc of_first[] = {describe("my.scale/1", 0, 0, &first)};
  const frt_kernel_desc of_second[] = {describe("my.scale/1", 0, 0, &second)};
  const frt::KernelOwner one = rig.context.register_kernels(of_first);
  const frt::KernelOwner two = rig.context.register_kernels(of_second);
  CHECK(resolve(rig, "my.scale/1", 0, 0, one).self == &first);
  CHECK(resolve(rig, "my.scale/1", 0, 0, two).self == &second);
  CHECK_FAILS(FRT_ERR_NOT_FOUND, "my.scale/1 (unknown)", (void)resolve(rig, "my.scale/1", 0, 0));
  for (int again = 0; again < 2; ++again) {  // a model that is made, destroyed and made again
    CHECK_NOTHROW(rig.context.register_kernels(of_first));
  }
}

TEST_CASE("an owner's kernels come before the backend's, which it still finds") {
  Rig rig;
  int own = 0;
  const frt_kernel_desc list[] = {describe("mock.append/1", 0, kBf16, &own)};
  const frt::KernelOwner mine = rig.context.register_kernels(list);
  CHECK(resolve(rig, "mock.append/1", 0, kBf16, mine).self == &own);
  CHECK(resolve(rig, "mock.append/1", 0, kBf16).self != &own);
  CHECK_NOTHROW((void)resolve(rig, "mock.mix/1", 0, 0, mine));
}

TEST_CASE("an owner of one context is refused on another") {
  Rig rig, other;
  const frt_kernel_desc list[] = {describe("my.scale/1", 0, 0)};
  const frt::KernelOwner mine = rig.context.register_kernels(list);
  CHECK_FAILS(FRT_ERR_INVALID_ARGUMENT, "the owner registered its kernels on context 'dev0'",
              (void)resolve(other, "my.scale/1", 0, 0, mine));
}

TEST_CASE("a context with kernels that nobody released cannot be closed") {
  Rig rig;
  const frt_kernel_desc list[] = {describe("my.scale/1", 0, 0)};
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
  const Newer list[] = {{describe("my.one/1", 0, 0), ~0ull},
                        {describe("my.two/1", 0, 0, &last), ~0ull}};
  frt_kernel_owner owner = nullptr;
  frt_error error{};
  const frt_exec_v1& table = rig.context.table();
  CHECK(table.kernels_register(rig.handle, &list[0].desc, 2, sizeof(Newer), &owner, &error) ==
        FRT_OK);
  CHECK(resolve(rig, "my.two/1", 0, 0, owner).self == &last);
  table.kernels_release(owner);
  CHECK(table.kernels_register(rig.handle, &list[0].desc, 2, 39, &owner, &error) == FRT_ERR_ABI);
  CHECK(contains(error.message, "a stride of 39 bytes, expected at least 40"));
}

TEST_CASE("weights that only several kernels together take are reported as such") {
  Rig rig;
  const frt_kernel_desc two[] = {describe("my.part/1", 0, kBf16), describe("my.part/1", 0, kFp8)};
  const frt::KernelOwner mine = rig.context.register_kernels(two);
  CHECK_FAILS(FRT_ERR_NOT_FOUND, "no single kernel for weights in bf16, fp8_block",
              (void)resolve(rig, "my.part/1", FRT_DTYPE_BF16, kBf16 | kFp8, mine));
}

TEST_CASE("registration is all or none") {
  Rig rig;
  const auto refuses = [&](frt_status status, const char* part, const frt_kernel_desc& bad) {
    const frt_kernel_desc list[] = {describe("my.first/1", 0, 0), bad};
    CHECK_FAILS(status, part, (void)rig.context.register_kernels(list));
  };
  refuses(FRT_ERR_EXISTS, "my.first/1", describe("my.first/1", 0, 0));
  refuses(FRT_ERR_INVALID_ARGUMENT, "kernel frt.rms_norm/1: names that begin with \"frt.\"",
          describe("frt.rms_norm/1", 0, 0));
  refuses(FRT_ERR_INVALID_ARGUMENT, "no name", describe("", 0, 0));
  refuses(FRT_ERR_INVALID_ARGUMENT, "no name", describe(nullptr, 0, 0));
  frt_kernel_desc desc = describe("my.second/1", 0, 0);
  desc.kernel.launch = nullptr;
  refuses(FRT_ERR_INVALID_ARGUMENT, "my.second/1", desc);
  desc = describe("my.second/1", 0, 0);
  desc.struct_size = 16;
  refuses(FRT_ERR_ABI, "descriptor", desc);
}

TEST_CASE("an operator that fails is named in the error, once") {
  Rig rig;
  const frt::Stream stream = rig.context.create_stream("s");
  frt::Kernel<mock_append_args> fails;
  frt::KernelSet().add(fails, "mock.fails/1").resolve(rig.context, FRT_DTYPE_NONE, 0);
  const std::string text = caught([&] { fails(frt::Recorder(stream), {0, 1}); }).message;
  CHECK(text == "mock.fails/1: the argument `value` is wrong");
}
