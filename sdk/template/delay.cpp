// SPDX-License-Identifier: Apache-2.0
// acme.delay: a model that answers with its former input.
//
// It has two ports, "input" and "output", and one buffer of state. Its recipe is two copies, state
// to output and input to state; it is captured when the model is made and replayed ever after, so
// everything that changes is in buffers. A real model calls operators in the recipe
// (frt/compose.hpp) and loads weights from params->checkpoint.
#include <frt/model.h>

#include <frt/exec.hpp>
#include <frt/plugin.hpp>

#include <string_view>
#include <vector>

namespace {

constexpr frt_config_option kOptions[] = {
    {"width", FRT_CONFIG_INT, 0, "16", nullptr, 1, 65536, "values per step"},
};
constexpr frt_config_schema_v1 kSchema = frt::config_schema(frt::kNoOptions, kOptions);

constexpr frt_shape_key kStep = 1;

class Delay {
 public:
  Delay(const frt::Context& context, const frt_model_params& params)
      : width_(frt::ConfigView(params.config).get_int("width")) {
    const uint64_t bytes = static_cast<uint64_t>(width_) * sizeof(float);
    input_ = context.alloc(FRT_SPACE_DEVICE, bytes, "input");
    output_ = context.alloc(FRT_SPACE_DEVICE, bytes, "output");
    state_ = context.alloc(FRT_SPACE_DEVICE, bytes, "state");
    const frt::Stream stream = context.create_stream("load");
    state_.upload(std::vector<float>(static_cast<std::size_t>(width_)), stream);
    graph_ = context.create_graph("step", 1);
    graph_.capture(kStep, [this, bytes](const frt::Recorder& recorder) {
      recorder.copy(output_, 0, state_, 0, bytes);
      recorder.copy(state_, 0, input_, 0, bytes);
    });
    ports_ = {port("input", "values of this step", input_, FRT_PORT_INPUT),
              port("output", "values of the step before", output_, FRT_PORT_OUTPUT)};
    graphs_ = {{"step", "one step; key 1", graph_}};
  }

  const std::vector<frt_port>& ports() const { return ports_; }
  const std::vector<frt_model_graph>& graphs() const { return graphs_; }
  uint64_t state_bytes() const { return state_.bytes(); }
  uint64_t scratch_bytes() const { return input_.bytes() + output_.bytes(); }

 private:
  frt_port port(const char* name, const char* doc, const frt::Buffer& buffer,
                uint32_t direction) const {
    return {name, doc, buffer, direction, FRT_DTYPE_F32, 1, 0, {width_, 0, 0, 0}};
  }

  int64_t width_;
  frt::Buffer input_, output_, state_;
  frt::Graph graph_;
  std::vector<frt_port> ports_;
  std::vector<frt_model_graph> graphs_;
};

class Plugin {
 public:
  Plugin(const frt::Host& host, const frt::ConfigView&)
      : exec_(host.require<frt_exec_v1>(FRT_EXT_EXEC)) {}

  const void* extension(std::string_view id) noexcept {
    return id == FRT_EXT_MODEL ? &kModel : nullptr;
  }
  static const void* static_extension(std::string_view id) noexcept {
    return id == FRT_EXT_CONFIG_SCHEMA ? &kSchema : nullptr;
  }

 private:
  static frt_status create(frt_plugin plugin, const frt_model_params* params, frt_model* model,
                           frt_error* error) {
    return frt::guard(error, [&] {
      const frt::Context context(frt::object<Plugin>(plugin)->exec_, params->context);
      *model = frt::handle<frt_model>(new Delay(context, *params));
    });
  }
  static void destroy(frt_model model) { delete frt::object<Delay>(model); }
  static frt_status info(frt_model model, frt_model_info* info) {
    const auto& delay = *frt::object<Delay>(model);
    info->architecture = "delay line";
    info->formats = "no weights";
    info->parameters = info->weight_bytes = 0;
    info->state_bytes = delay.state_bytes();
    info->scratch_bytes = delay.scratch_bytes();
    return FRT_OK;
  }
  static frt_status ports(frt_model model, const frt_port** ports, uint64_t* count) {
    const auto& all = frt::object<Delay>(model)->ports();
    *ports = all.data();
    *count = all.size();
    return FRT_OK;
  }
  static frt_status graphs(frt_model model, const frt_model_graph** graphs, uint64_t* count) {
    const auto& all = frt::object<Delay>(model)->graphs();
    *graphs = all.data();
    *count = all.size();
    return FRT_OK;
  }
  static const void* model_extension(frt_model, const char*) { return nullptr; }

  static constexpr frt_model_v1 kModel = {
      sizeof(frt_model_v1), 0, create, destroy, info, ports, graphs, model_extension};

  const frt_exec_v1* exec_;
};

}  // namespace

FRT_PLUGIN(Plugin, model, "acme.delay", "0.1.0", "summary = \"a delay line\"\n");
