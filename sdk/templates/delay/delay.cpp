// SPDX-License-Identifier: Apache-2.0
// acme.delay: a model that answers with its former input.
//
// It has two ports, "input" and "output", and one buffer of state. Its recipe is two copies, state
// to output and input to state; it is captured when the model is made and replayed ever after, so
// everything that changes is in buffers. A real model calls operators in the recipe
// (frt/compose.hpp) and loads weights from params->checkpoint.
#include <frt/exec.hpp>
#include <frt/model.hpp>
#include <frt/plugin.hpp>

#include <memory>
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
    ports_ = {frt::make_port("input", "values of this step", input_, FRT_PORT_INPUT, FRT_DTYPE_F32,
                             {width_}),
              frt::make_port("output", "values of the step before", output_, FRT_PORT_OUTPUT,
                             FRT_DTYPE_F32, {width_})};
    graphs_ = {{"step", "one step; key 1", graph_}};
    info_.architecture = "delay line";
    info_.formats = "no weights";
    info_.state_bytes = state_.bytes();
    info_.scratch_bytes = input_.bytes() + output_.bytes();
  }

  const frt_model_info& info() const { return info_; }
  const std::vector<frt_port>& ports() const { return ports_; }
  const std::vector<frt_model_graph>& graphs() const { return graphs_; }
  const void* extension(std::string_view) noexcept { return nullptr; }

 private:
  int64_t width_;
  frt::Buffer input_, output_, state_;
  frt::Graph graph_;
  std::vector<frt_port> ports_;
  std::vector<frt_model_graph> graphs_;
  frt_model_info info_{};
};

class Plugin {
 public:
  Plugin(const frt::Host& host, const frt::ConfigView&)
      : exec_(host.require<frt_exec_v1>(FRT_EXT_EXEC)) {}

  std::unique_ptr<Delay> create(const frt_model_params& params) const {
    return std::make_unique<Delay>(frt::Context(exec_, params.context), params);
  }
  const void* extension(std::string_view id) noexcept {
    return id == FRT_EXT_MODEL ? &kModel : nullptr;
  }
  static const void* static_extension(std::string_view id) noexcept {
    return id == FRT_EXT_CONFIG_SCHEMA ? &kSchema : nullptr;
  }

 private:
  static constexpr frt_model_v1 kModel = frt::model_table<Plugin, Delay>();

  const frt_exec_v1* exec_;
};

}  // namespace

FRT_PLUGIN(Plugin, model, "acme.delay", "0.1.0", "summary = \"a delay line\"\n");
