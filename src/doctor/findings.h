// SPDX-License-Identifier: Apache-2.0
// What of a machine stands in a server's way, and what to change. A pure function of what was read.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "doctor/machine.h"

namespace inflight::doctor {

enum class Verdict {
  kGood,
  kAdvice,  // a server runs, slower or with less than it could have
  kFault,   // a server does not start, or fails under load
};
const char* Name(Verdict verdict);  // "ok", "advice", "fault"

// HTTP connections that `inflight serve` takes with so many descriptors: those of gRPC and files
// need the others.
constexpr uint64_t HttpConnectionsOf(uint64_t open_files) {
  return open_files / 16 * 9 + open_files % 16 * 9 / 16;
}

struct Finding {
  std::string subject;  // "open files"
  Verdict verdict = Verdict::kGood;
  std::string found;   // "65536 at once"
  std::string remedy;  // what to change; empty where the verdict is kGood
};

// In the order of the subjects, each once; ports and libraries have one for each.
std::vector<Finding> Judge(const Machine& machine);

}  // namespace inflight::doctor
