// SPDX-License-Identifier: Apache-2.0
// One rank of a group of processes: mortal_rank DIR T P RANK PORT DIES_AT memory|messages, the way
// of sums. Rank 0 loads the model, answers a prompt, prints the ids and says goodbye; the others
// follow it. The rank kills itself at its DIES_AT-th step in the talk of ranks (from 1): before a
// message that it would send, or when one that it awaited is there. 0: never; it then prints how
// many there were to standard error.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "collecting_sink.h"
#include "loader/devices.h"
#include "loader/loader.h"
#include "loader/rank_processes.h"

namespace inflight {
namespace {

class MortalGroup : public comm::Group {
 public:
  MortalGroup(std::unique_ptr<comm::Group> group, int dies_at, bool has_memory)
      : group_(std::move(group)), dies_at_(dies_at), has_memory_(has_memory) {}
  ~MortalGroup() override {
    if (dies_at_ == 0) fmt::print(stderr, "steps {}\n", steps_.load());
  }

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  Status Send(int rank, std::span<const std::byte> message) override {
    Step();
    // As a rank of another host says of memory that it is to share (comm/host_communicator.cc).
    static constexpr std::string_view kSeen = "yes";
    static constexpr std::string_view kUnseen = "no";
    if (!has_memory_ && std::ranges::equal(message, std::as_bytes(std::span(kSeen))))
      message = std::as_bytes(std::span(kUnseen));
    return group_->Send(rank, message);
  }
  Result<std::vector<std::byte>> Receive(int rank, comm::Deadline deadline) override {
    auto message = group_->Receive(rank, deadline);
    if (message.ok()) Step();
    return message;
  }
  Status Exchange(int to, std::span<const std::byte> out, int from,
                  std::span<std::byte> in) override {
    Step();
    return group_->Exchange(to, out, from, in);
  }
  Status status() const override { return group_->status(); }
  void Abort(const Status& reason) override { group_->Abort(reason); }

 private:
  void Step() {
    if (++steps_ == dies_at_) kill(getpid(), SIGKILL);
  }
  const std::unique_ptr<comm::Group> group_;
  const int dies_at_;
  const bool has_memory_;
  std::atomic<int> steps_ = 0;
};

Status Lead(const std::filesystem::path& dir, const OpenOptions& options) {
  auto loaded = loader::Load(dir, options);
  if (!loaded.ok()) return loaded.status();
  Request request;
  request.input_ids = {5, 17, 3, 99, 42};
  request.max_tokens = 3;
  request.streaming = true;
  const auto sink = std::make_shared<CollectingSink>();
  const auto id = loaded->executor->Enqueue(std::move(request), sink);
  if (!id.ok()) return id.status();
  sink->Wait();
  if (!sink->last.status.ok()) return sink->last.status;
  fmt::print("{}\n", fmt::join(sink->ids, " "));
  return Status::Ok();
}

Status Run(char** words) {
  const std::filesystem::path dir = words[1];
  OpenOptions options = {.devices = Devices::Only(Device::CpuWithCapacity(1, uint64_t{256} << 20))};
  const int tensor = std::atoi(words[2]);
  const int pipeline = std::atoi(words[3]);
  options.tensor_parallel_size = tensor;
  options.pipeline_parallel_size = pipeline;
  const int size = tensor * pipeline;
  const launch::World world = {.rank = std::atoi(words[4]),
                               .size = size,
                               .local_rank = std::atoi(words[4]),
                               .local_size = size,
                               .leader_address = "127.0.0.1",
                               .leader_port = std::atoi(words[5])};
  auto group = comm::Group::Join(world, {.version = "1"},
                                 std::chrono::steady_clock::now() + std::chrono::minutes(1));
  if (!group.ok()) return group.status();
  const auto processes = std::make_shared<RankProcesses>(
      std::make_unique<MortalGroup>(*std::move(group), std::atoi(words[6]),
                                    words[7] == std::string_view("memory")),
      size);
  if (world.rank > 0) return processes->Follow(options, [] { return false; });
  options.rank_processes = [processes](int) { return processes; };
  Status done = Lead(dir, options);
  if (done.ok()) processes->SayGoodbye();
  return done;
}

}  // namespace
}  // namespace inflight

int main(int argc, char** argv) {
  if (argc != 8) return 2;
  const inflight::Status done = inflight::Run(argv);
  if (!done.ok()) fmt::print(stderr, "{}\n", done.ToString());
  return done.ok() ? 0 : 1;
}
