// SPDX-License-Identifier: Apache-2.0
// A backend that can do nothing, as fast as possible (null_backend.hpp), with one kernel.
#include <frt/backend.h>
#include <frt/device_status.h>
#include <frt/kernels.h>
#include <frt/table.hpp>

#include <cstring>
#include <vector>

#include "defects.hpp"
#include "null_backend.hpp"

namespace {

using defects::is;

int open_devices = 0;

frt_status device_info(frt_plugin, uint32_t, frt_device_info* info, frt_error*) {
  defects::may_hang("device_info");
  if (is("device_info_status")) return defects::kUnknownStatus;
  if (is("device_info_size_3")) info->struct_size = 3;
  std::strcpy(info->name, is("device_info_garbage") ? defects::kGarbage : "null");
  std::strcpy(info->architecture, "null_1");
  if (is("device_info_endless")) std::memset(info->detail, 'x', sizeof(info->detail));
  info->dlpack_type = 2;
  // As built with the headers of a later version, whose struct is longer.
  constexpr uint32_t kMore = 16;
  if (is("device_info_knows_more") && info->struct_size >= sizeof(*info) + kMore) {
    info->struct_size = sizeof(*info) + kMore;
    std::memset(reinterpret_cast<unsigned char*>(info) + sizeof(*info), 1, kMore);
  }
  if (is("device_info_ignores_size")) {
    info->struct_size = sizeof(*info);
    std::strcpy(info->numerics, "null");
  }
  return FRT_OK;
}

frt_status device_open(frt_plugin, uint32_t ordinal, const frt_config*, frt_backend_device* device,
                       frt_error* error) {
  if (ordinal != 0) return frt::set_error(error, FRT_ERR_OUT_OF_RANGE, "there is one device");
  defects::may_hang("device_open");
  if (is("device_open_throws")) throw std::runtime_error("no such luck");
  if (!is("device_open_without_object")) {
    *device = null_backend::handle<frt_backend_device>();
    ++open_devices;
  }
  return FRT_OK;
}

const frt_backend_v1& backend_table() {
  static const frt_backend_v1 kTable = [] {
    frt_backend_v1 table = null_backend::table();
    table.device_info = device_info;
    table.device_open = device_open;
    table.device_close = [](frt_backend_device) {
      defects::may_hang("device_close");
      --open_devices;
      if (is("close_throws")) throw std::runtime_error("ajar");
    };
    table.device_memory = [](frt_backend_device, uint64_t* free, uint64_t* total) -> frt_status {
      *free = *total = 1 << 30;
      return FRT_OK;
    };
    if (is("fill_throws")) {
      table.fill = [](frt_backend_stream, void*, frt_space, uint64_t, uint8_t) -> frt_status {
        throw std::runtime_error("out of ink");
      };
    }
    if (is("sync_throws")) {
      table.stream_sync = [](frt_backend_stream) -> frt_status { throw 7; };
    }
    if (is("free_throws")) {
      table.memory_free = [](frt_backend_device, frt_space, void* pointer) {
        std::free(pointer);
        throw std::runtime_error("not mine");
      };
    }
    defects::change_size(table, "backend");
    if (is("backend_no_copy")) table.copy = nullptr;
    if (is("backend_no_kind")) table.native_kind = nullptr;
    if (is("backend_garbage_kind")) table.native_kind = defects::kGarbage;
    table.device_count = [](frt_plugin, uint32_t* count, frt_error*) -> frt_status {
      defects::may_hang("device_count");
      if (is("device_count_throws")) throw 7;
      if (is("device_count_exits")) std::exit(0);
      *count = is("device_count_huge") ? ~uint32_t{0} : 1;
      return FRT_OK;
    };
    return table;
  }();
  return kTable;
}

frt_status launch(void*, frt_backend_stream, const void*, frt_error*) {
  return FRT_OK;
}

frt_status list(frt_backend_device, const frt_kernel_desc** kernels, uint64_t* count, frt_error*) {
  static const frt_kernel_desc kKernel = [] {
    frt_kernel_desc kernel{sizeof(frt_kernel_desc),   8, "test.nothing/1", 0, 0, nullptr, 0, 0,
                           {nullptr, launch, nullptr}};
    defects::change_size(kernel, "kernel");
    if (is("kernel_no_launch")) kernel.kernel.launch = nullptr;
    if (is("kernel_no_name")) kernel.name = nullptr;
    if (is("kernel_garbage_name")) kernel.name = defects::kGarbage;
    return kernel;
  }();
  defects::may_hang("list");
  if (is("kernels_status")) return defects::kUnknownStatus;
  *kernels = is("kernels_null") ? nullptr : &kKernel;
  *count = is("kernels_count") ? ~uint64_t{0} : 1;
  if (is("kernels_formats")) {
    static const std::vector<frt_weight_format> kFormats(4096);
    static const std::vector<frt_kernel_desc> kMany = [] {
      frt_kernel_desc kernel = kKernel;
      kernel.weights = kFormats.data();
      kernel.weight_count = 4096;
      return std::vector<frt_kernel_desc>(65536, kernel);
    }();
    *kernels = kMany.data();
    *count = kMany.size();
  }
  return FRT_OK;
}

const frt_kernels_v1& kernels_table() {
  static const frt_kernels_v1 kTable = [] {
    frt_kernels_v1 table{sizeof(frt_kernels_v1), sizeof(frt_kernel_desc), list};
    defects::change_size(table, "kernels");
    if (is("kernels_stride")) table.stride = 0;
    if (is("kernels_no_list")) table.list = nullptr;
    return table;
  }();
  return kTable;
}

frt_status read_status(frt_plugin, uint32_t ordinal, frt_device_status* out, frt_error* error) {
  if (ordinal != 0 && !is("device_status_any_device")) {
    return frt::set_error(error, FRT_ERR_OUT_OF_RANGE, "there is one device");
  }
  frt_device_status now{};
  now.struct_size = sizeof(now);
  now.clock_mhz = 1200;
  std::strcpy(now.limited_by, "power");
  const frt_status filled = frt::fill(out, now);
  if (is("device_status_answer_size_3")) out->struct_size = 3;
  return filled;
}

// Reports one fact, which may have a defect.
frt_status report_fact(frt_plugin, uint32_t, void* self,
                       void (*found)(void*, const char*, const char*, const char*), frt_error*) {
  defects::may_hang("report");
  found(self, "library", is("fact_null") ? nullptr : "9.1",
        is("fact_garbage") ? defects::kGarbage : "");
  return FRT_OK;
}

class Backend {
 public:
  Backend(const frt::Host& host, const frt::ConfigView&) : host_(host) {}
  ~Backend() {
    if (open_devices > 0) host_.log(FRT_LOG_ERROR, "closed while a device is open");
  }
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  static frt_status open(const frt_host* host, const frt_config* config, frt_plugin* plugin,
                         frt_error* error) {
    defects::may_hang("open");
    return frt::detail::PluginTrampolines<Backend>::open(host, config, plugin, error);
  }
  static const void* any_extension(frt_plugin plugin, const char* id) {
    return frt::detail::PluginTrampolines<Backend>::extension(plugin, id);
  }
  const void* extension(std::string_view id) noexcept {
    if (id == FRT_EXT_BACKEND) return is("backend_missing") ? nullptr : &backend_table();
    if (id == FRT_EXT_DEVICE_STATUS) {
      const frt_device_status_v1 table = {sizeof(table), 0, read_status, report_fact};
      return defects::with_defect(table, "device_status", [](frt_device_status_v1& changed) {
        if (is("device_status_no_read")) changed.read = nullptr;
      });
    }
    return id == FRT_EXT_KERNELS ? &kernels_table() : nullptr;
  }
  static const void* static_extension(std::string_view) noexcept { return nullptr; }

 private:
  frt::Host host_;
};

}  // namespace

DEFECT_PLUGIN(Backend, backend, "test.device");
