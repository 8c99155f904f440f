// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/access/restriction.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <string_view>

#include "base/letter_case.h"
#include "base/status_macros.h"

namespace inflight::kserve {
namespace {

constexpr char kHttpOption[] = "--http-restricted-api";
constexpr char kGrpcOption[] = "--grpc-restricted-protocol";

// How Triton names the header of a rule over a protocol, and how it refuses what lacks it.
struct Words {
  std::string_view prefix;
  bool is_lower;  // as all keys of metadata are
  StatusCode code;
  std::string_view what;
};
constexpr std::array<Words, kNumProtocols> kWords = {{
    {"", false, StatusCode::kPermissionDenied, "This API is restricted"},
    {"triton-grpc-protocol-", true, StatusCode::kUnavailable, "This protocol is restricted"},
}};

constexpr char kForm[] = "; expected is <api>[,<api>...]:<header>=<value>";

// `why` is Triton's text.
Status Bad(const char* option, const std::string& rule, const std::string& why) {
  return InvalidArgument(option, "got '" + rule + "', " + why + kForm);
}

Status NoRule(const char* option, const std::string& rule) {
  return InvalidArgument(std::string(option) +
                         " option format is '<config name>:<setting>=<value>'. Got " + rule +
                         kForm);
}

// In a time that says nothing of where they differ.
bool IsSecret(const std::string& value, const std::string& secret) {
  return value.size() == secret.size() &&
         CRYPTO_memcmp(value.data(), secret.data(), secret.size()) == 0;
}

std::string NameOver(const Words& words, const std::string& header) {
  std::string name = std::string(words.prefix) + header;
  if (words.is_lower) name = AsciiLower(name);
  return name;
}

}  // namespace

Result<Restrictions::Headers> Restrictions::ParseOption(const char* option,
                                                        const std::vector<std::string>& rules) {
  Headers headers;
  const std::string_view kind = option == kGrpcOption ? "protocol" : "api";
  for (const std::string& rule : rules) {
    const size_t colon = rule.find(':');
    const size_t equals = rule.find('=', colon == std::string::npos ? 0 : colon);
    if (colon == std::string::npos || colon == 0 || equals == std::string::npos ||
        equals == colon + 1 || equals + 1 == rule.size()) {
      return NoRule(option, rule);
    }
    const Header header{rule.substr(colon + 1, equals - colon - 1), rule.substr(equals + 1)};
    std::string_view apis = std::string_view(rule).substr(0, colon);
    while (true) {
      const size_t comma = std::min(apis.find(','), apis.size());
      const std::string name(apis.substr(0, comma));
      const auto api = FindApi(name);
      if (!api) return Bad(option, rule, fmt::format("unknown restricted {} '{}'", kind, name));
      auto& place = headers[static_cast<size_t>(*api)];
      if (place) {
        return Bad(option, rule,
                   fmt::format("restricted {} '{}' can not be specified in multiple config groups",
                               kind, name));
      }
      place = header;
      if (comma == apis.size()) break;
      apis.remove_prefix(comma + 1);
    }
  }
  return headers;
}

Result<Restrictions> Restrictions::Parse(const RestrictionRules& rules) {
  ASSIGN_OR_RETURN(const Headers http, ParseOption(kHttpOption, rules.http));
  ASSIGN_OR_RETURN(const Headers grpc, ParseOption(kGrpcOption, rules.grpc));
  const std::array<const Headers*, kNumProtocols> own = {&http, &grpc};
  const std::array<const Headers*, kNumProtocols> other = {&grpc, &http};
  Restrictions parsed;
  for (size_t protocol = 0; protocol < kNumProtocols; ++protocol) {
    for (size_t api = 0; api < kNumApis; ++api) {
      const auto& rule = (*own[protocol])[api] ? (*own[protocol])[api] : (*other[protocol])[api];
      if (rule)
        parsed.headers_[protocol][api] = {NameOver(kWords[protocol], rule->name), rule->value};
    }
  }
  return parsed;
}

Status Restrictions::Check(Protocol protocol, Api api, const HeaderList& headers) const {
  const auto place = static_cast<size_t>(protocol);
  const auto& required = headers_[place][static_cast<size_t>(api)];
  if (!required || std::any_of(headers.begin(), headers.end(), [&](const auto& header) {
        return EqualInAnyCase(header.first, required->name) &&
               IsSecret(header.second, required->value);
      })) {
    return Status::Ok();
  }
  return Status(kWords[place].code,
                std::string(kWords[place].what) + ", expecting header '" + required->name + "'");
}

}  // namespace inflight::kserve
