// SPDX-License-Identifier: Apache-2.0
// frt/draft/graph.hpp - the C++ face of frt/draft/graph.h. Thread tags are those of the C
// functions.
#pragma once

#include <frt/draft/graph.h>

#include <cstdint>
#include <frt/exec.hpp>
#include <string>

namespace frt {

// A view of a graph, which must outlive it.
class GraphDraft {
 public:
  // Throws FRT_ERR_UNSUPPORTED if `table` is NULL: the host has another draft.  [setup]
  GraphDraft(const frt_graph_draft* table, const Graph& graph) : table_(table), graph_(graph) {
    if (!table) throw Error(FRT_ERR_UNSUPPORTED, "the host has no " FRT_EXT_GRAPH);
  }

  void declare(const std::string& binding, uint32_t flags = FRT_BINDING_REQUIRED) {  // [setup]
    frt_error error{};
    check(table_->declare(graph_.handle(), binding.c_str(), flags, &error), error);
  }
  void bind(const std::string& binding, frt_buffer buffer) {  // [setup]
    frt_error error{};
    check(table_->bind(graph_.handle(), binding.c_str(), buffer, &error), error);
  }
  // The buffer bound to `binding`, borrowed; null if there is none.  [setup]
  frt_buffer bound(const std::string& binding) const {
    frt_buffer buffer = nullptr;
    const frt_status status = table_->bound(graph_.handle(), binding.c_str(), &buffer);
    if (status != FRT_ERR_UNBOUND) graph_.context().checked(status, "binding " + binding);
    return buffer;
  }
  void adopt(frt_shape_key key, void* native, bool owned) {  // [setup]
    frt_error error{};
    check(table_->adopt(graph_.handle(), key, native, owned ? 1 : 0, &error), error);
  }

 private:
  const frt_graph_draft* table_;
  const Graph& graph_;
};

}  // namespace frt
