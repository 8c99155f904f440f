// SPDX-License-Identifier: Apache-2.0
#include "executor/cuda/debug_options.h"

#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/log.h"

namespace inflight::executor::cuda {
namespace {

std::optional<int64_t> Number(std::string_view text) {
  int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || value < 0)
    return std::nullopt;
  return value;
}

Fault FaultFromName(std::string_view name) {
  if (name == "launch") return Fault::kLaunch;
  if (name == "trap") return Fault::kTrap;
  if (name == "stuck") return Fault::kStuck;
  return Fault::kNone;
}

// `read` returns false for a value that it does not know.
template <typename Read>
void Variable(const char* name, const char* known, Read read) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') return;
  if (read(std::string_view(value)))
    logging::Warning("a debugging variable is set", {{"variable", name}, {"value", value}});
  else
    logging::Warning("a debugging variable is ignored",
                     {{"variable", name}, {"value", value}, {"known", known}});
}

}  // namespace

DebugOptions DebugOptions::FromEnvironment() {
  DebugOptions options;
  Variable("INFLIGHT_CUDA_GRAPHS", "0, 1, all", [&](std::string_view value) {
    options.use_graphs = value != "0";
    options.records_all = value == "all";
    return value == "0" || value == "1" || value == "all";
  });
  Variable("INFLIGHT_CUDA_TIMES", "0, 1", [&](std::string_view value) {
    options.log_times = value == "1";
    return value == "0" || value == "1";
  });
  Variable("INFLIGHT_CUDA_SHARED_GPU", "0, 1", [&](std::string_view value) {
    options.ranks_share_gpu = value == "1";
    return value == "0" || value == "1";
  });
  Variable("INFLIGHT_CUDA_COLLECTIVES", "peers, nccl, told", [&](std::string_view value) {
    options.ranks_use_nccl = value == "nccl";
    options.stages_are_told = value == "told";
    return value == "peers" || value == "nccl" || value == "told";
  });
  Variable("INFLIGHT_CUDA_ACCEPT_DRAFTS", "percent", [&](std::string_view value) {
    const std::optional<int64_t> percent = Number(value);
    if (!percent || *percent > 100) return false;
    options.forced_acceptance = static_cast<float>(*percent) / 100.0F;
    return true;
  });
  Variable("INFLIGHT_CUDA_WATCHDOG_MS", "milliseconds", [&](std::string_view value) {
    const std::optional<int64_t> ms = Number(value);
    options.watchdog_ms = ms.value_or(options.watchdog_ms);
    return ms.has_value();
  });
  Variable("INFLIGHT_CUDA_FAULT", "launch@STEP, trap@STEP, stuck@STEP",
           [&](std::string_view value) {
             const size_t at = value.find('@');
             if (at == std::string_view::npos) return false;
             const Fault fault = FaultFromName(value.substr(0, at));
             const std::optional<int64_t> step = Number(value.substr(at + 1));
             if (fault == Fault::kNone || !step) return false;
             options.fault = fault;
             options.fault_step = *step;
             return true;
           });
  return options;
}

}  // namespace inflight::executor::cuda
