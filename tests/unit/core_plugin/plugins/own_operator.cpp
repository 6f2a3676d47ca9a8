// SPDX-License-Identifier: Apache-2.0
// test.own_operator: a model whose only graph is an operator of its own. "test.add/1" adds the
// model's number to its port `total`; every model of the plugin gives the operator this name, and
// another number.
#include <frt/exec.hpp>
#include <frt/model.hpp>
#include <frt/plugin.hpp>

#include <memory>
#include <span>
#include <vector>

namespace {

constexpr const char* kAdd = "test.add/1";
constexpr frt_shape_key kKey = 1;

struct AddArgs {
  uint32_t struct_size;
  uint32_t reserved;
  int64_t* total;  // (1), memory that the processor addresses
};

constexpr frt_config_option kOptions[] = {
    {"number", FRT_CONFIG_INT, 0, "1", nullptr, 1, 1000, "what is added"}};
constexpr frt_config_schema_v1 kSchema = frt::config_schema(frt::kNoOptions, kOptions);

class Model {
 public:
  Model(const frt_exec_v1* exec, const frt_model_params& params)
      : context_(exec, params.context),
        number_(frt::ConfigView(params.config).get_int("number")),
        total_(context_.alloc(FRT_SPACE_HOST, sizeof(int64_t), "total")) {
    *total_.pointer<int64_t>() = 0;
    frt_kernel_desc kernel{};
    kernel.struct_size = sizeof(kernel);
    kernel.args_size = sizeof(AddArgs);
    kernel.name = kAdd;
    kernel.kernel = {this, &Model::launch, nullptr};
    owner_ = context_.register_kernels(std::span(&kernel, 1));
    frt::KernelSet().add(add_, kAdd).resolve(context_, frt::KernelTypes(), {}, owner_.handle());
    graph_ = context_.create_graph("add", 1);
    graph_.capture(kKey, [this](const frt::Recorder& recorder) {
      add_(recorder, {0, 0, total_.pointer<int64_t>()});
    });
    info_.struct_size = sizeof(info_);
    info_.architecture = info_.formats = "none";
    ports_ = {frt::make_port("total", "the sum", total_, FRT_PORT_OUTPUT, FRT_DTYPE_I64, {1})};
    graphs_ = {{"add", "adds the number", graph_.handle()}};
  }
  const frt_model_info& info() const { return info_; }
  const std::vector<frt_port>& ports() const { return ports_; }
  const std::vector<frt_model_graph>& graphs() const { return graphs_; }
  const void* extension(std::string_view) noexcept { return nullptr; }

 private:
  static frt_status launch(void* self, frt_backend_stream stream, const void* args,
                           frt_error* error) {
    return frt::guard(error, [&] {
      const auto& model = *static_cast<const Model*>(self);
      int64_t* const total = static_cast<const AddArgs*>(args)->total;
      model.context_.call(stream, [total, number = model.number_] { *total += number; });
    });
  }

  frt::Context context_;
  int64_t number_;
  frt::Buffer total_;
  frt::KernelOwner owner_;
  frt::Kernel<AddArgs> add_;
  frt::Graph graph_;
  frt_model_info info_{};
  std::vector<frt_port> ports_;
  std::vector<frt_model_graph> graphs_;
};

class Plugin {
 public:
  Plugin(const frt::Host& host, const frt::ConfigView&)
      : exec_(host.require<frt_exec_v1>(FRT_EXT_EXEC)) {}
  std::unique_ptr<Model> create(const frt_model_params& params) {
    return std::make_unique<Model>(exec_, params);
  }
  const void* extension(std::string_view id) noexcept {
    static constexpr frt_model_v1 kModel = frt::model_table<Plugin, Model>();
    return id == FRT_EXT_MODEL ? &kModel : nullptr;
  }
  static const void* static_extension(std::string_view id) noexcept {
    return id == FRT_EXT_CONFIG_SCHEMA ? &kSchema : nullptr;
  }

 private:
  const frt_exec_v1* exec_;
};

}  // namespace

FRT_PLUGIN(Plugin, model, "test.own_operator", "1.0.0", "summary = \"an operator of its own\"\n");
