/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frt/device_status.h - what a device is doing right now: clocks, temperature, power; and what it
 * is used with. An optional extension of a backend plugin; hosts write the first beside every
 * measurement, because a number without its clock cannot be compared, and show the second to people
 * who ask whether an installation is as it should be.
 */
#ifndef FRT_DEVICE_STATUS_H_
#define FRT_DEVICE_STATUS_H_

#include <frt/base.h>
#include <frt/plugin.h>

FRT_EXTERN_C_BEGIN

#define FRT_EXT_DEVICE_STATUS "frt.device-status/1"

/* 0: not known. The caller sets struct_size. */
typedef struct frt_device_status {
  uint32_t struct_size;
  uint32_t clock_mhz;        /* of the compute units, now */
  uint32_t clock_limit_mhz;  /* the most they reach */
  uint32_t memory_clock_mhz; /* now */
  uint32_t temperature_c;
  uint32_t power_mw;
  uint32_t power_limit_mw;
  uint32_t reserved;
  char limited_by[96]; /* what holds the clock below its limit: "power", "temperature"; or empty */
} frt_device_status;
FRT_ASSERT_LAYOUT(frt_device_status, 128, limited_by, 32);

typedef struct frt_device_status_v1 {
  uint32_t struct_size;
  uint32_t reserved;
  /* Of a device that device_count() counts, opened or not. Never waits for work.
   * FRT_ERR_UNSUPPORTED, with the reason, where the system does not tell.  [any] */
  frt_status (*read)(frt_plugin plugin, uint32_t ordinal, frt_device_status* status,
                     frt_error* error);
  /* Facts about the libraries and choices that the device is used with, one call of `found` each:
   * what it is about, the fact, and what to do about it, empty where nothing is to be done. None of
   * the texts is NULL; they live as long as that call. Opens no device, but may load libraries.
   * Optional: NULL if there is nothing to say.  [setup] */
  frt_status (*report)(frt_plugin plugin, uint32_t ordinal, void* self,
                       void (*found)(void* self, const char* subject, const char* fact,
                                     const char* advice),
                       frt_error* error);
} frt_device_status_v1;
FRT_ASSERT_LAYOUT(frt_device_status_v1, 24, report, 16);

FRT_EXTERN_C_END

#endif /* FRT_DEVICE_STATUS_H_ */
