/* SPDX-License-Identifier: Apache-2.0 */
/* v0_9.h - what the code built with the frozen headers offers to the test, without any of their
 * types. */
#ifndef FRT_TESTS_ABI_V0_9_H_
#define FRT_TESTS_ABI_V0_9_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A frt_backend_v1 of a small backend that runs everything at once. */
const void* v0_9_backend(void);

/* How often it launched executables. */
extern int v0_9_launched;

/* A program that drives a context through every noun of the exec table. NULL, or what went wrong.
 */
const char* v0_9_program(const void* exec_table, void* context);

#ifdef __cplusplus
}
#endif

#endif /* FRT_TESTS_ABI_V0_9_H_ */
