// SPDX-License-Identifier: Apache-2.0
// raw_model.hpp - a model plugin that is called through its own table, with no host's code in
// between: what it answers is what it says itself.
#pragma once

#include <frt/model.h>

#include <cstdint>
#include <string>
#include <vector>

#include "opened.hpp"
#include "plugin_cases.hpp"

namespace frt::conformance {

// Whether the record has words; those of a host around them do not count.
bool has_words(const frt_error& error);

// The device of a model: of its backend, opened by the host of this program.
class ModelDevice {
 public:
  explicit ModelDevice(const Subject& subject);
  ~ModelDevice();
  ModelDevice(const ModelDevice&) = delete;
  ModelDevice& operator=(const ModelDevice&) = delete;
  frt_context context() const { return context_; }
  // Throws FRT_ERR_BAD_STATE that counts what a model left behind, and stays open.
  void close();

 private:
  OpenedPlugin backend_;
  frt_context context_ = nullptr;
};

// What `create` answered. A model that it made is gone again.
struct Creation {
  frt_status status = FRT_OK;
  frt_error error{};
};

class RawModel {
 public:
  explicit RawModel(const Subject& subject);
  const core::LoadedPlugin& loaded() const { return opened_.loaded; }
  std::string sender() const { return opened_.plugin.sender(); }
  // With the options of the subject and `more` over them; `flags`: FRT_MODEL_*. Throws FRT_ERR_ABI
  // for a success without a model, and what config_of() does.
  Creation create(const std::string& checkpoint, const std::vector<Option>& more,
                  uint32_t flags = 0) const;
  // Throws FRT_ERR_BAD_STATE if a model left something on the device. No create() after it.
  void close_device() { device_.close(); }

 private:
  const Subject& subject_;
  OpenedPlugin opened_;
  ModelDevice device_;
};

}  // namespace frt::conformance
