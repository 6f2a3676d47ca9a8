// SPDX-License-Identifier: Apache-2.0
// The C functions of servers, as api_runtime.cpp.
#include "embed/call.hpp"
#include "embed/handles.hpp"
#include "embed/server.hpp"

using namespace frt;         // NOLINT: this file is the C side of the namespace
using namespace frt::embed;  // NOLINT

extern "C" {

frt_status frt_server_open(frt_runtime runtime, const frt_server_options* options,
                           frt_server* server, frt_error* error) {
  return api_call(error, [&](Call& now) {
    required(server, "server");
    const auto opened = now.object<Runtime>(runtime);
    frt_server_options given{};
    if (options) given = read_table<frt_server_options>(options, kCaller);
    *server = new_handle<frt_server>(opened->serve(given));
  });
}

frt_status frt_server_close(frt_server server) {
  return api_call(nullptr, [&](Call& now) {
    const auto taken = take_object<Server>(server);
    now.work_for(taken->log_owner());
    taken->close();
  });
}

frt_status frt_server_facts_of(frt_server server, frt_server_facts* facts, frt_error* error) {
  return api_call(error, [&](Call& now) {
    give(facts, now.object<Server>(server)->facts(), "frt_server_facts");
  });
}

}  // extern "C"
