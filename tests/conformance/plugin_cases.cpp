// SPDX-License-Identifier: Apache-2.0
#include "plugin_cases.hpp"

#include <frt/contracts.hpp>
#include <frt/core/context.hpp>
#include <frt/error.hpp>
#include <frt/reading.hpp>
#include <frt/text.hpp>

#include <cstddef>

#include "broken_rule.hpp"
#include "check.hpp"
#include "enlarged.hpp"
#include "made_text.hpp"
#include "opened.hpp"
#include "option_cases.hpp"
#include "runtime/plugin_reports.hpp"

namespace frt::conformance {
namespace {

void card(const Subject& subject) {
  core::read_image(subject.plugin);
}

void loads(const Subject& subject) {
  loaded_plugin(subject.plugin);
}

void opens_twice(const Subject& subject) {
  for (int round = 0; round < 2; ++round) const OpenedPlugin opened(subject.plugin);
}

void two_at_once(const Subject& subject) {
  const OpenedPlugin first(subject.plugin), second(subject.plugin);
}

void unknown_extensions(const Subject& subject) {
  const OpenedPlugin opened(subject.plugin);
  for (const char* id : {"", "frt", "frt.nothing/1", "frt.backend/1x", "frt.backend/",
                         "frt.model/1 ", "frt.kernels/999"}) {
    const void* table = contain(opened.plugin.sender(), "extension", [&] {
      return opened.loaded.descriptor->extension(opened.plugin.handle(), id);
    });
    if (table) {
      fail_abi(opened.plugin.sender() + ": `extension` gives a table for \"" + id +
               "\", which nobody has defined; compare the whole id and return NULL");
    }
  }
}

void backend_tables(const Subject& subject) {
  const OpenedPlugin opened(subject.plugin);
  opened.plugin.require<frt_backend_v1>(FRT_EXT_BACKEND);
  opened.plugin.require<frt_kernels_v1>(FRT_EXT_KERNELS);
}

// As a host opens it, with its kernels in the registry.
void backend_device(const Subject& subject) {
  const OpenedPlugin opened(subject.plugin);
  const core::Config config = config_of(opened.loaded.schema.options, subject.options, "device");
  core::ContextOptions options;
  options.name = "checked";
  options.backend_id = opened.loaded.card.id;
  options.kernels = &opened.plugin.require<frt_kernels_v1>(FRT_EXT_KERNELS);
  for (int round = 0; round < 2; ++round) {
    core::close_context(core::open_context(opened.plugin.require<frt_backend_v1>(FRT_EXT_BACKEND),
                                           opened.plugin.handle(), subject.device, config.c(),
                                           options));
  }
}

// No device beyond the last one, and no crash about it.
void backend_no_device(const Subject& subject) {
  const OpenedPlugin opened(subject.plugin);
  const auto& table = opened.plugin.require<frt_backend_v1>(FRT_EXT_BACKEND);
  uint32_t count = 0;
  frt_error error{};
  check(table.device_count(opened.plugin.handle(), &count, &error), error, "device_count");
  const core::Config config = config_of(opened.loaded.schema.options, subject.options, "device");
  frt_backend_device device = nullptr;
  error = {};
  if (table.device_open(opened.plugin.handle(), count, config.c(), &device, &error) == FRT_OK) {
    table.device_close(device);
    fail_abi(opened.plugin.sender() + ": `device_open` opens device " + std::to_string(count) +
             " of " + std::to_string(count) + "; refuse ordinals that device_count does not have");
  }
  if (error.message[0] == '\0') {
    fail_abi(opened.plugin.sender() + ": `device_open` refuses device " + std::to_string(count) +
             " without a message");
  }
}

// Each option of the device in turn, by the plugin's own table.
void backend_options(const Subject& subject) {
  const OpenedPlugin opened(subject.plugin);
  const auto& table = opened.plugin.require<frt_backend_v1>(FRT_EXT_BACKEND);
  const std::vector<core::OptionSpec>& schema = opened.loaded.schema.options;
  if (schema.empty()) throw Skip{"the backend has no options of a device"};
  try_options(schema, subject.options, "device", "device_open",
              [&](const std::vector<Option>& more) {
                const core::Config config =
                    config_of(schema, with_options(subject.options, more), "device");
                subject.alive();
                Creation made;
                frt_backend_device device = nullptr;
                made.status = contain(opened.plugin.sender(), "device_open", [&] {
                  return table.device_open(opened.plugin.handle(), subject.device, config.c(),
                                           &device, &made.error);
                });
                if (made.status == FRT_OK) table.device_close(device);
                return made;
              });
}

void require_status(const frt_device_status& status, const std::string& sender) {
  checked_text(status.limited_by, sender + ": limited_by of its device status",
               sizeof(status.limited_by));
  if (status.clock_mhz > 0 && status.clock_limit_mhz > 0 &&
      status.clock_mhz > status.clock_limit_mhz) {
    throw Warn{"the device status says a clock of " + std::to_string(status.clock_mhz) +
               " MHz, and " + std::to_string(status.clock_limit_mhz) +
               " MHz as the most it reaches"};
  }
}

void device_status(const Subject& subject) {
  const OpenedPlugin opened(subject.plugin);
  const std::string sender = opened.plugin.sender();
  const auto* table = opened.plugin.find<frt_device_status_v1>(FRT_EXT_DEVICE_STATUS);
  if (!table) throw Skip{"the backend has no " FRT_EXT_DEVICE_STATUS};
  const auto read = [&](uint32_t ordinal, frt_device_status* status) {
    return asked(sender, "read", [&](Reply& reply) {
      return table->read(opened.plugin.handle(), ordinal, status, &reply.error);
    });
  };
  uint32_t count = 0;
  frt_error error{};
  const auto& backend = opened.plugin.require<frt_backend_v1>(FRT_EXT_BACKEND);
  check(backend.device_count(opened.plugin.handle(), &count, &error), error, "device_count");
  frt_device_status beyond{};
  beyond.struct_size = sizeof(beyond);
  require_refusal(read(count, &beyond), "the device status of device " + std::to_string(count) +
                                            " of " + std::to_string(count));
  for (const host::SurveyedFact& fact :
       host::device_facts(*table, opened.plugin.handle(), subject.device, sender)) {
    if (fact.subject.empty() || fact.fact.empty()) {
      fail_abi(sender + ": `report` gives a fact without a subject or without its text");
    }
  }
  Enlarged<frt_device_status> longer;
  const Reply reply = read(subject.device, longer.get());
  longer.require_filled(sender, "read");
  if (reply.status == FRT_ERR_UNSUPPORTED) {
    require_refusal(reply, "the device status", FRT_ERR_UNSUPPORTED);
    throw Skip{reply.error.message};
  }
  check(reply.status, reply.error, sender + ": device status");
  // A caller of an earlier version gets the members that it knows, or FRT_ERR_ABI.
  Shortened<frt_device_status> shorter(FRT_LAST_MEMBER(frt_device_status, limited_by));
  const Reply first = read(subject.device, shorter.get());
  shorter.require_filled(sender, "read");
  if (first.status != FRT_ERR_ABI) {
    check(first.status, first.error, sender + ": device status of a shorter struct");
  }
  require_status(read_table<frt_device_status>(longer.get(), sender), sender);
}

}  // namespace

std::vector<PluginCase> plugin_cases(uint32_t kind) {
  std::vector<PluginCase> cases = {{"plugin card", card, true}};
  if (kind == 0) return cases;
  cases.push_back({"plugin load", loads, true});
  cases.push_back({"plugin opens twice", opens_twice, true});
  cases.push_back({"plugin opens two at once", two_at_once});
  cases.push_back({"plugin unknown extensions", unknown_extensions});
  if (kind == FRT_PLUGIN_BACKEND) {
    cases.push_back({"plugin tables", backend_tables, true});
    cases.push_back({"plugin device", backend_device, true});
    cases.push_back({"plugin no such device", backend_no_device});
    cases.push_back({"plugin rare options", backend_options});
    cases.push_back({"plugin device status", device_status});
  } else if (kind == FRT_PLUGIN_ENVIRONMENT) {
    add_environment_cases(cases);
  } else {
    add_model_cases(cases);
  }
  // Last: a plugin that works with no host fails the cases above, which say more.
  add_host_cases(cases, kind);
  return cases;
}

}  // namespace frt::conformance
