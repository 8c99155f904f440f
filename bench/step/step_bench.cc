// SPDX-License-Identifier: Apache-2.0
// Host time per step: what the step loop does beside the device, over a fake device that answers at
// once. Streaming sequences in steady decode; responses are delivered by a stream thread, as in the
// product. Prints CSV: median and 10-90 % range over the steps, in microseconds. With --cold-mib
// the device sweeps that much memory in each step, as a forward pass on the CPU does, so that the
// loop finds nothing in the caches.
//
//   step_bench [--steps N] [--cold-mib N]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "executor/inbox.h"
#include "executor/step_loop.h"
#include "executor/streams.h"

namespace inflight {
namespace {

// The cheapest device: every row yields token 1 and never ends before its length.
class InstantBackend : public executor::Backend {
 public:
  InstantBackend(const executor::BackendInfo& info, int cold_mib)
      : info_(info),
        swept_(static_cast<size_t>(cold_mib) << 17),
        lengths_(static_cast<size_t>(info.max_slots)) {
    result_.Reserve(info.max_batch_size);
    plans_.resize(static_cast<size_t>(info.depth));
    for (auto& plan : plans_) plan.reserve(static_cast<size_t>(info.max_batch_size));
  }
  const executor::BackendInfo& info() const override { return info_; }
  Status SetupSlot(const executor::SlotSetup& setup) override {
    lengths_[static_cast<size_t>(setup.slot)] = {static_cast<int>(setup.tokens.size()),
                                                 setup.max_seq_len};
    return Status::Ok();
  }
  Result<executor::Ticket> Launch(const executor::StepPlan& plan) override {
    plans_[static_cast<size_t>(plan.step_id) % plans_.size()].assign(
        plan.rows.begin(), plan.rows.begin() + plan.num_rows);
    for (uint64_t& word : swept_) ++word;
    return plan.step_id;
  }
  Status ProvideLateInputs(executor::Ticket, const executor::LateInputs&) override {
    return Status::Ok();
  }
  bool Ready(executor::Ticket) const override { return true; }
  Result<const executor::StepResult*> Collect(executor::Ticket ticket) override {
    const auto& rows = plans_[static_cast<size_t>(ticket) % plans_.size()];
    result_.Clear(static_cast<int>(rows.size()));
    for (size_t r = 0; r < rows.size(); ++r) {
      if (rows[r].yields != 0) {
        Length& length = lengths_[static_cast<size_t>(rows[r].slot)];
        result_.token_ids.push_back(1);
        result_.log_probs.push_back(0);
        if (++length.now >= length.max) result_.finish_reasons[r] = FinishReason::kLength;
      }
      result_.token_begin[r + 1] = static_cast<int32_t>(result_.token_ids.size());
    }
    return &result_;
  }

 private:
  struct Length {
    int now = 0, max = 0;
  };
  executor::BackendInfo info_;
  std::vector<uint64_t> swept_;
  std::vector<Length> lengths_;
  std::vector<std::vector<scheduler::PlanRow>> plans_;
  executor::StepResult result_;
};

struct IgnoringSink : ResponseSink {
  void OnResponse(Response) override {}
};

// The processor's name; commas would break the CSV.
std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("model name", 0) != 0) continue;
    std::string name = line.substr(line.find(':') + 2);
    std::replace(name.begin(), name.end(), ',', ' ');
    return name;
  }
  return "unknown";
}

void Measure(const std::string& device, int depth, int num_sequences, int num_steps, int cold_mib) {
  const int max_seq_len = num_steps + 400;
  const executor::BackendInfo info{
      .depth = depth,
      .max_slots = num_sequences + depth - 1,
      .max_batch_size = num_sequences,
      .max_num_tokens = 8192,
      .max_seq_len = max_seq_len,
      .max_input_len = 128,
      .vocab_size = 1000,
      .kv_groups = {{.block_size = 64,
                     .num_blocks = int64_t{num_sequences} * (max_seq_len / 64 + 1),
                     .window = 0}}};
  const ExecutorLimits limits{.vocab_size = info.vocab_size,
                              .max_batch_size = info.max_batch_size,
                              .max_num_tokens = info.max_num_tokens,
                              .max_seq_len = info.max_seq_len,
                              .max_input_len = info.max_input_len,
                              .block_size = 64,
                              .num_blocks = info.kv_groups[0].num_blocks};
  InstantBackend backend(info, cold_mib);
  executor::Inbox inbox(num_sequences);
  executor::StreamHub streams(/*num_threads=*/1);
  executor::StepLoop loop({.limits = limits}, backend, inbox, streams, Clock::System());
  for (int i = 0; i < num_sequences; ++i) {
    Request request;
    request.input_ids.assign(128, i % 1000);
    request.max_tokens = num_steps + 200;
    request.streaming = true;
    streams.Open();
    inbox.Push(executor::MakeActiveRequest(static_cast<RequestId>(i) + 1, std::move(request),
                                           std::make_shared<IgnoringSink>(), 1));
  }
  for (int i = 0; i < 100; ++i) loop.Step();  // prefill and warm-up
  std::vector<int64_t> turn_ns;
  turn_ns.reserve(static_cast<size_t>(num_steps));
  for (int i = 0; i < num_steps; ++i) {
    loop.Step();
    turn_ns.push_back(loop.stats().last_host_ns);
  }
  std::sort(turn_ns.begin(), turn_ns.end());
  const auto at = [&](double q) {
    return static_cast<double>(turn_ns[static_cast<size_t>(q * (num_steps - 1))]) * 1e-3;
  };
  std::printf("%s,%d,%d,%d,%.2f,%.2f,%.2f\n", device.c_str(), depth, num_sequences,
              loop.stats().num_generation_requests, at(0.5), at(0.1), at(0.9));
  inbox.CancelAllAt(0);
  while (loop.Step() || streams.has_backlog()) {
  }
  streams.WaitUntilAllClosed();
}

}  // namespace
}  // namespace inflight

int main(int argc, char** argv) {
  int num_steps = 5000;
  int cold_mib = 0;
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--cold-mib") == 0) cold_mib = std::max(0, std::atoi(argv[i + 1]));
    if (std::strcmp(argv[i], "--steps") == 0) num_steps = std::max(1, std::atoi(argv[i + 1]));
  }
  const std::string device = inflight::CpuName();
  std::printf("# the device sweeps %d MiB a step\n", cold_mib);
  std::printf("device,depth,sequences,rows,host_us_median,host_us_p10,host_us_p90\n");
  for (const int depth : {1, 2}) {
    for (const int num_sequences : {1, 16, 64, 256, 1024}) {
      inflight::Measure(device, depth, num_sequences, num_steps, cold_mib);
    }
  }
  return 0;
}
