// SPDX-License-Identifier: Apache-2.0
#include "launched_rank.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/log.h"

namespace inflight::tool {
namespace {

struct Variables {
  const char* rank;
  const char* size;
};
// Of Open MPI, of MPICH and its kin, of srun.
constexpr Variables kLaunchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    {"SLURM_PROCID", "SLURM_NTASKS"},
};

std::optional<int> Number(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return std::nullopt;
  const std::string_view digits = text;
  int value = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value);
  if (error != std::errc() || end != digits.end()) return std::nullopt;
  return value;
}

}  // namespace

std::optional<LaunchedRank> RankOfThisProcess() {
  for (const Variables& launcher : kLaunchers) {
    const auto rank = Number(launcher.rank);
    const auto size = Number(launcher.size);
    if (!rank || !size || *size < 2 || *rank < 0 || *rank >= *size) continue;
    return LaunchedRank{.rank = *rank, .size = *size, .variable = launcher.rank};
  }
  return std::nullopt;
}

void WaitAsRank(const LaunchedRank& rank, const sigset_t& signals) {
  logging::Info(fmt::format("Rank {} of {} waits: an engine has one rank, which rank 0 serves",
                            rank.rank, rank.size),
                {{"by", rank.variable}, {"to_serve_too", "--ranks=serve"}});
  const pid_t parent = getppid();
  while (getppid() == parent) {
    const timespec second{.tv_sec = 1, .tv_nsec = 0};
    const int signal = sigtimedwait(&signals, nullptr, &second);
    if (signal > 0) return logging::Info(fmt::format("Signal ({}) received.", signal));
  }
  logging::Info("Whoever started this rank is gone.");
}

}  // namespace inflight::tool
