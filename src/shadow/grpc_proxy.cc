// SPDX-License-Identifier: Apache-2.0
#include "shadow/grpc_proxy.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status_macros.h"
#include "protocol/grpc_listener/rpc.h"
#include "protocol/grpc_listener/wire.h"
#include "shadow/grpc_caller.h"
#include "shadow/inflated.h"

namespace inflight::shadow {
namespace {

using grpc_client::GrpcClient;
using grpc_client::GrpcEnd;
using grpc_listener::Rpc;
using grpc_listener::RpcMessage;
using grpc_listener::RpcReactor;

std::string Framed(std::string_view message) {
  const auto prefix =
      grpc_listener::MakePrefix(/*is_compressed=*/false, static_cast<uint32_t>(message.size()));
  return std::string(prefix.data(), prefix.size()).append(message);
}

// What a connection says for itself.
bool IsOfConnection(std::string_view name) {
  return name == "user-agent" || name == "host" || name.starts_with("grpc-");
}

double SinceMs(int64_t started_ns) {
  return static_cast<double>(Clock::System().NowNs() - started_ns) / 1e6;
}

class LiveCall;

// What the calls of a proxy share. It outlives those that clients or servers can still reach.
struct Shared {
  Shared(const GrpcProxyOptions& asked, Report& its_report)
      : options(asked),
        report(its_report),
        old_server(asked.old_server),
        new_server(asked.new_server) {}
  ~Shared() {  // a call at one of them may post to the other
    old_server.Stop();
    new_server.Stop();
  }

  void Record(const RecordedCall& call) {
    if (options.record == nullptr) return;
    const std::string line = WriteRecordedCall(call);
    if (line.empty()) return;
    const std::lock_guard lock(record_mutex);
    std::fprintf(options.record, "%s\n", line.c_str());
    std::fflush(options.record);
  }

  const GrpcProxyOptions options;
  Report& report;
  std::atomic<int> num_pending{0};
  std::mutex record_mutex;
  std::mutex mutex;  // of at_servers
  std::unordered_map<const LiveCall*, std::shared_ptr<LiveCall>> at_servers;
  GrpcCaller old_server;
  GrpcCaller new_server;
};

// One server's part of a call, on the server's thread.
class Side final : public grpc_client::GrpcListener {
 public:
  Side(LiveCall& call, bool is_old) : call_(call), is_old_(is_old) {}

  void Send(GrpcClient& client, const std::string& message);  // the first begins the call
  void EndWrites(GrpcClient& client) const {
    if (is_running_) client.EndWrites(id_);
  }
  void Cancel(GrpcClient& client) const {
    if (is_running_) client.Cancel(id_);
  }
  void OnMessage(std::string_view bytes) override;
  void OnEnd(const GrpcEnd& end) override;

  Reply reply;  // once it has ended

 private:
  LiveCall& call_;
  const bool is_old_;
  bool has_begun_ = false;
  bool is_running_ = false;
  GrpcClient::CallId id_ = 0;
  int64_t started_ns_ = 0;
  std::vector<std::string> responses_;
  size_t num_bytes_ = 0;
};

// A client's call, at both servers.
class LiveCall final : public RpcReactor, public std::enable_shared_from_this<LiveCall> {
 public:
  LiveCall(Shared& shared, std::shared_ptr<Rpc> rpc) : shared_(shared), rpc_(std::move(rpc)) {
    call_.path = rpc_->path();
    for (const auto& [name, value] : rpc_->metadata())
      if (!IsOfConnection(name)) call_.metadata.emplace_back(name, value);
  }

  // --- the client, on the listener's threads ---

  void OnMessage(RpcMessage message) override {
    auto bytes =
        Inflated(std::move(message.bytes), message.coding, shared_.options.shadow.max_answer_bytes);
    if (!bytes.ok()) {
      Cancel();
      return Finish(bytes.status());
    }
    if (!std::exchange(has_begun_, true)) Begin();
    if (shared_.options.record != nullptr) call_.messages.push_back(*bytes);
    AtServers([shared = std::make_shared<const std::string>(*std::move(bytes))](
                  Side& side, GrpcClient& client) { side.Send(client, *shared); });
    if (is_cancelled_) Cancel();  // meanwhile, before the call was at the servers
    rpc_->Read();
  }
  void OnHalfClose() override {
    if (!has_begun_) return Finish({});  // nothing was asked
    shared_.Record(call_);
    AtServers([](Side& side, GrpcClient& client) { side.EndWrites(client); });
  }
  void OnWritten() override { WriteNext(/*was_written=*/true); }
  // What the servers have said until then is no answer to compare.
  void OnCancel() override {
    Cancel();
    Finish(Cancelled(""));
  }

  // --- the servers, each on its thread ---

  void FromOld(std::string_view message) {
    bool has_room = false;
    {
      const std::lock_guard lock(mutex_);
      has_room = num_waiting_bytes_ + message.size() <= options().max_answer_bytes;
      if (has_room) {
        num_waiting_bytes_ += message.size();
        waiting_.push_back(Framed(message));
      }
    }
    if (has_room) return WriteNext(/*was_written=*/false);
    Cancel();
    Finish(ResourceExhausted("more than " + std::to_string(options().max_answer_bytes) +
                             " bytes of the old server's answers wait for the client"));
  }
  void OldEnded(const GrpcEnd& end) {
    {
      const std::lock_guard lock(mutex_);
      end_ = end.is_from_server ? Status(static_cast<StatusCode>(end.code), end.message)
                                : Unavailable("the old server: " + end.message);
    }
    WriteNext(/*was_written=*/false);
    // Its client may send no more, which the new server need not wait for.
    AtServers([](Side& side, GrpcClient& client) { side.EndWrites(client); });
  }
  void SideEnded() {
    if (--num_running_ > 0) return;
    if (is_shadowed_ && !is_cancelled_) Compare();
    if (is_shadowed_) --shared_.num_pending;
    const std::lock_guard lock(shared_.mutex);
    shared_.at_servers.erase(this);
  }

  const ShadowOptions& options() const { return shared_.options.shadow; }
  const RecordedCall& call() const { return call_; }

 private:
  void Begin() {
    is_shadowed_ = ++shared_.num_pending <= shared_.options.max_pending;
    if (!is_shadowed_) {
      --shared_.num_pending;
      shared_.report.AddLeftOut();
    }
    num_running_ = is_shadowed_ ? 2 : 1;
    const std::lock_guard lock(shared_.mutex);
    shared_.at_servers.emplace(this, shared_from_this());
  }

  template <typename Task>
  void AtServers(const Task& task) {
    const auto self = shared_from_this();
    shared_.old_server.Post([self, task](GrpcClient& client) { task(self->old_, client); });
    if (is_shadowed_)
      shared_.new_server.Post([self, task](GrpcClient& client) { task(self->new_, client); });
  }

  void Cancel() {
    is_cancelled_ = true;
    AtServers([](Side& side, GrpcClient& client) { side.Cancel(client); });
  }

  void Finish(const Status& status) {
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(is_finished_, true)) return;
    }
    rpc_->Finish(status);
  }

  // One message of the old server at a time, its status behind the last.
  void WriteNext(bool was_written) {
    std::string message;
    {
      const std::lock_guard lock(mutex_);
      if (was_written) is_writing_ = false;
      if (is_writing_ || is_finished_ || (waiting_.empty() && !end_)) return;
      is_writing_ = !waiting_.empty();
      is_finished_ = waiting_.empty();
      if (is_writing_) {
        message = std::move(waiting_.front());
        waiting_.pop_front();
        num_waiting_bytes_ -= message.size() - grpc_listener::kPrefixBytes;
      }
    }
    message.empty() ? rpc_->Finish(*end_) : rpc_->Write(std::move(message));
  }

  void Compare() {
    Outcome outcome;
    outcome.request = {.method = "gRPC", .path = call_.path, .headers = {}, .body = {}};
    outcome.old_reply = std::move(old_.reply);
    outcome.new_reply = std::move(new_.reply);
    if (!outcome.HasFailed())
      outcome.differences =
          shadow::Compare(*outcome.old_reply.answer, *outcome.new_reply.answer, options().rules);
    shared_.report.Add(outcome);
  }

  Shared& shared_;
  const std::shared_ptr<Rpc> rpc_;
  RecordedCall call_;       // its messages: of the listener's threads, where there is a record
  bool has_begun_ = false;  // of the listener's threads
  std::atomic<bool> is_shadowed_{false};  // set by Begin
  std::atomic<int> num_running_{0};
  std::atomic<bool> is_cancelled_{false};
  Side old_{*this, /*is_old=*/true};
  Side new_{*this, /*is_old=*/false};

  std::mutex mutex_;  // of what follows
  std::deque<std::string> waiting_;
  size_t num_waiting_bytes_ = 0;
  std::optional<Status> end_;
  bool is_writing_ = false;
  bool is_finished_ = false;
};

void Side::Send(GrpcClient& client, const std::string& message) {
  if (std::exchange(has_begun_, true)) {
    if (is_running_) client.Write(id_, message);
    return;
  }
  is_running_ = true;
  started_ns_ = Clock::System().NowNs();
  // A stream lasts as long as its client likes.
  const int64_t timeout_ns = std::chrono::nanoseconds(call_.options().timeout).count();
  const int64_t deadline_ns = IsStream(call_.call().path) ? 0 : started_ns_ + timeout_ns;
  id_ = client.Start(call_.call().path, message, /*is_only=*/false, *this, deadline_ns,
                     call_.call().metadata);
}

void Side::OnMessage(std::string_view bytes) {
  if (responses_.empty()) reply.first_ms = SinceMs(started_ns_);
  num_bytes_ += bytes.size();
  if (num_bytes_ <= call_.options().max_answer_bytes) responses_.emplace_back(bytes);
  if (is_old_) call_.FromOld(bytes);
}

void Side::OnEnd(const GrpcEnd& end) {
  const std::shared_ptr<LiveCall> self = call_.shared_from_this();  // which is let go of below
  is_running_ = false;
  reply.total_ms = SinceMs(started_ns_);
  if (responses_.empty()) reply.first_ms = reply.total_ms;
  if (num_bytes_ > call_.options().max_answer_bytes) {
    reply.answer = ResourceExhausted("the answer is larger than " +
                                     std::to_string(call_.options().max_answer_bytes) + " bytes");
  } else {
    reply.answer = AnswerOrFailure(call_.call().path, responses_, end);
  }
  if (is_old_) call_.OldEnded(end);
  call_.SideEnded();
}

}  // namespace

class GrpcProxy::Handler final : public grpc_listener::RpcHandler {
 public:
  Handler(const GrpcProxyOptions& options, Report& report) : shared_(options, report) {}

  std::shared_ptr<RpcReactor> Start(std::shared_ptr<Rpc> rpc) override {
    auto call = std::make_shared<LiveCall>(shared_, rpc);
    rpc->Read();
    return call;
  }

  // Clients have their answers; the new server may still be at its own.
  void AwaitComparisons(std::chrono::steady_clock::time_point end) const {
    while (shared_.num_pending > 0 && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }

 private:
  Shared shared_;
};

GrpcProxy::GrpcProxy(std::unique_ptr<Handler> handler) : handler_(std::move(handler)) {}
GrpcProxy::~GrpcProxy() { Stop(std::chrono::milliseconds(0)); }

Result<std::unique_ptr<GrpcProxy>> GrpcProxy::Start(const GrpcProxyOptions& options,
                                                    Report& report) {
  std::unique_ptr<GrpcProxy> proxy(new GrpcProxy(std::make_unique<Handler>(options, report)));
  ASSIGN_OR_RETURN(proxy->listener_,
                   grpc_listener::GrpcListener::Listen(*proxy->handler_, options.listener));
  proxy->listener_->Run();
  return proxy;
}

int GrpcProxy::port() const { return listener_->port(); }

void GrpcProxy::Stop(std::chrono::milliseconds drain) {
  if (listener_ == nullptr) return;
  const auto end = std::chrono::steady_clock::now() + drain;
  listener_->Disconnect(drain);
  handler_->AwaitComparisons(end);
  listener_->Stop();
}

}  // namespace inflight::shadow
