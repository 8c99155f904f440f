// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/http/only_ready_model.h"

#include <set>

namespace inflight::kserve_http {

Result<std::string> OnlyReadyModel(const serving::Server& server) {
  std::set<std::string> ready;
  for (const auto& model : server.models()) {
    if (model->ready()) ready.insert(model->name());
  }
  if (ready.size() == 1) return *ready.begin();
  return NotFound(std::to_string(ready.size()) + " models are ready");
}

}  // namespace inflight::kserve_http
