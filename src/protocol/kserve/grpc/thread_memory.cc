// SPDX-License-Identifier: Apache-2.0
#include "protocol/kserve/grpc/thread_memory.h"

#include <grpc/support/cpu.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "base/idle_memory.h"
#include "base/thread_name.h"

namespace inflight::kserve_grpc {
namespace {

using ::grpc::health::v1::HealthCheckRequest;
using ::grpc::health::v1::HealthCheckResponse;

constexpr int64_t kWorthIt = int64_t{1} << 20;      // bytes more or less
constexpr std::chrono::milliseconds kTogether{20};  // that threads wait for each other
constexpr std::chrono::seconds kPatience{1};        // for a call, which takes less than 1 ms

// Those that run callbacks in gRPC 1.51: half as many as cores, 2 to 16.
int NumThreads() { return std::clamp(static_cast<int>(gpr_cpu_num_cores()) / 2, 2, 16); }

int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  statm >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

// One call to each thread: who has come waits for the others, so that none comes twice.
class Visit {
 public:
  explicit Visit(int num_threads) : num_awaited_(num_threads), num_running_(num_threads) {}

  // On a thread of gRPC's, when its call has ended.
  void Come() {
    ReturnFreeMemory();
    std::unique_lock lock(mutex_);
    --num_awaited_;
    changed_.notify_all();
    changed_.wait_for(lock, kTogether, [this] { return num_awaited_ == 0; });
    --num_running_;
    changed_.notify_all();
  }

  void WaitForAll() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return num_running_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_awaited_;
  int num_running_;
};

struct Call {
  ::grpc::ClientContext context;
  HealthCheckRequest request;
  HealthCheckResponse response;
};

}  // namespace

ThreadMemory::ThreadMemory(::grpc::Server& server)
    : health_(::grpc::health::v1::Health::NewStub(server.InProcessChannel({}))), thread_([this] {
        NameThisThread("grpc-memory");
        Run();
      }) {}

ThreadMemory::~ThreadMemory() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  stops_.notify_all();
  thread_.join();
}

// Once more after the last change: what was freed by then may have been on its way.
void ThreadMemory::Run() {
  int64_t resident = ResidentBytes();
  bool had_changed = false;
  std::unique_lock lock(mutex_);
  while (!stops_.wait_for(lock, kMemoryInterval, [this] { return is_stopping_; })) {
    lock.unlock();
    const bool has_changed = std::abs(ResidentBytes() - resident) >= kWorthIt;
    if (has_changed || had_changed) {
      VisitThreads();
      resident = ResidentBytes();
    }
    had_changed = has_changed;
    lock.lock();
  }
}

void ThreadMemory::VisitThreads() {
  const int num_threads = NumThreads();
  Visit visit(num_threads);
  std::vector<Call> calls(num_threads);
  const auto deadline = std::chrono::system_clock::now() + kPatience;
  for (Call& call : calls) {
    call.context.set_deadline(deadline);
    health_->async()->Check(&call.context, &call.request, &call.response,
                            [&visit](const ::grpc::Status&) { visit.Come(); });
  }
  visit.WaitForAll();
}

}  // namespace inflight::kserve_grpc
