// SPDX-License-Identifier: Apache-2.0
#include "serving/repository/model_claims.h"

#include <algorithm>

namespace inflight::serving {

ModelClaims::Scope::Scope(ModelClaims& claims, std::unique_lock<std::mutex>& lock, Kind kind,
                          const std::function<std::set<std::string>()>& names)
    : claims_(claims), kind_(kind) {
  claims_.changed_.wait(lock, [&] {
    if (kind_ == Kind::kLoad && claims_.num_loads_ >= claims_.max_loads_) return false;
    names_ = names();
    return claims_.IsFree(names_);
  });
  claims_.claimed_.insert(names_.begin(), names_.end());
  if (kind_ == Kind::kLoad) ++claims_.num_loads_;
}

ModelClaims::Scope::~Scope() {
  for (const std::string& name : names_) claims_.claimed_.erase(name);
  if (kind_ == Kind::kLoad) --claims_.num_loads_;
  claims_.changed_.notify_all();
}

bool ModelClaims::IsFree(const std::set<std::string>& names) const {
  return std::none_of(names.begin(), names.end(),
                      [this](const std::string& name) { return claimed_.contains(name); });
}

}  // namespace inflight::serving
