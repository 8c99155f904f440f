// SPDX-License-Identifier: Apache-2.0
#include "shadow/grpc_caller.h"

#include <utility>

#include "base/clock.h"
#include "base/thread_name.h"

namespace inflight::shadow {

GrpcCaller::GrpcCaller(const GrpcAddress& server)
    : client_(server.host, server.port, server.is_tls), thread_([this] {
        NameThisThread("shadow-call");
        Run();
      }) {}

void GrpcCaller::Stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  client_.Wake();
  thread_.join();
}

void GrpcCaller::Post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  client_.Wake();
}

void GrpcCaller::Run() {
  constexpr int64_t kPollNs = 1'000'000'000;
  std::vector<Task> tasks;
  while (true) {
    {
      const std::lock_guard lock(mutex_);
      if (is_stopping_) return;
      tasks.swap(tasks_);
    }
    for (const Task& task : tasks) task(client_);
    tasks.clear();
    client_.Poll(Clock::System().NowNs() + kPollNs);
  }
}

}  // namespace inflight::shadow
