// SPDX-License-Identifier: Apache-2.0
#include "base/request_log.h"

#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"

namespace inflight {
namespace {

constexpr size_t kMaxPathBytes = 256;

std::string Milliseconds(int64_t ns) {
  return fmt::format("{:.1f}", static_cast<double>(ns) * 1e-6);
}

}  // namespace

void LogRequest(const LoggedRequest& request, int status, bool has_failed) {
  const RequestTally& tally = *request.tally;
  const std::string model = tally.model();
  const int64_t first_token_ns = tally.first_token_ns();
  const auto write = has_failed || model.empty() ? logging::Log : logging::LogEach;
  write(logging::Level::kInfo, "request",
        {{"method", request.method},
         {"path", std::string_view(request.path).substr(0, kMaxPathBytes)},
         {"model", model.empty() ? "-" : model},
         {"status", status},
         {"tokens_in", tally.prompt_tokens()},
         {"tokens_out", tally.output_tokens()},
         {"first_token_ms",
          first_token_ns == 0 ? "-" : Milliseconds(first_token_ns - request.started_ns)},
         {"total_ms", Milliseconds(Clock::System().NowNs() - request.started_ns)},
         {"client", request.client}},
        logging::Where::current());
}

}  // namespace inflight
