// SPDX-License-Identifier: Apache-2.0
// frt/contracts.hpp - what the oldest version that works with this one (frt/version.hpp) promises
// of every growable struct that a plugin gives: its size and the members that are never NULL
// (frt/table.hpp). For hosts. What a model offers beyond its graphs and its state is in
// frt/role/contracts.hpp.
//
// A struct that grows keeps its line: that version stays what it was, and a reader takes what came
// later as optional.
#pragma once

#include <frt/backend.h>
#include <frt/capsule.h>
#include <frt/config.h>
#include <frt/device_status.h>
#include <frt/kernels.h>
#include <frt/model.h>
#include <frt/plugin.h>
#include <frt/table.hpp>

// ---- the plugin ---------------------------------------------------------------------------

FRT_CONTRACT(frt_plugin_desc, "descriptor " FRT_PLUGIN_SYMBOL, extension,
             FRT_REQUIRED(frt_plugin_desc, id), FRT_REQUIRED(frt_plugin_desc, version),
             FRT_REQUIRED(frt_plugin_desc, build), FRT_REQUIRED(frt_plugin_desc, open),
             FRT_REQUIRED(frt_plugin_desc, close), FRT_REQUIRED(frt_plugin_desc, extension));
FRT_CONTRACT(frt_config_schema_v1, FRT_EXT_CONFIG_SCHEMA, option_count);

// ---- a backend ----------------------------------------------------------------------------

FRT_CONTRACT(frt_backend_v1, FRT_EXT_BACKEND, last_error, FRT_REQUIRED(frt_backend_v1, native_kind),
             FRT_REQUIRED(frt_backend_v1, device_count), FRT_REQUIRED(frt_backend_v1, device_info),
             FRT_REQUIRED(frt_backend_v1, device_open), FRT_REQUIRED(frt_backend_v1, device_close),
             FRT_REQUIRED(frt_backend_v1, device_sync), FRT_REQUIRED(frt_backend_v1, device_memory),
             FRT_REQUIRED(frt_backend_v1, memory_alloc), FRT_REQUIRED(frt_backend_v1, memory_free),
             FRT_REQUIRED(frt_backend_v1, copy), FRT_REQUIRED(frt_backend_v1, fill),
             FRT_REQUIRED(frt_backend_v1, stream_create), FRT_REQUIRED(frt_backend_v1, stream_wrap),
             FRT_REQUIRED(frt_backend_v1, stream_destroy),
             FRT_REQUIRED(frt_backend_v1, stream_sync), FRT_REQUIRED(frt_backend_v1, stream_native),
             FRT_REQUIRED(frt_backend_v1, stream_call), FRT_REQUIRED(frt_backend_v1, event_create),
             FRT_REQUIRED(frt_backend_v1, event_destroy),
             FRT_REQUIRED(frt_backend_v1, event_record), FRT_REQUIRED(frt_backend_v1, event_wait),
             FRT_REQUIRED(frt_backend_v1, event_query), FRT_REQUIRED(frt_backend_v1, event_sync),
             FRT_REQUIRED(frt_backend_v1, event_elapsed),
             FRT_REQUIRED(frt_backend_v1, capture_begin), FRT_REQUIRED(frt_backend_v1, capture_end),
             FRT_REQUIRED(frt_backend_v1, capture_abort), FRT_REQUIRED(frt_backend_v1, exec_adopt),
             FRT_REQUIRED(frt_backend_v1, exec_destroy), FRT_REQUIRED(frt_backend_v1, exec_launch));
FRT_CONTRACT(frt_device_info, "frt_device_info", numerics);
FRT_CONTRACT(frt_device_status_v1, FRT_EXT_DEVICE_STATUS, report,
             FRT_REQUIRED(frt_device_status_v1, read));
FRT_CONTRACT(frt_device_status, "frt_device_status", limited_by);
FRT_CONTRACT(frt_kernels_v1, FRT_EXT_KERNELS, list, FRT_REQUIRED(frt_kernels_v1, list));
FRT_CONTRACT(frt_kernel_desc, "kernel descriptor", kernel, FRT_REQUIRED(frt_kernel_desc, name));

// ---- a model ------------------------------------------------------------------------------

FRT_CONTRACT(frt_model_v1, FRT_EXT_MODEL, extension, FRT_REQUIRED(frt_model_v1, create),
             FRT_REQUIRED(frt_model_v1, destroy), FRT_REQUIRED(frt_model_v1, info),
             FRT_REQUIRED(frt_model_v1, ports), FRT_REQUIRED(frt_model_v1, graphs),
             FRT_REQUIRED(frt_model_v1, extension));
FRT_CONTRACT(frt_model_info, "frt_model_info", scratch_bytes,
             FRT_REQUIRED(frt_model_info, architecture), FRT_REQUIRED(frt_model_info, formats));
FRT_CONTRACT(frt_capsule_v1, FRT_EXT_CAPSULE, fingerprint, FRT_REQUIRED(frt_capsule_v1, layout),
             FRT_REQUIRED(frt_capsule_v1, state), FRT_REQUIRED(frt_capsule_v1, fingerprint));
FRT_CONTRACT(frt_capsule_layout, "frt_capsule_layout", spare_pages,
             FRT_REQUIRED(frt_capsule_layout, regions));
