// SPDX-License-Identifier: Apache-2.0
// The C functions of versions, runtimes, devices and models: arguments are checked, handles become
// objects, exceptions become codes.
#include <frt/core/capsules.hpp>
#include <frt/core/exec_table.hpp>
#include <frt/core/state.hpp>
#include <frt/flags.hpp>

#include <utility>

#include "embed/call.hpp"
#include "embed/handles.hpp"
#include "embed/runtime.hpp"

using namespace frt;         // NOLINT: this file is the C side of the namespace
using namespace frt::embed;  // NOLINT

namespace {

core::LogOptions log_options(const frt_runtime_options& given) {
  core::LogOptions options;
  options.level = FRT_LOG_WARNING;
  if (!given.log) return options;
  if (given.log_level > FRT_LOG_PLUGIN_MISBEHAVING) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, "log_level is " + std::to_string(given.log_level) +
                                              ", FRT_LOG_* end at " +
                                              std::to_string(FRT_LOG_PLUGIN_MISBEHAVING));
  }
  options.level = given.log_level;
  options.receiver = [call = given.log, user = given.log_user](
                         frt_log_level level, const std::string& source, const std::string& text) {
    call(user, level, source.c_str(), text.c_str());
  };
  return options;
}

void write_whole(void* log, const char* text) {
  core::LogScope::current_or(*static_cast<core::Log*>(log)).write("frt", FRT_LOG_ERROR, text);
}

}  // namespace

extern "C" {

frt_status frt_embed_version(frt_embed_versions* versions, frt_error* error) {
  return guard(error, [&] {
    give(versions,
         frt_embed_versions{0, FRT_EMBED_MAJOR, FRT_EMBED_MINOR, FRT_ABI_MAJOR, FRT_ABI_MINOR, 0},
         "frt_embed_versions");
  });
}

const char* frt_embed_status_name(frt_status status) {
  return status_name(status);
}

frt_status frt_runtime_open(const frt_runtime_options* options, frt_runtime* runtime,
                            frt_error* error) {
  return api_call(error, [&](Call& now) {
    required(runtime, "runtime");
    const auto given = read_table<frt_runtime_options>(options, kCaller);
    require_flags(given.flags, FRT_RUNTIME_TRY_PLUGINS | FRT_RUNTIME_ALL_DEVICES,
                  "frt_runtime_options");
    const auto log = std::make_shared<core::Log>(log_options(given));
    now.work_for(log);
    // The findings about a manifest can be longer than an error record.
    const ErrorSink whole(&write_whole, log.get());
    return guard(
        error, [&] { *runtime = new_handle<frt_runtime>(std::make_shared<Runtime>(log, given)); });
  });
}

frt_status frt_runtime_close(frt_runtime runtime) {
  return guard(nullptr, [&] { take_object<Runtime>(runtime); });
}

frt_status frt_runtime_device_at(frt_runtime runtime, uint32_t index, frt_runtime_device* device,
                                 frt_error* error) {
  return api_call(error, [&](Call& now) {
    const auto opened = now.object<Runtime>(runtime);
    const auto& devices = opened->devices();
    if (index >= devices.size()) {
      throw Error(FRT_ERR_OUT_OF_RANGE, "device " + std::to_string(index) + " of " +
                                            std::to_string(devices.size()) + " open ones");
    }
    give(device, devices[index]->facts(), "frt_runtime_device");
  });
}

frt_status frt_runtime_model_at(frt_runtime runtime, uint32_t index, frt_runtime_model* model,
                                frt_error* error) {
  return api_call(error, [&](Call& now) {
    const auto opened = now.object<Runtime>(runtime);
    const auto& models = opened->manifest().models;
    if (index >= models.size()) {
      throw Error(FRT_ERR_OUT_OF_RANGE,
                  "model " + std::to_string(index) + " of " + std::to_string(models.size()));
    }
    const core::ModelSpec& spec = models[index];
    give(model,
         frt_runtime_model{0, 0, spec.name.c_str(), spec.plugin().c_str(), spec.device().c_str(),
                           spec.checkpoint().c_str()},
         "frt_runtime_model");
  });
}

frt_status frt_device_open(frt_runtime runtime, const char* name, frt_device* device,
                           frt_error* error) {
  return api_call(error, [&](Call& now) {
    required(device, "device");
    *device = new_handle<frt_device>(now.object<Runtime>(runtime)->open_device(name));
  });
}

frt_status frt_device_close(frt_device device) {
  return guard(nullptr, [&] { take_object<OpenDevice>(device); });
}

frt_status frt_device_tables_of(frt_device device, frt_device_tables* tables, frt_error* error) {
  return api_call(error, [&](Call& now) {
    const core::RuntimeDevice& opened = now.object<OpenDevice>(device)->device().opened();
    give(tables,
         frt_device_tables{0, 0, opened.spec->name.c_str(), opened.context, core::exec_table()},
         "frt_device_tables");
  });
}

frt_status frt_device_extension(frt_device device, const char* id, const void** table,
                                frt_error* error) {
  return api_call(error, [&](Call& now) {
    (void)now.object<OpenDevice>(device);
    required(id, "id");
    required(table, "table");
    const void* found = core::core_table(id);
    if (!found) throw Error(FRT_ERR_NOT_FOUND, std::string("core has no table '") + id + "'");
    *table = found;
  });
}

frt_status frt_instance_open(frt_runtime runtime, const char* name, frt_instance* instance,
                             frt_error* error) {
  return api_call(error, [&](Call& now) {
    required(instance, "instance");
    const auto opened = now.object<Runtime>(runtime);
    *instance = new_handle<frt_instance>(opened->instance(opened->model_name(name)));
  });
}

frt_status frt_instance_close(frt_instance instance) {
  return guard(nullptr, [&] { take_object<Instance>(instance); });
}

frt_status frt_instance_tables_of(frt_instance instance, frt_instance_tables* tables,
                                  frt_error* error) {
  return api_call(error, [&](Call& now) {
    const auto opened = now.object<Instance>(instance);
    give(tables,
         frt_instance_tables{0, 0, opened->name().c_str(), opened->made().table,
                             opened->made().handle, core::exec_table(),
                             opened->device().opened().context, core::state_table(),
                             core::capsules_table()},
         "frt_instance_tables");
  });
}

frt_status frt_instance_extension(frt_instance instance, const char* id, const void** table,
                                  frt_error* error) {
  return api_call(error, [&](Call& now) {
    const auto opened = now.object<Instance>(instance);
    required(id, "id");
    required(table, "table");
    const auto sender = "model '" + opened->name() + "' (plugin " + opened->plugin() + ")";
    const void* found = contain(sender, "extension", [&] {
      return opened->made().table->extension(opened->made().handle, id);
    });
    if (!found) throw Error(FRT_ERR_NOT_FOUND, sender + " has no extension '" + id + "'");
    *table = found;
  });
}

}  // extern "C"
