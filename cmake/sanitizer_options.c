// SPDX-License-Identifier: Apache-2.0
// The defaults of AddressSanitizer in our programs; ASAN_OPTIONS goes before them.
//
// The run-time libraries of GCC 13, LLVM 16 and older look at thread-local storage of plugins as
// glibc 2.19 laid it out: a block that happens to lie 16 bytes into a page is taken for one with a
// header, and the leak checker follows the garbage before it until it crashes (google/sanitizers
// issue 1322). Not followed, such a block is an allocation like any other, which the leak checker
// finds by itself.
//
// A report names eight callers of an allocation, not thirty: walking all of them at every
// allocation is what small tests spend their time with.
__attribute__((visibility("default"))) const char* __asan_default_options(void);
const char* __asan_default_options(void) {
  return "intercept_tls_get_addr=0:malloc_context_size=8";
}
