// SPDX-License-Identifier: Apache-2.0
// Closed-loop load on a server's front end: requests of models without weights over kept
// connections, as fast as answers come, and the CPU time that the server took meanwhile.
//
// One thread does everything. Answers are counted and not looked into, so that the client takes
// little of a machine that it shares with the server.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace inflight::bench {

// kChatStream: /v1/chat/completions, whose responses are max_tokens.
enum class FrontEndLoad { kHttpInfer, kHttpStream, kChatStream, kGrpcInfer, kGrpcStream };

struct FrontEndOptions {
  FrontEndLoad load = FrontEndLoad::kHttpInfer;
  std::string host;
  int port = 0;
  std::string model;
  int concurrency = 1;   // requests or streams under way
  int repetition = 200;  // responses of a streamed request
  double delay_s = 0;    // between the responses of a stream
  double warmup_s = 1;   // before the measurement
  double measure_s = 4;
};

// What a load calls while it runs.
class Meter {
 public:
  explicit Meter(std::function<double()> server_cpu_s) : server_cpu_s_(std::move(server_cpu_s)) {}

  void Begin(const FrontEndOptions& options);
  void CountItems(int64_t count) {
    if (is_measuring_) num_items_ += count;
  }
  // An infer's time from its first byte out to its last byte in.
  void Observe(int64_t latency_ns) {
    if (is_measuring_) latencies_ns_.push_back(static_cast<uint32_t>(latency_ns));
  }
  void CountError() { ++num_errors_; }
  // Starts and ends the measured span; true when it is over.
  bool IsOver();

  // A JSON object.
  std::string Report();

 private:
  const std::function<double()> server_cpu_s_;
  int64_t begin_ns_ = 0, warmup_ns_ = 0, measure_ns_ = 0, end_ns_ = 0;
  bool is_measuring_ = false;
  double server_s_ = 0, client_s_ = 0;
  int64_t num_items_ = 0;
  int64_t num_errors_ = 0;
  std::vector<uint32_t> latencies_ns_;
};

int64_t MonotonicNs();

// The text of an error; empty where the load ran to its end.
std::string RunHttpLoad(const FrontEndOptions& options, Meter& meter);
std::string RunGrpcLoad(const FrontEndOptions& options, Meter& meter);

}  // namespace inflight::bench
