// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/access/access_policy.h"

#include <array>
#include <string_view>

#include "base/letter_case.h"
#include "base/status_macros.h"

namespace inflight::kserve {
namespace {

struct EntranceRow {
  Protocol protocol;
  bool is_administration;
  bool asks;  // for keys and headers; false: who comes in has shown by it that they may
};
// clang-format off
constexpr std::array<EntranceRow, 4> kEntrances = {{
    {Protocol::kHttp, false, true},
    {Protocol::kGrpc, false, true},
    {Protocol::kHttp, true,  true},
    {Protocol::kHttp, true,  false},  // a file of the server's user
}};
// clang-format on

// What stands in the header Authorization, else what x-api-key has as Authorization would say it;
// "" where there is neither.
std::string AuthorizationOf(const HeaderList& headers) {
  std::string of_key;
  for (const auto& [name, value] : headers) {
    if (EqualInAnyCase(name, "authorization")) return value;
    if (of_key.empty() && EqualInAnyCase(name, "x-api-key")) of_key = "Bearer " + value;
  }
  return of_key;
}

}  // namespace

Result<std::shared_ptr<AccessPolicy>> AccessPolicy::Load(const AccessRules& rules, Clock& clock) {
  auto policy = std::make_shared<AccessPolicy>();
  ASSIGN_OR_RETURN(policy->restrictions_, Restrictions::Parse(rules.restrictions));
  policy->admin_place_ = rules.admin_place;
  if (!rules.keys.empty()) {
    ASSIGN_OR_RETURN(policy->keys_, Keys::Load(rules.keys, clock));
  }
  return policy;
}

Admission AccessPolicy::Admit(const Call& call, Api api) const {
  const EntranceRow& entrance = kEntrances[static_cast<size_t>(call.entrance)];
  if (RowOf(api).is_administration && !admin_place_.empty() && !entrance.is_administration) {
    return {.status = {StatusCode::kPermissionDenied,
                       "this API is answered on " + admin_place_ + " alone"}};
  }
  if (!entrance.asks)
    return {.client = keys_ != nullptr ? keys_->Find(AuthorizationOf(call.headers)) : nullptr};
  Admission admission;
  if (keys_ != nullptr) {
    admission = keys_->Admit(AuthorizationOf(call.headers), RowOf(api).role, call.is_whole);
    if (!admission.ok()) return admission;
  }
  admission.status = restrictions_.Check(entrance.protocol, api, call.headers);
  admission.lacks_header = !admission.ok();
  return admission;
}

bool AccessPolicy::SeesReuse(const Call& call) const {
  if (keys_ == nullptr || !kEntrances[static_cast<size_t>(call.entrance)].asks) return true;
  return keys_->SeesReuse(AuthorizationOf(call.headers));
}

Status AccessPolicy::ReloadIfChanged() {
  return keys_ != nullptr ? keys_->ReloadIfChanged() : Status::Ok();
}

}  // namespace inflight::kserve
