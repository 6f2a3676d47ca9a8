// SPDX-License-Identifier: Apache-2.0
// test.linear_policy: the smallest policy that is one. A chunk is linear in the state, plus a row
// that the prompt chooses, plus the noise:
//
//   actions (H, A) = weight (H * A, S) state + prompts (P, H * A)[token 0] + noise (H, A)
//
// The checkpoint is one safetensors file with `weight` and `prompts`, f32; H and the image size are
// options. It reads u8 images "observation/image", "observation/image_1" ... of exactly its size
// and the state "observation/state". Token 0 of an instruction is the sum of its bytes modulo P,
// its bytes follow. Option `delay_ms` lets a chunk take that long at least. A state of 1e38 makes a
// chunk that is not finite.
#include <frt/capsule.h>
#include <frt/model.h>
#include <frt/observation.h>
#include <frt/ops/elementwise.h>
#include <frt/ops/embed.h>
#include <frt/ops/linear.h>
#include <frt/role/policy.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <frt/exec.hpp>
#include <frt/models/safetensors.hpp>
#include <frt/observation.hpp>
#include <frt/plugin.hpp>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

constexpr frt_config_option kOptions[] = {
    {"horizon", FRT_CONFIG_INT, 0, "10", nullptr, 1, 1000, "actions per chunk"},
    {"views", FRT_CONFIG_INT, 0, "1", nullptr, 1, 4, "camera images"},
    {"image", FRT_CONFIG_INT, 0, "28", nullptr, 1, 512, "pixels of a side"},
    {"steps", FRT_CONFIG_INT, 0, "10", nullptr, 1, 100, "denoising steps it claims to make"},
    {"delay_ms", FRT_CONFIG_INT, 0, "0", nullptr, 0, 60000, "waited before each chunk"},
};
constexpr frt_config_schema_v1 kSchema = frt::config_schema(frt::kNoOptions, kOptions);

constexpr uint32_t kMaxPrompt = 48;

frt_weight f32_weight(const frt::Buffer& buffer, uint64_t rows, uint64_t cols) {
  frt_weight weight{};
  weight.format = frt::kWeightF32;
  weight.rows = static_cast<int32_t>(rows);
  weight.cols = static_cast<int32_t>(cols);
  weight.data = buffer.pointer();
  return weight;
}

std::string image_name(uint32_t view) {
  return "observation/image" + (view ? "_" + std::to_string(view) : std::string());
}

class LinearPolicy {
 public:
  LinearPolicy(const frt_exec_v1* exec, const frt_model_params& params)
      : context_(exec, params.context) {
    const frt::ConfigView options(params.config);
    const auto checkpoint = frt::models::Checkpoint::open(params.checkpoint);
    const auto& weight = checkpoint.get("weight");
    const auto& prompts = checkpoint.get("prompts");
    info_.horizon = static_cast<uint32_t>(options.get_int("horizon"));
    info_.views = static_cast<uint32_t>(options.get_int("views"));
    info_.image_height = info_.image_width = static_cast<uint32_t>(options.get_int("image"));
    info_.default_steps = static_cast<uint32_t>(options.get_int("steps"));
    info_.max_prompt = kMaxPrompt;
    info_.guidance_branches = info_.max_samples = 1;
    info_.image_dtype = FRT_DTYPE_U8;
    const uint64_t values = weight.shape[0];
    checkpoint.require("prompts", {prompts.shape[0], values});
    if (values % info_.horizon != 0 || weight.dtype != FRT_DTYPE_F32) {
      throw frt::Error(FRT_ERR_MISMATCH, "weight: (horizon * actions, state), f32");
    }
    prompt_rows_ = prompts.shape[0];
    info_.state_dim = static_cast<uint32_t>(weight.shape[1]);
    info_.action_dim = static_cast<uint32_t>(values / info_.horizon);

    stream_ = context_.create_stream("load");
    const auto load = [&](const frt::models::TensorView& tensor, const char* name) {
      std::vector<std::byte> bytes = tensor.read();
      frt::Buffer buffer = context_.alloc(FRT_SPACE_DEVICE, bytes.size(), name);
      buffer.upload(bytes, stream_);
      return buffer;
    };
    weight_ = load(weight, "weight");
    prompts_ = load(prompts, "prompts");
    const auto port = [&](const char* name, uint64_t bytes) {
      frt::Buffer buffer = context_.alloc(FRT_SPACE_DEVICE, bytes, name);
      buffer.upload(std::vector<uint8_t>(bytes), stream_);
      return buffer;
    };
    images_ = port("images", uint64_t{3} * info_.views * info_.image_height * info_.image_width);
    mask_ = port("view_mask", info_.views * sizeof(int32_t));
    state_ = port("proprioception", info_.state_dim * sizeof(float));
    tokens_ = port("prompt_tokens", kMaxPrompt * sizeof(int32_t));
    length_ = port("prompt_length", sizeof(int32_t));
    noise_ = port("noise", values * sizeof(float));
    actions_ = port("actions", values * sizeof(float));
    words_ = context_.alloc(FRT_SPACE_HOST_PINNED, (kMaxPrompt + 1) * sizeof(int32_t), "words");
    capture(values, std::chrono::milliseconds(options.get_int("delay_ms")));

    names_ = R"([{"name":"observation/state","kind":"state","shape":[)" +
             std::to_string(info_.state_dim) + "]}";
    const std::string side = std::to_string(info_.image_height);
    for (uint32_t view = 0; view < info_.views; ++view) {
      names_ += R"(,{"name":")" + image_name(view) +
                R"(","kind":"image","required":false,"shape":[)" + side + "," + side + ",3]}";
    }
    names_ += "]";
    info_.max_steps = info_.default_steps;
    info_.struct_size = sizeof(info_);
    info_.infer = graph_;
    info_.images = images_;
    info_.view_mask = mask_;
    info_.proprioception = state_;
    info_.prompt_tokens = tokens_;
    info_.prompt_length = length_;
    info_.noise = noise_;
    info_.actions = actions_;
  }

  const frt_policy_info& info() const { return info_; }
  const char* names() const { return names_.c_str(); }
  uint64_t weight_bytes() const { return weight_.bytes() + prompts_.bytes(); }

  void write(const frt_observation& observation, frt_stream stream) {
    const auto find = [&](const std::string& name) -> const frt_array* {
      for (uint32_t i = 0; i < observation.array_count; ++i) {
        if (observation.arrays[i].name == name) return &observation.arrays[i];
      }
      return nullptr;
    };
    const auto refuse = [](const std::string& name, const std::string& what) {
      throw frt::Error(FRT_ERR_FORMAT, "'" + name + "' " + what);
    };
    std::vector<float> state(info_.state_dim);
    const frt_array* given = find("observation/state");
    if (!given) refuse("observation/state", "is missing");
    if (given->rank != 1 || given->shape[0] != info_.state_dim) {
      refuse(given->name, "has another shape than (" + std::to_string(info_.state_dim) + ")");
    }
    for (uint32_t i = 0; i < info_.state_dim; ++i) {
      if (given->dtype == FRT_DTYPE_F32) {
        state[i] = static_cast<const float*>(given->data)[i];
      } else if (given->dtype == FRT_DTYPE_F64) {
        state[i] = static_cast<float>(static_cast<const double*>(given->data)[i]);
      } else {
        refuse(given->name, "is no f32 or f64");
      }
      if (!std::isfinite(state[i])) refuse(given->name, "is not finite");
    }
    std::vector<uint8_t> images(images_.bytes());
    const uint64_t size = images.size() / info_.views;
    for (uint32_t view = 0; view < info_.views; ++view) {
      const std::string name = image_name(view);
      const frt_array* image = find(name);
      if (!image) continue;
      if (image->dtype != FRT_DTYPE_U8 || image->rank != 3 ||
          image->shape[0] != info_.image_height || image->shape[1] != info_.image_width ||
          image->shape[2] != 3) {
        refuse(name, "is no u8 image of " + std::to_string(info_.image_height) + " x " +
                         std::to_string(info_.image_width) + " x 3");
      }
      std::memcpy(images.data() + view * size, image->data, size);
    }
    const frt_array* noise = find("noise");
    if (noise && (noise->dtype != FRT_DTYPE_F32 || noise->rank != 2 ||
                  noise->shape[0] != info_.horizon || noise->shape[1] != info_.action_dim)) {
      refuse("noise", "is no f32 array (horizon, action_dim)");
    }
    // The default instruction is the empty one.
    if (!observation.prompt_tokens) {
      set_prompt(observation.prompt ? observation.prompt : "", stream);
    }
    const auto upload = [&](const frt::Buffer& target, const void* data, uint64_t bytes) {
      const frt::Buffer host =
          context_.wrap(FRT_SPACE_HOST, const_cast<void*>(data), bytes, "observation");
      context_.checked(context_.table().buffer_copy(target, 0, host, 0, bytes, stream), "write");
      context_.checked(context_.table().stream_sync(stream), "write");
    };
    upload(state_, state.data(), state_.bytes());
    upload(images_, images.data(), images.size());
    if (noise) upload(noise_, noise->data, noise_.bytes());
  }

  void finish(const float* actions, double* robot) const {
    for (uint32_t i = 0; i < info_.horizon * info_.action_dim; ++i) {
      if (!std::isfinite(actions[i])) {
        throw frt::Error(FRT_ERR_FORMAT, "action " + std::to_string(i) + " is not finite");
      }
      robot[i] = static_cast<double>(actions[i]);
    }
  }

  void set_prompt(const std::string& text, frt_stream stream) {
    if (text.size() >= kMaxPrompt) {
      throw frt::Error(FRT_ERR_OUT_OF_RANGE, "the prompt has " + std::to_string(text.size() + 1) +
                                                 " tokens, this model takes " +
                                                 std::to_string(kMaxPrompt));
    }
    context_.checked(context_.table().stream_sync(stream), "stream_sync");
    auto* words = words_.pointer<int32_t>();
    std::fill(words, words + kMaxPrompt + 1, 0);
    uint64_t sum = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      words[i + 1] = static_cast<unsigned char>(text[i]);
      sum += static_cast<unsigned char>(text[i]);
    }
    words[0] = static_cast<int32_t>(sum % prompt_rows_);
    words[kMaxPrompt] = static_cast<int32_t>(text.size() + 1);
    const auto copy = [&](const frt::Buffer& target, uint64_t at) {
      context_.checked(context_.table().buffer_copy(target, 0, words_, at, target.bytes(), stream),
                       "prompt");
    };
    copy(tokens_, 0);
    copy(length_, kMaxPrompt * sizeof(int32_t));
  }

 private:
  void capture(uint64_t values, std::chrono::milliseconds delay) {
    frt::Kernel<frt_linear_args> linear;
    frt::Kernel<frt_embed_args> embed;
    frt::Kernel<frt_binary_args> add;
    frt::KernelSet()
        .add(linear, FRT_OP_LINEAR)
        .add(embed, FRT_OP_EMBED)
        .add(add, FRT_OP_ADD)
        .resolve(context_, frt::KernelTypes(FRT_DTYPE_F32), frt::kWeightF32);
    sum_ = context_.alloc(FRT_SPACE_DEVICE, 2 * values * sizeof(float), "sum");
    graph_ = context_.create_graph("infer", 1);
    graph_.capture(info_.default_steps, [=, this](const frt::Recorder& recorder) {
      if (delay.count() > 0) {
        context_.call(recorder.backend_stream(), [delay] { std::this_thread::sleep_for(delay); });
      }
      const auto width = static_cast<int64_t>(values);
      frt_linear_args product{};
      product.x_dtype = product.y_dtype = FRT_DTYPE_F32;
      product.rows = 1;
      product.x = state_.pointer();
      product.x_stride = info_.state_dim;
      product.weight = f32_weight(weight_, values, info_.state_dim);
      product.y = sum_.pointer();
      product.y_stride = width;
      linear(recorder, product);
      frt_embed_args row{};
      row.y_dtype = FRT_DTYPE_F32;
      row.rows = 1;
      row.ids = tokens_.pointer<int32_t>();
      row.table = f32_weight(prompts_, prompt_rows_, values);
      row.y = sum_.pointer<float>() + values;
      row.y_stride = width;
      embed(recorder, row);
      frt_binary_args both{};
      both.dtype = FRT_DTYPE_F32;
      both.rows = 1;
      both.width = static_cast<int32_t>(values);
      both.a_stride = both.b_stride = both.y_stride = width;
      both.a = sum_.pointer();
      both.b = sum_.pointer<float>() + values;
      both.y = sum_.pointer();
      add(recorder, both);
      both.b = noise_.pointer();
      both.y = actions_.pointer();
      add(recorder, both);
    });
  }

  frt::Context context_;
  frt::Stream stream_;
  frt::Buffer weight_, prompts_, images_, mask_, state_, tokens_, length_, noise_, actions_;
  frt::Buffer words_, sum_;
  frt::Graph graph_;
  frt_policy_info info_{};
  std::string names_;
  uint64_t prompt_rows_ = 0;
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
  static LinearPolicy& policy(frt_model model) { return *frt::object<LinearPolicy>(model); }

  static frt_status create(frt_plugin plugin, const frt_model_params* params, frt_model* model,
                           frt_error* error) {
    return frt::guard(error, [&] {
      *model =
          frt::handle<frt_model>(new LinearPolicy(frt::object<Plugin>(plugin)->exec_, *params));
    });
  }
  static void destroy(frt_model model) { delete &policy(model); }
  static frt_status info(frt_model model, frt_model_info* info) {
    info->architecture = "linear policy";
    info->formats = "f32";
    info->parameters = policy(model).weight_bytes() / sizeof(float);
    info->weight_bytes = policy(model).weight_bytes();
    info->state_bytes = info->scratch_bytes = 0;
    return FRT_OK;
  }
  static frt_status ports(frt_model, const frt_port** ports, uint64_t* count) {
    *ports = nullptr;
    *count = 0;
    return FRT_OK;
  }
  static frt_status graphs(frt_model, const frt_model_graph** graphs, uint64_t* count) {
    *graphs = nullptr;
    *count = 0;
    return FRT_OK;
  }
  static const void* model_extension(frt_model, const char* id) {
    if (std::string_view(id) == FRT_EXT_OBSERVATION) return &kObservation;
    return std::string_view(id) == FRT_EXT_ROLE_POLICY ? &kRole : nullptr;
  }

  static frt_status role_info(frt_model model, frt_policy_info* info) {
    *info = policy(model).info();
    return FRT_OK;
  }
  static frt_status infer_key(frt_model model, const frt_policy_shape* shape, frt_shape_key* key) {
    const uint32_t steps = policy(model).info().default_steps;
    if (shape->steps != 0 && shape->steps != steps) return FRT_ERR_NO_VARIANT;
    *key = steps;
    return FRT_OK;
  }
  static frt_status set_prompt(frt_model model, uint32_t branch, const char* instruction,
                               const char*, frt_stream stream, uint32_t* tokens, frt_error* error) {
    return frt::guard(error, [&] {
      if (branch != 0) throw frt::Error(FRT_ERR_OUT_OF_RANGE, "there is one branch");
      policy(model).set_prompt(instruction, stream);
      if (tokens) *tokens = static_cast<uint32_t>(std::strlen(instruction)) + 1;
    });
  }
  static frt_status observation_info(frt_model model, frt_observation_info* info) {
    info->action_dim = policy(model).info().action_dim;
    info->state_dim = policy(model).info().state_dim;
    info->names = policy(model).names();
    info->metadata = "{\"test\": true}";
    return FRT_OK;
  }
  static frt_status write(frt_model model, const frt_observation* observation, frt_stream stream,
                          frt_observed* observed, frt_error* error) {
    return frt::guard(error, [&] {
      policy(model).write(frt::read_observation(observation, "the host"), stream);
      frt_observed known{};
      known.struct_size = sizeof(known);
      known.views = policy(model).info().views;
      frt::check(frt::fill(observed, known), "observed");
    });
  }
  static frt_status finish(frt_model model, const frt_observed*, const float* actions,
                           double* robot, frt_error* error) {
    return frt::guard(error, [&] { policy(model).finish(actions, robot); });
  }

  static constexpr frt_role_policy_v1 kRole = {sizeof(frt_role_policy_v1),
                                               0,
                                               role_info,
                                               infer_key,
                                               nullptr,
                                               nullptr,
                                               set_prompt,
                                               nullptr,
                                               nullptr,
                                               nullptr,
                                               nullptr};
  static constexpr frt_observation_v1 kObservation = {sizeof(frt_observation_v1), 0,
                                                      observation_info, write, finish};
  static constexpr frt_model_v1 kModel = {
      sizeof(frt_model_v1), 0, create, destroy, info, ports, graphs, model_extension};

  const frt_exec_v1* exec_;
};

}  // namespace

FRT_PLUGIN(Plugin, model, "test.linear_policy", "1.0.0", "summary = \"a linear policy\"\n");
