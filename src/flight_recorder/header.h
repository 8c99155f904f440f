// SPDX-License-Identifier: Apache-2.0
// How a journal begins: which model, by which options, on what.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "executor/backend.h"
#include "inflight/open.h"

namespace inflight::flight_recorder {

inline constexpr int kFormat = 1;  // of journals, in their headers

struct Header {
  std::string version;  // of the program that wrote it
  std::string run;      // hexadecimal: the same in all files of one load of a model
  uint64_t part = 0;    // of these files; from 0
  std::string owner;    // "ensemble/1"; what the server calls the model
  std::string model;    // its directory
  std::string device;   // "cpu", "cuda:0"
  int64_t process = 0;  // at random, for process ids are alike in containers
  int64_t began_unix_ms = 0;
  bool has_prompts = false;
  std::string shape;          // ShapeOf the backend
  int64_t least_step_ns = 0;  // BackendInfo's
  // Of these what decides plans and outputs (docs/replay.md, "The journal"); the KV cache by
  // tokens.
  OpenOptions open;
};

std::string HeaderText(const Header& header);  // one JSON object
// kDataLoss names the member that is wrong or missing; kUnimplemented another format.
Result<Header> ParseHeader(std::string_view text);

// All of a backend's description that plans depend on, for people and to be compared.
std::string ShapeOf(const executor::BackendInfo& info);

}  // namespace inflight::flight_recorder
