// SPDX-License-Identifier: Apache-2.0
#include "executor/remote_ranks.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/byte_fields.h"
#include "base/status_macros.h"
#include "base/thread_boundary.h"
#include "base/thread_name.h"

namespace inflight::executor {

GroupWatch::GroupWatch(const comm::Group& group, std::function<void(const Status&)> is_over)
    : thread_([&group, is_over = std::move(is_over)](const std::stop_token& stop) {
        NameThisThread("ranks' watch");
        constexpr std::chrono::milliseconds kPause{50};
        while (!stop.stop_requested()) {
          bool is_told = false;
          RunTurn("ranks' watch", [&] {
            const Status status = group.status();
            if (status.ok()) return;
            is_over(status);
            is_told = true;
          });
          if (is_told) return;
          std::this_thread::sleep_for(kPause);
        }
      }) {}

RemoteRanks::RemoteRanks(comm::Group& group, int64_t gpu_memory_bytes,
                         std::function<void(const Status&)> failed, std::shared_ptr<void> model)
    : group_(group),
      gpu_memory_bytes_(gpu_memory_bytes),
      model_(std::move(model)),
      watch_(group, std::move(failed)) {}

// What cannot be sent ends the group, which the watch sees.
void RemoteRanks::Send(const RankCall& call) {
  const std::string_view message = writer_.Write(call);
  for (int rank = 1; rank < group_.size(); ++rank) {
    const Status sent = group_.Send(rank, std::as_bytes(std::span(message)));
    if (!sent.ok()) return group_.Abort(sent);
  }
}

Status RemoteRanks::Receive() {
  Status first;
  for (int rank = 1; rank < group_.size(); ++rank) {
    ASSIGN_OR_RETURN(const std::vector<std::byte> answer,
                     group_.Receive(rank, comm::Deadline::max()));
    const Status status =
        StatusOfAnswer({reinterpret_cast<const char*>(answer.data()), answer.size()});
    if (first.ok()) first = status.WithPrefix(fmt::format("rank {}", rank));
  }
  return first;
}

void RemoteRanks::ReceiveAll() {
  for (; num_awaited_ > 0; --num_awaited_) {
    const Status status = Receive();
    if (first_.ok()) first_ = status;
  }
}

void RemoteRanks::Tell(const RankCall& call) {
  const std::lock_guard lock(mutex_);
  Send(call);
  if (IsAnswered(call.kind)) ++num_awaited_;
}

Status RemoteRanks::WaitForAll() {
  const std::lock_guard lock(mutex_);
  ReceiveAll();
  return std::exchange(first_, Status::Ok());
}

Status RemoteRanks::DoNow(const RankCall& call) {
  const std::lock_guard lock(mutex_);
  ReceiveAll();
  Send(call);
  return Receive();
}

std::string AnswerOf(const Status& status) {
  std::string answer;
  ByteWriter bytes(&answer);
  bytes.Field(static_cast<int32_t>(status.code()));
  bytes.Raw(status.message().data(), status.message().size());
  return answer;
}

Status StatusOfAnswer(std::string_view answer) {
  ByteReader bytes(answer);
  int32_t code = 0;
  bytes.Field(code);
  if (!bytes.ok()) return DataLoss("a rank answers what is no answer");
  if (code == static_cast<int32_t>(StatusCode::kOk)) return Status::Ok();
  return Status(static_cast<StatusCode>(code), std::string(bytes.Text(bytes.left())));
}

}  // namespace inflight::executor
