// SPDX-License-Identifier: Apache-2.0
// made_model.hpp - a model made as every program makes one: from a manifest, by the code of the
// hosts, which judges roles, tables, regions of capsules and the kernels that the model registers.
#pragma once

#include <frt/core/log.hpp>
#include <frt/core/registry.hpp>

#include <memory>
#include <string>
#include <vector>

#include "plugin_cases.hpp"
#include "runtime/loaded_model.hpp"

namespace frt::conformance {

// Throws Skip without --checkpoint.
void needs_checkpoint(const Subject& subject);

// What --checkpoint names, for a plugin: an absolute path, or "synthetic:...".
std::string checkpoint_of(const Subject& subject);

// What to look for where a capsule does not bring everything back.
inline constexpr const char* kOutsideLayout =
    "; the layout lacks something that the model remembers, or a region has the wrong extent";

// Subject::alive is called before the model is made and whenever it reports progress.
class Made {
 public:
  explicit Made(const Subject& subject, bool eager = false, const std::vector<Option>& more = {});
  Made(const Subject& subject, const std::string& checkpoint, bool eager,
       const std::vector<Option>& more);
  const host::LoadedModel& operator*() const { return *model_; }
  const host::LoadedModel* operator->() const { return model_.get(); }
  bool has(const char* id) const;

 private:
  class Watch : public host::LoadObserver {
   public:
    explicit Watch(const Subject& subject) : subject_(subject) {}
    void progress(std::string_view, uint32_t, uint64_t, uint64_t) override { subject_.alive(); }

   private:
    const Subject& subject_;
  };

  Watch watch_;
  core::Log log_;
  core::Registry registry_;
  host::ManifestLoader loader_;
  std::unique_ptr<host::LoadedModel> model_;
};

}  // namespace frt::conformance
