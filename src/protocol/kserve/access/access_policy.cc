// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/access/access_policy.h"

#include <string_view>

#include "base/letter_case.h"
#include "base/status_macros.h"

namespace inflight::kserve {
namespace {

// "" where there is none.
std::string_view AuthorizationOf(const HeaderList& headers) {
  for (const auto& [name, value] : headers)
    if (EqualInAnyCase(name, "authorization")) return value;
  return {};
}

}  // namespace

Result<std::shared_ptr<AccessPolicy>> AccessPolicy::Load(const AccessRules& rules, Clock& clock) {
  auto policy = std::make_shared<AccessPolicy>();
  ASSIGN_OR_RETURN(policy->restrictions_, Restrictions::Parse(rules.restrictions));
  if (!rules.keys.empty()) {
    ASSIGN_OR_RETURN(policy->keys_, Keys::Load(rules.keys, clock));
  }
  return policy;
}

Admission AccessPolicy::Admit(const Call& call, Api api) const {
  Admission admission;
  if (keys_ != nullptr) {
    admission = keys_->Admit(AuthorizationOf(call.headers), RowOf(api).role, call.is_whole);
    if (!admission.ok()) return admission;
  }
  admission.status = restrictions_.Check(call.protocol, api, call.headers);
  admission.lacks_header = !admission.ok();
  return admission;
}

Status AccessPolicy::ReloadIfChanged() {
  return keys_ != nullptr ? keys_->ReloadIfChanged() : Status::Ok();
}

}  // namespace inflight::kserve
