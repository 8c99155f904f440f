// SPDX-License-Identifier: Apache-2.0
#include "bench/load/load.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "base/status_macros.h"
#include "bench/load/arrivals.h"

namespace inflight::bench {
namespace {

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Requests [begin, end) of the prompts.
void Drive(const LoadOptions& options, LoadTransport& transport, size_t begin, size_t end,
           const std::vector<int64_t>& due, std::vector<RequestOutcome>& outcomes) {
  const int64_t start_ns = LoadNowNs();
  int num_active = 0;
  for (size_t next = begin; next < end || num_active > 0;) {
    int64_t wake_ns = LoadNowNs() + 100'000'000;
    while (next < end && num_active < options.concurrency) {
      const int64_t now = LoadNowNs();
      const int64_t due_ns = due.empty() || options.request_rate <= 0 ? now : start_ns + due[next];
      if (due_ns > now) {
        wake_ns = std::min(wake_ns, due_ns);
        break;
      }
      outcomes[next].due_ns = due_ns;
      transport.Start(next, outcomes[next]);
      ++next;
      ++num_active;
    }
    num_active -= transport.Poll(wake_ns);
  }
}

}  // namespace

int64_t LoadNowNs() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

Result<LoadResult> RunLoad(const LoadOptions& options, const std::vector<LoadPrompt>& prompts) {
  std::unique_ptr<LoadTransport> transport;
  if (options.protocol == LoadProtocol::kGrpcStream) {
    ASSIGN_OR_RETURN(transport, CreateGrpcTransport(options, prompts));
  } else {
    transport = CreateHttpTransport(options, prompts);
  }
  const auto num_warmup = static_cast<size_t>(options.num_warmup);
  std::vector<RequestOutcome> outcomes(prompts.size());
  Drive(options, *transport, 0, num_warmup, {}, outcomes);
  const std::vector<int64_t> due =
      DueTimes(options.request_rate, options.seed, prompts.size() - num_warmup);
  std::vector<int64_t> shifted(num_warmup, 0);
  shifted.insert(shifted.end(), due.begin(), due.end());

  LoadResult result;
  const double cpu_before = CpuSeconds();
  const int64_t begin_ns = LoadNowNs();
  Drive(options, *transport, num_warmup, prompts.size(), shifted, outcomes);
  result.wall_s = static_cast<double>(LoadNowNs() - begin_ns) * 1e-9;
  result.cpu_s = CpuSeconds() - cpu_before;
  result.outcomes.assign(std::make_move_iterator(outcomes.begin() + options.num_warmup),
                         std::make_move_iterator(outcomes.end()));
  return result;
}

}  // namespace inflight::bench
