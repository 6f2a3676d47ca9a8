// SPDX-License-Identifier: Apache-2.0
// frt/model.hpp - writing a model in C++: a class for the model object, and the C tables made of
// it, so that the translation (handles to objects, exceptions to codes, NULL to
// FRT_ERR_INVALID_ARGUMENT, struct sizes) is written once. Header only.
//
//     struct Plugin {
//       // `params` are a checked copy for the call, with a name, a checkpoint and known flags.
//       std::unique_ptr<Acme> create(const frt_model_params& params);
//       const void* extension(std::string_view id) noexcept {
//         return id == FRT_EXT_MODEL ? &kModel : nullptr;
//       }
//       static constexpr frt_model_v1 kModel = frt::model_table<Plugin, Acme>();
//     };
//
// What the model class has; anything may throw frt::Error unless it is noexcept:
//
//   const frt_model_info& info() const                       lives as long as the model
//   a vector or span of frt_port: ports() const              the same
//   a vector or span of frt_model_graph: graphs() const      the same
//   const void* extension(std::string_view id) noexcept
// and, where it has state, for capsule_table<Acme>():        [setup]
//   const frt_capsule_layout& capsule_layout()
//   frt_state capsule_state()
//   a vector or span of frt_fingerprint_field: fingerprint()
//
// Functions of other tables reach the object with frt::object<Acme>(model), and fill the info
// struct of a role with frt::fill.
#pragma once

#include <frt/capsule.h>
#include <frt/model.h>

#include <algorithm>
#include <cstdint>
#include <frt/error.hpp>
#include <frt/flags.hpp>
#include <frt/plugin.hpp>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

// What a host of the oldest version promises (frt/table.hpp).
FRT_CONTRACT(frt_model_params, "frt_model_params", config, FRT_REQUIRED(frt_model_params, name),
             FRT_REQUIRED(frt_model_params, checkpoint));

namespace frt {

// An entry of a model's port table: a row-major tensor that the host writes before a replay
// (FRT_PORT_INPUT) or reads behind one (FRT_PORT_OUTPUT). At most FRT_PORT_MAX_RANK sizes.  [setup]
inline frt_port make_port(const char* name, const char* doc, frt_buffer buffer, uint32_t direction,
                          frt_dtype dtype, std::initializer_list<int64_t> shape) {
  if (shape.size() > FRT_PORT_MAX_RANK) {
    throw Error(FRT_ERR_INVALID_ARGUMENT, std::string("port ") + name + " has more than " +
                                              std::to_string(FRT_PORT_MAX_RANK) + " dimensions");
  }
  frt_port port{};
  port.name = name;
  port.doc = doc;
  port.buffer = buffer;
  port.direction = direction;
  port.dtype = dtype;
  port.rank = static_cast<uint32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), port.shape);
  return port;
}

namespace detail {

template <class Plugin, class Model>
struct ModelTable {
  static frt_status create(frt_plugin plugin, const frt_model_params* params, frt_model* model,
                           frt_error* error) {
    return guard(error, [&] {
      if (!plugin || !params || !model) {
        throw Error(FRT_ERR_INVALID_ARGUMENT, "create: plugin, params and model must be given");
      }
      const auto given = read_table<frt_model_params>(params, "the host");
      require_flags(given.flags, FRT_MODEL_WITHOUT_WEIGHTS, "create");
      std::unique_ptr<Model> made = object<Plugin>(plugin)->create(given);
      *model = handle<frt_model>(made.release());
    });
  }
  static void destroy(frt_model model) { delete object<Model>(model); }
  static frt_status info(frt_model model, frt_model_info* out) {
    if (!model) return FRT_ERR_INVALID_ARGUMENT;
    return guard(nullptr, [&] { return fill(out, object<Model>(model)->info()); });
  }
  static frt_status ports(frt_model model, const frt_port** out, uint64_t* count) {
    return list(
        model, out, count, [](Model & self) -> auto& { return self.ports(); });
  }
  static frt_status graphs(frt_model model, const frt_model_graph** out, uint64_t* count) {
    return list(
        model, out, count, [](Model & self) -> auto& { return self.graphs(); });
  }
  static const void* extension(frt_model model, const char* id) {
    return model && id ? object<Model>(model)->extension(std::string_view(id)) : nullptr;
  }

 private:
  template <class Entry, class List>
  static frt_status list(frt_model model, const Entry** out, uint64_t* count, List of) {
    if (!model || !out || !count) return FRT_ERR_INVALID_ARGUMENT;
    return guard(nullptr, [&] {
      const auto& entries = of(*object<Model>(model));
      *out = entries.data();
      *count = entries.size();
    });
  }
};

template <class Model>
struct CapsuleTable {
  static frt_status layout(frt_model model, const frt_capsule_layout** out, frt_error* error) {
    return given(model, out, error, [&] { *out = &self(model).capsule_layout(); });
  }
  static frt_status state(frt_model model, frt_state* out, frt_error* error) {
    return given(model, out, error, [&] { *out = self(model).capsule_state(); });
  }
  static frt_status fingerprint(frt_model model, const frt_fingerprint_field** fields,
                                uint64_t* count, frt_error* error) {
    return given(model && count ? model : nullptr, fields, error, [&] {
      const auto& known = self(model).fingerprint();
      *fields = known.data();
      *count = known.size();
    });
  }

 private:
  static Model& self(frt_model model) noexcept { return *object<Model>(model); }
  template <class Body>
  static frt_status given(frt_model model, const void* out, frt_error* error, Body body) {
    if (!model || !out) {
      return set_error(error, FRT_ERR_INVALID_ARGUMENT, "capsule: an argument is NULL");
    }
    return guard(error, body);
  }
};

}  // namespace detail

template <class Plugin, class Model>
constexpr frt_model_v1 model_table() noexcept {
  using Table = detail::ModelTable<Plugin, Model>;
  return {sizeof(frt_model_v1), 0,
          Table::create,        Table::destroy,
          Table::info,          Table::ports,
          Table::graphs,        Table::extension};
}

template <class Model>
constexpr frt_capsule_v1 capsule_table() noexcept {
  using Table = detail::CapsuleTable<Model>;
  return {sizeof(frt_capsule_v1), 0, Table::layout, Table::state, Table::fingerprint};
}

}  // namespace frt
