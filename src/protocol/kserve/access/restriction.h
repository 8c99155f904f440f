// SPDX-License-Identifier: Apache-2.0
// APIs that are open only to clients who know a header and its value
// (docs/reference/protocol/common.md, "Restricted APIs").
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "inflight/status.h"
#include "protocol/kserve/access/api.h"

namespace inflight::kserve {

// Its words are those of a refusal, and it says how headers are named.
enum class Protocol : uint8_t { kHttp, kGrpc };
inline constexpr size_t kNumProtocols = 2;

// Of a request over HTTP, or the metadata of a call over gRPC; names in any letter case.
using HeaderList = std::vector<std::pair<std::string, std::string>>;

// As the options have them: "<api>[,<api>...]:<header>=<value>".
struct RestrictionRules {
  std::vector<std::string> http = {};  // --http-restricted-api
  std::vector<std::string> grpc = {};  // --grpc-restricted-protocol
};

class Restrictions {
 public:
  // A rule holds over both protocols, but for an API that the other protocol's option has a rule
  // for, too: there each has its own. kInvalidArgument names the option, its rule and what is wrong
  // with it; an option may restrict an API once.
  static Result<Restrictions> Parse(const RestrictionRules& rules);

  // Not OK where the API needs a header that is not among these; the code is that of Triton's.
  Status Check(Protocol protocol, Api api, const HeaderList& headers) const;

 private:
  struct Header {
    std::string name;  // as the protocol has it
    std::string value;
  };
  using Headers = std::array<std::optional<Header>, kNumApis>;

  static Result<Headers> ParseOption(const char* option, const std::vector<std::string>& rules);

  std::array<Headers, kNumProtocols> headers_;
};

}  // namespace inflight::kserve
