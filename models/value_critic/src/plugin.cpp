// SPDX-License-Identifier: Apache-2.0
// frt.value_critic: a small critic, and an example of the role frt.role.critic/1.
//
//   x = pixels W_p^T + b_p + tasks[task]            image as one row, 2 u8 / 255 - 1
//   x = gelu(layer_norm(x) W_1^T + b_1)             twice
//   value = x W_v^T + b_v
//
// The checkpoint is a folder (or a file) with `pixels.*`, `tasks`, `hidden1.*`, `hidden2.*`,
// `value.*` in f32; its metadata name the tasks (JSON list of instructions, in the order of the
// rows of `tasks`) and the size of the image. tools/train-reach/critic.py trains and writes one.
#include <frt/model.h>
#include <frt/ops/dense.h>
#include <frt/ops/patch_embed.h>
#include <frt/ops/row_norm.h>
#include <frt/role/critic.h>

#include <cstring>
#include <frt/exec.hpp>
#include <frt/model.hpp>
#include <frt/models/json.hpp>
#include <frt/models/safetensors.hpp>
#include <frt/plugin.hpp>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace frt::value_critic {
namespace {

constexpr frt_shape_key kInfer = 1;
constexpr float kEpsilon = 1e-6f;

const void* role_extension(std::string_view id) noexcept;

class Critic {
 public:
  Critic(const frt_exec_v1* exec, const frt_model_params& params)
      : context_(exec, params.context),
        stream_(context_.create_stream(std::string(params.name) + ".load")),
        checkpoint_(models::Checkpoint::open(params.checkpoint)) {
    read_metadata();
    const models::TensorView& pixels = checkpoint_.get("pixels.weight");
    width_ = static_cast<int32_t>(pixels.shape[0]);
    const auto width = static_cast<uint64_t>(width_);
    inputs_ = 3 * image_ * image_;
    load("pixels.weight", {width, static_cast<uint64_t>(inputs_)});
    load("pixels.bias", {width});
    load("tasks", {tasks_.size(), width});
    for (const std::string name : {"hidden1", "hidden2"}) {
      load(name + ".norm.weight", {width});
      load(name + ".norm.bias", {width});
      load(name + ".weight", {width, width});
      load(name + ".bias", {width});
    }
    load("value.weight", {1, width});
    load("value.bias", {1});
    checkpoint_.require_unchanged();

    const auto make = [&](const char* name, uint64_t bytes) {
      Buffer buffer = context_.alloc(FRT_SPACE_DEVICE, bytes, name);
      buffer.upload(std::vector<uint8_t>(bytes), stream_);
      return buffer;
    };
    images_ = make("images", static_cast<uint64_t>(inputs_));
    view_ = make("view", sizeof(int32_t));
    task_ = make("task", width * sizeof(float));
    row_ = make("row", static_cast<uint64_t>(inputs_) * sizeof(float));
    x_ = make("x", width * sizeof(float));
    y_ = make("y", width * sizeof(float));
    value_ = make("value", sizeof(float));
    capture();
    info_.struct_size = sizeof(info_);
    info_.views = 1;
    info_.image_height = info_.image_width = static_cast<uint32_t>(image_);
    info_.infer = graph_;
    info_.key = kInfer;
    info_.images = images_;
    info_.value = value_;
    ports_ = {{"images",
               "camera image",
               images_,
               FRT_PORT_INPUT,
               FRT_DTYPE_U8,
               3,
               0,
               {image_, image_, 3, 0}},
              {"value",
               "0: done, -1: failed",
               value_,
               FRT_PORT_OUTPUT,
               FRT_DTYPE_F32,
               1,
               0,
               {1, 0, 0, 0}}};
    graphs_ = {{"infer", "an image to its value", graph_}};
    model_info_.struct_size = sizeof(model_info_);
    model_info_.architecture = architecture_.c_str();
    model_info_.formats = "F32";
    model_info_.weight_bytes = weight_bytes_;
    model_info_.parameters = weight_bytes_ / sizeof(float);
  }

  const frt_critic_info& role_info() const noexcept { return info_; }
  const frt_model_info& info() const noexcept { return model_info_; }
  const void* extension(std::string_view id) noexcept { return role_extension(id); }
  const std::vector<frt_port>& ports() const noexcept { return ports_; }
  const std::vector<frt_model_graph>& graphs() const noexcept { return graphs_; }

  // An instruction means the task that it begins with.
  void set_instruction(std::string_view instruction, frt_stream stream) {
    for (std::size_t i = 0; i < tasks_.size(); ++i) {
      if (!instruction.starts_with(tasks_[i])) continue;
      const uint64_t bytes = task_.bytes();
      context_.checked(
          context_.table().buffer_copy(task_, 0, weight("tasks"), i * bytes, bytes, stream),
          "set_instruction");
      return;
    }
    std::string known;
    for (const std::string& task : tasks_) known += (known.empty() ? "" : ", ") + task;
    throw Error(FRT_ERR_NOT_FOUND, "the critic was not trained on '" + std::string(instruction) +
                                       "'; it knows: " + known);
  }

 private:
  void read_metadata() {
    for (const auto& file : checkpoint_.files()) {
      for (const auto& [key, value] : file->metadata()) {
        if (key == "image") image_ = std::atoi(value.c_str());
        if (key != "tasks") continue;
        const io::Json list = io::parse_json(value, file->path() + ": metadata `tasks`");
        for (const io::Json& task : list) {
          if (task.is_string()) tasks_.push_back(task.get<std::string>());
        }
      }
    }
    if (image_ < 1 || image_ > 1024 || tasks_.empty()) {
      throw Error(FRT_ERR_FORMAT, checkpoint_.path() +
                                      ": the metadata `image` (pixels of a side) and `tasks` (a "
                                      "JSON list of instructions) are missing or wrong");
    }
    architecture_ = "value critic, image " + std::to_string(image_) + ", " +
                    std::to_string(tasks_.size()) + " tasks";
  }

  void load(const std::string& name, std::initializer_list<uint64_t> shape) {
    const models::TensorView& tensor = checkpoint_.require(name, shape);
    if (tensor.dtype != FRT_DTYPE_F32) {
      throw Error(FRT_ERR_MISMATCH, checkpoint_.path() + ": " + name + " is no F32");
    }
    const std::vector<std::byte> bytes = tensor.read();
    Buffer buffer = context_.alloc(FRT_SPACE_DEVICE, bytes.size(), name);
    buffer.upload(bytes, stream_);
    weight_bytes_ += bytes.size();
    weights_.emplace(name, std::move(buffer));
  }

  const Buffer& weight(const std::string& name) const { return weights_.at(name); }
  const float* vector(const std::string& name) const { return weight(name).pointer<float>(); }

  frt_dense_args dense(const std::string& name, const Buffer& x, int32_t inputs, const Buffer& y,
                       int32_t outputs) const {
    frt_dense_args args{};
    args.x_dtype = args.y_dtype = FRT_DTYPE_F32;
    args.rows = 1;
    args.x = x.pointer();
    args.x_stride = inputs;
    args.weight.format = kWeightF32;
    args.weight.rows = outputs;
    args.weight.cols = inputs;
    args.weight.data = weight(name + ".weight").pointer();
    args.bias = vector(name + ".bias");
    args.y = y.pointer();
    args.y_stride = outputs;
    return args;
  }

  void capture() {
    Kernel<frt_patches_args> patches;
    Kernel<frt_dense_args> product;
    Kernel<frt_row_norm_args> norm;
    KernelSet()
        .add(patches, FRT_OP_PATCHES)
        .add(product, FRT_OP_DENSE)
        .add(norm, FRT_OP_ROW_NORM)
        .resolve(context_, KernelTypes(FRT_DTYPE_F32), kWeightF32);
    graph_ = context_.create_graph("infer", 1);
    graph_.capture(kInfer, [=, this](const Recorder& recorder) {
      frt_patches_args row{};  // the whole image is one patch
      row.pixel_dtype = FRT_DTYPE_U8;
      row.dtype = FRT_DTYPE_F32;
      row.slots = row.views = 1;
      row.height = row.width = row.patch = image_;
      row.channels = 3;
      row.scale = 2.0f / 255;
      row.offset = -1;
      row.view = view_.pointer<int32_t>();
      row.pixels = images_.pointer();
      row.x = row_.pointer();
      row.x_stride = inputs_;
      patches(recorder, row);
      frt_dense_args first = dense("pixels", row_, inputs_, x_, width_);
      first.addend = task_.pointer<float>();
      first.addend_rows = 1;
      product(recorder, first);
      for (const char* name : {"hidden1", "hidden2"}) {
        frt_row_norm_args normed{};
        normed.x_dtype = normed.y_dtype = FRT_DTYPE_F32;
        normed.rows = 1;
        normed.width = width_;
        normed.norm.kind = FRT_NORM_LAYER;
        normed.norm.epsilon = kEpsilon;
        normed.norm.weight = vector(std::string(name) + ".norm.weight");
        normed.norm.bias = vector(std::string(name) + ".norm.bias");
        normed.x = x_.pointer();
        normed.x_stride = width_;
        normed.y = y_.pointer();
        normed.y_stride = width_;
        norm(recorder, normed);
        frt_dense_args hidden = dense(name, y_, width_, x_, width_);
        hidden.activation = FRT_ACTIVATION_GELU;
        product(recorder, hidden);
      }
      product(recorder, dense("value", x_, width_, value_, 1));
    });
  }

  Context context_;
  Stream stream_;
  models::Checkpoint checkpoint_;
  std::map<std::string, Buffer> weights_;
  std::vector<std::string> tasks_;
  std::string architecture_;
  int32_t image_ = 0, inputs_ = 0, width_ = 0;
  uint64_t weight_bytes_ = 0;
  Buffer images_, view_, task_, row_, x_, y_, value_;
  Graph graph_;
  frt_critic_info info_{};
  frt_model_info model_info_{};
  std::vector<frt_port> ports_;
  std::vector<frt_model_graph> graphs_;
};

frt_status role_info(frt_model model, frt_critic_info* info) {
  return fill(info, object<Critic>(model)->role_info());
}

frt_status set_instruction(frt_model model, const char* instruction, frt_stream stream,
                           frt_error* error) {
  return guard(error, [&] { object<Critic>(model)->set_instruction(instruction, stream); });
}

const void* role_extension(std::string_view id) noexcept {
  static constexpr frt_role_critic_v1 kRole = {sizeof(frt_role_critic_v1), 0, role_info,
                                               set_instruction};
  return id == FRT_EXT_ROLE_CRITIC ? &kRole : nullptr;
}

class Plugin {
 public:
  Plugin(const Host& host, const ConfigView&) : exec_(host.require<frt_exec_v1>(FRT_EXT_EXEC)) {}

  std::unique_ptr<Critic> create(const frt_model_params& params) {
    return std::make_unique<Critic>(exec_, params);
  }
  const void* extension(std::string_view id) noexcept {
    static constexpr frt_model_v1 kModel = model_table<Plugin, Critic>();
    return id == FRT_EXT_MODEL ? &kModel : nullptr;
  }
  static const void* static_extension(std::string_view id) noexcept {
    static constexpr frt_config_schema_v1 kSchema = {
        sizeof(frt_config_schema_v1), 0, nullptr, 0, nullptr, 0};
    return id == FRT_EXT_CONFIG_SCHEMA ? &kSchema : nullptr;
  }

 private:
  const frt_exec_v1* exec_;
};

}  // namespace
}  // namespace frt::value_critic

FRT_PLUGIN(frt::value_critic::Plugin, model, "frt.value_critic", "1.0.0",
           "summary = \"a small value critic for rollouts\"\n");
