// SPDX-License-Identifier: Apache-2.0
// Products by oneDNN in a process that may not have more memory. Sanitizers take too much of it for
// such a limit.
#include <doctest/doctest.h>
#include <frt/plugin.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <frt/error.hpp>
#include <fstream>
#include <new>

#include "ops/products/gemm.hpp"

#if FRT_BUILD_SANITIZER == FRT_SANITIZER_NONE
namespace {

constexpr int kMade = 10, kRefused = 11, kOther = 12;  // no code that a library would use

// Nothing is left of it but `blocks` of 256 bytes that were in use.
void use_up_memory(int blocks) {
  const rlimit none{1, 1}, no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  setrlimit(RLIMIT_AS, &none);
  void* newest = nullptr;  // each block holds the address of the one before
  for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{4096}, std::size_t{256}}) {
    while (void* block = std::malloc(bytes)) newest = new (block) void*(newest);
  }
  for (; blocks > 0 && newest; --blocks) {
    void* before = *static_cast<void**>(newest);
    std::free(newest);
    newest = before;
  }
}

// In a process of its own; its wait status. blocks < 0: with all memory.
int make_product(int blocks) {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    try {
      const frt::cpu::Gemm before(FRT_DTYPE_F32, 256, 512, 512, 64, 4);
      if (blocks >= 0) use_up_memory(blocks);
      const frt::cpu::Gemm product(FRT_DTYPE_F32, 256, 512, 512, 64, 4);
      _exit(kMade);
    } catch (const frt::Error& error) {
      _exit(error.status() == FRT_ERR_OUT_OF_MEMORY ? kRefused : kOther);
    } catch (const std::bad_alloc&) {
      _exit(kRefused);
    }
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  return status;
}

}  // namespace

TEST_CASE("a product by oneDNN for which there is no memory is refused, and ends no process") {
  for (int blocks = 0; blocks < 4000; blocks += blocks / 8 + 1) {
    CAPTURE(blocks);
    const int status = make_product(blocks);
    REQUIRE(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == kRefused);
  }
  CHECK(WEXITSTATUS(make_product(-1)) == kMade);
}
#endif
