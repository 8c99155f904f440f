// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/access.h"

#include <algorithm>
#include <string>

#include "base/status_macros.h"

namespace inflight::kserve_grpc {
namespace {

constexpr char kPrefix[] = "triton-grpc-protocol-";

char AsciiLower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string Text(const ::grpc::string_ref& text) { return {text.data(), text.size()}; }

}  // namespace

Status CheckAccess(const Access& access, kserve::Api api,
                   const ::grpc::ServerContextBase& context) {
  if (access.policy != nullptr) {
    const auto found = context.client_metadata().find("authorization");
    const bool has_key = found != context.client_metadata().end();
    const kserve::Admission admission = access.policy->Admit(
        has_key ? std::string_view(found->second.data(), found->second.size()) : std::string_view(),
        kserve::RoleOf(api));
    RETURN_IF_ERROR(admission.status);
  }
  const kserve::RequiredHeader* required = access.restrictions.Of(api);
  if (required == nullptr) return Status::Ok();
  std::string key = kPrefix + required->name;
  std::transform(key.begin(), key.end(), key.begin(), AsciiLower);  // as all metadata keys are
  const auto range = context.client_metadata().equal_range(key);
  if (std::any_of(range.first, range.second, [&](const auto& entry) {
        return entry.second == ::grpc::string_ref(required->value);
      })) {
    return Status::Ok();
  }
  return Unavailable("This protocol is restricted, expecting header '" + key + "'");
}

Result<serving::Parameters> ForwardedParameters(const Access& access,
                                                const ::grpc::ServerContextBase& context) {
  serving::Parameters parameters;
  if (access.header_forward.empty()) return parameters;
  for (const auto& [name, value] : context.client_metadata()) {
    ASSIGN_OR_RETURN(const bool goes, access.header_forward.Matches({name.data(), name.size()}));
    if (goes) parameters[Text(name)] = Text(value);
  }
  return parameters;
}

}  // namespace inflight::kserve_grpc
