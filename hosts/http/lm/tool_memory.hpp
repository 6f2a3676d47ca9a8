// SPDX-License-Identifier: Apache-2.0
// tool_memory.hpp - the tools of each conversation's last request, to tell why a prompt was not
// recognised: tool servers that reconnect move tools, and a moved tool changes the prompt from its
// beginning.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace frt::host {

class ToolMemory {
 public:
  static constexpr std::size_t kMost = 256;  // conversations; beyond that the oldest is forgotten

  // What is different from the last request of the same owner and conversation (empty: the owner's
  // requests without one): "added 'x', removed 'y', moved 'a', 'b', changed 'c'"; empty: nothing,
  // or that was the first. `tools`: ApiCall::tools.  [any]
  std::string compare(const std::string& owner, const std::string& session,
                      const nlohmann::ordered_json& tools);

 private:
  struct Tool {
    std::string name;
    std::size_t digest = 0;  // of its whole text
  };
  using Tools = std::vector<Tool>;
  struct Known {
    Tools tools;
    uint64_t used = 0;
  };

  static std::string difference(const Tools& before, const Tools& now);

  std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, Known> known_;
  uint64_t clock_ = 0;
};

}  // namespace frt::host
